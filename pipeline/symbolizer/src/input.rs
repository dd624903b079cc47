//! Reading files that may have been made, and may still be changed, by somebody hostile.
//!
//! Bytes come by `pread` into memory of our own, so a file that changes or shrinks meanwhile gives other bytes or an
//! error and no signal. Only regular files are read: a pipe or a terminal blocks, and opening a device may do
//! something.

mod open;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::{FileIdentity, Settings, Unknown};
pub use open::{open_in_root, open_on_this_machine};

/// A file to read from.
#[derive(Debug)]
pub(crate) struct Input {
    bytes: Bytes,
    length: u64,
}

#[derive(Debug)]
enum Bytes {
    File(File),
    Memory(Arc<[u8]>),
}

impl Input {
    /// Checks that a file is one to read from.
    pub(crate) fn new(file: File, settings: &Settings) -> Result<Self, Unknown> {
        let length = check(&file, settings.fuse)?;
        if length > settings.max_object_bytes {
            return Err(Unknown::TooLarge);
        }
        Ok(Self { bytes: Bytes::File(file), length })
    }

    /// What has been read already.
    pub(crate) fn from_memory(bytes: Arc<[u8]>) -> Self {
        Self { length: bytes.len() as u64, bytes: Bytes::Memory(bytes) }
    }

    /// How long it was when it was opened.
    pub(crate) fn len(&self) -> u64 {
        self.length
    }

    /// Which file it is, if it is one.
    pub(crate) fn identity(&self) -> Option<FileIdentity> {
        match &self.bytes {
            Bytes::File(file) => FileIdentity::of(file).ok(),
            Bytes::Memory(_) => None,
        }
    }

    /// Reads `length` bytes at `offset`, no more than `limit`. Where the file has less, it makes no sense.
    pub(crate) fn read(&self, offset: u64, length: u64, limit: usize) -> Result<Vec<u8>, Unknown> {
        let end = offset.checked_add(length).ok_or(Unknown::Malformed)?;
        if end > self.length {
            return Err(Unknown::Malformed);
        }
        let length = usize::try_from(length).ok().filter(|&length| length <= limit).ok_or(Unknown::TooLarge)?;
        match &self.bytes {
            Bytes::File(file) => {
                let mut bytes = Vec::new();
                bytes.try_reserve_exact(length).map_err(|_| Unknown::TooLarge)?;
                bytes.resize(length, 0);
                file.read_exact_at(&mut bytes, offset).map_err(|error| match error.kind() {
                    io::ErrorKind::UnexpectedEof => Unknown::Malformed,
                    _ => Unknown::NoFile,
                })?;
                Ok(bytes)
            }
            // Checked against the length above, which is a `usize`'s.
            Bytes::Memory(bytes) => {
                let offset = offset as usize;
                bytes.get(offset..offset + length).map(<[u8]>::to_vec).ok_or(Unknown::Malformed)
            }
        }
    }
}

/// Checks that a file is regular and served by this machine, and returns its length.
pub(crate) fn check(file: &File, fuse: bool) -> Result<u64, Unknown> {
    let metadata = file.metadata().map_err(|_| Unknown::NoFile)?;
    if !metadata.is_file() {
        return Err(Unknown::NoFile);
    }
    if !fuse {
        let system = nix::sys::statfs::fstatfs(file).map_err(|_| Unknown::NoFile)?;
        if system.filesystem_type() == nix::sys::statfs::FUSE_SUPER_MAGIC {
            return Err(Unknown::NoFile);
        }
    }
    Ok(metadata.len())
}
