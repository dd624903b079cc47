//! Reads a thread's state from the kernel without touching the thread: the hot path of sampling.
//!
//! Both files are read through open descriptors, with one `pread` each, and parsed in place.
//!
//! * `/proc/PID/task/TID/schedstat`: how long the thread ran, how long it waited to run, and how often it was put on a
//!   processor (the kernel's `Documentation/scheduler/sched-stats.rst`). The last number changes whenever a thread
//!   gets back on a processor, so a blocked thread with an unchanged line has not executed anything. The first number
//!   of a *running* thread is updated only at the scheduler's own ticks, so an unchanged line of a thread that was not
//!   known to be blocked proves nothing.
//! * `/proc/PID/task/TID/syscall`: `running`, or the system call with its arguments, the stack pointer and the program
//!   counter (only `-1` and the latter two if the thread is blocked outside of a system call, as in a page fault).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The contents of `schedstat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SchedStat {
    /// The time the thread ran, in nanoseconds.
    pub run_nano: u64,
    /// The time the thread waited for a processor, in nanoseconds.
    pub wait_nano: u64,
    /// How often the thread was put on a processor.
    pub timeslices: u64,
}

impl SchedStat {
    /// Whether the kernel maintains these numbers. Without `CONFIG_SCHED_INFO` all are 0; otherwise a thread that has
    /// executed anything was put on a processor at least once.
    pub fn kept(&self) -> bool {
        self.timeslices != 0 || self.run_nano != 0
    }
}

/// The contents of `syscall`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// The thread is running, or ready to run.
    Running,
    /// The thread is blocked, or stopped.
    Blocked {
        /// The system call's number; -1 outside of a system call. If the kernel restarted the call after a stop it is
        /// `restart_syscall`, which does not show what the call is.
        call: i64,
        /// The stack pointer.
        sp: u64,
        /// The program counter.
        pc: u64,
        /// The arguments of the system call; `None` outside of a system call.
        arguments: Option<[u64; 6]>,
    },
}

impl Activity {
    /// Whether this is the line of a zombie, which has no stack.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::Blocked { sp: 0, pc: 0, .. })
    }
}

/// Reads `schedstat`.
///
/// # Errors
///
/// `ESRCH` after the thread's end; `InvalidData` if the line cannot be parsed.
pub fn read_schedstat(file: &File) -> io::Result<SchedStat> {
    // Three numbers of at most 20 digits.
    read::<80, _>(file, parse_schedstat, "unreadable schedstat")
}

/// Reads `syscall`.
///
/// # Errors
///
/// `ESRCH` after the thread's end; `PermissionDenied` if the thread may not be traced; `InvalidData` if the line cannot
/// be parsed.
pub fn read_syscall(file: &File) -> io::Result<Activity> {
    // The number, six arguments, stack pointer and program counter: at most 20 characters each.
    read::<200, _>(file, parse_syscall, "unreadable syscall")
}

/// Reads at most `SIZE` bytes with one call, and parses them.
#[inline]
fn read<const SIZE: usize, T>(
    file: &File,
    parse: impl FnOnce(&[u8]) -> Option<T>,
    unreadable: &'static str,
) -> io::Result<T> {
    let mut buffer = [0; SIZE];
    match file.read_at(&mut buffer, 0)? {
        0 => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        length => parse(&buffer[..length]).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, unreadable)),
    }
}

fn parse_schedstat(line: &[u8]) -> Option<SchedStat> {
    let mut words = words(line);
    Some(SchedStat {
        run_nano: decimal(words.next()?)?,
        wait_nano: decimal(words.next()?)?,
        timeslices: decimal(words.next()?)?,
    })
}

fn parse_syscall(line: &[u8]) -> Option<Activity> {
    let mut words = words(line);
    let first = words.next()?;
    if first == b"running" {
        return Some(Activity::Running);
    }
    let call = match first.strip_prefix(b"-") {
        Some(digits) => -i64::try_from(decimal(digits)?).ok()?,
        None => i64::try_from(decimal(first)?).ok()?,
    };
    let mut numbers = [0; 8];
    let mut count = 0;
    for word in words {
        *numbers.get_mut(count)? = hexadecimal(word)?;
        count += 1;
    }
    match (count, numbers) {
        (2, [sp, pc, ..]) => Some(Activity::Blocked { call, sp, pc, arguments: None }),
        (8, [a, b, c, d, e, f, sp, pc]) => {
            Some(Activity::Blocked { call, sp, pc, arguments: Some([a, b, c, d, e, f]) })
        }
        _ => None,
    }
}

/// The needed fields of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatLine {
    /// The state, as `ps` prints it.
    pub state: u8,
    /// The id of the parent.
    pub parent: u32,
    /// When the process started, in clock ticks since the system's start.
    pub start_ticks: u64,
    /// The CPU time that the process has used.
    pub processor: ProcessorTicks,
    /// The CPU time of the children that the process has reaped.
    pub reaped: ProcessorTicks,
}

/// CPU time, in the clock ticks that the kernel shows to programs (`sysconf(_SC_CLK_TCK)`, 100 a second on Linux).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessorTicks {
    /// CPU time in the process's own code (`utime`).
    pub user: u64,
    /// CPU time in the kernel (`stime`).
    pub kernel: u64,
}

/// Reads the CPU time from `/proc/PID/stat` or `/proc/PID/task/TID/stat`.
///
/// # Errors
///
/// `ESRCH` after the thread's end; `InvalidData` if the line cannot be parsed.
pub fn read_processor_ticks(file: &File) -> io::Result<ProcessorTicks> {
    // The start time is field 22: numbers of at most 20 digits, and a name of at most 15 bytes, each shown as up to
    // four characters.
    read::<640, _>(file, |line| parse_stat(line).map(|stat| stat.processor), "unreadable stat")
}

/// Parses `/proc/PID/stat`. The name may contain anything, parentheses and spaces included, so the fields are counted
/// from after the last parenthesis of the line.
pub(crate) fn parse_stat(line: &[u8]) -> Option<StatLine> {
    let end = line.iter().rposition(|&byte| byte == b')')?;
    let mut words = words(&line[end + 1..]);
    let state = *words.next()?.first()?;
    let parent = u32::try_from(decimal(words.next()?)?).ok()?;
    // The parent is field 4, the times are fields 14 to 17, the start time is field 22.
    let processor = ProcessorTicks { user: decimal(words.nth(9)?)?, kernel: decimal(words.next()?)? };
    // The times of children are signed.
    let reaped = [decimal(words.next()?), decimal(words.next()?)].map(Option::unwrap_or_default);
    let reaped = ProcessorTicks { user: reaped[0], kernel: reaped[1] };
    let start_ticks = decimal(words.nth(4)?)?;
    Some(StatLine { state, parent, start_ticks, processor, reaped })
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| matches!(byte, b' ' | b'\n')).filter(|word| !word.is_empty())
}

pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

fn hexadecimal(word: &[u8]) -> Option<u64> {
    let digits = word.strip_prefix(b"0x")?;
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, &byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ => return None,
        };
        Some(value << 4 | u64::from(digit))
    })
}

#[cfg(test)]
mod tests;
