//! Files that stay open until a name in them is requested.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use profbridge_symbolizer::FileIdentity;

/// How many files of all processes together are kept open: profbridge has 1024 descriptors by default
/// (`RLIMIT_NOFILE`), and the symbolizer, the pipelines and their peers need some of them.
const MAX_KEPT: usize = 256;

/// A file that can be opened again by its path is kept only while fewer files than this are kept: the remaining room is
/// reserved for files without a path.
const MAX_KEPT_WITH_PATH: usize = MAX_KEPT / 2;

/// The kept files of this program.
pub(super) static KEPT: LazyLock<KeptFiles> = LazyLock::new(KeptFiles::default);

/// Open files by their identity, each once. A file is closed when nothing refers to it any more.
#[derive(Debug, Default)]
pub(super) struct KeptFiles {
    files: Mutex<HashMap<FileIdentity, Weak<File>>>,
}

impl KeptFiles {
    /// Keeps a file open, or returns the open file if it is already kept. Closes the file and returns `None` if there
    /// is no room. `root` says whether its path can be opened inside its process's root.
    pub(super) fn keep(&self, identity: FileIdentity, file: File, root: bool) -> Option<Arc<File>> {
        // The contents of a deleted file are lost when its last descriptor is closed.
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

    /// Guarantees: all processes together keep a limited number of files open, of which some are reserved for files
    /// that no longer have a path; a file is kept once, and makes room when nothing refers to it any more.
    #[test]
    fn bounded() {
        let kept = KeptFiles::default();
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
