//! Opens files by path.
//!
//! A path is first resolved to a descriptor without any rights (`O_PATH`), through which only a regular file is then
//! opened. So no device is opened, which may have side effects (a watchdog starts, a tape rewinds), and no pipe, which
//! blocks.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::Mode;

use crate::Unknown;

/// Opens a path on this machine. A file on FUSE, whose server may never answer, is opened only with `fuse`.
///
/// # Errors
///
/// If there is no such regular file.
pub fn open_on_this_machine(path: &Path, fuse: bool) -> Result<File, Unknown> {
    let resolved = openat(AT_FDCWD, path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty());
    reopen(File::from(resolved.map_err(|_| Unknown::NoFile)?), fuse)
}

/// Opens a path inside a root folder. The path cannot lead out of the folder: `..` and absolute symbolic links stay
/// inside, and magic links of `/proc` are refused (`openat2(2)`, `RESOLVE_IN_ROOT`, `RESOLVE_NO_MAGICLINKS`).
///
/// # Errors
///
/// If there is no such regular file.
pub fn open_in_root(root: &File, path: &Path, fuse: bool) -> Result<File, Unknown> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    reopen(File::from(openat2(root, path, how).map_err(|_| Unknown::NoFile)?), fuse)
}

/// Opens the file of an `O_PATH` descriptor for reading.
fn reopen(resolved: File, fuse: bool) -> Result<File, Unknown> {
    super::check(&resolved, fuse)?;
    File::open(format!("/proc/self/fd/{}", resolved.as_raw_fd())).map_err(|_| Unknown::NoFile)
}
