//! The sampler process of a run, and its successors.

use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use profbridge_receiver_ptrace::restarts::Restarts;
use profbridge_sampler::message::{Command, Event};
use profbridge_sampler::owner::{Ending, Events, Notice, SamplerProcess, SendError, StartError, StartOptions};
use tokio::time::Instant;

/// A sampler process, which may be missing for a while.
#[derive(Debug)]
pub(super) struct Sampler {
    link: Option<(SamplerProcess, Events)>,
    restarts: Restarts,
}

/// The result of waiting for the sampler process.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one is alive at a time")]
pub(super) enum NextEvent {
    /// It sent an event.
    Event(Event),
    /// Nothing happened in the given time.
    Nothing,
    /// It ended. Returned once for each process.
    Ended(Ending),
    /// A new one was started, which has no targets yet.
    Started,
}

impl Sampler {
    /// Starts a sampler process.
    ///
    /// # Errors
    ///
    /// Nothing can be sampled on this machine, or no process can be started.
    pub(super) fn start() -> Result<Self, StartError> {
        let mut sampler = Self { link: None, restarts: Restarts::of_run() };
        sampler.launch()?;
        Ok(sampler)
    }

    fn launch(&mut self) -> Result<(), StartError> {
        self.link = Some(SamplerProcess::start(StartOptions::default())?);
        self.restarts.started(Instant::now());
        Ok(())
    }

    /// Sends a command to it.
    ///
    /// # Errors
    ///
    /// There is no sampler process, or it does not accept the command.
    pub(super) fn send(&self, command: Command) -> Result<(), SendError> {
        let (process, _) = self.link.as_ref().ok_or(SendError::Gone)?;
        process.send(command)
    }

    /// Waits at most `time` for its next event.
    pub(super) fn next_event(&mut self, time: Duration) -> NextEvent {
        let Some((_, events)) = &self.link else { return self.start_again(time) };
        let ending = match events.next_within(time) {
            Ok(Notice::Event(event)) => return NextEvent::Event(event),
            Err(RecvTimeoutError::Timeout) => return NextEvent::Nothing,
            Ok(Notice::Ended(ending)) => ending,
            Err(RecvTimeoutError::Disconnected) => Ending::Unknown,
        };
        self.link = None;
        self.restarts.ended(Instant::now());
        NextEvent::Ended(ending)
    }

    /// Whether there is a sampler process, or one will be started.
    pub(super) fn is_hopeful(&self) -> bool {
        self.link.is_some() || self.restarts.due().is_some()
    }

    /// Whether there is a sampler process.
    pub(super) fn is_there(&self) -> bool {
        self.link.is_some()
    }

    fn start_again(&mut self, time: Duration) -> NextEvent {
        let left = self.restarts.due().map(|due| due.saturating_duration_since(Instant::now()));
        let Some(left) = left.filter(|left| *left <= time) else {
            std::thread::sleep(time);
            return NextEvent::Nothing;
        };
        std::thread::sleep(left);
        if self.launch().is_ok() {
            return NextEvent::Started;
        }
        self.restarts.ended(Instant::now());
        NextEvent::Nothing
    }
}
