//! Lets the sampling thread sleep until a tracee stops (SIGCHLD), another thread wakes it (SIGCHLD sent to this
//! thread), samples can be read, or a point in time is reached.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The maximum sleep while stops are expected whose signals can get lost.
const POLL: Duration = Duration::from_micros(200);

/// Wakes the sampling thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waker {
    thread: libc::pid_t,
}

impl Waker {
    /// Wakes the thread now, or the next time it sleeps.
    #[allow(unsafe_code, reason = "nix has no tgkill")]
    pub(crate) fn wake(&self) {
        // SAFETY: no memory is involved. If the thread has ended and another thread of this process has its id, that
        // thread ignores the signal; threads of other processes are not reached.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.thread, libc::SIGCHLD) };
    }
}

/// Lets the calling thread sleep.
#[derive(Debug)]
pub(crate) struct Sleeper {
    signals: libc::sigset_t,
    /// A descriptor for the same signals, so that the thread can wait for them and for samples at once; `None` if it
    /// could not be opened.
    announcements: Option<SignalFd>,
    /// Whether some thread of this process does not block SIGCHLD, and so may receive the signals that announce stops.
    leaky: bool,
}

impl Sleeper {
    /// Blocks SIGCHLD for the calling thread, so that it can wait for that signal.
    ///
    /// # Errors
    ///
    /// The error of the system call.
    #[allow(unsafe_code, reason = "nix has no sigtimedwait, for which this set is")]
    pub(crate) fn new() -> io::Result<(Self, Waker)> {
        let mut signals = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: `sigemptyset` initializes the set; the other calls read and change it while it lives; the calling
        // thread's mask only gets larger.
        let (signals, thread) = unsafe {
            libc::sigemptyset(signals.as_mut_ptr());
            libc::sigaddset(signals.as_mut_ptr(), libc::SIGCHLD);
            let result = libc::pthread_sigmask(libc::SIG_BLOCK, signals.as_ptr(), std::ptr::null_mut());
            if result != 0 {
                return Err(io::Error::from_raw_os_error(result));
            }
            (signals.assume_init(), libc::gettid())
        };
        let leaky = !blocked_everywhere();
        let mut set = SigSet::empty();
        set.add(Signal::SIGCHLD);
        let announcements = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC).ok();
        Ok((Self { signals, announcements, leaky }, Waker { thread }))
    }

    /// Sleeps until there is a signal or a sample, or for `time` (`None`: no limit). While `stops` are expected and
    /// their signals can get lost, it sleeps for at most [`POLL`].
    #[allow(unsafe_code, reason = "nix has no sigtimedwait")]
    pub(crate) fn sleep(&self, time: Option<Duration>, stops: bool, awaited: Option<BorrowedFd<'_>>) {
        let time = match (self.leaky && stops, time) {
            (true, time) => Some(time.map_or(POLL, |time| time.min(POLL))),
            (false, time) => time,
        };
        let timeout = time.map(|time| libc::timespec {
            tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        if let (Some(awaited), Some(announcements)) = (awaited, &self.announcements) {
            let of = |file: BorrowedFd<'_>| libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            let mut files = [of(announcements.as_fd()), of(awaited)];
            // SAFETY: both descriptors and the time live for the call, and the kernel is told how many descriptors
            // there are.
            unsafe { libc::ppoll(files.as_mut_ptr(), 2, timeout, std::ptr::null()) };
            // Reads and discards the signals that woke the thread.
            while files[0].revents != 0 && matches!(announcements.read_signal(), Ok(Some(_))) {}
            return;
        }
        // SAFETY: the set and the time live for the call and are only read; no `siginfo_t` is asked for.
        unsafe { libc::sigtimedwait(&raw const self.signals, std::ptr::null_mut(), timeout) };
    }
}

/// Whether all threads of this process block SIGCHLD. Threads that start later inherit that.
fn blocked_everywhere() -> bool {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return false };
    threads.flatten().all(|thread| {
        let Ok(status) = fs::read_to_string(thread.path().join("status")) else {
            // A thread that has ended meanwhile receives no signals.
            return true;
        };
        blocks_sigchld(&status)
    })
}

fn blocks_sigchld(status: &str) -> bool {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigBlk:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (libc::SIGCHLD - 1) != 0)
}
