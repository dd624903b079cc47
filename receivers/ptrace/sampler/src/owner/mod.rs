//! The owner's side: starts the sampler process, sends it commands, and receives its events.
//!
//! The sampler process is this program executed once more, see `separation`. A thread receives its events and checks
//! them, because the sampler reads data made by targets and one of them may have taken it over: breaking a rule of
//! [`crate::protocol`] ends the sampler. The host program must call [`run_if_sampler`] in the first line of `main`. It
//! may block SIGCHLD, and wait for children of its own.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use profbridge_sampler::message::{Command, Event, Select, Settings, Target, TargetId};
//! use profbridge_sampler::{Notice, SamplerProcess, StartOptions, run_if_sampler};
//!
//! fn main() -> ExitCode {
//!     if let Some(code) = run_if_sampler() {
//!         return code;
//!     }
//!     let (sampler, events) = SamplerProcess::start(StartOptions::default()).expect("on x86-64 Linux");
//!     let target = Target {
//!         id: TargetId(0),
//!         select: Select::Pid(4711),
//!         settings: Settings::default(),
//!         environment: Vec::new(),
//!         thread_attributes: Vec::new(),
//!         sample_at_once: true,
//!     };
//!     sampler.send(Command::Watch(target)).expect("it runs");
//!     for notice in events {
//!         match notice {
//!             Notice::Event(Event::Batch(batch)) => println!("{} samples", batch.samples.len()),
//!             Notice::Event(Event::Problem(problem)) => eprintln!("{}", problem.message),
//!             Notice::Event(Event::Detached { .. }) => drop(sampler.send(Command::Stop)),
//!             Notice::Event(_) => {}
//!             Notice::Ended(ending) => println!("{ending:?}"),
//!         }
//!     }
//!     ExitCode::SUCCESS
//! }
//! ```

use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::message::{Event, STOP_TIMEOUT};

mod gaps;
mod process;
mod receive;
mod supervised;

pub use crate::capability::{confine_host, hands_rights_on};
pub use crate::command::{CommandError, Inherited};
pub use crate::separation::run_if_sampler;
pub use gaps::Gaps;
pub use process::SamplerProcess;
pub(crate) use receive::close_on_exec;
pub use supervised::{SuperviseError, Supervised};

/// Options for starting the sampler process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartOptions {
    /// Whether the sampling thread uses the real-time scheduler instead of a nice value, see
    /// [`crate::sampler::SamplerOptions`].
    pub realtime: bool,
    /// Whether targets may be commands ([`Select::Command`](crate::message::Select::Command)): then the sampler process
    /// keeps the rights that commands need.
    pub commands: bool,
    /// How many events may be queued for the owner. Beyond that the sampler drops its oldest samples and counts them.
    /// An event takes about a MiB at most.
    pub waiting: usize,
    /// How long the sampler process may take to end after [`Command::Stop`](crate::message::Command::Stop) before it is
    /// killed. Normally it needs less than [`STOP_TIMEOUT`], whatever this value is.
    pub stop_timeout: Duration,
}

impl Default for StartOptions {
    fn default() -> Self {
        Self { realtime: false, commands: false, waiting: 64, stop_timeout: STOP_TIMEOUT }
    }
}

/// Why the sampler process could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Sampling is not possible on this machine.
    #[error("processes cannot be sampled on {0} yet, only on x86_64")]
    Architecture(&'static str),
    /// The process could not be started.
    #[error("cannot start the sampler process: {0}")]
    Start(#[source] io::Error),
}

/// Why a command could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The sampler process has ended, or is about to.
    #[error("the sampler process is gone")]
    Gone,
    /// The command does not fit into a packet.
    #[error("a command of {length} bytes is longer than {limit}")]
    TooLong {
        /// The length of the command in bytes.
        length: usize,
        /// The maximum length in bytes.
        limit: usize,
    },
    /// The sampler process did not accept the command within a second.
    #[error("the sampler process does not answer")]
    Busy,
    /// Another error of the kernel.
    #[error("cannot speak to the sampler process: {0}")]
    Io(#[source] io::Error),
}

/// What the owner receives.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all are events, which are moved and not kept")]
pub enum Notice {
    /// An event of the sampler process, consistent with all previous events.
    Event(Event),
    /// The sampler process has ended. Sent once, as the last notice. The sampled processes continue to run.
    Ended(Ending),
}

/// How the sampler process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The sampler process ended as requested, and sent all remaining data.
    Stopped,
    /// The sampler process ended by itself, with this exit code.
    Exited(i32),
    /// The signal with this number ended the sampler process.
    Killed(i32),
    /// The sampler process did not end within [`StartOptions::stop_timeout`], and was killed.
    TimedOut,
    /// The sampler process broke a rule of the protocol and was killed. The text names the rule, for the operator.
    Misbehaved(String),
    /// The sampler process ended, but other code in this process collected its exit status.
    Unknown,
}

/// The text for the operator.
impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("it stopped"),
            Self::Exited(code) => write!(f, "exit code {code}"),
            Self::Killed(signal) => write!(f, "signal {signal}"),
            Self::TimedOut => f.write_str("it did not stop in time"),
            Self::Misbehaved(rule) => write!(f, "it broke the rules: {rule}"),
            Self::Unknown => f.write_str("its exit status is unknown"),
        }
    }
}

/// The notices of the sampler process, in order. Ends after [`Notice::Ended`].
#[derive(Debug)]
pub struct Events {
    receiver: Receiver<Notice>,
}

impl Events {
    /// The next notice; waits for `time` at most. `Err(Timeout)` if none arrived, `Err(Disconnected)` at the end.
    ///
    /// # Errors
    ///
    /// See [`Receiver::recv_timeout`].
    pub fn next_within(&self, time: Duration) -> Result<Notice, RecvTimeoutError> {
        self.receiver.recv_timeout(time)
    }
}

impl Iterator for Events {
    type Item = Notice;

    /// Waits for the next notice.
    fn next(&mut self) -> Option<Notice> {
        self.receiver.recv().ok()
    }
}
