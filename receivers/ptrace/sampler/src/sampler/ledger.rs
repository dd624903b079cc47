//! Settles the time of a thread, that is, divides it among its samples. Running threads are sampled by their own events
//! or by stopping them, blocked threads by examining them.
//!
//! The kernel's counters (`schedstat`) say exactly how long a thread ran and how long it waited for a processor;
//! samples only say in which functions. So samples are collected and get their weights when the batch is sent. The
//! running time is divided among samples of the running thread; time in which the thread neither ran nor waited for a
//! processor is divided among samples of the blocked thread. Time without a sample becomes a separate entry and is
//! never added to samples. Running, waiting for a processor and being blocked add up to the elapsed time.
//! `ledger/placing.rs` decides when each part of the time was.

mod placing;

use std::time::{Duration, Instant};

use self::placing::{PlacedSpans, Placing, WeightedSample};
use crate::probe::SchedStat;

/// A sample may cover up to this many times its own period, since timers come late and time slices are short. Running
/// time beyond that is reported as not sampled.
pub(super) const MOST_SCALE: u64 = 2;

/// Running time without a sample is reported if it is at least this many periods; less is carried over to the next
/// batch. On a busy machine a thread runs in short slices, and the timer may fire between them: one in four hundred
/// threads that ran six periods has no sample by chance.
pub(super) const UNSAMPLED: u64 = 6;

/// Time in which the thread must have been blocked, but was never found blocked, is reported if it is at least this
/// many periods. A shorter time may be an error of the counters, which are late by up to a timer tick of the kernel.
const UNSEEN: u64 = 4;

/// The counters of a running thread are late by up to a timer tick of the kernel, so samples may cover this many
/// periods more than the counters show.
const MOST_LATE: u64 = 1;

/// A sample that has no weight yet.
#[derive(Debug, Clone, Copy)]
struct PendingSample {
    /// The sample's index in the batch.
    sample: u32,
    /// For a sample of the running thread: the running time for which it was taken, in nanoseconds. `None` if the
    /// thread was blocked.
    period_nano: Option<u64>,
    /// For a sample of the blocked thread: how many examinations found this stack; if the wait was recorded, its length
    /// in nanoseconds.
    looks: u64,
    /// When the sample was taken: the first and the last of several examinations.
    at: (Instant, Instant),
    /// Whether the thread has not run since the previous time that it was found blocked.
    unchanged: bool,
}

/// The parameters for settling the time of a thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct SettleRules {
    /// The time between two samples, in nanoseconds.
    pub(super) period_nano: u64,
    /// Running time, in nanoseconds, that has no samples because the thread was in the kernel, where no samples may be
    /// taken.
    pub(super) kernel_nano: u64,
    /// The thread's event is open only for one part in this many of the time.
    pub(super) duty_divisor: u64,
    /// Whether only running time is settled (cpu mode).
    pub(super) cpu: bool,
    /// Whether running time without a sample is reported at once, however short, instead of being carried over to the
    /// next batch.
    pub(super) pooled: bool,
    /// Whether the thread was running or waiting for a processor when it was last examined.
    pub(super) ready: bool,
    /// What follows the time that is settled now.
    pub(super) next: WhatFollows,
    /// The source for the lengths of running and waiting.
    pub(super) basis: TimeSource,
}

/// The source for how long a thread ran and how long it waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeSource {
    /// The kernel's counters.
    Counters {
        /// How long the thread has been waiting for a processor in the current wait, in nanoseconds, if records show
        /// it: the kernel counts this only when the wait ends.
        preempted_nano: u64,
    },
    /// The records of the thread's switches. Each wait is added with its length; the thread ran for the rest of the
    /// time.
    Records {
        /// When the thread started, if that was within the settled time.
        began: Option<Instant>,
        ended: bool,
    },
}

/// What follows the settled time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WhatFollows {
    /// More samples of the same kind, which may also cover a part of this time.
    Same,
    /// Samples that must not cover this time, because the method of sampling the thread changes now.
    Other,
    Nothing,
}

/// What a thread did in time without a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unsampled {
    /// The thread ran, but no sample shows in which functions.
    NotSampled,
    /// The thread ran in the kernel, where no samples may be taken.
    InTheKernel,
    WaitingForProcessor,
    /// The thread must have been blocked, although no examination found it blocked.
    NotSeen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeSpan {
    pub(super) begins: Instant,
    pub(super) nano: u64,
}

