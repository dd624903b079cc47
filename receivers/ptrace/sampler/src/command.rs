//! Starts a target's command, stopped at its first instruction.
//!
//! The child asks to be traced before it executes the program, so it stops by itself right after the exec, when the
//! program is mapped and none of it has run. Its files and maps are read then. As under any tracer, a set-user-ID
//! program started this way keeps the user who started it. If the starting process is killed within these milliseconds,
//! the child ends too. Later the command does not depend on it, unless it is bound to it ([`Bond`]).

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::prctl;
use nix::sys::ptrace;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::thread::CapabilitySet;

use crate::capability;
use crate::pidfd::PidFd;

/// The error with which the child reports that it may not be traced; exec never fails with it.
const REFUSED: i32 = libc::EPROTO;

/// The error with which the child reports that another process traces it already.
const TRACED: i32 = libc::EALREADY;

/// The number of `PR_SET_PTRACER` (prctl(2); Linux, `include/uapi/linux/prctl.h`), which libc defines for other
/// systems only.
const PR_SET_PTRACER: libc::c_int = 0x5961_6d61;

/// Settings that this process inherited and changed for itself, and that its commands need back. The priority is not
/// among them: only the sampling thread's is raised, and another thread starts commands.
#[derive(Debug, Clone, Copy)]
pub struct Inherited {
    /// The blocked signals. Ignored signals stay ignored, so a command under `nohup` is not ended by SIGHUP.
    pub(crate) signal_mask: SigSet,
    /// The limit on open files, soft and hard.
    pub(crate) files: (rlim_t, rlim_t),
    /// The limit on CPU time under real-time scheduling (`RLIMIT_RTTIME`), soft and hard.
    pub(crate) realtime: (rlim_t, rlim_t),
    /// The effective capabilities.
    pub(crate) capabilities: CapabilitySet,
}

impl Inherited {
    /// The current settings of the calling thread. Must be called before any of them is changed.
    ///
    /// # Errors
    ///
    /// The error of the system call.
    pub fn now() -> io::Result<Self> {
        Ok(Self {
            signal_mask: SigSet::thread_get_mask()?,
            files: getrlimit(Resource::RLIMIT_NOFILE)?,
            realtime: getrlimit(Resource::RLIMIT_RTTIME)?,
            capabilities: capability::in_effect(),
        })
    }
}

/// Whether a command ends together with the process that started it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bond {
    /// The command continues when the process that started it is gone.
    None,
    /// The command ends with the process of this id, which starts it: when that process is gone, the kernel kills the
    /// command (`PR_SET_PDEATHSIG` of prctl(2), which refers to the *thread* that started it). A program that changes
    /// its user by its exec loses the bond.
    Owner(u32),
}

/// Why a command could not be started.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The command line is empty.
    #[error("there is no command")]
    Empty,
    /// The program could not be executed.
    #[error("cannot execute {0}: {1}")]
    Execute(String, #[source] io::Error),
    /// The kernel does not allow tracing the command.
    #[error("the kernel does not allow to trace the command")]
    Refused,
    /// Another process traces the command already, as `strace -f` does with everything that this process starts.
    #[error("another process traces the command")]
    Traced,
    /// The command ended before its first instruction.
    #[error("the command ended before it began")]
    Ended,
}

impl CommandError {
    /// The exit code that a shell would report for this error.
    pub fn shell_code(&self) -> i32 {
        match self {
            Self::Execute(_, error) if error.kind() == io::ErrorKind::NotFound => 127,
            _ => 126,
        }
    }
}

/// A command that is stopped at its first instruction. Dropping this lets it run.
#[derive(Debug)]
pub(crate) struct Stopped {
    pid: Pid,
}

impl Stopped {
    /// The command's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw().unsigned_abs()
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // The signal of the stop is not delivered. An error means that the command was killed meanwhile.
        ptrace::detach(self.pid, None).ok();
    }
}

