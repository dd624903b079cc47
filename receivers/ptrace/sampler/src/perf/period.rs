//! The time between two samples of an event, how it varies, and how often an event fired without a sample.
//!
//! The kernel's timer fires in exact periods. A program that wakes each 150 us is in the same phase at every 66th
//! wake-up: with 101 samples a second, all samples of a second and a half would find it in that phase and none in the
//! next; one that works for 3 ms of each 10 would be found waiting for half a second. So the period is changed after
//! some samples, and by so much that no program keeps in step with it for long. Periods come in pairs, one as much
//! above the requested one as the other is below it, so that a few seconds have as many samples as requested.
//!
//! A new period begins when it is set, and what had passed of the old one is lost. So the period of a thread's or a
//! group's event, whose timer stands still while it does not run, is changed right after a sample and never by the
//! clock: a thread that seldom runs would otherwise never run for a whole period between two changes.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

/// A period is used for this many samples, or for as many as come in this many nanoseconds, if that is more: each
/// change costs a system call.
const SAMPLES: u64 = 16;
const LEAST_NANO: u64 = 100_000_000;

/// A period (or its rate, if it is changed by the clock) differs from the requested one by up to one part in this many.
const PARTS: u64 = 3;

/// Makes an event take a sample for each `period_nano` nanoseconds from now on. Its samples still carry the period with
/// which the event was opened: for clock events the kernel never updates that (`perf_swevent_hrtimer`, `last_period`).
/// If the kernel refuses, the period stays.
#[allow(unsafe_code, reason = "nix's macros make the same call")]
pub fn set(event: BorrowedFd<'_>, period_nano: u64) {
    /// `PERF_EVENT_IOC_PERIOD`.
    const PERIOD: libc::c_ulong = 0x4008_2404;
    // SAFETY: the kernel reads a number of eight bytes, which lives for the call.
    unsafe { libc::ioctl(event.as_raw_fd(), PERIOD as _, &raw const period_nano) };
}

/// Decides when the period of an event may be changed again.
///
/// The kernel has the processor of the event change it, and its caller wait for that: some microseconds, but on a
/// virtual machine whose other processor is not executed at that moment, milliseconds of processor time.
#[derive(Debug, Default)]
pub struct Pace {
    not_before: Option<Instant>,
}

impl Pace {
    /// Changes take at most one part in this many of the time, and have to wait for at most so long: a change may seem
    /// long because the machine stood still meanwhile, and a program that happens to be in step with the period is
    /// badly sampled until the next change.
    const PART: u32 = 1_000;
    const LONGEST: Duration = Duration::from_secs(2);

    /// Whether a period may be changed by now.
    pub fn may_change(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|at| now >= at)
    }

    /// Counts a change that began then and ended just now.
    pub fn changed(&mut self, began: Instant, now: Instant) {
        let took = now.saturating_duration_since(began);
        self.not_before = Some(now + took.saturating_mul(Self::PART).min(Self::LONGEST));
    }
}

/// Periods that vary around a requested one.
#[derive(Debug)]
pub struct Varying {
    period_nano: u64,
    random: u64,
    /// By how much the next period differs from the requested one; the present one differs by the opposite. `None` if
    /// the next one begins a new pair.
    opposite: Option<i64>,
    /// How many samples are still to come in the present period.
    left: u64,
}

impl Varying {
    /// Periods that vary around this one, beginning with it.
    pub fn new(period_nano: u64, seed: u64) -> Self {
        Self { period_nano, random: seed | 1, opposite: None, left: last(period_nano) }
    }

    /// Periods that vary around this one, for an event that was opened with another first period.
    pub fn behind_another(period_nano: u64, seed: u64) -> Self {
        Self { left: 1, ..Self::new(period_nano, seed) }
    }

    /// The period that they vary around, in nanoseconds.
    pub fn average(&self) -> u64 {
        self.period_nano
    }

    /// Counts samples that were taken. Returns the next period if it is time for one and the period `may_change`.
    pub fn took(&mut self, samples: u64, may_change: bool) -> Option<u64> {
        self.left = self.left.saturating_sub(samples);
        if self.left > 0 || !may_change {
            return None;
        }
        self.left = last(self.period_nano);
        let difference = self.difference();
        Some(self.period_nano.saturating_add_signed(difference))
    }