/// The result of settling: spans that follow each other without overlap. In wall mode there are no gaps either, except
/// for time about which nothing is known.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// The samples by their index in the batch, each with the time that it covers, in the order in which they were
    /// taken.
    pub(super) samples: Vec<(u32, TimeSpan)>,
    pub(super) without_samples: Vec<(Unsampled, TimeSpan)>,
    /// Samples of the running thread that cover less than their period, and how much less, in nanoseconds.
    pub(super) left: Vec<(u32, u64)>,
    /// How long the thread ran, in nanoseconds.
    pub(super) ran_nano: u64,
}

/// The unsettled time of one thread.
#[derive(Debug)]
pub(super) struct ThreadLedger {
    /// All time before this is settled.
    since: Instant,
    /// How much of the running time and the waiting time in the kernel's counters is settled; `None` until they were
    /// read.
    counted: Option<(u64, u64)>,
    /// The running time at the last reading of the counters, in nanoseconds.
    ran: u64,
    /// Whether the thread has ended and all of its time is settled.
    ended: bool,
    /// Running time that is carried over to the next batch, in nanoseconds, if the lengths come from records.
    carried: Option<u64>,
    /// Time of waiting for a processor that was settled before the kernel counted it, in nanoseconds: the kernel counts
    /// a wait when it ends.
    ahead: u64,
    /// When the thread was last found blocked, and its counters at that time, which are exact; `None` if it may have
    /// run since.
    last_blocked: Option<(Instant, SchedStat)>,
    entries: Vec<PendingSample>,
}

impl TimeSource {
    /// The kernel's counters, without a current wait that records show.
    pub(super) const COUNTERS: Self = Self::Counters { preempted_nano: 0 };
}

impl ThreadLedger {
    /// Creates a ledger that begins at this moment.
    pub(super) fn new(since: Instant) -> Self {
        Self {
            since,
            counted: None,
            ran: 0,
            ended: false,
            carried: None,
            ahead: 0,
            last_blocked: None,
            entries: Vec::new(),
        }
    }

    /// Called if the thread started while its process was sampled: its counters began at 0.
    pub(super) fn begins_at_zero(&mut self) {
        self.counted.get_or_insert((0, 0));
    }

    /// Called if the thread is observed only from this moment on; its counters are `sched`.
    pub(super) fn begins(&mut self, now: Instant, sched: Option<SchedStat>) {
        self.since = now;
        self.counted = None;
        sched.into_iter().for_each(|sched| self.note_counters(sched));
    }

    /// Stores a reading of the counters. Time before the first reading is not settled.
    pub(super) fn note_counters(&mut self, sched: SchedStat) {
        self.counted.get_or_insert((sched.run_nano, sched.wait_nano));
        self.ran = sched.run_nano;
    }

    /// If the thread was found blocked and has not been seen running since: when that was last, and its counters, which
    /// are valid as long as it does not run.
    pub(super) fn last_blocked(&self) -> Option<(Instant, SchedStat)> {
        self.last_blocked
    }

    /// Called when there are no more switch records of the thread.
    pub(super) fn without_records(&mut self) {
        self.carried = None;
    }

    /// All time before this is settled.
    pub(super) fn since(&self) -> Instant {
        self.since
    }

    /// Whether no samples wait for their weights.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a sample of the running thread.
    pub(super) fn on_cpu(&mut self, sample: u32, at: Instant, period_nano: u64) {
        self.last_blocked = None;
        self.entries.push(PendingSample {
            sample,
            period_nano: Some(period_nano),
            looks: 0,
            at: (at, at),
            unchanged: false,
        });
    }

    /// Adds a sample of the blocked thread, which has continued since.
    pub(super) fn was_blocked(&mut self, sample: u32, at: Instant) {
        self.last_blocked = None;
        self.entries.push(PendingSample { sample, period_nano: None, looks: 1, at: (at, at), unchanged: false });
    }

