//! Decides whether a stop ended a system call early, or whether the call had transferred all available data.

use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{FileStat, SFlag, fstatat, major};

use crate::arch::{Position, ShortCall};
use crate::discover::{read_at_most, text};
use crate::process_files::ProcessFiles;

/// The major number of `/dev/zero`, `/dev/urandom` and their like (Linux, `Documentation/admin-guide/devices.txt`).
const MEMORY_DEVICES: u64 = 1;

/// Whether a stop ended the call of a stopped thread early. If in doubt, the answer is yes.
///
/// A read from a pipe, a socket or a terminal returns the available data, and a read near the end of a file returns the
/// rest of the file: these calls were not ended early. The same holds for a call on a non-blocking descriptor, which
/// returns early by itself.
pub(super) fn is_cut(files: &ProcessFiles, thread: u32, short: &ShortCall) -> bool {
    if let Some(to) = short.to
        && never_waits(files, thread, to)
    {
        return false;
    }
    let Some((from, position)) = short.from else { return true };
    // A call that copies between two descriptors ends when a pipe is full (`splice_file_to_pipe` in fs/splice.c).
    if let Some(to) = short.to
        && stat(files, thread, to).is_some_and(|stat| kind(&stat) == SFlag::S_IFIFO)
    {
        return false;
    }
    let Some(stat) = stat(files, thread, from) else { return true };
    match kind(&stat) {
        SFlag::S_IFBLK => true,
        SFlag::S_IFCHR => major(stat.st_rdev) == MEMORY_DEVICES,
        SFlag::S_IFREG => {
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            let position = match position {
                Position::Own => information(files, thread, from).and_then(|text| field(&text, "pos:", 10)),
                Position::At(position) => Some(position),
                Position::In(address) => {
                    let mut bytes = [0; 8];
                    (files.read_memory(address, &mut bytes) == bytes.len()).then(|| u64::from_ne_bytes(bytes))
                }
            };
            // Files whose content is generated on reading (as in `/proc`) have size 0.
            size > 0 && position.is_none_or(|position| position < size)
        }
        _ => false,
    }
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits())
}

fn stat(files: &ProcessFiles, thread: u32, descriptor: u64) -> Option<FileStat> {
    fstatat(files.task(), format!("{thread}/fd/{descriptor}").as_str(), AtFlags::empty()).ok()
}

fn never_waits(files: &ProcessFiles, thread: u32, descriptor: u64) -> bool {
    let flags = information(files, thread, descriptor).and_then(|text| field(&text, "flags:", 8));
    flags.is_some_and(|flags| flags & u64::from(OFlag::O_NONBLOCK.bits().cast_unsigned()) != 0)
}

/// The `fdinfo` file of an open file (proc_pid_fdinfo(5)).
fn information(files: &ProcessFiles, thread: u32, descriptor: u64) -> Option<String> {
    let (bytes, _) = read_at_most(files.task(), &format!("{thread}/fdinfo/{descriptor}"), 4096).ok()?;
    Some(text(&bytes))
}

fn field(text: &str, name: &str, radix: u32) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    u64::from_str_radix(value.trim(), radix).ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek, SeekFrom, Write};
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;

    fn short(from: Option<(&dyn AsRawFd, Position)>, to: Option<&dyn AsRawFd>) -> ShortCall {
        let number = |file: &dyn AsRawFd| u64::try_from(file.as_raw_fd()).unwrap();
        ShortCall {
            name: "read",
            mark: [0; 3],
            from: from.map(|(file, position)| (number(file), position)),
            to: to.map(number),
        }
    }

    /// Guarantees: a call that transferred a part of its data was ended early if it reads from one of the kernel's
    /// memory devices or before the end of a file, or writes to a blocking descriptor; it was not if it reads from a
    /// pipe or up to the end of a file, or writes to a non-blocking descriptor.
    #[test]
    fn what_explains_a_short_call() {
        let files = ProcessFiles::open(std::process::id()).unwrap();
        let own = nix::unistd::gettid().as_raw().unsigned_abs();
        let cut = |short: ShortCall| is_cut(&files, own, &short);
        let zero = File::open("/dev/zero").unwrap();
        assert!(cut(short(Some((&zero, Position::Own)), None)));
        let null = File::options().write(true).open("/dev/null").unwrap();
        assert!(cut(short(None, Some(&null))));
        let (reader, writer) = std::io::pipe().unwrap();
        assert!(!cut(short(Some((&reader, Position::Own)), None)));
        assert!(cut(short(None, Some(&writer))));
        nix::fcntl::fcntl(writer.as_fd(), nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        assert!(!cut(short(None, Some(&writer))));
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 100]).unwrap();
        assert!(!cut(short(Some((&file, Position::Own)), None)));
        file.seek(SeekFrom::Start(10)).unwrap();
        file.read_exact(&mut [0; 10]).unwrap();
        assert!(cut(short(Some((&file, Position::Own)), None)));
        for (position, expected) in [(99_u64, true), (100, false), (200, false)] {
            assert_eq!(cut(short(Some((&file, Position::At(position))), None)), expected);
            let address = std::ptr::from_ref(&position).addr() as u64;
            assert_eq!(cut(short(Some((&file, Position::In(address))), None)), expected);
        }
        assert!(cut(short(Some((&file, Position::At(10))), Some(&null))));
        let (_other, pipe) = std::io::pipe().unwrap();
        assert!(!cut(short(Some((&file, Position::At(10))), Some(&pipe))));
        let status = File::open("/proc/self/status").unwrap();
        assert!(!cut(short(Some((&status, Position::Own)), None)));
        let closed = ShortCall { name: "read", mark: [0; 3], from: Some((1 << 20, Position::Own)), to: None };
        assert!(cut(closed));
    }
}