/// Starts a command. The calling thread becomes the tracer, so the same thread must drop the result. With a bond the
/// thread must live as long as the process.
///
/// # Errors
///
/// If there is no such program, or it cannot be executed or traced.
pub(crate) fn start(words: &[OsString], inherited: Inherited, bond: Bond) -> Result<(Stopped, PidFd), CommandError> {
    let (program, arguments) = words.split_first().ok_or(CommandError::Empty)?;
    let mut command = Command::new(program);
    command.args(arguments);
    #[allow(unsafe_code, reason = "std has no safe way to run something between fork and exec")]
    // SAFETY: the closure makes system calls only, allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(move || prepare(inherited, bond));
    }
    // std waits until the program is executed: by then the child is about to stop.
    let child = command.spawn().map_err(|error| match error.raw_os_error() {
        Some(REFUSED) => CommandError::Refused,
        Some(TRACED) => CommandError::Traced,
        _ => CommandError::Execute(program.to_string_lossy().into_owned(), error),
    })?;
    let pid = Pid::from_raw(child.id().cast_signed());
    loop {
        match waitpid(pid, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Stopped(_, Signal::SIGTRAP)) => break,
            // Another process sent a signal before the exec: deliver it.
            Ok(WaitStatus::Stopped(_, signal)) => {
                ptrace::cont(pid, signal).ok();
            }
            Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(nix::errno::Errno::ECHILD) => {
                return Err(CommandError::Ended);
            }
            Ok(_) | Err(_) => {}
        }
    }
    let stopped = Stopped { pid };
    let process = PidFd::open(stopped.pid())
        .map_err(|error| CommandError::Execute(program.to_string_lossy().into_owned(), error))?;
    Ok((stopped, process))
}

/// Runs in the child, between fork and exec.
fn prepare(inherited: Inherited, bond: Bond) -> io::Result<()> {
    if let Bond::Owner(owner) = bond {
        live_with(owner)?;
    }
    capability::restore(inherited.capabilities)?;
    // A limit that cannot be restored could not have been changed by the sampler either.
    setrlimit(Resource::RLIMIT_NOFILE, inherited.files.0, inherited.files.1).ok();
    setrlimit(Resource::RLIMIT_RTTIME, inherited.realtime.0, inherited.realtime.1).ok();
    ptrace::traceme().map_err(|_| io::Error::from_raw_os_error(if has_tracer() { TRACED } else { REFUSED }))?;
    // Signals are unblocked last: one that arrives now must find everything else as the command expects it.
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&inherited.signal_mask), None)?;
    Ok(())
}

/// Whether a process traces the calling one. Allocates nothing.
fn has_tracer() -> bool {
    let mut status = [0; 1024];
    let file = nix::fcntl::open(c"/proc/self/status", nix::fcntl::OFlag::O_RDONLY, nix::sys::stat::Mode::empty());
    let Ok(length) = file.and_then(|file| nix::unistd::read(file, &mut status)) else { return false };
    names_tracer(&status[..length])
}

fn names_tracer(status: &[u8]) -> bool {
    let mut lines = status.split(|byte| *byte == b'\n');
    lines.find_map(|line| line.strip_prefix(b"TracerPid:")).is_some_and(|tracer| tracer.trim_ascii() != b"0")
}

/// Makes the calling process, a child of the owner, end together with the owner.
fn live_with(owner: u32) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if nix::unistd::getppid().as_raw().unsigned_abs() != owner {
        // The owner died before the call above could take effect.
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    #[allow(unsafe_code, reason = "nix has no PR_SET_PTRACER")]
    // SAFETY: the call takes numbers only.
    unsafe {
        // If Yama lets only ancestors trace (`kernel.yama.ptrace_scope` 1), allow the owner's descendants as well: the
        // sampler process is a child of the owner, like the command. Without Yama this fails, which does not matter.
        libc::prctl(PR_SET_PTRACER, libc::c_ulong::from(owner), 0, 0, 0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the tracer of a process is read from its status, and none is invented.
    #[test]
    fn tracers() {
        assert!(names_tracer(b"Name:\tsh\nTracerPid:\t812\nUid:\t0\n"));
        for none in [&b"Name:\tsh\nTracerPid:\t0\nUid:\t0\n"[..], b"TracerPid", b""] {
            assert!(!names_tracer(none));
        }
    }
}
