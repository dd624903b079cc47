//! Lists numbered entries of a directory, such as the threads of a process, by `getdents64` on an open descriptor:
//! reading a directory by its path would open it each time, and allocate for each entry.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::probe::decimal;

/// Space for about 300 entries with numeric names.
const BUFFER: usize = 8 << 10;

/// Calls `found` for each entry of a directory whose name is a number.
///
/// # Errors
///
/// The kernel's error; `ESRCH` or `NotFound` after the process has ended.
pub(crate) fn for_each_number(directory: BorrowedFd<'_>, mut found: impl FnMut(u32)) -> io::Result<()> {
    rewind(directory)?;
    let mut buffer = [0_u8; BUFFER];
    loop {
        let length = read_entries(directory, &mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        for name in names(&buffer[..length]) {
            if let Some(number) = decimal(name).and_then(|number| u32::try_from(number).ok()) {
                found(number);
            }
        }
    }
}

/// The names in the output of `getdents64`: records of inode (8 bytes), offset (8), length of the record (2), type
/// (1), name, 0.
fn names(mut records: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes([*records.get(16)?, *records.get(17)?]));
        let record = records.get(..length)?;
        let name = record.get(19..)?;
        records = &records[length..];
        name.split(|&byte| byte == 0).next()
    })
}

fn rewind(directory: BorrowedFd<'_>) -> io::Result<()> {
    nix::unistd::lseek(directory, 0, nix::unistd::Whence::SeekSet)?;
    Ok(())
}

#[allow(unsafe_code, reason = "no library reads a folder without allocating")]
fn read_entries(directory: BorrowedFd<'_>, buffer: &mut [u8; BUFFER]) -> io::Result<usize> {
    // SAFETY: the kernel writes at most `buffer.len()` bytes into `buffer`, which is borrowed mutably for the call.
    let length =
        unsafe { libc::syscall(libc::SYS_getdents64, directory.as_raw_fd(), buffer.as_mut_ptr(), buffer.len()) };
    usize::try_from(length).map_err(|_| io::Error::last_os_error())
}
