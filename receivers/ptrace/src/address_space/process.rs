//! A process's files, as loading an address space wants them.
//!
//! A mapped file is opened through `/proc/PID/map_files`, which leads to the file itself, deleted or not; without the right for that
//! (`CAP_CHECKPOINT_RESTORE`), by its path inside of the process's root, which no symbolic link can lead out of. Either way the file is
//! looked at before it is opened: only a regular file with the mapping's device and inode is, for opening a device or a FIFO does things.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2};
use nix::sys::stat::Mode;

use super::view::{CodeMemory, FileId, MapsEntry, ProcessView};
use crate::process_files::ProcessFiles;

/// Bytes of the maps, at most: 65,530 lines of about 100 bytes, with room for long paths.
const MAX_MAPS: usize = 16 << 20;

#[derive(Debug)]
struct ProcessMemory(File);

impl CodeMemory for ProcessMemory {
    fn read(&self, address: u64, bytes: &mut [u8]) -> usize {
        self.0.read_at(bytes, address).unwrap_or(0)
    }
}

impl ProcessView for ProcessFiles {
    fn maps(&self) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        let mut chunk = vec![0; 64 << 10];
        while text.len() < MAX_MAPS {
            match ProcessFiles::maps(self).read_at(&mut chunk, text.len() as u64) {
                Ok(0) => break,
                Ok(count) => text.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(text)
    }

    fn executable(&self) -> Option<FileId> {
        let link = openat(self.directory(), "exe", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).ok()?;
        let data = File::from(link).metadata().ok()?;
        Some(FileId { device: data.dev(), inode: data.ino() })
    }

    fn open(&self, entry: &MapsEntry) -> io::Result<File> {
        let link = format!("map_files/{:x}-{:x}", entry.start, entry.end);
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        match openat(self.directory(), link.as_str(), flags, Mode::empty()) {
            Ok(found) => reopen(found, entry),
            Err(_) => reopen(open_in_root(self.directory(), entry)?, entry),
        }
    }

    fn memory(&self) -> io::Result<Arc<dyn CodeMemory>> {
        Ok(Arc::new(ProcessMemory(self.share_memory()?)))
    }
}

fn open_in_root(process: BorrowedFd<'_>, entry: &MapsEntry) -> io::Result<OwnedFd> {
    let path = std::ffi::OsStr::from_bytes(&entry.path);
    if entry.deleted || !entry.path.starts_with(b"/") {
        return Err(io::Error::from(io::ErrorKind::NotFound));
    }
    let root = openat(process, "root", OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    Ok(openat2(root.as_fd(), path, how)?)
}

/// Opens what was found for reading, if it is the regular file that is mapped.
fn reopen(found: OwnedFd, entry: &MapsEntry) -> io::Result<File> {
    let found = File::from(found);
    let data = found.metadata()?;
    if !data.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file"));
    }
    if !same_file(FileId { device: data.dev(), inode: data.ino() }, entry.file) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "another file than the mapped one has its path"));
    }
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    Ok(File::from(open(path.as_str(), flags, Mode::empty())?))
}

/// Whether `stat` and the maps speak of the same file. File systems without a device of their own (overlayfs, btrfs) show one number in
/// one and another in the other, both with major 0; the inode must be the same still.
fn same_file(found: FileId, mapped: FileId) -> bool {
    let anonymous = |device: u64| device >> 8 & 0xfff == 0 && device >> 44 == 0;
    found.inode == mapped.inode
        && (found.device == mapped.device || anonymous(found.device) && anonymous(mapped.device))
}
