//! What the time of a thread went into: running threads are sampled by events of their own or by stopping them, blocked
//! ones by looking at them.
//!
//! The kernel's counters (`schedstat`) are exact about how long a thread ran and how long it waited for a processor;
//! samples only say where. So samples are noted as they come and weighed together when a batch is said: those of a
//! running thread share the time that it ran, those of a blocked one the time that it neither ran nor waited to run.
//! What no sample stands for is told as what it is and never spread over samples. Run, queue and blocked make up all
//! the time that passed.

use std::time::{Duration, Instant};

use crate::probe::SchedStat;

/// A thread may have run for so many times what its samples stand for, before it is said that it was not sampled:
/// timers come late and slices are short.
const MOST_SCALE: u64 = 2;

/// So much running time without a sample is said as such, in periods; less waits for the next batch. On a busy machine
/// a thread runs in short turns between which the timer may find others: of six periods that it ran one in four hundred
/// has no sample by chance.
const UNSAMPLED: u64 = 6;

/// So much time in which the thread was never met blocked although it must have been, in periods: more is said as such.
/// The counters of a running thread are late by up to a timer tick of the kernel.
const UNSEEN: u64 = 4;

/// The counters of a running thread are late by up to a timer tick of the kernel: samples are believed for so many
/// periods beyond them.
const MOST_LATE: u64 = 1;

/// What a sample noted.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Its place in the batch.
    sample: u32,
    /// For how much running time it was taken, in nanoseconds; `None` for a blocked thread.
    period_nano: Option<u64>,
    /// How often a blocked thread was met with it.
    looks: u64,
}

/// How time is shared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// The time between two samples, in nanoseconds.
    pub(super) period_nano: u64,
    /// For how much running time no sample was taken because the thread was in the kernel, which may not be seen: in
    /// nanoseconds.
    pub(super) kernel_nano: u64,
    /// The event is open for one part in so many of the time.
    pub(super) duty_divisor: u64,
    /// Only running time counts.
    pub(super) cpu: bool,
    /// It had something to execute when it was looked at last.
    pub(super) ready: bool,
    /// What comes later.
    pub(super) next: Next,
}

/// What comes after a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Samples that may stand for some of it.
    Same,
    /// Samples that do not: the thread may be stopped from now on, or not any more.
    Other,
    Nothing,
}

/// What time without a sample of its own was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// It ran, and no sample says where.
    NotSampled,
    /// It ran in the kernel, which may not be seen.
    InTheKernel,
    /// It waited for a processor.
    WaitingForProcessor,
    /// It was blocked, and never met so.
    NotSeen,
}

/// A stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) begins: Instant,
    pub(super) nano: u64,
}

/// What came of settling.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// Samples of the batch by their places, and what they stand for, in order.
    pub(super) samples: Vec<(u32, Stretch)>,
    /// What comes behind them.
    pub(super) rests: Vec<(Rest, Stretch)>,
    /// How much of it the thread ran, in nanoseconds.
    pub(super) ran_nano: u64,
}

/// The time of one thread that is not accounted for yet.
#[derive(Debug)]
pub(super) struct Ledger {
    /// All before this is accounted for.
    since: Instant,
    /// What of the kernel's counters is accounted for; `None` before the first look.
    counted: Option<(u64, u64)>,
    /// What was said of a wait for a processor that the kernel counts when it ends.
    ahead: u64,
    /// When the thread was last known not to run, and the counters then: both are exact.
    last_blocked: Option<(Instant, SchedStat)>,
    entries: Vec<Entry>,
}

impl Ledger {
    /// Time counts from a moment on.
    pub(super) fn new(since: Instant) -> Self {
        Self { since, counted: None, ahead: 0, last_blocked: None, entries: Vec::new() }
    }

    /// The counters were read. The first time they are what is counted from.
    pub(super) fn saw(&mut self, sched: SchedStat) {
        self.counted.get_or_insert((sched.run_nano, sched.wait_nano));
    }

    /// Whether there is anything to settle without looking at the thread.
    pub(super) fn last_blocked(&self) -> Option<(Instant, SchedStat)> {
        self.last_blocked
    }

    /// Whether samples wait to be weighed.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The thread ran, and a sample was added to the batch.
    pub(super) fn on_cpu(&mut self, sample: u32, period_nano: u64) {
        self.last_blocked = None;
        self.entries.push(Entry { sample, period_nano: Some(period_nano), looks: 0 });
    }

    /// A sample was added to the batch of the thread when it was blocked, and it went on since.
    pub(super) fn was_blocked(&mut self, sample: u32) {
        self.last_blocked = None;
        self.entries.push(Entry { sample, period_nano: None, looks: 1 });
    }

    /// How much the thread ran that is not accounted for yet, in nanoseconds, with these counters; less than nothing
    /// where the counters are late.
    pub(super) fn unaccounted(&self, sched: SchedStat) -> i128 {
        self.counted.map_or(0, |(ran, _)| i128::from(sched.run_nano) - i128::from(ran))
    }

    /// The thread runs.
    pub(super) fn runs(&mut self) {
        self.last_blocked = None;
    }

