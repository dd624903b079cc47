//! The time between two samples of an event, how it varies, and how often an event fires without taking a sample.
//!
//! The kernel's timer fires in exact periods. A program with a cycle of 150 us completes 66 cycles in one period at 101
//! samples per second: all samples of a second and a half would hit the same phase, and those of the next another one.
//! A program that works for 3 ms of every 10 would be found waiting for half a second. So the period is changed after
//! some samples, enough that no program stays synchronous with it for long. Periods come in pairs, one above and one
//! below the requested period by the same amount, so that a few seconds have as many samples as requested.
//!
//! A new period begins when it is set, and the elapsed part of the old one is lost. The timer of a thread's or a
//! group's event stops while the thread or group does not run. So its period is changed right after a sample and not at
//! fixed times: otherwise a thread that seldom runs would never complete a period between two changes.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

/// A period is used for this many samples, or for this many nanoseconds if that is longer: each change costs a system
/// call.
const SAMPLES: u64 = 16;
const LEAST_NANO: u64 = 100_000_000;

/// A period (or its rate, if it is changed at fixed times) differs from the requested one by at most one part in this
/// many.
const PARTS: u64 = 3;

/// Makes an event take a sample for each `period_nano` nanoseconds from now on. The samples still report the period
/// with which the event was opened: for clock events the kernel never updates it (`perf_swevent_hrtimer`,
/// `last_period`). If the kernel refuses, the old period stays.
#[allow(unsafe_code, reason = "nix's macros make the same call")]
pub fn set(event: BorrowedFd<'_>, period_nano: u64) {
    /// `PERF_EVENT_IOC_PERIOD`.
    const PERIOD: libc::c_ulong = 0x4008_2404;
    // SAFETY: the kernel reads a number of eight bytes, which lives for the call.
    unsafe { libc::ioctl(event.as_raw_fd(), PERIOD as _, &raw const period_nano) };
}

/// Decides when the period of an event may be changed again.
///
/// The processor of the event makes the change while the caller waits. This takes some microseconds, but milliseconds
/// of processor time if the hypervisor is not running that processor at the moment.
#[derive(Debug, Default)]
pub struct Pace {
    not_before: Option<Instant>,
}

impl Pace {
    /// Changes may take one part in this many of the time. They are delayed by at most `LONGEST`: a change may seem
    /// long only because the machine was paused, and until the next change a program that is synchronous with the
    /// period is badly sampled.
    const PART: u32 = 1_000;
    const LONGEST: Duration = Duration::from_secs(2);

    /// Whether a period may be changed now.
    pub fn may_change(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|at| now >= at)
    }

    /// Records that a change began at `began` and has just ended.
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
    /// The difference of the next period from the requested one, which is the opposite of the current difference.
    /// `None` if the next period begins a new pair.
    opposite: Option<i64>,
    /// The number of samples left in the current period.
    left: u64,
}

impl Varying {
    /// Creates periods that vary around this one, and begin with it.
    pub fn new(period_nano: u64, seed: u64) -> Self {
        Self { period_nano, random: seed | 1, opposite: None, left: last(period_nano) }
    }

    /// Creates periods that vary around this one, for an event that was opened with a different period.
    pub fn behind_another(period_nano: u64, seed: u64) -> Self {
        Self { left: 1, ..Self::new(period_nano, seed) }
    }

    /// The period around which the periods vary, in nanoseconds.
    pub fn average(&self) -> u64 {
        self.period_nano
    }

    /// Counts samples that were taken. Returns the next period if the current one is over and `may_change`.
    pub fn count_samples(&mut self, samples: u64, may_change: bool) -> Option<u64> {
        self.left = self.left.saturating_sub(samples);
        if self.left > 0 || !may_change {
            return None;
        }
        self.left = last(self.period_nano);
        let difference = self.difference();
        Some(self.period_nano.saturating_add_signed(difference))
    }

    /// The next period of an event whose period is changed at fixed times. All periods are used equally long, so their
    /// rates (not their lengths) average to the requested one.
    pub fn by_clock(&mut self) -> u64 {
        let difference = self.difference();
        let period = u128::from(self.period_nano);
        let rate = u128::from(self.period_nano.saturating_add_signed(difference).max(1));
        u64::try_from(period * period / rate).unwrap_or(self.period_nano)
    }

    /// The difference of the next period from the requested one.
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

/// For how many samples a period is used.
fn last(period_nano: u64) -> u64 {
    (LEAST_NANO / period_nano.max(1)).max(SAMPLES)
}

/// Counts how often an event's timer fired without taking a sample, because its thread was in the kernel, where the
/// event may not sample.
///
/// The kernel does not report this. But the event counts to the nanosecond how long its thread ran, and it fires
/// whenever this count has grown by a period.
#[derive(Debug, Clone, Copy)]
pub struct Skipped {
    /// The event's count when the current period began, and the period, in nanoseconds.
    since: u64,
    period_nano: u64,
    /// Since the current period began: how many samples were taken, and how many firings without a sample `unreported`
    /// has returned.
    samples: u64,
    reported: u64,
    /// Time without samples in earlier periods that `unreported` has not returned yet, in nanoseconds.
    unreported: u64,
}

impl Skipped {
    /// The state of an event that has counted nothing yet.
    pub fn new(period_nano: u64) -> Self {
        Self { since: 0, period_nano: period_nano.max(1), samples: 0, reported: 0, unreported: 0 }
    }

    /// Counts samples that were taken or lost.
    pub fn count_samples(&mut self, samples: u64) {
        self.samples = self.samples.saturating_add(samples);
    }

