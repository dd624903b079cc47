//! A command that the owner starts itself.
//!
//! It is a child of the owner, not of the sampler process. So its exit status cannot be lost, a forwarded signal
//! reaches it and no other process, it continues when the sampler process ends, and the kernel ends it when the owner
//! is killed. A separate thread starts the command, keeps it stopped at its first instruction until it may run, and
//! waits for its end: only that thread is its tracer, and the kernel ends the command together with that thread.

use std::ffi::OsString;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpgid, getpgrp};

use crate::command::{self, Bond, CommandError, Inherited};
use crate::pidfd::{ChildStatus, PidFd};
use crate::rights::Powers;

/// The exit code that is reported if other code in this program collected the real one.
const UNKNOWN_CODE: i32 = 255;

/// How long one wait for the command's end lasts before it is repeated.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Why a command was not started.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// The command cannot be executed or traced.
    #[error("{0}")]
    Command(#[from] CommandError),
    /// The kernel does not permit tracing the command. The text names the missing right, for the operator.
    #[error("{0}")]
    Refused(String),
    /// No thread could be started for the command.
    #[error("no thread can be started: {0}")]
    Thread(#[source] io::Error),
}

impl SuperviseError {
    /// The exit code that a shell would report: 127 if there is no such program, else 126.
    pub fn shell_code(&self) -> i32 {
        match self {
            Self::Command(error) => error.shell_code(),
            Self::Refused(_) | Self::Thread(_) => 126,
        }
    }
}

/// A command that is stopped at its first instruction until it may run. Dropping this before then ends the command;
/// dropping it later lets the command continue, at most until this process ends.
#[derive(Debug)]
pub struct Supervised {
    pid: u32,
    process: Arc<PidFd>,
    code: Arc<OnceLock<i32>>,
    held: Mutex<Option<SyncSender<()>>>,
}

impl Supervised {
    /// Starts a command with the standard streams of this process.
    ///
    /// # Errors
    ///
    /// If there is no such program, or it cannot be executed or traced.
    pub fn start(words: Vec<OsString>, inherited: Inherited) -> Result<Self, SuperviseError> {
        let (started, starting) = sync_channel(1);
        let (held, release) = sync_channel(1);
        let code = Arc::new(OnceLock::new());
        let ended = Arc::clone(&code);
        let supervise = move || match command::start(&words, inherited, Bond::Owner(std::process::id())) {
            Err(error) => drop(started.send(Err(error))),
            Ok((stopped, process)) => {
                let process = Arc::new(process);
                drop(started.send(Ok((stopped.pid(), Arc::clone(&process)))));
                if is_unwanted(&release) {
                    // This fails only if the command has ended already.
                    drop(process.signal(Signal::SIGKILL));
                }
                drop(stopped);
                let status = wait(&process);
                // No other code sets this value, so setting it cannot fail.
                ended.set(status.shell_code().unwrap_or(UNKNOWN_CODE)).ok();
            }
        };
        let thread = std::thread::Builder::new().name("command".to_owned());
        thread.spawn(supervise).map_err(SuperviseError::Thread)?;
        let started = starting.recv().unwrap_or(Err(CommandError::Ended));
        let (pid, process) = started.map_err(|error| match error {
            CommandError::Refused => SuperviseError::Refused(Powers::read().explain_command(false)),
            CommandError::Traced => SuperviseError::Refused(Powers::read().explain_command(true)),
            error => SuperviseError::Command(error),
        })?;
        Ok(Self { pid, process, code, held: Mutex::new(Some(held)) })
    }

    /// The command's process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the command is still stopped at its first instruction.
    pub fn is_held(&self) -> bool {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Lets the command run, if it is still stopped at its first instruction.
    pub fn let_run(&self) {
        if let Some(held) = self.held.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // The thread waits for this message and for nothing else.
            held.send(()).ok();
        }
    }

    /// Sends the command a signal. A command that is still stopped gets the signal when it runs.
    ///
    /// # Errors
    ///
    /// The kernel's error: `ESRCH` if the command has ended, `EPERM` if it runs as another user.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        self.process.signal(signal)
    }

    /// Whether the command is in the caller's process group, so that it also gets the signals that a terminal sends to
    /// that group.
    pub fn is_in_own_group(&self) -> bool {
        let group = getpgid(Some(Pid::from_raw(self.pid.cast_signed())));
        self.code.get().is_none() && group.is_ok_and(|group| group == getpgrp())
    }

    /// The exit code, or 128 plus the signal number; `None` while the command has not ended.
    pub fn exit_code(&self) -> Option<i32> {
        self.code.get().copied()
    }

    /// Waits at most `time` for the command's end. Returns whether it has ended.
    pub fn ended_within(&self, time: Duration) -> bool {
        self.process.ended_within(time)
    }
}

/// Waits until the command may run. Returns true if the handle was dropped instead.
fn is_unwanted(release: &Receiver<()>) -> bool {
    release.recv().is_err()
}

/// Waits for the command's end.
fn wait(process: &PidFd) -> ChildStatus {
    loop {
        if let Some(status) = process.take_status() {
            return status;
        }
        process.ended_within(PATIENCE);
    }
}
