//! The owner's side: starts the sampler process, tells it what to do, and hears what it says.
//!
//! The sampler process is this program executed once more, see `separation`. A thread of its own receives what it says
//! and checks it, since the sampler reads what targets made and may have been taken over by one: whatever breaks a rule
//! of [`crate::protocol`] ends it. Whoever uses this crate calls [`run_if_sampler`] in the first line of `main`.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use crate::message::Event;

mod gaps;
mod process;
mod receive;
mod supervised;

pub use crate::command::{CommandError, Inherited};
pub use crate::separation::{give_up_ptrace, run_if_sampler};
pub use gaps::Gaps;
pub use process::SamplerProcess;
pub(crate) use receive::close_on_exec;
pub use supervised::{SuperviseError, Supervised};

/// How the sampler process is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartOptions {
    /// Whether its sampling thread asks for the real-time scheduler instead of a nice value, see
    /// [`crate::sampler::Options`].
    pub realtime: bool,
    /// How many events may wait for the owner, at most. When they do, the sampler drops its oldest samples and counts
    /// them. An event takes at most about half a MiB.
    pub waiting: usize,
}

impl Default for StartOptions {
    fn default() -> Self {
        Self { realtime: false, waiting: 64 }
    }
}

/// Why there is no sampler process.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Nothing can be sampled on this machine.
    #[error("processes cannot be sampled on {0} yet, only on x86_64")]
    Architecture(&'static str),
    /// It could not be started.
    #[error("cannot start the sampler process: {0}")]
    Start(#[source] io::Error),
}

/// Why a command was not said.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The sampler process ended, or is about to.
    #[error("the sampler process is gone")]
    Gone,
    /// The command does not fit into a packet.
    #[error("a command of {length} bytes is longer than {limit}")]
    TooLong {
        /// Its length in bytes.
        length: usize,
        /// The longest.
        limit: usize,
    },
    /// The sampler process did not take it within a second.
    #[error("the sampler process does not answer")]
    Busy,
    /// What else the kernel said.
    #[error("cannot speak to the sampler process: {0}")]
    Io(#[source] io::Error),
}

/// What the owner hears.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all are events, which are moved and not kept")]
pub enum Notice {
    /// The sampler process said something, and it is consistent with all that it said before.
    Event(Event),
    /// The sampler process ended. Said once, and nothing after it. Whatever was being sampled runs on.
    Ended(Ending),
}

/// How the sampler process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It was asked to, and said all that was left.
    Stopped,
    /// It ended by itself, with this code.
    Exited(i32),
    /// A signal ended it: the signal's number.
    Killed(i32),
    /// It was asked to stop, did not within [`crate::message::STOP_TIMEOUT`], and was ended.
    TimedOut,
    /// It said something that breaks the rules, and was ended: what, for a person.
    Misbehaved(String),
    /// It ended, and somebody else in this process took its exit status.
    Unknown,
}

/// What the sampler process says, in order. Ends behind [`Notice::Ended`].
#[derive(Debug)]
pub struct Events {
    receiver: Receiver<Notice>,
}

impl Events {
    /// The next notice, after waiting for it for some time. `Err(Timeout)` if there is none so far, `Err(Disconnected)`
    /// at the end.
    ///
    /// # Errors
    ///
    /// As [`Receiver::recv_timeout`].
    pub fn next_within(&self, time: Duration) -> Result<Notice, RecvTimeoutError> {
        self.receiver.recv_timeout(time)
    }

    /// The next notice, if there is one.
    ///
    /// # Errors
    ///
    /// As [`Receiver::try_recv`].
    pub fn try_next(&self) -> Result<Notice, TryRecvError> {
        self.receiver.try_recv()
    }
}

impl Iterator for Events {
    type Item = Notice;

    /// Waits for the next notice.
    fn next(&mut self) -> Option<Notice> {
        self.receiver.recv().ok()
    }
}
