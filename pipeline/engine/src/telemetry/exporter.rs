//! The counters of an exporter, as the Collector's `exporterhelper` keeps them, and its edge in observations.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use profbridge_model::Reason;
use tokio::time::Instant;

use super::edge::Edge;
use super::item_counts::ItemCounts;
use crate::health::Thresholds;

/// The counters of an exporter. Cheap to clone; clones share them.
#[derive(Debug, Clone)]
pub struct ExporterTelemetry {
    id: Arc<str>,
    edge: Edge,
    counters: Arc<Mutex<Counters>>,
}

#[derive(Debug, Default)]
struct Counters {
    totals: ExporterTotals,
    failing: Option<Failing>,
    full_since: Option<Instant>,
}

/// The counters of an exporter at one time, beside its edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExporterTotals {
    /// Items that were sent.
    pub sent: ItemCounts,
    /// Items that could not be sent for good.
    pub send_failed: ItemCounts,
    /// Items for which there was no room in the queue.
    pub enqueue_failed: ItemCounts,
    /// Requests that were sent.
    pub requests: u64,
    /// The bytes of the bodies that were sent, as they went over the wire.
    pub bytes: u64,
    /// Attempts that have ended.
    pub attempts: u64,
    /// How long all of them took together.
    pub attempt_time: Duration,
    /// Attempts beside the first.
    pub retries: u64,
    /// The time for which the destination will send a bill.
    pub billed: Duration,
    /// The state of its queue.
    pub queue: QueueGauges,
}

/// Failures with no success between them.
#[derive(Debug)]
struct Failing {
    since: Instant,
    last: Instant,
    reason: Reason,
    message: String,
}

/// The state of an exporter's queue, in the unit of its `sizer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueGauges {
    /// What waits or is being sent.
    pub size: u64,
    /// How much of that there may be.
    pub capacity: u64,
    /// Requests that are being sent, or wait for their next attempt.
    pub in_flight: u64,
}

impl ExporterTelemetry {
    pub(super) fn new(id: &str, edge: Edge) -> Self {
        Self { id: id.into(), edge, counters: Arc::default() }
    }

    /// The exporter's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The counters of its edge.
    pub fn edge(&self) -> &Edge {
        &self.edge
    }

    fn counters(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counters as they stand.
    pub fn totals(&self) -> ExporterTotals {
        self.counters().totals
    }

    /// Counts something.
    pub(crate) fn count(&self, change: impl FnOnce(&mut ExporterTotals)) {
        change(&mut self.counters().totals);
    }

    /// Counts a request that was sent.
    pub(crate) fn sent(&self, items: ItemCounts, bytes: u64, billed: Duration) {
        self.count(|totals| {
            totals.sent += items;
            totals.requests += 1;
            totals.bytes += bytes;
            totals.billed += billed;
        });
    }

    /// Remembers that a request was not taken. A quota of the destination that is used up is no trouble of ours.
    pub(crate) fn failed(&self, reason: Reason, message: &str) {
        if reason == Reason::RateLimited {
            return;
        }
        let (now, message) = (Instant::now(), message.to_owned());
        let mut counters = self.counters();
        let since = counters.failing.as_ref().map_or(now, |failing| failing.since);
        counters.failing = Some(Failing { since, last: now, reason, message });
    }

    /// Remembers that a request was taken.
    pub(crate) fn worked(&self) {
        self.counters().failing = None;
    }

    /// What happened and what to do about it, where nothing was taken or the queue has been full for too long.
    pub(crate) fn trouble_beyond(&self, limits: &Thresholds) -> Option<(String, &'static str)> {
        let Counters { failing, full_since, .. } = &*self.counters();
        let failing = failing.as_ref().filter(|failing| failing.last - failing.since >= limits.failing);
        let full = full_since.filter(|since| since.elapsed() >= limits.queue_full);
        match (failing, full) {
            (Some(failing), _) => Some((failing.message.clone(), failing.reason.explanation())),
            (None, Some(since)) => {
                let error = format!("the queue has been full for {} s", since.elapsed().as_secs());
                Some((error, Reason::QueueFull.explanation()))
            }
            (None, None) => None,
        }
    }

    pub(crate) fn set_queue(&self, gauges: QueueGauges, is_full: bool) {
        let mut counters = self.counters();
        if is_full {
            counters.full_since.get_or_insert_with(Instant::now);
        } else if gauges.size.saturating_mul(4) <= gauges.capacity.saturating_mul(3) {
            // Room for one request after each that leaves is no relief.
            counters.full_since = None;
        }
        counters.totals.queue = gauges;
    }
}
