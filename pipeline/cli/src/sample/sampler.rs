//! The sampler process of a run, and those that take its place.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use profbridge_sampler::message::{Command, Event, ProcessId};
use profbridge_sampler::owner::{Ending, Events, Notice, SamplerProcess, SendError, StartError, StartOptions};

/// Numbers of processes are told apart by the sampler process that chose them: each has this many.
const NUMBERS: u64 = 1 << 32;

/// A sampler process, while there is one.
#[derive(Debug)]
pub(super) struct Sampler {
    link: Option<(SamplerProcess, Events)>,
    /// What is added to the numbers of processes.
    base: u64,
    restarts: Restarts,
}

/// What was heard.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one is alive at a time")]
pub(super) enum Heard {
    /// The sampler process said something. Processes of different sampler processes have different numbers.
    Event(Event),
    /// Nothing, for the time that was given.
    Nothing,
    /// It ended. Said once for each.
    Ended(Ending),
    /// Another one took its place, and knows of no target so far.
    Started,
}

impl Sampler {
    /// Starts a sampler process.
    ///
    /// # Errors
    ///
    /// Nothing can be sampled on this machine, or no process can be started.
    pub(super) fn start() -> Result<Self, StartError> {
        let link = SamplerProcess::start(StartOptions::default())?;
        Ok(Self { link: Some(link), base: 0, restarts: Restarts::new(Instant::now()) })
    }

    /// Says something to it.
    ///
    /// # Errors
    ///
    /// There is none, or it does not listen.
    pub(super) fn send(&self, command: Command) -> Result<(), SendError> {
        let (process, _) = self.link.as_ref().ok_or(SendError::Gone)?;
        process.send(match command {
            Command::Sample { process, on } => Command::Sample { process: ProcessId(process.0 - self.base), on },
            command => command,
        })
    }

    /// Hears what it says next, for some time.
    pub(super) fn hear(&mut self, time: Duration) -> Heard {
        let Some((_, events)) = &self.link else { return self.start_again(time) };
        let ending = match events.next_within(time) {
            Ok(Notice::Event(event)) => return Heard::Event(renumbered(event, self.base)),
            Err(RecvTimeoutError::Timeout) => return Heard::Nothing,
            Ok(Notice::Ended(ending)) => ending,
            Err(RecvTimeoutError::Disconnected) => Ending::Unknown,
        };
        self.link = None;
        self.restarts.ended(Instant::now());
        Heard::Ended(ending)
    }

    /// Whether there is a sampler process, or will be one.
    pub(super) fn is_hopeful(&self) -> bool {
        self.link.is_some() || self.restarts.due.is_some()
    }

    /// Whether there is a sampler process.
    pub(super) fn is_there(&self) -> bool {
        self.link.is_some()
    }

    fn start_again(&mut self, time: Duration) -> Heard {
        let now = Instant::now();
        let left = self.restarts.due.map_or(time, |due| due.saturating_duration_since(now));
        if self.restarts.due.is_none() || left > time {
            std::thread::sleep(time);
            return Heard::Nothing;
        }
        std::thread::sleep(left);
        match SamplerProcess::start(StartOptions::default()) {
            Ok(link) => {
                self.link = Some(link);
                self.base += NUMBERS;
                self.restarts.started(Instant::now());
                Heard::Started
            }
            Err(_) => {
                self.restarts.ended(Instant::now());
                Heard::Nothing
            }
        }
    }
}

fn renumbered(mut event: Event, base: u64) -> Event {
    let process = match &mut event {
        Event::Attached(process) => &mut process.id,
        Event::Mapping(mapping) => &mut mapping.process,
        Event::Batch(batch) => &mut batch.process,
        Event::Status(status) => &mut status.process,
        Event::PerfMap { process, .. }
        | Event::Functions { process, .. }
        | Event::Resource { process, .. }
        | Event::Detached { process, .. } => process,
        Event::Ready(_) | Event::Problem(_) | Event::CommandEnded { .. } => return event,
    };
    process.0 = process.0.saturating_add(base);
    event
}

/// How often a sampler process is started again before it is given up, unless one lived for [`HEALTHY`].
const MOST: u32 = 5;

/// One that lived so long starts the series anew.
const HEALTHY: Duration = Duration::from_secs(60);

/// The pause before the second start of a series; each further one is twice as long. There is none before the first.
const PAUSE: Duration = Duration::from_millis(200);

/// When a sampler process that ended is started again.
#[derive(Debug)]
struct Restarts {
    started: Instant,
    count: u32,
    due: Option<Instant>,
}

impl Restarts {
    fn new(now: Instant) -> Self {
        Self { started: now, count: 0, due: None }
    }

    fn started(&mut self, now: Instant) {
        (self.started, self.due) = (now, None);
    }

    /// It ended, or could not be started.
    fn ended(&mut self, now: Instant) {
        if now.saturating_duration_since(self.started) >= HEALTHY {
            self.count = 0;
        }
        // What could not be started has not lived since.
        self.started = now;
        let pause = if self.count == 0 { Duration::ZERO } else { PAUSE * 2u32.pow(self.count - 1) };
        self.due = (self.count < MOST).then(|| now + pause);
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use profbridge_sampler::message::{Batch, Detached, Status};

    use super::*;

    /// Guarantees: a sampler process that ends is started again at once, then after pauses that double, and in the end
    /// no more; one that lived for a minute begins the series anew.
    #[test]
    fn restarts() {
        let start = Instant::now();
        let mut restarts = Restarts::new(start);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            restarts.ended(start);
            pauses.push(restarts.due.map(|due| (due - start).as_millis()));
            restarts.started(start);
            assert_eq!(restarts.due, None);
        }
        assert_eq!(pauses, [Some(0), Some(200), Some(400), Some(800), Some(1600), None]);
        restarts.ended(start + HEALTHY);
        assert_eq!(restarts.due, Some(start + HEALTHY));
    }

    /// Guarantees: one that cannot be started is tried no more often than one that ends.
    #[test]
    fn starts_that_fail() {
        let start = Instant::now();
        let mut restarts = Restarts::new(start);
        let mut now = start + HEALTHY;
        let attempts = std::iter::from_fn(|| {
            restarts.ended(now);
            now = restarts.due?;
            Some(now)
        });
        assert_eq!(attempts.count(), 5);
    }

    /// Guarantees: what two sampler processes say of processes with the same number is told apart, whatever they say.
    #[test]
    fn numbers() {
        let id = ProcessId(3);
        let events = [
            Event::Batch(Batch { process: id, ..Batch::default() }),
            Event::Status(Status { process: id, ..Status::default() }),
            Event::Detached { process: id, why: Detached::Exited },
        ];
        for event in events {
            let number = match renumbered(event, NUMBERS) {
                Event::Batch(batch) => batch.process,
                Event::Status(status) => status.process,
                Event::Detached { process, .. } => process,
                other => panic!("{other:?}"),
            };
            assert_eq!(number, ProcessId(NUMBERS + 3));
        }
    }
}