    /// Adds a sample of one wait, or of several, with this total length in nanoseconds.
    pub(super) fn waited(&mut self, sample: u32, at: Instant, nano: u64) {
        self.last_blocked = None;
        let last = at.checked_add(Duration::from_nanos(nano)).unwrap_or(at);
        self.entries.push(PendingSample { sample, period_nano: None, looks: nano, at: (at, last), unchanged: false });
    }

    /// The unsettled running time according to these counters, in nanoseconds. Negative if the counters are late.
    pub(super) fn unaccounted(&self, sched: SchedStat) -> i128 {
        if let Some(carried) = self.carried.filter(|_| !self.ended) {
            return carried.into();
        }
        let counted = self.counted.filter(|_| !self.ended);
        counted.map_or(0, |(ran, _)| i128::from(sched.run_nano) - i128::from(ran))
    }

    /// Called when the thread runs.
    pub(super) fn runs(&mut self) {
        self.last_blocked = None;
    }

    /// Adds an observation of the blocked thread, which has these counters, to a sample.
    pub(super) fn blocked(&mut self, sample: u32, at: Instant, sched: SchedStat) {
        let before = self.last_blocked.replace((at, sched));
        let unchanged = sched.kept() && before.is_some_and(|(_, before)| before == sched);
        match self.entries.last_mut() {
            Some(entry) if entry.sample == sample => {
                entry.looks += 1;
                entry.at.1 = at;
            }
            _ => self.entries.push(PendingSample { sample, period_nano: None, looks: 1, at: (at, at), unchanged }),
        }
    }

