//! The counters of an exporter, as the Collector's `exporterhelper` keeps them, and its edge in observations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use profbridge_model::Reason;
use tokio::time::Instant;

use super::Edge;
use super::item_counts::{ItemCounters, ItemCounts};
use crate::health::Thresholds;

/// The counters of an exporter. Cheap to clone; clones share them.
#[derive(Debug, Clone)]
pub struct ExporterTelemetry {
    id: Arc<str>,
    edge: Edge,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    sent: ItemCounters,
    send_failed: ItemCounters,
    enqueue_failed: ItemCounters,
    sent_requests: AtomicU64,
    sent_bytes: AtomicU64,
    attempts: AtomicU64,
    attempt_nano: AtomicU64,
    retries: AtomicU64,
    billed_nano: AtomicU64,
    queue_size: AtomicU64,
    queue_capacity: AtomicU64,
    in_flight: AtomicU64,
    trouble: Mutex<Trouble>,
}

/// What is in the way of an exporter.
#[derive(Debug, Default)]
struct Trouble {
    failing: Option<Failing>,
    full_since: Option<Instant>,
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

    /// Counts a request that was sent.
    pub(crate) fn sent(&self, items: ItemCounts, bytes: u64, billed: Duration) {
        let counters = &self.counters;
        counters.sent.add(items);
        counters.sent_requests.fetch_add(1, Ordering::Relaxed);
        counters.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
        counters.billed_nano.fetch_add(crate::clock::nanos(billed), Ordering::Relaxed);
    }

    /// Counts a request that could not be sent for good.
    pub(crate) fn send_failed(&self, items: ItemCounts) {
        self.counters.send_failed.add(items);
    }

    /// Counts a request for which there was no room in the queue.
    pub(crate) fn enqueue_failed(&self, items: ItemCounts) {
        self.counters.enqueue_failed.add(items);
    }

    /// Counts an attempt that ended, whatever its outcome, and how long it took.
    pub(crate) fn attempted(&self, took: Duration) {
        self.counters.attempts.fetch_add(1, Ordering::Relaxed);
        self.counters.attempt_nano.fetch_add(crate::clock::nanos(took), Ordering::Relaxed);
    }

    /// Remembers that a request was not taken. A quota of the destination that is used up is no trouble of ours.
    pub(crate) fn failed(&self, reason: Reason, message: &str) {
        if reason == Reason::RateLimited {
            return;
        }
        let (now, message) = (Instant::now(), message.to_owned());
        let failing = &mut self.trouble().failing;
        let since = failing.as_ref().map_or(now, |failing| failing.since);
        *failing = Some(Failing { since, last: now, reason, message });
    }

    /// Remembers that a request was taken.
    pub(crate) fn worked(&self) {
        self.trouble().failing = None;
    }

    /// What happened and what to do about it, where nothing was taken or the queue has been full for too long.
    pub(crate) fn trouble_beyond(&self, limits: &Thresholds) -> Option<(String, &'static str)> {
        let Trouble { failing, full_since } = &*self.trouble();
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

    fn trouble(&self) -> MutexGuard<'_, Trouble> {
        self.counters.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an attempt that was not the first of its request.
    pub(crate) fn retried(&self) {
        self.counters.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set_queue(&self, gauges: QueueGauges, is_full: bool) {
        let full_since = &mut self.trouble().full_since;
        if is_full {
            full_since.get_or_insert_with(Instant::now);
        } else if gauges.size.saturating_mul(4) <= gauges.capacity.saturating_mul(3) {
            // Room for one request after each that leaves is no relief.
            *full_since = None;
        }
        self.counters.queue_size.store(gauges.size, Ordering::Relaxed);
        self.counters.queue_capacity.store(gauges.capacity, Ordering::Relaxed);
        self.counters.in_flight.store(gauges.in_flight, Ordering::Relaxed);
    }

    /// The state of its queue.
    pub fn queue(&self) -> QueueGauges {
        QueueGauges {
            size: self.counters.queue_size.load(Ordering::Relaxed),
            capacity: self.counters.queue_capacity.load(Ordering::Relaxed),
            in_flight: self.counters.in_flight.load(Ordering::Relaxed),
        }
    }

    /// Items that were sent.
    pub fn sent_items(&self) -> ItemCounts {
        self.counters.sent.get()
    }

    /// Items that could not be sent for good.
    pub fn send_failed_items(&self) -> ItemCounts {
        self.counters.send_failed.get()
    }

    /// Items for which there was no room in the queue.
    pub fn enqueue_failed_items(&self) -> ItemCounts {
        self.counters.enqueue_failed.get()
    }

    /// Requests that were sent.
    pub fn sent_requests(&self) -> u64 {
        self.counters.sent_requests.load(Ordering::Relaxed)
    }

    /// The bytes of the bodies that were sent, as they went over the wire.
    pub fn sent_bytes(&self) -> u64 {
        self.counters.sent_bytes.load(Ordering::Relaxed)
    }

    /// Attempts that have ended.
    pub fn attempts(&self) -> u64 {
        self.counters.attempts.load(Ordering::Relaxed)
    }

    /// How long all of them took together.
    pub fn attempt_time(&self) -> Duration {
        Duration::from_nanos(self.counters.attempt_nano.load(Ordering::Relaxed))
    }

    /// Attempts beside the first.
    pub fn retries(&self) -> u64 {
        self.counters.retries.load(Ordering::Relaxed)
    }

    /// The time for which the destination will send a bill.
    pub fn billed(&self) -> Duration {
        Duration::from_nanos(self.counters.billed_nano.load(Ordering::Relaxed))
    }
}
