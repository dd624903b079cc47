//! Reads files that may come from an attacker, who may still change them.
//!
//! Bytes are copied by `pread`, so that a file that changes or shrinks meanwhile results in other bytes or an error,
//! but not in a signal. Only regular files are read: a pipe or a terminal blocks, and opening a device may have side
//! effects.

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
    /// Checks that a file is safe to read.
    pub(crate) fn new(file: File, settings: &Settings) -> Result<Self, Unknown> {
        let length = check(&file, settings.fuse)?;
        if length > settings.max_object_bytes {
            return Err(Unknown::TooLarge);
        }
        Ok(Self { bytes: Bytes::File(file), length })
    }

    /// Wraps data that is in memory already.
    pub(crate) fn from_memory(bytes: Arc<[u8]>) -> Self {
        Self { length: bytes.len() as u64, bytes: Bytes::Memory(bytes) }
    }

    /// The length of the file when it was opened.
    pub(crate) fn len(&self) -> u64 {
        self.length
    }

    /// The file's identity; `None` for data in memory.
    pub(crate) fn identity(&self) -> Option<FileIdentity> {
        match &self.bytes {
            Bytes::File(file) => FileIdentity::of(file).ok(),
            Bytes::Memory(_) => None,
        }
    }

    /// Reads `length` bytes at `offset`. More than `limit` bytes is [`Unknown::TooLarge`]; a range beyond the end is
    /// [`Unknown::Malformed`].
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
            // The range was checked against the length, which fits into a `usize`.
            Bytes::Memory(bytes) => {
                let offset = offset as usize;
                bytes.get(offset..offset + length).map(<[u8]>::to_vec).ok_or(Unknown::Malformed)
            }
        }
    }
}

/// Checks that a file is regular and, without `fuse`, not on a FUSE file system. Returns its length.
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
