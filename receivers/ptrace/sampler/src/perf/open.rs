//! Opens perf events. To find out what the kernel permits, the event that shows most is tried first.
//!
//! The value of `/proc/sys/kernel/perf_event_paranoid` is not reliable: distributions add their own values,
//! capabilities override it, and seccomp filters and security modules can refuse as well.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;

use super::attr::{EventAttr, Records, Wanted};
use crate::message::Level;

/// `PERF_FLAG_FD_CLOEXEC`.
const CLOEXEC: libc::c_ulong = 1 << 3;
/// `PERF_FLAG_PID_CGROUP`: the process argument is a descriptor of a control group's folder.
const PID_CGROUP: libc::c_ulong = 1 << 2;

/// What an event observes.
#[derive(Debug, Clone, Copy)]
pub enum EventSubject<'a> {
    /// A thread.
    Thread {
        /// The thread id.
        thread: u32,
        /// The processor to which the event is limited; `None` for all processors, which requires that the event has
        /// its own ring.
        processor: Option<u32>,
    },
    /// Everything that a processor executes, or only the part of a control group.
    Processor {
        /// The number of the processor.
        number: u32,
        /// The control group's folder.
        group: Option<BorrowedFd<'a>>,
    },
}

/// Opens events: the kernel, or a replacement in tests.
pub trait Opener: fmt::Debug {
    /// Opens an event.
    ///
    /// # Errors
    ///
    /// The error of the system call.
    fn open(&self, attr: &EventAttr, subject: EventSubject<'_>) -> Result<OwnedFd, Errno>;
}

/// The kernel.
#[derive(Debug, Clone, Copy, Default)]
pub struct KernelOpener;

impl Opener for KernelOpener {
    #[allow(unsafe_code, reason = "neither nix nor libc has perf_event_open")]
    fn open(&self, attr: &EventAttr, subject: EventSubject<'_>) -> Result<OwnedFd, Errno> {
        let (process, processor, flags) = match subject {
            EventSubject::Thread { thread, processor } => {
                let thread = libc::pid_t::try_from(thread).map_err(|_| Errno::ESRCH)?;
                let processor = processor.map_or(Ok(-1), libc::c_int::try_from).map_err(|_| Errno::ENODEV)?;
                (thread, processor, CLOEXEC)
            }
            EventSubject::Processor { number, group } => {
                let number = libc::c_int::try_from(number).map_err(|_| Errno::ENODEV)?;
                match group {
                    None => (-1, number, CLOEXEC),
                    Some(group) => (group.as_raw_fd(), number, CLOEXEC | PID_CGROUP),
                }
            }
        };
        let no_group: libc::c_int = -1;
        // A copy, because a kernel that rejects the structure's size writes the size that it supports into it.
        let mut attr = *attr;
        // SAFETY: the kernel reads as many bytes of the structure as its `size` field says, and writes at most that
        // field; the structure lives for the call.
        let result =
            unsafe { libc::syscall(libc::SYS_perf_event_open, &raw mut attr, process, processor, no_group, flags) };
        let file = i32::try_from(Errno::result(result)?).map_err(|_| Errno::EBADF)?;
        // SAFETY: the kernel has just opened the descriptor, and nothing else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(file) })
    }
}

/// An event that was opened.
#[derive(Debug)]
pub struct Opened {
    /// The event.
    pub event: OwnedFd,
    /// The level of detail that the event shows.
    pub level: Level,
    /// The better levels that were refused, with the errors.
    pub refused: Vec<(Level, Errno)>,
}

/// The reason why no event was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenFailure {
    /// The thread ended.
    Ended,
    /// A resource is exhausted. A later attempt at the same level may succeed.
    Exhausted(Lack),
    /// The kernel permits no level: each level with its error.
    Refused(Vec<(Level, Errno)>),
}

/// An exhausted resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// File descriptors.
    Descriptors,
    /// Memory that this user may lock, which ring buffers need.
    LockedMemory,
    /// Memory, or another resource, as the kernel's error says.
    Other(Errno),
}

impl Lack {
    /// The exhausted resource that this error means when anything but a thread's event is opened.
    pub(crate) fn of_other(error: Errno) -> Self {
        Self::from_error(error).unwrap_or(Self::Other(error))
    }

    /// The exhausted resource that an error means; `None` if the error is a refusal.
    fn from_error(error: Errno) -> Option<Self> {
        match error {
            Errno::EMFILE | Errno::ENFILE => Some(Self::Descriptors),
            Errno::ENOMEM => Some(Self::Other(error)),
            _ => None,
        }
    }
}

impl fmt::Display for Lack {
    /// Names the resource and a remedy.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Descriptors => f.write_str(
                "no file descriptor is left for their perf events: raise the limit on open files (`ulimit -Hn`, LimitNOFILE= in systemd)",
            ),
            Self::LockedMemory => f.write_str(
                "no more memory may be locked for their perf events: end other profilers of this user, raise the limit on locked memory (`ulimit -l`, LimitMEMLOCK= \
                 in systemd) or kernel.perf_event_mlock_kb, or give CAP_IPC_LOCK",
            ),
            Self::Other(error) => write!(f, "perf events cannot be opened: {error}"),
        }
    }
}

