//! Opens perf events. What the kernel permits is found out by trying the best kind first.
//!
//! The value of `/proc/sys/kernel/perf_event_paranoid` does not tell reliably what is permitted: distributions add
//! values of their own, capabilities override it, and seccomp filters and security modules can refuse as well.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;

use super::attr::{EventAttr, Wanted};
use crate::message::Level;

/// `PERF_FLAG_FD_CLOEXEC`.
const CLOEXEC: libc::c_ulong = 1 << 3;
/// `PERF_FLAG_PID_CGROUP`: the process argument is a descriptor of a control group's folder.
const PID_CGROUP: libc::c_ulong = 1 << 2;

/// What an event is for.
#[derive(Debug, Clone, Copy)]
pub enum Subject<'a> {
    /// A thread, on whichever processor it runs.
    Thread(u32),
    /// Everything that a processor executes, or only what a control group does.
    Processor {
        /// Its number.
        number: u32,
        /// The control group's folder.
        group: Option<BorrowedFd<'a>>,
    },
}

/// The event of this level; `None` for the lowest.
fn wanted(level: Level, period_nano: u64) -> Option<Wanted> {
    match level {
        Level::Undecided | Level::None => None,
        Level::User => Some(Wanted { period_nano, kernel: false, seldom_woken: false }),
        Level::Kernel | Level::Processors => Some(Wanted { period_nano, kernel: true, seldom_woken: false }),
    }
}

/// Who opens events.
pub trait Opener: fmt::Debug {
    /// Opens an event.
    ///
    /// # Errors
    ///
    /// The error of the system call.
    fn open(&self, attr: &EventAttr, subject: Subject<'_>) -> Result<OwnedFd, Errno>;
}

/// The kernel.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kernel;

impl Opener for Kernel {
    #[allow(unsafe_code, reason = "neither nix nor libc has perf_event_open")]
    fn open(&self, attr: &EventAttr, subject: Subject<'_>) -> Result<OwnedFd, Errno> {
        let (process, processor, flags) = match subject {
            Subject::Thread(thread) => (libc::pid_t::try_from(thread).map_err(|_| Errno::ESRCH)?, -1, CLOEXEC),
            Subject::Processor { number, group } => {
                let number = libc::c_int::try_from(number).map_err(|_| Errno::ENODEV)?;
                match group {
                    None => (-1, number, CLOEXEC),
                    Some(group) => (group.as_raw_fd(), number, CLOEXEC | PID_CGROUP),
                }
            }
        };
        let no_group: libc::c_int = -1;
        // A copy, since a kernel that refuses the size of the structure writes the size that it knows into it.
        let mut attr = *attr;
        // SAFETY: the kernel reads as many bytes of the structure as that says that it has, and writes at most its
        // size; it lives for the call.
        let result =
            unsafe { libc::syscall(libc::SYS_perf_event_open, &raw mut attr, process, processor, no_group, flags) };
        let file = i32::try_from(Errno::result(result)?).map_err(|_| Errno::EBADF)?;
        // SAFETY: the kernel has just opened it, and nobody else knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(file) })
    }
}

/// An event that was opened.
#[derive(Debug)]
pub struct Opened {
    /// The event.
    pub event: OwnedFd,
    /// What it shows.
    pub level: Level,
    /// The better levels that were refused, with the errors.
    pub refused: Vec<(Level, Errno)>,
}

/// Why no event was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The thread ended.
    Ended,
    /// A resource is exhausted. It is worth trying again later, on the same level.
    Exhausted(Lack),
    /// The kernel permits no level: each of them, with the error.
    Refused(Vec<(Level, Errno)>),
}

/// A resource of which there is not enough for another event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// File descriptors.
    Descriptors,
    /// Memory that this user may lock, which rings need.
    LockedMemory,
    /// The largest number of threads that may have an event.
    Places,
    /// Memory, or another resource that this error stands for.
    Other(Errno),
}

impl Lack {
    /// The resource that an error means; `None` if the error is a refusal.
    fn of(error: Errno) -> Option<Self> {
        match error {
            Errno::EMFILE | Errno::ENFILE => Some(Self::Descriptors),
            Errno::ENOMEM => Some(Self::Other(error)),
            _ => None,
        }
    }
}

impl fmt::Display for Lack {
    /// What is lacking, and what helps.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Descriptors => f.write_str(
                "no file descriptor is left for their perf events: raise the limit on open files (`ulimit -Hn`, LimitNOFILE= in systemd)",
            ),
            Self::LockedMemory => f.write_str(
                "no more memory may be locked for their perf events: end other profilers of this user, raise the limit on locked memory (`ulimit -l`, LimitMEMLOCK= \
                 in systemd) or kernel.perf_event_mlock_kb, or give CAP_IPC_LOCK",
            ),
            Self::Places => f.write_str("as many threads have a perf event as may have one at a time"),
            Self::Other(error) => write!(f, "perf events cannot be opened: {error}"),
        }
    }
}

