//! How the time of a thread is shared among its samples. Running threads are sampled by events of their own or by
//! stopping them, blocked ones by looking at them.
//!
//! The kernel's counters (`schedstat`) say exactly how long a thread ran and how long it waited for a processor;
//! samples only say where. So samples are noted as they come and weighed together when a batch is sent: samples of
//! running share the time that the thread ran, samples of being blocked the time in which it neither ran nor waited for
//! a processor. Time that no sample stands for becomes an entry of its own and is never spread over samples. Running,
//! waiting for a processor and being blocked add up to the time that passed. When each of it was is
//! `ledger/placing.rs`.

mod placing;

use std::time::{Duration, Instant};

use self::placing::{Observed, Placed, Placing};
use crate::probe::SchedStat;

/// Samples may stand for this many times their own periods, since timers come late and slices are short. What a thread
/// ran beyond that is reported as not sampled.
pub(super) const MOST_SCALE: u64 = 2;

/// Running time without a sample is reported as such from this many periods on; less is carried into the next batch. On
/// a busy machine a thread runs in short turns between which the timer may hit others: of threads that ran six periods,
/// one in four hundred has no sample by chance.
pub(super) const UNSAMPLED: u64 = 6;

/// Time in which the thread must have been blocked but was never seen so is reported as such from this many periods on.
/// Less may come from counters that are late by up to a timer tick of the kernel.
const UNSEEN: u64 = 4;

/// The counters of a running thread are late by up to a timer tick of the kernel: samples may stand for this many
/// periods more than the counters say.
const MOST_LATE: u64 = 1;

/// A sample that waits for its weight.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Its index in the batch.
    sample: u32,
    /// For a sample of running: for how much running time it was taken, in nanoseconds. `None` if the thread was
    /// blocked.
    period_nano: Option<u64>,
    /// How many looks found the thread blocked with it; or how long it waited, in nanoseconds.
    looks: u64,
    /// When it was taken: of several looks the first and the last.
    at: (Instant, Instant),
    /// Whether the thread has not run since it was met blocked before.
    unchanged: bool,
}

/// How time is shared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// The time between two samples, in nanoseconds.
    pub(super) period_nano: u64,
    /// How much running time has no sample because the thread was in the kernel, of which no samples may be taken: in
    /// nanoseconds.
    pub(super) kernel_nano: u64,
    /// The event is open for one part in this many of the time.
    pub(super) duty_divisor: u64,
    /// Whether only running time counts.
    pub(super) cpu: bool,
    /// Whether running time without a sample is not carried on, however little it is.
    pub(super) pooled: bool,
    /// Whether it was running or waiting for a processor when it was looked at last.
    pub(super) ready: bool,
    /// What comes later.
    pub(super) next: Next,
    /// What says how much time there was of what.
    pub(super) basis: Basis,
}

/// What says how much of the time a thread ran, and how much it waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Basis {
    /// The kernel's counters.
    Counters {
        /// For how long the thread has been waiting for a processor that it did not get yet, in nanoseconds, where
        /// records tell: the counters tell it only when it gets one.
        preempted_nano: u64,
    },
    /// The records of its switches, by which each wait is noted with its length: it ran for the rest of the time.
    Records {
        /// When it began, if that was meanwhile.
        began: Option<Instant>,
        /// Whether it has ended.
        ended: bool,
    },
}

/// What comes after the time that is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// More samples, which may stand for some of this time as well.
    Same,
    /// Samples that do not stand for this time: from now on the thread may be stopped, or may not any more.
    Other,
    Nothing,
}

/// What a thread did in time that no sample stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// It ran, but no sample says where.
    NotSampled,
    /// It ran in the kernel, of which no samples may be taken.
    InTheKernel,
    /// It waited for a processor.
    WaitingForProcessor,
    /// It was blocked, but never when it was examined.
    NotSeen,
}

/// A stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) begins: Instant,
    pub(super) nano: u64,
}

/// The result of settling: stretches that follow each other without overlap, and without a gap in wall mode, but for
/// time of which nothing is known.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// Samples by their index in the batch, and the time that each stands for, in the order in which they were taken.
    pub(super) samples: Vec<(u32, Stretch)>,
    /// The time that no sample stands for.
    pub(super) rests: Vec<(Rest, Stretch)>,
    /// Samples of running, and how much of their periods they do not stand for, in nanoseconds.
    pub(super) left: Vec<(u32, u64)>,
    /// How much of the time the thread ran, in nanoseconds.
    pub(super) ran_nano: u64,
}

