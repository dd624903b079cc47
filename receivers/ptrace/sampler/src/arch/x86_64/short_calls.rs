//! Recognizes system calls that return early, with only a part of the data moved, when a tracer wakes their thread.
//!
//! A call whose count is an argument is recognized by comparing the count with the result: the kernel preserves the
//! argument's register, and the result is in RAX. Calls with lists of buffers (`readv`, `sendmsg`) have their counts
//! in memory and are not covered.

use super::RawRegisters;
use crate::arch::{Position, ShortCall};

/// The maximum number of bytes that one call moves (the kernel's `MAX_RW_COUNT`, include/linux/fs.h).
const MOST: u64 = 0x7fff_f000;

/// The system call from which the thread is about to return with less than requested; `None` if there is none.
pub(crate) fn short_call(raw: &RawRegisters) -> Option<ShortCall> {
    let moved = u64::try_from(raw.rax.cast_signed()).ok().filter(|moved| *moved > 0)?;
    // The arguments are in RDI, RSI, RDX, R10, R8, R9 (System V ABI for x86-64, A.2.1).
    let (name, count, from, to) = match raw.orig_rax.cast_signed() {
        libc::SYS_read => ("read", raw.rdx, Some((raw.rdi, Position::Own)), None),
        libc::SYS_pread64 => ("pread64", raw.rdx, Some((raw.rdi, Position::At(raw.r10.saturating_add(moved)))), None),
        libc::SYS_write => ("write", raw.rdx, None, Some(raw.rdi)),
        libc::SYS_pwrite64 => ("pwrite64", raw.rdx, None, Some(raw.rdi)),
        libc::SYS_sendto if raw.r10 & flag(libc::MSG_DONTWAIT) == 0 => ("sendto", raw.rdx, None, Some(raw.rdi)),
        libc::SYS_recvfrom if raw.r10 & flag(libc::MSG_WAITALL) != 0 => ("recvfrom", raw.rdx, None, Some(raw.rdi)),
        libc::SYS_getrandom => ("getrandom", raw.rsi, None, None),
        libc::SYS_sendfile => ("sendfile", raw.r10, Some((raw.rsi, position(raw.rdx))), Some(raw.rdi)),
        libc::SYS_copy_file_range => ("copy_file_range", raw.r8, Some((raw.rdi, position(raw.rsi))), Some(raw.rdx)),
        _ => return None,
    };
    let mark = [raw.rip, raw.rsp, moved];
    (moved < count.min(MOST)).then_some(ShortCall { name, mark, from, to })
}

fn flag(flag: libc::c_int) -> u64 {
    u64::from(flag.cast_unsigned())
}

/// The position of a call that takes the address of an offset, which may be null.
fn position(address: u64) -> Position {
    if address == 0 { Position::Own } else { Position::In(address) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::raw;
    use super::*;

    /// Guarantees: a call with a byte count is short if it moved a part of the data. A call that moved none or all of
    /// it, or failed, is not, nor is code outside of a call.
    #[test]
    fn counts() {
        let calls = [
            (libc::SYS_read, [3, 9, 100, 0, 0, 0]),
            (libc::SYS_pread64, [3, 9, 100, 7, 0, 0]),
            (libc::SYS_write, [3, 9, 100, 0, 0, 0]),
            (libc::SYS_pwrite64, [3, 9, 100, 7, 0, 0]),
            (libc::SYS_sendto, [3, 9, 100, 0, 0, 0]),
            (libc::SYS_recvfrom, [3, 9, 100, 0x100, 0, 0]),
            (libc::SYS_getrandom, [9, 100, 0, 0, 0, 0]),
            (libc::SYS_sendfile, [3, 4, 0, 100, 0, 0]),
            (libc::SYS_copy_file_range, [3, 0, 4, 0, 100, 0]),
        ];
        for (call, arguments) in calls {
            for (result, short) in [(1, true), (99, true), (100, false), (101, false), (0, false), (-4, false)] {
                assert_eq!(short_call(&raw(call, result, arguments)).is_some(), short, "{call} {result}");
            }
            assert_eq!(short_call(&raw(-1, 1, arguments)), None);
        }
        for (call, arguments) in [
            (libc::SYS_recvfrom, [3, 9, 100, 0, 0, 0]),
            (libc::SYS_sendto, [3, 9, 100, 0x40, 0, 0]),
            (libc::SYS_futex, [100; 6]),
            (libc::SYS_readv, [100; 6]),
        ] {
            assert_eq!(short_call(&raw(call, 1, arguments)), None);
        }
        let more_than_any_moves = raw(libc::SYS_write, 0x7fff_f000, [3, 9, 1 << 40, 0, 0, 0]);
        assert_eq!(short_call(&more_than_any_moves), None);
    }

    /// Guarantees: the possible explanations of a short call are returned: the position it reads from, and the
    /// descriptor it writes to.
    #[test]
    fn explanations() {
        let of = |call, arguments| short_call(&raw(call, 5, arguments)).map(|short| (short.from, short.to)).unwrap();
        assert_eq!(of(libc::SYS_read, [3, 9, 100, 0, 0, 0]), (Some((3, Position::Own)), None));
        assert_eq!(of(libc::SYS_pread64, [3, 9, 100, 7, 0, 0]), (Some((3, Position::At(12))), None));
        assert_eq!(of(libc::SYS_write, [3, 9, 100, 0, 0, 0]), (None, Some(3)));
        assert_eq!(of(libc::SYS_sendfile, [3, 4, 0, 100, 0, 0]), (Some((4, Position::Own)), Some(3)));
        assert_eq!(of(libc::SYS_sendfile, [3, 4, 64, 100, 0, 0]), (Some((4, Position::In(64))), Some(3)));
        assert_eq!(of(libc::SYS_copy_file_range, [3, 64, 4, 0, 100, 0]), (Some((3, Position::In(64))), Some(4)));
    }
}
