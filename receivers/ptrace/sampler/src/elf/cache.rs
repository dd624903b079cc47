//! Caches parsed objects. All processes that map a file share its object.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::source::FileSource;
use super::{ElfObject, Malformed};

/// Identifies a file and its content: a file that is written to gets another modification time, and is read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FileKey {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl FileKey {
    fn new(data: &Metadata) -> Self {
        Self { device: data.dev(), inode: data.ino(), size: data.size(), modified: (data.mtime(), data.mtime_nsec()) }
    }
}

/// An object and the file from which it was read.
#[derive(Debug, Clone)]
pub struct CachedFile {
    /// The parsed object.
    pub object: Arc<ElfObject>,
    /// The file, open for reading. All processes that map it share this descriptor.
    pub file: Arc<File>,
}

#[derive(Debug)]
struct CacheEntry {
    cached: CachedFile,
    used: u64,
}

/// Keeps objects within a limit in bytes. Objects that no address space uses are dropped first, the least recently
/// used one first of all. Objects in use count as well: if they exceed the limit, nothing more is read.
#[derive(Debug)]
pub struct ObjectCache {
    limit: usize,
    memory: usize,
    clock: u64,
    files: HashMap<FileKey, CacheEntry, RandomState>,
    /// Images of the kernel's vDSO: it differs between kinds of programs.
    images: Vec<(Vec<u8>, Arc<ElfObject>)>,
}

impl ObjectCache {
    /// The default budget: node's unwind tables take about 10 MiB, Chromium's about 40.
    pub const DEFAULT_LIMIT: usize = 256 << 20;
    /// The largest number of files, since each needs an open descriptor.
    pub const MAX_FILES: usize = 4096;
    /// The largest number of vDSO images. A program may map anything in place of its vDSO; further images are not
    /// shared.
    const MAX_IMAGES: usize = 8;

    /// Creates a cache that keeps at most `limit` bytes of unwind tables.
    pub fn new(limit: usize) -> Self {
        Self { limit, memory: 0, clock: 0, files: HashMap::default(), images: Vec::new() }
    }

    /// The budget in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The memory used by cached objects, in bytes.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// The number of cached files.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// The object of a file; reads the file if it is not cached. `None` if there is no room, since all cached objects
    /// are in use.
    ///
    /// # Errors
    ///
    /// When the file is not an ELF file for x86-64, its headers are malformed, or it cannot be read.
    pub fn load(&mut self, file: File) -> Result<Option<CachedFile>, Malformed> {
        let data = file.metadata().map_err(|error| Malformed::Read { what: "file", error })?;
        if !data.is_file() {
            let error = io::Error::new(io::ErrorKind::InvalidData, "not a regular file");
            return Err(Malformed::Read { what: "file", error });
        }
        self.clock += 1;
        let key = FileKey::new(&data);
        if let Some(entry) = self.files.get_mut(&key) {
            entry.used = self.clock;
            return Ok(Some(entry.cached.clone()));
        }
        let object = ElfObject::read(&FileSource::new(&file, data.size()))?;
        let memory = object.memory();
        if !self.make_room(memory) {
            return Ok(None);
        }
        self.memory += memory;
        let cached = CachedFile { object: Arc::new(object), file: Arc::new(file) };
        self.files.insert(key, CacheEntry { cached: cached.clone(), used: self.clock });
        Ok(Some(cached))
    }

    /// The object of an image in memory. Equal images share one object.
    ///
    /// # Errors
    ///
    /// When it is not an ELF image for x86-64.
    pub fn load_image(&mut self, bytes: &[u8]) -> Result<Arc<ElfObject>, Malformed> {
        if let Some((_, object)) = self.images.iter().find(|(known, _)| known == bytes) {
            return Ok(Arc::clone(object));
        }
        let object = Arc::new(ElfObject::read_image(bytes)?);
        if self.images.len() < Self::MAX_IMAGES {
            self.images.push((bytes.to_vec(), Arc::clone(&object)));
        }
        Ok(object)
    }

    /// Drops unused objects until `memory` more bytes fit. Returns whether they do.
    fn make_room(&mut self, memory: usize) -> bool {
        while self.memory.saturating_add(memory) > self.limit || self.files.len() >= Self::MAX_FILES {
            let unused = self.files.iter().filter(|(_, entry)| Arc::strong_count(&entry.cached.object) == 1);
            let Some(oldest) = unused.min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key) else { return false };
            if let Some(entry) = self.files.remove(&oldest) {
                self.memory -= entry.cached.object.memory();
            }
        }
        true
    }
}

impl Default for ObjectCache {
    fn default() -> Self {
        Self::new(Self::DEFAULT_LIMIT)
    }
}
