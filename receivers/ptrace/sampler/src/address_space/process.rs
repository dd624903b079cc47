//! The files of a process that are needed to load its address space.
//!
//! A mapped file is opened through `/proc/PID/map_files`, which leads to the file itself even if it was deleted.
//! Without the capability for that (`CAP_CHECKPOINT_RESTORE`) it is opened by its path inside the process's root, where
//! no symbolic link can lead out; the main executable is opened through `/proc/PID/exe`, since programs are often
//! replaced on disk while they run. The file is always checked before it is opened: only a regular file with the device
//! and inode of the mapping is opened, because opening a device or a FIFO has side effects.

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

/// How much of the maps is read, in bytes: enough for 65,530 lines of about 100 bytes, and for long paths.
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
        let data = File::from(self.open_executable().ok()?).metadata().ok()?;
        Some(FileId { device: data.dev(), inode: data.ino() })
    }

    fn open(&self, entry: &MapsEntry) -> io::Result<File> {
        let link = format!("map_files/{:x}-{:x}", entry.start, entry.end);
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        let linked = openat(self.directory(), link.as_str(), flags, Mode::empty()).map_err(io::Error::from);
        // By now another file may be mapped at these addresses.
        linked.and_then(|found| reopen(found, entry)).or_else(|_| {
            let found = open_in_root(self.directory(), entry).and_then(|found| reopen(found, entry));
            found.or_else(|error| match self.open_executable() {
                Ok(found) => reopen(found, entry).map_err(|_| error),
                Err(_) => Err(error),
            })
        })
    }

    fn memory(&self) -> io::Result<Arc<dyn CodeMemory>> {
        Ok(Arc::new(ProcessMemory(self.share_memory()?)))
    }
}

impl ProcessFiles {
    /// Opens the program that the process executes, even if it was moved or deleted.
    fn open_executable(&self) -> io::Result<OwnedFd> {
        Ok(openat(self.directory(), "exe", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?)
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

/// Opens a file that was found at a path, if it is the regular file of the mapping.
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

/// Whether an identity from `stat` and one from the maps belong to the same file. On file systems without a device of
/// their own (overlayfs, btrfs) `stat` and the maps show different device numbers, both with major number 0; then only
/// the inode must be equal.
fn same_file(found: FileId, mapped: FileId) -> bool {
    found.inode == mapped.inode
        && (found.device == mapped.device || found.has_anonymous_device() && mapped.has_anonymous_device())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: without the capability to open a mapping's file directly, the program is still opened although it
    /// is no longer at its path, and no other file than the mapped one is opened.
    #[test]
    fn replaced_program() {
        let files = ProcessFiles::open(std::process::id()).unwrap();
        let file = files.executable().unwrap();
        // This mapping does not exist, so its link cannot be followed.
        let of =
            |path: &[u8], deleted, file| MapsEntry { start: 1, end: 2, offset: 0, file, path: path.to_vec(), deleted };
        let other = FileId { inode: file.inode + 1, ..file };
        for (path, deleted) in [(&b"/no/such/program"[..], true), (b"/no/such/program", false), (b"/dev/null", false)] {
            let opened = files.open(&of(path, deleted, file)).unwrap().metadata().unwrap();
            assert_eq!((opened.dev(), opened.ino()), (file.device, file.inode));
            assert!(files.open(&of(path, deleted, other)).is_err());
        }
    }
}