/// For how long the thread of an event ran while it was open, in nanoseconds; 0 if it cannot be read.
pub fn count(event: BorrowedFd<'_>) -> u64 {
    let mut bytes = [0; 8];
    match nix::unistd::read(event, &mut bytes) {
        Ok(8) => u64::from_ne_bytes(bytes),
        _ => 0,
    }
}

/// Opens an event for a thread, on the best level from `from` downwards that the kernel permits.
///
/// # Errors
///
/// See [`Failure`].
pub fn open(opener: &dyn Opener, thread: u32, period_nano: u64, from: Level) -> Result<Opened, Failure> {
    let mut refused = Vec::new();
    for level in [Level::Kernel, Level::User].into_iter().filter(|&level| level <= from) {
        let Some(wanted) = wanted(level, period_nano) else { continue };
        match opener.open(&EventAttr::of(wanted), Subject::Thread(thread)) {
            Ok(event) => return Ok(Opened { event, level, refused }),
            Err(Errno::ESRCH) => return Err(Failure::Ended),
            Err(error) => match Lack::of(error) {
                Some(lack) => return Err(Failure::Exhausted(lack)),
                None => refused.push((level, error)),
            },
        }
    }
    Err(Failure::Refused(refused))
}

/// Opens events for everything that these processors execute, or for a control group on them. Processors that have gone
/// offline are left out. For `seldom_woken`, see [`Wanted`].
///
/// # Errors
///
/// See [`Failure`]. No event stays open then.
pub fn open_processors(
    opener: &dyn Opener,
    processors: &[u32],
    group: Option<BorrowedFd<'_>>,
    period_nano: u64,
    seldom_woken: bool,
) -> Result<Vec<OwnedFd>, Failure> {
    let attr = EventAttr::of(Wanted { period_nano, kernel: true, seldom_woken });
    let mut events = Vec::new();
    for &number in processors {
        match opener.open(&attr, Subject::Processor { number, group }) {
            Ok(event) => events.push(event),
            Err(Errno::ENODEV) => {}
            Err(error) => {
                let refused = Failure::Refused(vec![(Level::Processors, error)]);
                return Err(Lack::of(error).map_or(refused, Failure::Exhausted));
            }
        }
    }
    if events.is_empty() { Err(Failure::Refused(vec![(Level::Processors, Errno::ENODEV)])) } else { Ok(events) }
}

/// The processors that are online.
///
/// # Errors
///
/// The kernel's error, or `InvalidData` if the list is malformed.
pub fn online_processors() -> io::Result<Vec<u32>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    parse_processors(text.trim())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unreadable list of processors"))
}

/// Parses a list such as `0-3,8` (Documentation/admin-guide/cputopology.rst).
fn parse_processors(text: &str) -> Option<Vec<u32>> {
    /// A higher number than any kernel is built for (CONFIG_NR_CPUS).
    const MOST: u32 = 8192;
    let mut processors = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last >= MOST {
            return None;
        }
        processors.extend(first..=last);
    }
    Some(processors)
}

/// What the next better level needs, in words for a person; `None` on the best one, and where it is not known.
pub fn next_right(level: Level, container: bool) -> Option<&'static str> {
    match (level, container) {
        (Level::Undecided | Level::Kernel | Level::Processors, _) => None,
        (Level::User, true) => Some(
            "time in the kernel is not visible: give the container CAP_PERFMON (`--cap-add PERFMON`, in Kubernetes \
             `capabilities: {add: [PERFMON]}`), or set kernel.perf_event_paranoid to 1 on the host",
        ),
        (Level::User, false) => Some(
            "time in the kernel is not visible: run with CAP_PERFMON (`setcap cap_perfmon+ep` on the program, \
             AmbientCapabilities=CAP_PERFMON in systemd), or set kernel.perf_event_paranoid to 1",
        ),
        (Level::None, true) => Some(
            "running threads cannot be sampled by perf events: give the container CAP_PERFMON (`--cap-add PERFMON`, in Kubernetes \
             `capabilities: {add: [PERFMON]}`), with which the default seccomp profiles permit them",
        ),
        (Level::None, false) => Some(
            "running threads cannot be sampled by perf events: run with CAP_PERFMON (`setcap cap_perfmon+ep` on the program, \
             AmbientCapabilities=CAP_PERFMON in systemd), or set kernel.perf_event_paranoid to 2 or less",
        ),
    }
}

#[cfg(test)]
mod tests;
