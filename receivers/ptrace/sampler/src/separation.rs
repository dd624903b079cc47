//! The sampler as a process of its own: how it is recognized, with whom it ends, and what it must not keep.
//!
//! It alone holds the right to trace, listens on no port, and lives no longer than its owner: the kernel ends it with
//! the thread that started it, and the end of the socket says so too. Signals that a terminal or a service manager
//! sends to a whole group leave it alone, since its owner decides what they mean: an interrupted `profbridge sample`
//! still wants the samples.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::process::ExitCode;

use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use nix::sys::socket::{SockType, getsockopt, sockopt};

use crate::capability;
use crate::command::Inherited;
use crate::control;

/// What `ps` shows.
pub(crate) const PROCESS_NAME: &str = "profbridge-sampler";

/// What the process name is cut to in `/proc/PID/comm`: 15 bytes.
const THREAD_NAME: &std::ffi::CStr = c"profbridge-smpl";

/// The first argument of a program that is to be the sampler. It is not meant for people, so it is no option of theirs.
const MARKER: &str = "--profbridge-ptrace-sampler";

/// What the sampler process is told on its command line when it is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// The socket's descriptor.
    pub(crate) socket: RawFd,
    /// The process that started it.
    pub(crate) owner: u32,
    /// Whether real-time scheduling was asked for.
    pub(crate) realtime: bool,
    /// Whether it starts commands.
    pub(crate) commands: bool,
}

impl Arguments {
    /// Makes the words of a command line, without the name of the program.
    pub(crate) fn to_words(self) -> [String; 5] {
        let priority = if self.realtime { "realtime" } else { "nice" };
        let duty = if self.commands { "commands" } else { "attach" };
        [MARKER.to_owned(), self.socket.to_string(), self.owner.to_string(), priority.to_owned(), duty.to_owned()]
    }

    /// Reads what [`Self::to_words`] wrote; `None` if the marker is missing, an error if something is wrong behind it.
    fn from_words(words: &[OsString]) -> Option<Result<Self, &'static str>> {
        let mut words = words.iter().map(|word| word.to_str().unwrap_or_default());
        if words.next() != Some(MARKER) {
            return None;
        }
        let socket = words.next().and_then(|word| word.parse().ok()).filter(|socket| *socket > 2);
        let owner = words.next().and_then(|word| word.parse().ok());
        let realtime = match words.next() {
            Some("realtime") => Some(true),
            Some("nice") => Some(false),
            _ => None,
        };
        let commands = match words.next() {
            Some("commands") => Some(true),
            Some("attach") => Some(false),
            _ => None,
        };
        match (socket, owner, realtime, commands, words.next()) {
            (Some(socket), Some(owner), Some(realtime), Some(commands), None) => {
                Some(Ok(Self { socket, owner, realtime, commands }))
            }
            _ => Some(Err("started by hand: this is how profbridge starts its sampler")),
        }
    }
}

/// Is the sampler process, if this program was executed to be it: returns its exit code then, for `main` to return. To
/// be called in the first line of `main`, before any thread is started.
pub fn run_if_sampler() -> Option<ExitCode> {
    let words: Vec<OsString> = std::env::args_os().skip(1).take(6).collect();
    let result = match Arguments::from_words(&words)? {
        Ok(arguments) => run(arguments),
        Err(message) => Err(io::Error::new(io::ErrorKind::InvalidInput, message)),
    };
    match result {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(error) => {
            say(&error);
            Some(ExitCode::FAILURE)
        }
    }
}

#[allow(clippy::print_stderr, reason = "the sampler process has no log, and its owner sees only the exit code")]
fn say(error: &io::Error) {
    eprintln!("profbridge-sampler: {error}");
}

fn run(arguments: Arguments) -> io::Result<()> {
    let socket = take_socket(arguments.socket)?;
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if nix::unistd::getppid().as_raw().unsigned_abs() != arguments.owner {
        // The owner died before it could be watched: there is nobody left to sample for.
        return Ok(());
    }
    // Nobody of the same user may look into it, a target included; and its memory, which holds what targets had on
    // their stacks, is never written to a core file.
    prctl::set_dumpable(false)?;
    prctl::set_name(THREAD_NAME)?;
    let inherited = Inherited {
        signal_mask: block_signals()?,
        files: raise_file_limit()?,
        realtime: realtime_limit()?,
        capabilities: capability::confine_sampler(arguments.commands)?,
    };
    control::run(socket, arguments.owner, arguments.realtime, inherited)
}

/// Takes the descriptor that the owner handed on.
fn take_socket(number: RawFd) -> io::Result<OwnedFd> {
    #[allow(unsafe_code, reason = "the number comes from the command line")]
    // SAFETY: whoever wrote the marker handed this descriptor on for nobody else in this process, which has done
    // nothing so far. If it is none, the next call says so; it is above 2, so no standard stream is taken.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    match getsockopt(&socket.as_fd(), sockopt::SockType) {
        Ok(SockType::SeqPacket) => {}
        result => {
            // It belongs to somebody else, who closes it.
            std::mem::forget(socket);
            return Err(match result {
                Ok(_) => io::Error::new(io::ErrorKind::InvalidInput, "the descriptor is no packet socket"),
                Err(error) => error.into(),
            });
        }
    }
    crate::owner::close_on_exec(&socket)?;
    Ok(socket)
}

/// Blocks the signals that are meant for the owner, and the one that announces stops, in this thread and so in all that
/// it starts. Returns the mask from before.
fn block_signals() -> io::Result<SigSet> {
    let mut blocked = SigSet::empty();
    for signal in [
        // The sampling thread waits for it, see `Sampler::start`.
        Signal::SIGCHLD,
        // A terminal sends these to the whole foreground group. A sampler that SIGTSTP stopped would keep the threads
        // that it has stopped.
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTSTP,
        Signal::SIGTTIN,
        Signal::SIGTTOU,
        Signal::SIGHUP,
        // A service manager sends this to the whole control group.
        Signal::SIGTERM,
    ] {
        blocked.add(signal);
    }
    let mut before = SigSet::empty();
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&blocked), Some(&mut before))?;
    Ok(before)
}

/// Allows as many open files as the system allows: each process needs some, and each of its mapped files one. Returns
/// the limit from before.
fn raise_file_limit() -> io::Result<(u64, u64)> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    // Fails only if the hard limit was lowered meanwhile.
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).ok();
    Ok((soft, hard))
}

/// The limit on real-time computing from before the sampling thread sets one for itself.
fn realtime_limit() -> io::Result<(u64, u64)> {
    Ok(getrlimit(Resource::RLIMIT_RTTIME)?)
}

#[cfg(test)]
mod tests;