    /// The next period of an event whose period is changed by the clock. Each lasts for the same time, so their rates
    /// (not their lengths) average to the requested one.
    pub fn by_clock(&mut self) -> u64 {
        let difference = self.difference();
        let period = u128::from(self.period_nano);
        let rate = u128::from(self.period_nano.saturating_add_signed(difference).max(1));
        u64::try_from(period * period / rate).unwrap_or(self.period_nano)
    }

    /// By how much the next period differs.
    fn difference(&mut self) -> i64 {
        if let Some(opposite) = self.opposite.take() {
            return opposite;
        }
        // Xorshift (Marsaglia 2003): nothing depends on its quality.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let most = self.period_nano / PARTS;
        let difference = (self.random % (2 * most + 1)).cast_signed() - most.cast_signed();
        self.opposite = Some(-difference);
        difference
    }
}

/// For how many samples a period lasts.
fn last(period_nano: u64) -> u64 {
    (LEAST_NANO / period_nano.max(1)).max(SAMPLES)
}

/// Counts how often an event fired without taking a sample, because its thread was in the kernel and the event may not
/// sample there.
///
/// The kernel does not report that. But the event counts how long its thread ran, to the nanosecond, and it fires each
/// time that this count has grown by a period.
#[derive(Debug, Clone, Copy)]
pub struct Skipped {
    /// The event's count when the present period began, and the period, in nanoseconds.
    since: u64,
    period_nano: u64,
    /// How many samples were taken since then, and how many firings without one were returned by `tell`.
    samples: u64,
    told: u64,
    /// Time without samples in earlier periods that `tell` has not returned yet, in nanoseconds.
    untold: u64,
}

impl Skipped {
    /// An event that has counted nothing yet.
    pub fn new(period_nano: u64) -> Self {
        Self { since: 0, period_nano: period_nano.max(1), samples: 0, told: 0, untold: 0 }
    }

    /// Counts samples that were taken, or were lost.
    pub fn took(&mut self, samples: u64) {
        self.samples = self.samples.saturating_add(samples);
    }

    /// The time for which the event took no sample and that was not returned yet, in nanoseconds. `count` is what it
    /// has counted by now.
    pub fn tell(&mut self, count: u64) -> u64 {
        let fired = count.saturating_sub(self.since) / self.period_nano;
        // A sample may still be on its way. The next call makes up for it.
        let more = fired.saturating_sub(self.samples).saturating_sub(self.told);
        self.told += more;
        std::mem::take(&mut self.untold).saturating_add(more.saturating_mul(self.period_nano))
    }

    /// What the event had counted at its last sample, if it took one each time that it fired.
    pub fn at_last_sample(&self) -> u64 {
        self.since.saturating_add(self.samples.saturating_mul(self.period_nano))
    }

    /// How much of a period has passed since the event last fired, in nanoseconds.
    pub fn begun(&self, count: u64) -> u64 {
        count.saturating_sub(self.since) % self.period_nano
    }

