//! Files that stay open until a name of them is asked for.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use profbridge_symbolize::FileIdentity;

/// So many files are kept open, of all processes together: a process has 1024 descriptors by default (`RLIMIT_NOFILE`),
/// and the symbolizer, the pipelines and their peers need theirs.
const MAX_KEPT: usize = 256;

/// Files that can be found again by their path leave so much of that to those that cannot.
const MAX_KEPT_WITH_PATH: usize = MAX_KEPT / 2;

/// The kept files of this program.
pub(super) static KEPT: LazyLock<Kept> = LazyLock::new(Kept::default);

/// Open files by their identity, each once. They are closed when nobody has them any more.
#[derive(Debug, Default)]
pub(super) struct Kept {
    files: Mutex<HashMap<FileIdentity, Weak<File>>>,
}

impl Kept {
    /// Keeps a file open, or the same file that somebody keeps already. `None` where there is no room: then it is
    /// closed. `root` says that its path can be opened inside of its process's root.
    pub(super) fn keep(&self, identity: FileIdentity, file: File, root: bool) -> Option<Arc<File>> {
        // One without a name is gone with its last descriptor.
        let has_path = root && file.metadata().is_ok_and(|metadata| metadata.nlink() > 0);
        let limit = if has_path { MAX_KEPT_WITH_PATH } else { MAX_KEPT };
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = files.get(&identity).and_then(Weak::upgrade) {
            return Some(known);
        }
        if files.len() >= limit {
            files.retain(|_, file| file.strong_count() > 0);
        }
        if files.len() >= limit {
            return None;
        }
        let file = Arc::new(file);
        files.insert(identity, Arc::downgrade(&file));
        Some(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(inode: u64) -> FileIdentity {
        FileIdentity { device: 1, inode, size: 1, modified_nano: 1 }
    }

    /// Guarantees: all processes together keep a bounded number of files open, of which some are left for files that
    /// have no path any more; one that is known is kept once, and what nobody has any more makes room.
    #[test]
    fn bounded() {
        let kept = Kept::default();
        let folder = tempfile::tempdir().unwrap();
        let named = || File::create(folder.path().join("file")).unwrap();
        let unnamed = || tempfile::tempfile().unwrap();
        let mut held: Vec<_> = (0..1000).filter_map(|inode| kept.keep(identity(inode), named(), true)).collect();
        assert_eq!(held.len(), MAX_KEPT_WITH_PATH);
        assert!(Arc::ptr_eq(&kept.keep(identity(7), named(), true).unwrap(), &held[7]));
        held.extend((1000..2000).filter_map(|inode| kept.keep(identity(inode), unnamed(), true)));
        assert_eq!(held.len(), MAX_KEPT);
        assert!(kept.keep(identity(3000), named(), false).is_none());
        held.truncate(MAX_KEPT_WITH_PATH - 1);
        assert!(kept.keep(identity(3000), named(), true).is_some());
    }
}