/// The time of one thread that is not settled yet.
#[derive(Debug)]
pub(super) struct Ledger {
    /// All time before this is settled.
    since: Instant,
    /// The running and waiting time of the kernel's counters that is settled; `None` before the first look.
    counted: Option<(u64, u64)>,
    /// The running time when the counters were read last, in nanoseconds.
    ran: u64,
    /// Whether the thread has ended, and all of it is settled.
    ended: bool,
    /// How much running time is carried on, in nanoseconds, where records said how much there is.
    carried: Option<u64>,
    /// How much waiting for a processor was settled before the kernel counted it, in nanoseconds: it counts a wait when
    /// it ends.
    ahead: u64,
    /// When the thread was last seen blocked, and the counters then, which are exact; `None` if it may have run since.
    last_blocked: Option<(Instant, SchedStat)>,
    entries: Vec<Entry>,
}

impl Basis {
    /// The kernel's counters alone.
    pub(super) const COUNTERS: Self = Self::Counters { preempted_nano: 0 };
}

impl Ledger {
    /// A ledger for time from this moment on.
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

    /// The thread began while its process was sampled, so that its counters began at 0.
    pub(super) fn begins_at_zero(&mut self) {
        self.counted.get_or_insert((0, 0));
    }

    /// The thread is observed from this moment on only, when its counters were these.
    pub(super) fn begins(&mut self, now: Instant, sched: Option<SchedStat>) {
        self.since = now;
        self.counted = None;
        sched.into_iter().for_each(|sched| self.saw(sched));
    }

    /// Notes counters that were read. The first ones are where the ledger begins.
    pub(super) fn saw(&mut self, sched: SchedStat) {
        self.counted.get_or_insert((sched.run_nano, sched.wait_nano));
        self.ran = sched.run_nano;
    }

    /// The moment and the counters up to which the thread can be settled without reading its counters again, if it has
    /// been blocked since.
    pub(super) fn last_blocked(&self) -> Option<(Instant, SchedStat)> {
        self.last_blocked
    }

    /// From now on there are no records.
    pub(super) fn without_records(&mut self) {
        self.carried = None;
    }

    /// All time before this is settled.
    pub(super) fn since(&self) -> Instant {
        self.since
    }

    /// Whether samples wait to be weighed.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A sample of the running thread was added to the batch.
    pub(super) fn on_cpu(&mut self, sample: u32, at: Instant, period_nano: u64) {
        self.last_blocked = None;
        self.entries.push(Entry { sample, period_nano: Some(period_nano), looks: 0, at: (at, at), unchanged: false });
    }

    /// A sample was added of the thread while it was blocked, but it has gone on since.
    pub(super) fn was_blocked(&mut self, sample: u32, at: Instant) {
        self.last_blocked = None;
        self.entries.push(Entry { sample, period_nano: None, looks: 1, at: (at, at), unchanged: false });
    }

    /// A sample was added of a wait, or of several, that took so many nanoseconds.
    pub(super) fn waited(&mut self, sample: u32, at: Instant, nano: u64) {
        self.last_blocked = None;
        let last = at.checked_add(Duration::from_nanos(nano)).unwrap_or(at);
        self.entries.push(Entry { sample, period_nano: None, looks: nano, at: (at, last), unchanged: false });
    }

    /// How much running time is not settled yet, in nanoseconds, with these counters; negative where the counters are
    /// late.
    pub(super) fn unaccounted(&self, sched: SchedStat) -> i128 {
        if let Some(carried) = self.carried.filter(|_| !self.ended) {
            return carried.into();
        }
        let counted = self.counted.filter(|_| !self.ended);
        counted.map_or(0, |(ran, _)| i128::from(sched.run_nano) - i128::from(ran))
    }

    /// The thread runs.
    pub(super) fn runs(&mut self) {
        self.last_blocked = None;
    }

    /// The thread was found blocked, with this sample and these counters.
    pub(super) fn blocked(&mut self, sample: u32, at: Instant, sched: SchedStat) {
        let before = self.last_blocked.replace((at, sched));
        let unchanged = sched.kept() && before.is_some_and(|(_, before)| before == sched);
        match self.entries.last_mut() {
            Some(entry) if entry.sample == sample => {
                entry.looks += 1;
                entry.at.1 = at;
            }
            _ => self.entries.push(Entry { sample, period_nano: None, looks: 1, at: (at, at), unchanged }),
        }
    }

