//! Helpers for the tests of components. The checkers panic with their findings, like assertions.

mod batch;
mod consumer;
mod drive;
mod exporter;
mod processor;
mod random;

pub use batch::batch;
pub use consumer::{Consumer, intake, intake_of};
pub use drive::{SECOND, advance, at, flush, note, process, sent_profiles};
pub use exporter::check_prepare;
pub use processor::check_processor;
pub use random::{profiles, telemetry};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use profbridge_engine::budget::Budget;
use profbridge_engine::clock::{Clock, nanos};
use profbridge_engine::component::Now;
use profbridge_engine::delivery::ExporterContext;
use profbridge_engine::peer_limits::PeerLimits;
use profbridge_engine::telemetry::Metrics;
use profbridge_engine::via::Via;

/// The time at which a [`ManualClock`] starts: 2026-01-01 00:00:00 UTC, in nanoseconds since the Unix epoch.
pub const START_UNIX_NANO: u64 = 1_767_225_600_000_000_000;

/// A clock that only moves by [`ManualClock::advance`]. Cheap to clone; clones share the time.
#[derive(Debug, Clone, Default)]
pub struct ManualClock {
    elapsed_nano: Arc<AtomicU64>,
}

impl ManualClock {
    /// The current time.
    pub fn now(&self) -> Now {
        let elapsed = self.elapsed_nano.load(Ordering::Relaxed);
        Now { monotonic_nano: elapsed, unix_nano: START_UNIX_NANO + elapsed }
    }

    /// Moves both times forward.
    pub fn advance(&self, by: Duration) {
        self.elapsed_nano.fetch_add(nanos(by), Ordering::Relaxed);
    }

    /// The same clock in the engine's type.
    pub fn clock(&self) -> Clock {
        let this = self.clone();
        Clock::from_fn(move || this.now())
    }
}

/// The context that the engine provides to an exporter with this id.
pub fn exporter_context(id: &str) -> ExporterContext {
    let budget = Budget::new(64 << 20);
    let telemetry = Metrics::new(budget.clone()).exporter(id);
    ExporterContext { telemetry, budget, peer_limits: PeerLimits::default(), via: Via::new(1) }
}
