//! The on-disk cache of downloaded files, with elfutils' layout: `FOLDER/BUILD-ID/debuginfo`.
//!
//! An empty file records that no server has the file. It is valid for as many seconds as `FOLDER/cache_miss_s` says.

use std::fs::{self, DirBuilder, File, FileTimes, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::hex;

/// How long a recorded miss is valid if the cache has no `cache_miss_s`.
const MISS: Duration = Duration::from_secs(600);

/// The cache folder.
#[derive(Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
    limit: u64,
    /// The number of the next temporary file.
    next: AtomicU64,
}

/// Result of a cache lookup.
#[derive(Debug)]
pub(crate) enum Cached {
    Here(File),
    /// The cache has a recent record that no server has the file.
    Missing,
    Unknown,
}

/// A file being downloaded. Deleted on drop unless it was moved into the cache.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(crate) file: File,
    path: PathBuf,
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Fails if the file was already moved into the cache.
        fs::remove_file(&self.path).ok();
    }
}

impl Cache {
    /// A cache in `folder`, whose files take at most `limit` bytes.
    pub(crate) fn new(folder: PathBuf, limit: u64) -> Self {
        Self { folder, limit, next: AtomicU64::new(0) }
    }

    fn place(&self, build_id: &[u8]) -> PathBuf {
        self.folder.join(hex(build_id)).join("debuginfo")
    }

    pub(crate) fn look_up(&self, build_id: &[u8]) -> Cached {
        let Ok(file) = File::open(self.place(build_id)) else { return Cached::Unknown };
        let Ok(metadata) = file.metadata() else { return Cached::Unknown };
        if metadata.len() > 0 {
            // Sets the access time explicitly, since eviction is by access time and some file systems do not update it.
            file.set_times(FileTimes::new().set_accessed(SystemTime::now())).ok();
            return Cached::Here(file);
        }
        let age = metadata.modified().ok().and_then(|modified| modified.elapsed().ok()).unwrap_or_default();
        let seconds = fs::read_to_string(self.folder.join("cache_miss_s")).ok();
        let miss = seconds.and_then(|text| text.trim().parse().ok()).map_or(MISS, Duration::from_secs);
        if age < miss { Cached::Missing } else { Cached::Unknown }
    }

    /// Records that no server has a file.
    pub(crate) fn note_missing(&self, build_id: &[u8]) -> io::Result<()> {
        let place = self.place(build_id);
        self.folder_of(&place)?;
        // Sets the modification time of an existing record too, from which its age is computed.
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(place)?;
        file.set_modified(SystemTime::now())
    }

    /// Creates a temporary file in the same folder, so that a rename can move it into place.
    pub(crate) fn create_partial(&self, build_id: &[u8]) -> io::Result<Partial> {
        let place = self.place(build_id);
        self.folder_of(&place)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = place.with_extension(format!("{}-{number}", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Partial { file, path })
    }

    /// Moves a complete file of `bytes` bytes into the cache, after making room for it.
    pub(crate) fn store(&self, build_id: &[u8], partial: &Partial, bytes: u64) -> io::Result<()> {
        self.make_room(bytes);
        fs::rename(&partial.path, self.place(build_id))
    }

    fn folder_of(&self, place: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(place.parent().unwrap_or(&self.folder))
    }

    /// Deletes the least recently used files until `bytes` more bytes fit.
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