    /// Divides the time up to `now` among the samples. `sched` are the counters at `now`; `None` if the thread has
    /// ended and its counters are lost. It ended between its last observation and `now`: half of that time is counted,
    /// which is right on average. If it was never found blocked, time other than running time is left out, since
    /// nothing is known about it.
    pub(super) fn settle(&mut self, now: Instant, sched: Option<SchedStat>, rules: SettleRules) -> Settled {
        let entries = std::mem::take(&mut self.entries);
        let mut is_recorded = false;
        if let TimeSource::Records { began, .. } = rules.basis {
            is_recorded = true;
            self.since = began.unwrap_or(self.since).max(self.since);
        }
        let wall = nano(now.saturating_duration_since(self.since));
        let end = if sched.is_some() || is_recorded {
            now
        } else {
            let seen = entries.iter().map(|entry| entry.at.1).fold(self.since, Instant::max).min(now);
            seen + now.saturating_duration_since(seen) / 2
        };
        let own: u64 = entries.iter().filter_map(|entry| entry.period_nano).sum();
        let periods = own.saturating_add(rules.kernel_nano);
        let counted = self.counted.unwrap_or_default();
        let looks = entries.iter().filter(|entry| entry.period_nano.is_none()).map(|entry| entry.looks).sum();
        let (ran, queued) = match sched {
            _ if is_recorded => (wall.saturating_sub(looks), 0),
            Some(sched) if self.counted.is_some() => {
                (sched.run_nano.saturating_sub(counted.0), sched.wait_nano.saturating_sub(counted.1))
            }
            Some(_) => (periods, 0),
            // The thread ran at least as long as the last reading of the counters shows.
            None => (periods.max(self.ran.saturating_sub(self.counted.map_or(self.ran, |(ran, _)| ran))), 0),
        };
        let reported_ahead = queued.min(self.ahead);
        self.ahead -= reported_ahead;
        let queued = queued - reported_ahead;
        let duty_divisor = rules.duty_divisor.max(1);
        // The samples prove that the thread ran, even if the counters do not show it yet.
        let late = if is_recorded || rules.pooled {
            0
        } else {
            (periods / 2).min(rules.period_nano.saturating_mul(MOST_LATE))
        };
        let known = ran.min(periods.saturating_mul(MOST_SCALE * duty_divisor)).max(late).min(wall);
        // Time in the kernel gets its share as if there had been samples of it.
        let mut of_known = Shares::new(known, periods);
        let in_kernel = of_known.next(rules.kernel_nano);
        let sampled = known - in_kernel;
        let mut rest = ran.saturating_sub(known).min(wall - known);
        let mut waits = 0;
        let is_significant = rules.pooled || rest >= rules.period_nano.saturating_mul(UNSAMPLED * duty_divisor);
        if !is_significant && rules.next == WhatFollows::Same {
            waits = std::mem::take(&mut rest);
        }
        let (mut queue, mut blocked, mut unseen) = (0, 0, 0);
        if !rules.cpu {
            queue = queued.min(wall - known - rest - waits);
            if let TimeSource::Counters { preempted_nano } = rules.basis {
                let ahead = preempted_nano.min(wall - known - rest - waits - queue);
                queue += ahead;
                self.ahead = self.ahead.saturating_add(ahead);
            }
            let left = wall - known - rest - waits - queue;
            let is_late = left > rules.period_nano.saturating_mul(UNSEEN);
            if entries.iter().any(|entry| entry.period_nano.is_none()) {
                blocked = left.saturating_sub(nano(now.saturating_duration_since(end)));
            } else if sched.is_some() && rules.ready && is_late {
                // The thread neither ran nor was blocked, so it is waiting for a processor. The kernel counts a wait
                // when it ends.
                queue += left;
                self.ahead = self.ahead.saturating_add(left);
            } else if sched.is_some() && (rules.next == WhatFollows::Nothing || is_late) {
                unseen = left;
            } else if sched.is_some() {
                waits += left;
            }
        }
        let mut of_sampled = Shares::new(sampled, own);
        let mut of_blocked = Shares::new(blocked, looks);
        let mut unused = Vec::new();
        let observed = entries.into_iter().map(|entry| {
            let nano = match entry.period_nano {
                Some(period) => {
                    let nano = of_sampled.next(period);
                    if nano < period {
                        unused.push((entry.sample, period - nano));
                    }
                    nano
                }
                None => of_blocked.next(entry.looks),
            };
            WeightedSample { sample: entry.sample, at: entry.at, unchanged: entry.unchanged, nano }
        });
        let without_samples = [
            (Unsampled::WaitingForProcessor, queue),
            (Unsampled::NotSeen, unseen),
            (Unsampled::InTheKernel, in_kernel),
            (Unsampled::NotSampled, rest),
        ];
        self.ended = match rules.basis {
            TimeSource::Counters { .. } => sched.is_none(),
            TimeSource::Records { ended, .. } => ended,
        };
        let next = now.checked_sub(Duration::from_nanos(waits)).unwrap_or(now).max(self.since);
        let placing = Placing {
            since: self.since,
            until: next.min(end),
            // A sample of an event that is open for only a part of the time covers the rest of the time as well.
            tolerance: Duration::from_nanos(rules.period_nano.saturating_mul(duty_divisor)),
        };
        let observed = observed.collect();
        let PlacedSpans { samples, without_samples } = placing.place(observed, &without_samples);
        self.carried = is_recorded.then_some(waits);
        let mut settled = Settled { samples, without_samples, left: unused, ran_nano: known.saturating_add(rest) };
        self.counted = match sched {
            // A difference between the counters and the records is not corrected later.
            Some(sched) if is_recorded => {
                let ran = sched.run_nano.saturating_sub(waits);
                settled.ran_nano = self.counted.map_or(0, |(before, _)| ran.saturating_sub(before));
                Some((ran, sched.wait_nano))
            }
            None if is_recorded => self.counted.map(|(ran, wait)| (ran.saturating_add(settled.ran_nano), wait)),
            Some(sched) if self.counted.is_none() => Some((sched.run_nano, sched.wait_nano)),
            // Waiting time beyond the elapsed time was before the first reading, and is not carried over.
            Some(sched) => Some((counted.0.saturating_add(settled.ran_nano), sched.wait_nano)),
            // Everything up to the last reading of the counters is settled, and no more follows.
            None => self.counted.map(|(_, queued)| (self.ran, queued)),
        };
        self.since = next;
        settled
    }
}

/// Divides an amount in proportion to weights, exactly to the nanosecond.
pub(super) struct Shares {
    left: u64,
    parts: u64,
}

impl Shares {
    pub(super) fn new(all: u64, parts: u64) -> Self {
        Self { left: all, parts }
    }

    pub(super) fn next(&mut self, parts: u64) -> u64 {
        let share = u128::from(self.left) * u128::from(parts) / u128::from(self.parts.max(1));
        let share = u64::try_from(share).unwrap_or(u64::MAX).min(self.left);
        self.left -= share;
        self.parts = self.parts.saturating_sub(parts);
        share
    }
}

fn nano(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
