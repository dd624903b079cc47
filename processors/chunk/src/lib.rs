//! The processor `chunk`: cuts profiles by process, then by time and size.
//!
//! Each batch that `chunk` sends contains at most a minute of one process, which Sentry accepts as a chunk of one
//! profiler. Profiles of all processes of a machine arrive every few seconds; `chunk` splits them up, holds them in
//! windows of event time, and reassembles them by process. See `README.md` for its options and guarantees,
//! `profbridge_identity` for the identity of a process and the window of an observation, and `parts.rs` for
//! observations longer than a window.
//!
//! Only the further parts of such observations are added, and only output that a hostile request would multiply is lost
//! (see `budget.rs`). When a bound is reached, a window closes early, which only gives the Sentry user one more chunk.
//! Each call sends at most one window; a large request is absorbed in pieces, and the windows that it fills are sent in
//! between.

mod budget;
mod config;
mod divide;
mod hold;
mod instant;
mod key;
mod parts;
mod whole;

use profbridge_engine::component::{Held, Now, Outbox, Processor};
use profbridge_engine::registry::{Description, PROFILES, ProcessorFactory};
use profbridge_model::{Profiles, Telemetry};

pub use profbridge_windows::{CLOSED_EARLY, PAYLOAD_REMOVED};

pub use self::config::{Config, Settings};
use self::hold::Hold;
use self::instant::Instant;
use self::whole::WholeChunks;

/// Note: observations of processes that could not be identified, see `profbridge_identity`.
pub const WEAK_IDENTITY: &str = "weak_identity";

/// The processor's entry in the registry.
pub const FACTORY: ProcessorFactory = ProcessorFactory {
    // A window merges many requests, so a resend cannot be detected after `chunk`, and names are already stored once.
    // Samples that `sample` removes after `chunk` would still count in the window's time range.
    description: Description::processor("chunk", "cuts profiles by process, time and size", PROFILES).behind(&[
        "sample",
        "dedup",
        "link_spans",
        "symbolize",
    ]),
    create: |section, identity| Ok(Box::new(ChunkProcessor::new(Config::read(section)?.check(section, identity)?))),
};

/// The processor.
pub struct ChunkProcessor {
    whole: WholeChunks,
    /// Set if requests are cut at once, without being held.
    instant: Option<Instant>,
    hold: Hold,
}

impl ChunkProcessor {
    /// Creates a processor that holds nothing.
    pub fn new(settings: Settings) -> Self {
        let instant = (settings.rules.window == 0).then(Instant::default);
        Self { whole: WholeChunks::default(), instant, hold: Hold::new(settings) }
    }

    /// The size of the distinct elements in all held dictionaries in bytes, without hash tables and unused capacity.
    /// The rest of the memory is the cost of the observations.
    pub fn distinct_bytes(&self) -> u64 {
        self.hold.distinct_bytes()
    }

    /// Cuts or holds profiles.
    fn take(&mut self, profiles: Profiles, now: Now, out: &mut Outbox) {
        self.hold.add_allowance(profiles.size_bytes());
        match &mut self.instant {
            Some(instant) => instant.cut(profiles, &mut self.hold, now, out),
            None => self.hold.take(profiles, now, out),
        }
    }

    /// Whether a request is being cut that is sent at once.
    fn is_cutting(&self) -> bool {
        self.instant.as_ref().is_some_and(|instant| instant.is_cutting() || !self.hold.is_empty())
    }

    /// Sends the next chunk of a request, or processes the rest of it.
    fn go_on(&mut self, now: Now, out: &mut Outbox) {
        if let Some(rest) = self.whole.go_on(out) {
            self.take(rest, now, out);
        }
    }
}

impl Processor for ChunkProcessor {
    fn fit_memory(&mut self, limit: u64) {
        self.hold.fit_memory(limit);
    }

    fn process(&mut self, telemetry: Telemetry, now: Now, out: &mut Outbox) {
        match telemetry {
            Telemetry::Profiles(profiles) => match self.whole.take(profiles) {
                Some(profiles) => self.take(profiles, now, out),
                None => self.go_on(now, out),
            },
            // Spans are not cut. An envelope is delivered as a unit, and its profiles are chunks already.
            other => out.send(other),
        }
    }

    fn is_absorbing(&self) -> bool {
        self.whole.is_busy() || self.is_cutting() || self.hold.is_absorbing()
    }

    fn due(&self) -> Option<u64> {
        if self.is_absorbing() { Some(0) } else { self.hold.due() }
    }

    fn advance(&mut self, now: Now, out: &mut Outbox) {
        if self.whole.is_busy() {
            return self.go_on(now, out);
        }
        match &mut self.instant {
            Some(instant) if self.hold.is_empty() => instant.go_on(&mut self.hold, out),
            _ => self.hold.advance(now, out),
        }
    }

    fn on_memory_pressure(&mut self, _now: Now, out: &mut Outbox) -> bool {
        self.hold.on_memory_pressure(out)
    }

    fn flush(&mut self, now: Now, out: &mut Outbox) -> bool {
        if self.is_absorbing() {
            self.advance(now, out);
            return true;
        }
        self.hold.flush(out)
    }

    fn held(&self) -> Held {
        let (observations, bytes) = match &self.instant {
            Some(instant) => (instant.observations(), instant.bytes()),
            None => (0, 0),
        };
        let observations = observations + self.hold.observations() + self.whole.observations();
        Held::observations(observations, bytes + self.hold.bytes() + self.whole.bytes())
    }
}
