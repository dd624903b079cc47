//! The sampler as a separate process: how the program recognizes that it is the sampler, when it ends, and which rights
//! it gives up.
//!
//! Only this process has the right to trace. It listens on no port, and does not outlive its owner: the kernel ends it
//! together with the thread that started it, and it ends itself when the socket is closed. It ignores signals that a
//! terminal or a service manager sends to a whole group, since its owner decides what they mean: an interrupted
//! `profbridge sample` still wants the samples.

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

/// The process name that `ps` shows.
pub(crate) const PROCESS_NAME: &str = "profbridge-sampler";

/// The name in `/proc/PID/comm`, which is limited to 15 bytes.
const THREAD_NAME: &std::ffi::CStr = c"profbridge-smpl";

/// The first argument of the sampler process. It is internal, so the command line's help does not list it.
const MARKER: &str = "--profbridge-ptrace-sampler";

/// The sampler's command line arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// The socket's descriptor.
    pub(crate) socket: RawFd,
    /// The id of the process that started the sampler.
    pub(crate) owner: u32,
    /// Whether real-time scheduling is requested.
    pub(crate) realtime: bool,
    /// Whether the sampler starts commands.
    pub(crate) commands: bool,
}

impl Arguments {
    /// The command line arguments, without the name of the program.
    pub(crate) fn to_words(self) -> [String; 5] {
        let priority = if self.realtime { "realtime" } else { "nice" };
        let duty = if self.commands { "commands" } else { "attach" };
        [MARKER.to_owned(), self.socket.to_string(), self.owner.to_string(), priority.to_owned(), duty.to_owned()]
    }

    /// Parses the output of [`Self::to_words`]; `None` if the marker is missing, an error if the words after it are
    /// invalid.
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

/// Runs the sampler if this program was executed as the sampler process: returns its exit code, for `main` to return.
/// Must be called in the first line of `main`, before any thread is started.
pub fn run_if_sampler() -> Option<ExitCode> {
    let words: Vec<OsString> = std::env::args_os().skip(1).take(6).collect();
    let result = match Arguments::from_words(&words)? {
        Ok(arguments) => run(arguments),
        Err(message) => Err(io::Error::new(io::ErrorKind::InvalidInput, message)),
    };
    match result {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(error) => {
            print_error(&error);
            Some(ExitCode::FAILURE)
        }
    }
}

#[allow(clippy::print_stderr, reason = "the sampler process has no log, and its owner sees only the exit code")]
fn print_error(error: &io::Error) {
    eprintln!("profbridge-sampler: {error}");
}

fn run(arguments: Arguments) -> io::Result<()> {
    let socket = take_socket(arguments.socket)?;
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if nix::unistd::getppid().as_raw().unsigned_abs() != arguments.owner {
        // The owner died before the kernel could be asked to end this process with it: nobody wants samples.
        return Ok(());
    }
    // No other process of the same user, a target included, may read this one's memory; and that memory, which contains
    // data from targets' stacks, is never written to a core file.
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

/// Takes over the descriptor that the owner passed on.
fn take_socket(number: RawFd) -> io::Result<OwnedFd> {
    #[allow(unsafe_code, reason = "the number comes from the command line")]
    // SAFETY: no other code in this process owns the descriptor, since the process has done nothing else so far. If it
    // is not an open descriptor, the next call fails; it is above 2, so it is not a standard stream.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    match getsockopt(&socket.as_fd(), sockopt::SockType) {
        Ok(SockType::SeqPacket) => {}
        result => {
            // The descriptor belongs to other code, which closes it.
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

/// Blocks the signals that are meant for the owner, and the one that announces stops, in this thread and in all threads
/// that it starts. Returns the previous mask.
fn block_signals() -> io::Result<SigSet> {
    let mut blocked = SigSet::empty();
    for signal in [
        // The sampling thread waits for this signal, see `SamplingThread::start`.
        Signal::SIGCHLD,
        // A terminal sends these to the whole foreground group. If SIGTSTP stopped the sampler, threads that the
        // sampler has stopped would stay stopped.
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

/// Raises the limit on open files to the hard limit: each sampled process needs some, and each of its mapped files one.
/// Returns the previous limit.
fn raise_file_limit() -> io::Result<(u64, u64)> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    // This fails only if the hard limit was lowered meanwhile.
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).ok();
    Ok((soft, hard))
}

/// The limit on real-time computing before the sampling thread sets one for itself.
fn realtime_limit() -> io::Result<(u64, u64)> {
    Ok(getrlimit(Resource::RLIMIT_RTTIME)?)
}

#[cfg(test)]
mod tests;