    /// The time for which the event took no sample and that was not returned yet, in nanoseconds. `count` is the
    /// event's current count.
    pub fn unreported(&mut self, count: u64) -> u64 {
        let fired = count.saturating_sub(self.since) / self.period_nano;
        // A sample may not have been read yet. The next call corrects that.
        let more = fired.saturating_sub(self.samples).saturating_sub(self.reported);
        self.reported += more;
        std::mem::take(&mut self.unreported).saturating_add(more.saturating_mul(self.period_nano))
    }

    /// The event's count at its last sample, if each firing took a sample.
    pub fn at_last_sample(&self) -> u64 {
        self.since.saturating_add(self.samples.saturating_mul(self.period_nano))
    }

    /// The elapsed part of the period since the event last fired, in nanoseconds.
    pub fn elapsed_in_period(&self, count: u64) -> u64 {
        count.saturating_sub(self.since) % self.period_nano
    }

    /// Starts a new period at this count.
    pub fn begin(&mut self, count: u64, period_nano: u64) {
        *self = Self { since: count, unreported: self.unreported(count), ..Self::new(period_nano) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: u64 = 9_900_990;

    /// Guarantees: periods differ from the requested one by at most a third, in both directions, and each pair averages
    /// to it, to the nanosecond; each is used for sixteen samples, however long those take, or for more if samples are
    /// frequent.
    #[test]
    fn around() {
        let mut varying = Varying::new(PERIOD, 42);
        let mut periods = Vec::new();
        for _ in 0..10_000 {
            assert_eq!(varying.count_samples(SAMPLES - 1, true), None);
            periods.push(varying.count_samples(1, true).unwrap());
        }
        let (least, most) = (*periods.iter().min().unwrap(), *periods.iter().max().unwrap());
        assert!(least >= PERIOD - PERIOD / PARTS && most <= PERIOD + PERIOD / PARTS, "{least} {most}");
        assert!(least < PERIOD - PERIOD / 4 && most > PERIOD + PERIOD / 4, "{least} {most}");
        assert!(periods.chunks(2).all(|pair| pair[0] + pair[1] == 2 * PERIOD));
        let mut often = Varying::new(1_000_000, 42);
        assert!(often.count_samples(99, true).is_none() && often.count_samples(1, true).is_some());
    }

    /// Guarantees: a period that may not be changed when it is over is changed as soon as that is allowed, and the next
    /// one has its full number of samples.
    #[test]
    fn later() {
        let mut varying = Varying::new(PERIOD, 42);
        assert_eq!([(SAMPLES, false), (1, false)].map(|(samples, may)| varying.count_samples(samples, may)), [None; 2]);
        assert!(varying.count_samples(0, true).is_some());
        assert!(varying.count_samples(SAMPLES - 1, true).is_none() && varying.count_samples(1, true).is_some());
    }

    /// Guarantees: changing an event's period takes at most one part in 1000 of the time, and is never delayed by more
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

    /// Guarantees: if periods are changed at fixed times, each pair of them yields as many samples as requested.
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

    /// Guarantees: the different period with which an event was opened lasts for one sample.
    #[test]
    fn another_first() {
        let mut varying = Varying::behind_another(PERIOD, 42);
        assert!(
            varying.count_samples(1, true).is_some()
                && varying.count_samples(SAMPLES - 1, true).is_none()
                && varying.count_samples(1, true).is_some()
        );
    }

    /// Guarantees: a program with a cycle of 150 us, a 66th of the period, is sampled in all of its phases within some
    /// seconds.
    #[test]
    fn out_of_step() {
        const CYCLE: u64 = 150_000;
        let mut varying = Varying::new(PERIOD, 42);
        // How many of 48 samples, which take about half a second, hit the first third of the cycle. With a fixed
        // period, all or none would.
        let (mut at, mut odd) = (0, 0);
        for _ in 0..100 {
            let mut met = 0;
            for _ in 0..3 {
                let period = varying.count_samples(SAMPLES, true).unwrap();
                met += (0..SAMPLES).filter(|sample| (at + sample * period) % CYCLE < CYCLE / 3).count();
                at += SAMPLES * period;
            }
            odd += usize::from(!(8..=26).contains(&met));
        }
        assert!(odd <= 10, "{odd} of 100");
    }

    /// Guarantees: a program that works for 3 ms of every 10 is sampled at work within each half second, and the share
    /// of such samples is seldom less than half or more than twice the true share.
    #[test]
    fn out_of_step_with_milliseconds() {
        const CYCLE: u64 = 10_000_000;
        let mut varying = Varying::new(PERIOD, 42);
        let (mut at, mut odd) = (0, 0);
        for _ in 0..100 {
            // Eight samples per period: half a second.
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

    /// Guarantees: an event's count beyond its samples is returned once, in whole periods, and never includes time that
    /// a sample covers, whichever of count and sample is read first.
    #[test]
    fn skipped() {
        let mut skipped = Skipped::new(10);
        assert_eq!((skipped.unreported(9), skipped.unreported(10), skipped.unreported(19)), (0, 10, 0));
        skipped.count_samples(1);
        assert_eq!((skipped.unreported(29), skipped.elapsed_in_period(29)), (0, 9));
        // This sample was counted as missing before it was read.
        assert_eq!(skipped.unreported(30), 10);
        skipped.count_samples(1);
        assert_eq!((skipped.unreported(40), skipped.unreported(50)), (0, 10));
        skipped.begin(55, 7);
        assert_eq!((skipped.unreported(61), skipped.unreported(62), skipped.elapsed_in_period(64)), (0, 7, 2));
    }
}
