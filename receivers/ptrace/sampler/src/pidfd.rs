//! A descriptor of a process. Unlike a process id, it never refers to another process later.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};

/// How a child process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildStatus {
    /// The child exited with this code.
    Exited(i32),
    /// This signal ended the child.
    Killed(i32),
    /// Other code in this program collected the status.
    Taken,
}

impl ChildStatus {
    /// The exit code that a shell would report: the exit code itself, or 128 plus the signal number.
    pub(crate) fn shell_code(self) -> Option<i32> {
        match self {
            Self::Exited(code) => Some(code),
            Self::Killed(signal) => Some(128 + signal),
            Self::Taken => None,
        }
    }
}

/// A process, by its descriptor.
#[derive(Debug)]
pub(crate) struct PidFd {
    descriptor: OwnedFd,
}

impl PidFd {
    /// Opens the process with this id. If it is a child that was not reaped, no other process can have the id.
    ///
    /// # Errors
    ///
    /// The kernel's error: `ESRCH` if there is no such process.
    pub(crate) fn open(pid: u32) -> io::Result<Self> {
        #[allow(unsafe_code, reason = "no library wraps pidfd_open")]
        // SAFETY: the call takes two numbers and no memory. A result that is not negative is a descriptor that nobody
        // else owns.
        let descriptor = unsafe {
            let result = libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(pid), 0 as libc::c_long);
            let number = i32::try_from(Errno::result(result)?).map_err(|_| io::Error::other("not a descriptor"))?;
            OwnedFd::from_raw_fd(number)
        };
        Ok(Self { descriptor })
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    ///
    /// The kernel's error: `ESRCH` if it has ended.
    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        #[allow(unsafe_code, reason = "no library wraps pidfd_send_signal")]
        // SAFETY: the descriptor is open as long as `self` lives; the call allows a null pointer for the information.
        let result = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.descriptor.as_raw_fd(),
                signal as libc::c_int,
                std::ptr::null::<libc::siginfo_t>(),
                0 as libc::c_long,
            )
        };
        Errno::result(result)?;
        Ok(())
    }

    /// Waits at most `time` for the process's end, and returns whether it has ended. The exit status is not collected.
    pub(crate) fn ended_within(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut descriptors = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
            match poll(&mut descriptors, timeout) {
                Ok(0) if left.is_zero() => return false,
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Collects the status of a child that has ended; `None` while it is running.
    pub(crate) fn take_status(&self) -> Option<ChildStatus> {
        // Do not wait for a living child: if another thread of this program traces it, the kernel reports its stops to
        // any wait, whatever the wait asks for (`wait_task_stopped`). The tracer would then miss the stop, and the
        // child would stay stopped forever.
        if !self.ended_within(Duration::ZERO) {
            return None;
        }
        match waitid(Id::PIDFd(self.as_fd()), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG) {
            Ok(WaitStatus::Exited(_, code)) => Some(ChildStatus::Exited(code)),
            Ok(WaitStatus::Signaled(_, signal, _)) => Some(ChildStatus::Killed(signal as i32)),
            Ok(_) | Err(Errno::EINTR) => None,
            Err(_) => Some(ChildStatus::Taken),
        }
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
