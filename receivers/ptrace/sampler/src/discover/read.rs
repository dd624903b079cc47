//! Reads untrusted files, with a limit on their length.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

/// Reads at most `limit` bytes of a file in a directory. Returns them, and whether the file had more.
///
/// # Errors
///
/// The error of the system call.
pub(crate) fn read_at_most(directory: impl AsFd, path: &str, limit: usize) -> io::Result<(Vec<u8>, bool)> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = File::from(openat(directory, path, flags, Mode::empty())?);
    let mut bytes = Vec::new();
    file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    let more = bytes.len() > limit;
    bytes.truncate(limit);
    Ok((bytes, more))
}

/// Converts bytes to text; invalid UTF-8 is replaced.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
