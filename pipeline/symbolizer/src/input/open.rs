//! Opening files by path.
//!
//! On Linux a path is first resolved to a descriptor that can do nothing (`O_PATH`), and only a regular file is opened
//! through it: so no device is opened, whose opening may have an effect (a watchdog starts, a tape rewinds), and no
//! pipe, which blocks.

use std::fs::File;
use std::path::Path;

use crate::{Settings, Unknown};

/// Opens a path of this machine.
#[cfg(target_os = "linux")]
pub(crate) fn on_this_machine(path: &Path, settings: &Settings) -> Result<File, Unknown> {
    use nix::fcntl::{AT_FDCWD, OFlag, openat};
    use nix::sys::stat::Mode;

    let resolved = openat(AT_FDCWD, path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty());
    reopen(File::from(resolved.map_err(|_| Unknown::NoFile)?), settings)
}

/// Opens a path inside of a root folder, which nothing leads out of: `..` and absolute symbolic links stay inside, and
/// links of `/proc`, which lead anywhere, are refused (`openat2(2)`, `RESOLVE_IN_ROOT`, `RESOLVE_NO_MAGICLINKS`).
#[cfg(target_os = "linux")]
pub(crate) fn in_root(root: &File, path: &Path, settings: &Settings) -> Result<File, Unknown> {
    use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let resolved = openat2(root, path, how).map_err(|_| Unknown::NoFile)?;
    reopen(File::from(resolved), settings)
}

/// Opens what a descriptor without rights stands for.
#[cfg(target_os = "linux")]
fn reopen(resolved: File, settings: &Settings) -> Result<File, Unknown> {
    use std::os::fd::AsRawFd;

    super::check(&resolved, settings)?;
    File::open(format!("/proc/self/fd/{}", resolved.as_raw_fd())).map_err(|_| Unknown::NoFile)
}

/// Opens a path of this machine.
#[cfg(not(target_os = "linux"))]
pub(crate) fn on_this_machine(path: &Path, _: &Settings) -> Result<File, Unknown> {
    if !std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
        return Err(Unknown::NoFile);
    }
    File::open(path).map_err(|_| Unknown::NoFile)
}

/// Needs `openat2`, which only Linux has.
#[cfg(not(target_os = "linux"))]
pub(crate) fn in_root(_: &File, _: &Path, _: &Settings) -> Result<File, Unknown> {
    Err(Unknown::NoFile)
}
