//! The counters of an exporter: those of the Collector's `exporterhelper`, and its [`Edge`], in observations.

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
    counters: Arc<Mutex<ExporterCounters>>,
}

#[derive(Debug, Default)]
struct ExporterCounters {
    totals: ExporterTotals,
    failing: Option<Failing>,
    full_since: Option<Instant>,
}

/// A snapshot of the counters of an exporter, apart from its edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExporterTotals {
    /// Items that were sent.
    pub sent: ItemCounts,
    /// Items that could not be sent, after all attempts.
    pub send_failed: ItemCounts,
    /// Items that found no room in the queue.
    pub enqueue_failed: ItemCounts,
    /// Requests that were sent.
    pub requests: u64,
    /// The size of the sent bodies in bytes, as transmitted.
    pub bytes: u64,
    /// Completed attempts.
    pub attempts: u64,
    /// The total duration of all attempts.
    pub attempt_time: Duration,
    /// Attempts after the first.
    pub retries: u64,
    /// The time that the destination will bill.
    pub billed: Duration,
    /// The state of the exporter's queue.
    pub queue: QueueGauges,
}

/// Consecutive failures.
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
    /// The amount that is queued or being sent.
    pub size: u64,
    /// The capacity.
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

    /// The counters of the exporter's edge.
    pub fn edge(&self) -> &Edge {
        &self.edge
    }

    fn counters(&self) -> MutexGuard<'_, ExporterCounters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A snapshot of the counters.
    pub fn totals(&self) -> ExporterTotals {
        self.counters().totals
    }

    /// Changes the counters.
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

    /// Records a failed attempt. A used-up quota of the destination is not a problem of profbridge, so it is ignored.
    pub(crate) fn failed(&self, reason: Reason, message: &str) {
        if reason == Reason::RateLimited {
            return;
        }
        let (now, message) = (Instant::now(), message.to_owned());
        let mut counters = self.counters();
        let since = counters.failing.as_ref().map_or(now, |failing| failing.since);
        counters.failing = Some(Failing { since, last: now, reason, message });
    }

    /// Records a successful attempt.
    pub(crate) fn record_success(&self) {
        self.counters().failing = None;
    }

    /// Returns what happened and what to do about it, if attempts have failed or the queue has been full for longer
    /// than the thresholds.
    pub(crate) fn trouble_beyond(&self, limits: &Thresholds) -> Option<(String, &'static str)> {
        let ExporterCounters { failing, full_since, .. } = &*self.counters();
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
            // The queue is still considered full if only single requests leave it.
            counters.full_since = None;
        }
        counters.totals.queue = gauges;
    }
}
