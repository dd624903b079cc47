//! The processor `dedup`: drops resent profiles, and merges the requests of a sender.
//!
//! A sender repeats a request if the answer was lost, so profiles would be counted twice. Senders also send every few
//! seconds, each time with the same names; fewer and larger requests avoid this repetition. See `README.md` for the
//! options and guarantees.
//!
//! Directly before `chunk`, merging is unnecessary: windows of `chunk` share one dictionary as well.
//!
//! This crate compares profiles by value, and knows no format; `profbridge_windows` stores the senders' windows.

mod config;
mod merge;
mod resends;

use profbridge_engine::component::{Held, Now, Outbox, Processor};
use profbridge_engine::registry::{Description, PROFILES, ProcessorFactory};
use profbridge_model::arena::Work;
use profbridge_model::{Telemetry, whole_chunk};

use self::merge::Merge;
use self::resends::Resends as Memory;

pub use profbridge_windows::{CLOSED_EARLY, PAYLOAD_REMOVED};

pub use self::config::{Config, Resends, Settings};

/// Note: profiles that were removed from memory early, so that a resend of them would not be detected.
pub const FORGOTTEN: &str = "forgotten_early";

/// The processor's entry in the registry.
pub const FACTORY: ProcessorFactory = ProcessorFactory {
    description: Description::processor("dedup", "drops profiles that were sent twice, and merges requests", PROFILES),
    create: |section, _| {
        Ok(Box::new(Dedup::new(section.extract_checked(|config: Config, section| config.check(section))?)))
    },
};

/// The processor.
#[derive(Debug)]
pub struct Dedup {
    resends: Option<Memory>,
    merge: Option<Merge>,
}

impl Dedup {
    /// A processor without any data.
    pub fn new(settings: Settings) -> Self {
        Self {
            resends: settings.memory.map(|memory| Memory::new(memory, settings.max_entries)),
            merge: (settings.window > 0).then(|| Merge::new(settings)),
        }
    }

    /// The amount of work for merging. Tests use it to show linear cost without measuring time.
    pub fn work(&self) -> Work {
        self.merge.as_ref().map(|merge| merge.requests.work()).unwrap_or_default()
    }
}

impl Processor for Dedup {
    fn fit_memory(&mut self, limit: u64) {
        if let Some(merge) = &mut self.merge {
            merge.fit_memory(limit);
        }
    }

    fn is_absorbing(&self) -> bool {
        self.merge.as_ref().is_some_and(|merge| merge.requests.is_absorbing())
    }

    fn process(&mut self, telemetry: Telemetry, now: Now, out: &mut Outbox) {
        let profiles = match telemetry {
            Telemetry::Profiles(profiles) => profiles,
            // Spans cannot be merged. An envelope is delivered as a whole, and Sentry detects duplicates in it by their
            // ids.
            other => return out.send(other),
        };
        let profiles = match &mut self.resends {
            Some(memory) => memory.filter(profiles, now, out),
            None => Some(profiles),
        };
        match (profiles, &mut self.merge) {
            (None, _) => {}
            (Some(profiles), None) => out.send(profiles),
            // Merging would combine equal resources, but relayed ones may be of different machines.
            (Some(profiles), Some(_)) if profiles.relayed => out.send(profiles),
            // A profile that is already a Sentry chunk must not be merged with anything.
            (Some(profiles), Some(_)) if whole_chunk::any(&profiles) => out.send(profiles),
            (Some(profiles), Some(merge)) => merge.take(profiles, now, out),
        }
    }

    fn due(&self) -> Option<u64> {
        self.merge.as_ref()?.requests.due()
    }

    fn advance(&mut self, now: Now, out: &mut Outbox) {
        if let Some(merge) = &mut self.merge {
            merge.advance(now, out);
        }
    }

    fn on_memory_pressure(&mut self, _now: Now, out: &mut Outbox) -> bool {
        self.merge.as_mut().is_some_and(|merge| merge.on_memory_pressure(out))
    }

    fn flush(&mut self, now: Now, out: &mut Outbox) -> bool {
        self.merge.as_mut().is_some_and(|merge| merge.flush(now, out))
    }

    fn held(&self) -> Held {
        let memory = self.resends.as_ref().map_or(0, Memory::bytes);
        let (observations, bytes) = match &self.merge {
            Some(Merge { requests, .. }) => (requests.observations(), requests.bytes()),
            None => (0, 0),
        };
        Held::observations(observations, memory + bytes)
    }
}
