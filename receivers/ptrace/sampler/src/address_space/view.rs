//! The data of a process that loading an address space needs: a trait, so that loading can be tested without a
//! process.

use std::fs::File;
use std::io;
use std::sync::Arc;

/// Identifies a file: its device as `st_dev`, and its inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// The device.
    pub device: u64,
    /// The inode.
    pub inode: u64,
}

impl FileId {
    /// Whether the file system has no device of its own, as overlayfs and btrfs: the major number is 0.
    pub(super) fn has_anonymous_device(self) -> bool {
        self.device >> 8 & 0xfff == 0 && self.device >> 44 == 0
    }
}

/// One executable line of the maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapsEntry {
    /// The start address.
    pub start: u64,
    /// The end address.
    pub end: u64,
    /// The offset in the file at `start`.
    pub offset: u64,
    /// The file; inode 0 for memory without one.
    pub file: FileId,
    /// The path in bytes, unescaped and without the kernel's suffix ` (deleted)`.
    pub path: Vec<u8>,
    /// Whether the file was deleted, or its name ends with ` (deleted)`.
    pub deleted: bool,
}

impl MapsEntry {
    /// Whether a kernel record is about this file. On an anonymous device, the record may name the file of a lower
    /// layer.
    pub(super) fn is_of(&self, record: &Self) -> bool {
        self.file == record.file || self.file.has_anonymous_device() && self.path == record.path
    }
}

/// Reads code of a process.
pub trait CodeMemory: Send + Sync + std::fmt::Debug {
    /// Reads from `address` and returns the number of bytes read, 0 if nothing could be read.
    fn read(&self, address: u64, bytes: &mut [u8]) -> usize;
}

/// The parts of a process's `/proc` directory that are needed.
pub trait ProcessView {
    /// The text of `/proc/PID/maps`. Empty when the process is gone.
    ///
    /// # Errors
    ///
    /// The error of the system call.
    fn maps(&self) -> io::Result<Vec<u8>>;

    /// The main executable.
    fn executable(&self) -> Option<FileId>;

    /// Opens the file of a mapping: exactly that file, whatever happened to its path.
    ///
    /// # Errors
    ///
    /// The error of the system call; `InvalidData` if another file or no regular file is at the path.
    fn open(&self, entry: &MapsEntry) -> io::Result<File>;

    /// A reader of the process's memory that outlives `self`.
    ///
    /// # Errors
    ///
    /// The error of the system call.
    fn memory(&self) -> io::Result<Arc<dyn CodeMemory>>;
}