/// An event's count, and the time for which it was enabled, in nanoseconds; zeros if it cannot be read. For the event
/// of a thread on one processor these are the thread's running time there, and its running time on all processors.
pub fn count(event: BorrowedFd<'_>) -> (u64, u64) {
    let mut bytes = [0; 16];
    match nix::unistd::read(event, &mut bytes) {
        Ok(16) => {
            let [count, ran] = [0, 8].map(|at| bytes[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word)));
            (count, ran)
        }
        _ => (0, 0),
    }
}

/// Makes an event write its records into the ring of another event on the same processor.
///
/// # Errors
///
/// The error of the system call.
#[allow(unsafe_code, reason = "nix's macros make the same call")]
pub fn write_into(event: BorrowedFd<'_>, ring: BorrowedFd<'_>) -> Result<(), Errno> {
    /// `PERF_EVENT_IOC_SET_OUTPUT`.
    const SET_OUTPUT: libc::c_ulong = 0x2405;
    // SAFETY: both are descriptors that live for the call; no memory is involved.
    Errno::result(unsafe { libc::ioctl(event.as_raw_fd(), SET_OUTPUT as _, ring.as_raw_fd()) }).map(drop)
}

/// Arms an event of [`EventAttr::of_resumption`]: it takes one sample when its thread runs next.
#[allow(unsafe_code, reason = "nix's macros make the same call")]
pub fn arm(event: BorrowedFd<'_>) {
    /// `PERF_EVENT_IOC_REFRESH`.
    const REFRESH: libc::c_ulong = 0x2402;
    let once: libc::c_int = 1;
    // SAFETY: the descriptor lives for the call; no memory is involved.
    unsafe { libc::ioctl(event.as_raw_fd(), REFRESH as _, once) };
}

/// Opens an event for a thread, at the best level from `from` downwards that the kernel permits. For `seldom_woken`,
/// see [`Wanted`].
///
/// # Errors
///
/// See [`OpenFailure`].
pub fn open(
    opener: &dyn Opener,
    (thread, processor): (u32, Option<u32>),
    period_nano: u64,
    from: Level,
    seldom_woken: bool,
) -> Result<Opened, OpenFailure> {
    let mut refused = Vec::new();
    for level in [Level::Kernel, Level::User].into_iter().filter(|&level| level <= from) {
        let wanted = Wanted { period_nano, kernel: level == Level::Kernel, seldom_woken, records: Records::Switches };
        match opener.open(&EventAttr::new(wanted), EventSubject::Thread { thread, processor }) {
            Ok(event) => return Ok(Opened { event, level, refused }),
            Err(Errno::ESRCH) => return Err(OpenFailure::Ended),
            Err(error) => match Lack::from_error(error) {
                Some(lack) => return Err(OpenFailure::Exhausted(lack)),
                None => refused.push((level, error)),
            },
        }
    }
    Err(OpenFailure::Refused(refused))
}

/// What events of processors report about context switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switches {
    /// Nothing.
    Hidden,
    /// A sample of each thread that leaves its processor. The next thread was given the processor at the same moment.
    /// The registers show whether the thread was preempted. This costs a thread half as much as [`Switches::Recorded`].
    Sampled,
    /// A sample of each thread that leaves its processor, and a record of each switch.
    Recorded,
}

/// The events of one processor.
#[derive(Debug)]
pub struct ProcessorEvents {
    /// The event that takes samples, and records switches.
    pub samples: OwnedFd,
    /// The event that takes samples at switches; `None` if not requested, or if it could not be opened.
    pub switches: Option<OwnedFd>,
}

/// Opens events for everything that these processors execute, or only for a control group on them, which report
/// `switches`. Processors that have gone offline are left out.
///
/// # Errors
///
/// See [`OpenFailure`]. No event stays open then.
pub fn open_processors(
    opener: &dyn Opener,
    processors: &[u32],
    group: Option<BorrowedFd<'_>>,
    period_nano: u64,
    switches: Switches,
) -> Result<Vec<ProcessorEvents>, OpenFailure> {
    let records = match switches {
        Switches::Hidden => Records::None,
        Switches::Sampled => Records::Lives,
        Switches::Recorded => Records::Switches,
    };
    let attr = EventAttr::new(Wanted { period_nano, kernel: true, seldom_woken: true, records });
    let mut events = Vec::new();
    for &number in processors {
        let subject = EventSubject::Processor { number, group };
        match opener.open(&attr, subject) {
            Ok(samples) => {
                let switches = match switches {
                    Switches::Hidden => None,
                    Switches::Sampled | Switches::Recorded => opener.open(&EventAttr::of_switches(), subject).ok(),
                };
                events.push(ProcessorEvents { samples, switches });
            }
            Err(Errno::ENODEV) => {}
            Err(error) => {
                let refused = OpenFailure::Refused(vec![(Level::Processors, error)]);
                return Err(Lack::from_error(error).map_or(refused, OpenFailure::Exhausted));
            }
        }
    }
    if events.is_empty() { Err(OpenFailure::Refused(vec![(Level::Processors, Errno::ENODEV)])) } else { Ok(events) }
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
    /// Higher than the number of processors for which any kernel is built (CONFIG_NR_CPUS).
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

/// What the next better level requires, as a message for the user; `None` at the best level, and if the level is not
/// known.
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