    /// The thread is blocked, as the sample says, with these counters.
    pub(super) fn blocked(&mut self, sample: u32, at: Instant, sched: SchedStat) {
        self.last_blocked = Some((at, sched));
        match self.entries.last_mut() {
            Some(entry) if entry.sample == sample => entry.looks += 1,
            _ => self.entries.push(Entry { sample, period_nano: None, looks: 1 }),
        }
    }

    /// Shares the time up to a moment, at which the counters were these (`None`: the thread is gone, and they with it).
    pub(super) fn settle(&mut self, now: Instant, sched: Option<SchedStat>, rules: Rules) -> Settled {
        let mut settled = Settled::default();
        let entries = std::mem::take(&mut self.entries);
        let wall = nano(now.saturating_duration_since(self.since));
        let own: u64 = entries.iter().filter_map(|entry| entry.period_nano).sum();
        let periods = own.saturating_add(rules.kernel_nano);
        let counted = self.counted.unwrap_or_default();
        let (ran, queued) = match sched {
            Some(sched) if self.counted.is_some() => {
                (sched.run_nano.saturating_sub(counted.0), sched.wait_nano.saturating_sub(counted.1))
            }
            _ => (periods, 0),
        };
        let said_ahead = queued.min(self.ahead);
        self.ahead -= said_ahead;
        let queued = queued - said_ahead;
        let duty_divisor = rules.duty_divisor.max(1);
        // Samples are the proof that the thread ran: the counters of a running thread are late.
        let limit = if rules.cpu { u64::MAX } else { wall };
        let late = (periods / 2).min(rules.period_nano.saturating_mul(MOST_LATE));
        let known = ran.min(periods.saturating_mul(MOST_SCALE * duty_divisor)).max(late).min(limit);
        // Time in the kernel shares with the samples as if it had some.
        let mut of_known = Shares::new(known, periods);
        let in_kernel = of_known.next(rules.kernel_nano);
        let sampled = known - in_kernel;
        let mut rest = ran.saturating_sub(known).min(limit - known);
        let mut waits = 0;
        let said = rest >= rules.period_nano.saturating_mul(UNSAMPLED * duty_divisor);
        if !said && rules.next == Next::Same {
            waits = std::mem::take(&mut rest);
        }
        let (mut queue, mut blocked, mut unseen) = (0, 0, 0);
        if !rules.cpu {
            queue = queued.min(wall - known - rest - waits);
            let left = wall - known - rest - waits - queue;
            if entries.iter().any(|entry| entry.period_nano.is_none()) {
                blocked = left;
            } else if sched.is_some() && rules.ready && left > rules.period_nano.saturating_mul(UNSEEN) {
                // It neither ran nor was blocked: it waits for a processor, which the kernel counts when it gets one.
                queue += left;
                self.ahead = self.ahead.saturating_add(left);
            } else if rules.next == Next::Nothing || left > rules.period_nano.saturating_mul(UNSEEN) {
                unseen = left;
            } else {
                waits += left;
            }
        }
        let mut cursor = if rules.cpu {
            let length = Duration::from_nanos(known.saturating_add(rest));
            now.checked_sub(length).unwrap_or(self.since).max(self.since)
        } else {
            self.since
        };
        let mut next = |nano: u64| {
            let stretch = Stretch { begins: cursor, nano };
            cursor = cursor.checked_add(Duration::from_nanos(nano)).unwrap_or(cursor);
            stretch
        };
        let mut of_sampled = Shares::new(sampled, own);
        let mut of_blocked = Shares::new(blocked, entries.iter().map(|entry| entry.looks).sum());
        for entry in entries {
            let share = match entry.period_nano {
                Some(period) => of_sampled.next(period),
                None => of_blocked.next(entry.looks),
            };
            settled.samples.push((entry.sample, next(share)));
        }
        settled.ran_nano = known.saturating_add(rest);
        let rests = [
            (Rest::InTheKernel, in_kernel),
            (Rest::WaitingForProcessor, queue),
            (Rest::NotSampled, rest),
            (Rest::NotSeen, unseen),
        ];
        settled.rests =
            rests.into_iter().filter(|(_, nano)| *nano > 0).map(|(rest, nano)| (rest, next(nano))).collect();
        self.counted = match sched {
            Some(sched) if self.counted.is_none() => Some((sched.run_nano, sched.wait_nano)),
            // What was queued beyond the time that passed is not carried on: it was before the first look.
            Some(sched) => Some((counted.0.saturating_add(settled.ran_nano), sched.wait_nano)),
            None => self.counted,
        };
        self.since = match Duration::from_nanos(waits) {
            _ if rules.cpu => now,
            waits => now.checked_sub(waits).unwrap_or(now).max(self.since),
        };
        settled
    }
}

/// Something that is shared in proportion, to the last nanosecond.
struct Shares {
    left: u64,
    parts: u64,
}

impl Shares {
    fn new(all: u64, parts: u64) -> Self {
        Self { left: all, parts }
    }

    fn next(&mut self, parts: u64) -> u64 {
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
