//! The cost of switch records for the sampled process, and which threads are not recorded because of it.

use std::time::{Duration, Instant};

use crate::sampler::active::Active;
use crate::sampler::coverage::THREADS;
use crate::sampler::thread_event::MOST_SWITCHES;

/// The cost of one switch for the thread: with a record only; with a record and a sample; the same in a process with
/// thousands of threads, whose data is not in a processor cache; and with a sample only, again with thousands of
/// threads.
const RECORD_COST: Duration = Duration::from_nanos(1_100);
const SAMPLE_COST: Duration = Duration::from_nanos(2_300);
const SAMPLE_COST_OF_MANY: Duration = Duration::from_nanos(3_800);
const SAMPLED_COST: Duration = Duration::from_nanos(2_500);

/// The share of the process's budget that switch records may use. It is larger if only events of processors can show
/// where thousands of threads wait.
const FOR_RECORDS: f64 = 0.5;
const FOR_MANY: f64 = 0.7;

/// How often the choice of recorded threads is reviewed. A thread with fewer switches per second than `LEAST_SWITCHES`
/// is always recorded.
const REVIEW: Duration = Duration::from_millis(500);
const LEAST_SWITCHES: u64 = 50;

/// The cost of switch records for the sampled process.
#[derive(Debug)]
pub(super) struct RecordCosts {
    /// How many switches were recorded since the time `since`.
    pub(super) switches: u64,
    pub(super) since: Instant,
    /// A thread is recorded only if it has at most this many switches per second.
    pub(super) most: u64,
}

impl RecordCosts {
    /// Adjusts the limit to the cost; `most` is the share of one processor that records may use. Returns the number of
    /// switches recorded since the last review and the processor time that they cost their threads; `None` if the next
    /// review is not due.
    fn review(&mut self, now: Instant, most: f64, each: Duration) -> Option<(u32, Duration)> {
        let window = now.saturating_duration_since(self.since);
        if window < REVIEW {
            return None;
        }
        let switches = u32::try_from(self.switches).unwrap_or(u32::MAX);
        let cost = each.saturating_mul(switches);
        let share = cost.as_secs_f64() / window.as_secs_f64();
        if share > most {
            self.most = (self.most / 2).max(LEAST_SWITCHES);
        } else if share < most / 4.0 {
            self.most = (self.most * 2).min(MOST_SWITCHES);
        }
        (self.switches, self.since) = (0, now);
        Some((switches, cost))
    }
}

impl Active {
    /// When a review is due, returns the number of switches recorded since the last one and the processor time that
    /// they cost their threads. If that is too much, the threads with the most switches are not recorded any more.
    pub(in crate::sampler::active) fn review_records(&mut self, now: Instant) -> Option<(u32, Duration)> {
        let (part, each) = match self.watch {
            _ if self.are_switches_sampled() => (FOR_MANY, SAMPLED_COST),
            watch if watch.hides_kernel() => (FOR_RECORDS, RECORD_COST),
            _ if self.threads.len() > THREADS => (FOR_MANY, SAMPLE_COST_OF_MANY),
            _ => (FOR_RECORDS, SAMPLE_COST),
        };
        self.waits.costs.review(now, self.attached.settings.max_cpu * part, each)
    }

    /// Whether records are so expensive that threads with many switches may not be recorded.
    pub(in crate::sampler) fn are_records_expensive(&self) -> bool {
        self.waits.are_expensive()
    }
}