    /// A new period begins with this count.
    pub fn begin(&mut self, count: u64, period_nano: u64) {
        *self = Self { since: count, untold: self.tell(count), ..Self::new(period_nano) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: u64 = 9_900_990;

    /// Guarantees: periods lie within a third of the requested one, on both sides of it, and each pair averages to it,
    /// to the nanosecond; each lasts for sixteen samples, however long those take, and for more if they come often.
    #[test]
    fn around() {
        let mut varying = Varying::new(PERIOD, 42);
        let mut periods = Vec::new();
        for _ in 0..10_000 {
            assert_eq!(varying.took(SAMPLES - 1, true), None);
            periods.push(varying.took(1, true).unwrap());
        }
        let (least, most) = (*periods.iter().min().unwrap(), *periods.iter().max().unwrap());
        assert!(least >= PERIOD - PERIOD / PARTS && most <= PERIOD + PERIOD / PARTS, "{least} {most}");
        assert!(least < PERIOD - PERIOD / 4 && most > PERIOD + PERIOD / 4, "{least} {most}");
        assert!(periods.chunks(2).all(|pair| pair[0] + pair[1] == 2 * PERIOD));
        let mut often = Varying::new(1_000_000, 42);
        assert!(often.took(99, true).is_none() && often.took(1, true).is_some());
    }

    /// Guarantees: a period that may not be changed when it is over is changed as soon as it may, and the next one
    /// lasts as long as any.
    #[test]
    fn later() {
        let mut varying = Varying::new(PERIOD, 42);
        assert_eq!([(SAMPLES, false), (1, false)].map(|(samples, may)| varying.took(samples, may)), [None; 2]);
        assert!(varying.took(0, true).is_some());
        assert!(varying.took(SAMPLES - 1, true).is_none() && varying.took(1, true).is_some());
    }

    /// Guarantees: changing an event's period takes at most one part in 1000 of the time, and is never put off for more
    /// than two seconds.
    #[test]
    fn pace() {
        let (start, mut pace) = (Instant::now(), Pace::default());
        assert!(pace.may_change(start));
        for took in [Duration::from_micros(3), Duration::from_millis(2)] {
            pace.changed(start, start + took);
            assert!(!pace.may_change(start + 1_000 * took) && pace.may_change(start + 1_001 * took));
        }
        pace.changed(start, start + Duration::from_secs(2));
        assert!(!pace.may_change(start + Duration::from_secs(3)) && pace.may_change(start + Duration::from_secs(4)));
    }

    /// Guarantees: of periods that are changed by the clock, each pair has as many samples in the same time as were
    /// requested.
    #[test]
    fn by_the_clock() {
        let mut varying = Varying::new(PERIOD, 42);
        for _ in 0..1_000 {
            let (one, other) = (varying.by_clock(), varying.by_clock());
            assert!((PERIOD / 4 * 3 - 1..=PERIOD / 2 * 3 + 1).contains(&one), "{one}");
            let samples = (PERIOD as f64 / one as f64 + PERIOD as f64 / other as f64) / 2.0;
            assert!((samples - 1.0).abs() < 1e-6, "{samples}");
        }
    }

    /// Guarantees: a first period of another length lasts for one sample.
    #[test]
    fn another_first() {
        let mut varying = Varying::behind_another(PERIOD, 42);
        assert!(
            varying.took(1, true).is_some()
                && varying.took(SAMPLES - 1, true).is_none()
                && varying.took(1, true).is_some()
        );
    }

    /// Guarantees: a program that does the same thing each 150 us, a 66th of the period, is sampled in all of its
    /// phases within some seconds.
    #[test]
    fn out_of_step() {
        const CYCLE: u64 = 150_000;
        let mut varying = Varying::new(PERIOD, 42);
        // This many of 48 samples, which take about half a second, are in the first third of the cycle. With a fixed
        // period it would be all or none.
        let (mut at, mut odd) = (0, 0);
        for _ in 0..100 {
            let mut met = 0;
            for _ in 0..3 {
                let period = varying.took(SAMPLES, true).unwrap();
                met += (0..SAMPLES).filter(|sample| (at + sample * period) % CYCLE < CYCLE / 3).count();
                at += SAMPLES * period;
            }
            odd += usize::from(!(8..=26).contains(&met));
        }
        assert!(odd <= 10, "{odd} of 100");
    }

    /// Guarantees: a program that works for 3 ms of each 10 is sampled at work within each half second, and seldom for
    /// less than half or more than twice the time that it works.
    #[test]
    fn out_of_step_with_milliseconds() {
        const CYCLE: u64 = 10_000_000;
        let mut varying = Varying::new(PERIOD, 42);
        let (mut at, mut odd) = (0, 0);
        for _ in 0..100 {
            // Eight samples to a period: half a second.
            let (end, mut met) = (at + 500_000_000, 0);
            while at < end {
                let period = varying.by_clock();
                met += (0..8).filter(|sample| (at + sample * period) % CYCLE < CYCLE / 10 * 3).count();
                at += 8 * period;
            }
            assert!(met > 0);
            odd += usize::from(!(8..=30).contains(&met));
        }
        assert!(odd <= 10, "{odd} of 100");
    }

    /// Guarantees: what an event counted beyond its samples is returned once, in whole periods, and never includes what
    /// a sample stands for, whichever of the two is seen first.
    #[test]
    fn skipped() {
        let mut skipped = Skipped::new(10);
        assert_eq!((skipped.tell(9), skipped.tell(10), skipped.tell(19)), (0, 10, 0));
        skipped.took(1);
        assert_eq!((skipped.tell(29), skipped.begun(29)), (0, 9));
        // This sample had been counted as missing before it was seen.
        assert_eq!(skipped.tell(30), 10);
        skipped.took(1);
        assert_eq!((skipped.tell(40), skipped.tell(50)), (0, 10));
        skipped.begin(55, 7);
        assert_eq!((skipped.tell(61), skipped.tell(62), skipped.begun(64)), (0, 7, 2));
    }
}