    /// Shares the time up to `now` among the samples. `sched` are the counters of that moment; `None` if the thread has
    /// ended, and they are lost. It ended between when it was seen last and `now`: half of that is taken for its life,
    /// which is right on average. Where it was not seen blocked, nobody knows that it ever was, and nothing is said of
    /// it.
    pub(super) fn settle(&mut self, now: Instant, sched: Option<SchedStat>, rules: Rules) -> Settled {
        let entries = std::mem::take(&mut self.entries);
        let mut is_recorded = false;
        if let Basis::Records { began, .. } = rules.basis {
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
            // At least what it had run when the counters were read last.
            None => (periods.max(self.ran.saturating_sub(self.counted.map_or(self.ran, |(ran, _)| ran))), 0),
        };
        let said_ahead = queued.min(self.ahead);
        self.ahead -= said_ahead;
        let queued = queued - said_ahead;
        let duty_divisor = rules.duty_divisor.max(1);
        // The samples prove that the thread ran, even where the counters do not say so yet.
        let late = if is_recorded || rules.pooled {
            0
        } else {
            (periods / 2).min(rules.period_nano.saturating_mul(MOST_LATE))
        };
        let known = ran.min(periods.saturating_mul(MOST_SCALE * duty_divisor)).max(late).min(wall);
        // The time in the kernel gets its share as if it had samples of its own.
        let mut of_known = Shares::new(known, periods);
        let in_kernel = of_known.next(rules.kernel_nano);
        let sampled = known - in_kernel;
        let mut rest = ran.saturating_sub(known).min(wall - known);
        let mut waits = 0;
        let said = rules.pooled || rest >= rules.period_nano.saturating_mul(UNSAMPLED * duty_divisor);
        if !said && rules.next == Next::Same {
            waits = std::mem::take(&mut rest);
        }
        let (mut queue, mut blocked, mut unseen) = (0, 0, 0);
        if !rules.cpu {
            queue = queued.min(wall - known - rest - waits);
            if let Basis::Counters { preempted_nano } = rules.basis {
                let ahead = preempted_nano.min(wall - known - rest - waits - queue);
                queue += ahead;
                self.ahead = self.ahead.saturating_add(ahead);
            }
            let left = wall - known - rest - waits - queue;
            let is_late = left > rules.period_nano.saturating_mul(UNSEEN);
            if entries.iter().any(|entry| entry.period_nano.is_none()) {
                blocked = left.saturating_sub(nano(now.saturating_duration_since(end)));
            } else if sched.is_some() && rules.ready && is_late {
                // It neither ran nor was blocked, so it is waiting for a processor. The kernel will count that when the
                // wait ends.
                queue += left;
                self.ahead = self.ahead.saturating_add(left);
            } else if sched.is_some() && (rules.next == Next::Nothing || is_late) {
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
            Observed { sample: entry.sample, at: entry.at, unchanged: entry.unchanged, nano }
        });
        let rests = [
            (Rest::WaitingForProcessor, queue),
            (Rest::NotSeen, unseen),
            (Rest::InTheKernel, in_kernel),
            (Rest::NotSampled, rest),
        ];
        self.ended = match rules.basis {
            Basis::Counters { .. } => sched.is_none(),
            Basis::Records { ended, .. } => ended,
        };
        let next = now.checked_sub(Duration::from_nanos(waits)).unwrap_or(now).max(self.since);
        let placing = Placing {
            since: self.since,
            until: next.min(end),
            // What an event samples in a part of the time only stands for the rest of the time as well.
            tolerance: Duration::from_nanos(rules.period_nano.saturating_mul(duty_divisor)),
        };
        let observed = observed.collect();
        let Placed { samples, rests } = placing.place(observed, &rests);
        self.carried = is_recorded.then_some(waits);
        let mut settled = Settled { samples, rests, left: unused, ran_nano: known.saturating_add(rest) };
        self.counted = match sched {
            // What the counters differ by from the records is not made up for later.
            Some(sched) if is_recorded => {
                let ran = sched.run_nano.saturating_sub(waits);
                settled.ran_nano = self.counted.map_or(0, |(before, _)| ran.saturating_sub(before));
                Some((ran, sched.wait_nano))
            }
            None if is_recorded => self.counted.map(|(ran, wait)| (ran.saturating_add(settled.ran_nano), wait)),
            Some(sched) if self.counted.is_none() => Some((sched.run_nano, sched.wait_nano)),
            // Waiting time beyond the time that passed was before the first look, and is not carried on.
            Some(sched) => Some((counted.0.saturating_add(settled.ran_nano), sched.wait_nano)),
            // What its counters said last is settled, and there will be no more.
            None => self.counted.map(|(_, queued)| (self.ran, queued)),
        };
        self.since = next;
        settled
    }
}

/// Shares an amount in proportion, to the last nanosecond.
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
