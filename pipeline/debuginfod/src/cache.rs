//! The files that were brought, on disk: `FOLDER/BUILD-ID/debuginfo`, as elfutils has them.
//!
//! An empty file says that nobody has one. It counts for as long as `FOLDER/cache_miss_s` says, in seconds.

use std::fs::{self, DirBuilder, File, FileTimes, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::hex;

/// For how long a file counts as one that nobody has, where the cache does not say so.
const MISS: Duration = Duration::from_secs(600);

/// The folder with the files.
#[derive(Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
    limit: u64,
    /// Numbers files that are being written.
    next: AtomicU64,
}

/// What the cache has of a build id.
#[derive(Debug)]
pub(crate) enum Cached {
    Here(File),
    /// Nobody had it a short time ago.
    Missing,
    Unknown,
}

/// A file that is being written. It is deleted unless it is kept.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(crate) file: File,
    path: PathBuf,
}

impl Drop for Partial {
    fn drop(&mut self) {
        // It was renamed, or belongs to nobody.
        fs::remove_file(&self.path).ok();
    }
}

impl Cache {
    /// The cache in a folder, whose files take at most `limit` bytes.
    pub(crate) fn new(folder: PathBuf, limit: u64) -> Self {
        Self { folder, limit, next: AtomicU64::new(0) }
    }

    fn place(&self, build_id: &[u8]) -> PathBuf {
        self.folder.join(hex(build_id)).join("debuginfo")
    }

    /// Opens the file of a build id.
    pub(crate) fn look(&self, build_id: &[u8]) -> Cached {
        let Ok(file) = File::open(self.place(build_id)) else { return Cached::Unknown };
        let Ok(metadata) = file.metadata() else { return Cached::Unknown };
        if metadata.len() > 0 {
            // What was used last makes room last, also on file systems that do not note it.
            file.set_times(FileTimes::new().set_accessed(SystemTime::now())).ok();
            return Cached::Here(file);
        }
        let age = metadata.modified().ok().and_then(|modified| modified.elapsed().ok()).unwrap_or_default();
        let seconds = fs::read_to_string(self.folder.join("cache_miss_s")).ok();
        let miss = seconds.and_then(|text| text.trim().parse().ok()).map_or(MISS, Duration::from_secs);
        if age < miss { Cached::Missing } else { Cached::Unknown }
    }

    /// Notes that nobody has a file.
    pub(crate) fn note_missing(&self, build_id: &[u8]) -> io::Result<()> {
        let place = self.place(build_id);
        self.folder_of(&place)?;
        // Opened for writing, an empty file from before counts anew.
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(place)?;
        file.set_modified(SystemTime::now())
    }

    /// Begins a file. It is beside its place, so that it can be moved there at once.
    pub(crate) fn begin(&self, build_id: &[u8]) -> io::Result<Partial> {
        let place = self.place(build_id);
        self.folder_of(&place)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = place.with_extension(format!("{}-{number}", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Partial { file, path })
    }

    /// Keeps a file that is complete, of `bytes` bytes, and makes room for it.
    pub(crate) fn keep(&self, build_id: &[u8], partial: &Partial, bytes: u64) -> io::Result<()> {
        self.make_room(bytes);
        fs::rename(&partial.path, self.place(build_id))
    }

    fn folder_of(&self, place: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(place.parent().unwrap_or(&self.folder))
    }

    /// Deletes the files that were used least recently, until there is room for more.
    fn make_room(&self, bytes: u64) {
        let Ok(folders) = fs::read_dir(&self.folder) else { return };
        let mut files: Vec<(i64, u64, PathBuf)> = folders
            .flatten()
            .filter_map(|folder| {
                let path = folder.path().join("debuginfo");
                let metadata = fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_file)?;
                Some((metadata.atime().max(metadata.mtime()), metadata.len(), path))
            })
            .collect();
        files.sort_unstable();
        let mut total = files.iter().map(|&(_, bytes, _)| bytes).sum::<u64>().saturating_add(bytes);
        for (_, bytes, path) in files {
            if total <= self.limit {
                return;
            }
            if fs::remove_file(path).is_ok() {
                total -= bytes;
            }
        }
    }
}
