//! The time between two samples of an event, and that it varies.
//!
//! The kernel's timer fires in exact periods. A program that is woken each 150 us is in the same phase at each 66th time: with 101 samples in a second, all of those
//! of a second and a half would meet it and all of the next would not. So the period is another one after some samples, which no program is in step with for long.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

/// For so many samples a period stays the same, and for so long at least. A new one begins with the moment of its change, which loses half a sample.
const SAMPLES: u64 = 16;
const LEAST: Duration = Duration::from_millis(100);

/// A period is longer or shorter by up to one part in so many.
const PARTS: u64 = 16;

/// Has an event take a sample for each so many nanoseconds from now on. Samples go on to say the period that the event was opened with: for events of clocks the
/// kernel never brings that up to date (`perf_swevent_hrtimer`, `last_period`). Where it refuses, the period stays.
#[allow(unsafe_code, reason = "nix's macros make the same call")]
pub fn set(event: BorrowedFd<'_>, period_nano: u64) {
    /// `PERF_EVENT_IOC_PERIOD`.
    const PERIOD: libc::c_ulong = 0x4008_2404;
    // SAFETY: the kernel reads a number of eight bytes, which lives for the call.
    unsafe { libc::ioctl(event.as_raw_fd(), PERIOD as _, &raw const period_nano) };
}

/// Periods around one, a new one after some samples.
#[derive(Debug)]
pub struct Varying {
    period_nano: u64,
    random: u64,
    due: Instant,
}

impl Varying {
    /// Periods around this one.
    pub fn new(period_nano: u64, seed: u64, now: Instant) -> Self {
        let mut varying = Self { period_nano, random: seed | 1, due: now };
        varying.due += varying.lasts();
        varying
    }

    fn lasts(&self) -> Duration {
        Duration::from_nanos(self.period_nano.saturating_mul(SAMPLES)).max(LEAST)
    }

    /// The period around which they are.
    pub fn average(&self) -> u64 {
        self.period_nano
    }

    /// The next period, where it is time for it.
    pub fn next(&mut self, now: Instant) -> Option<u64> {
        if now < self.due {
            return None;
        }
        self.due = now + self.lasts();
        // Xorshift (Marsaglia 2003): nothing depends on its quality.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let most = self.period_nano / PARTS;
        Some(self.period_nano - most + self.random % (2 * most + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: periods lie within a sixteenth of the one that was asked for, on both sides of it, and on average are that one; each
    /// lasts for some samples, however rare they are.
    #[test]
    fn around() {
        const PERIOD: u64 = 9_900_990;
        let mut now = Instant::now();
        let mut varying = Varying::new(PERIOD, 42, now);
        let mut periods = Vec::new();
        let lasts = varying.lasts();
        assert!(
            lasts >= Duration::from_nanos(PERIOD) * 16 && Varying::new(1_000_000_000, 42, now).lasts().as_secs() == 16
        );
        for _ in 0..10_000 {
            assert_eq!(varying.next(now + lasts / 2), None);
            now += lasts;
            periods.push(varying.next(now).unwrap());
        }
        let (least, most) = (*periods.iter().min().unwrap(), *periods.iter().max().unwrap());
        assert!(least >= PERIOD - PERIOD / PARTS && most <= PERIOD + PERIOD / PARTS, "{least} {most}");
        assert!(least < PERIOD - PERIOD / 20 && most > PERIOD + PERIOD / 20, "{least} {most}");
        let average = periods.iter().sum::<u64>() / 10_000;
        assert!(average.abs_diff(PERIOD) < PERIOD / 500, "{average}");
    }

    /// Guarantees: a program that does the same thing each 150 us, which is a 66th of the period, is met in all of its phases within some seconds.
    #[test]
    fn out_of_step() {
        const PERIOD: u64 = 9_900_990;
        const CYCLE: u64 = 150_000;
        let mut now = Instant::now();
        let mut varying = Varying::new(PERIOD, 42, now);
        // Of 48 samples, about half a second of them, so many are in the first third of the cycle: with a fixed period all or none.
        let (mut at, mut odd) = (0, 0);
        for _ in 0..100 {
            let mut met = 0;
            for _ in 0..3 {
                now += varying.lasts();
                let period = varying.next(now).unwrap();
                met += (0..SAMPLES).filter(|sample| (at + sample * period) % CYCLE < CYCLE / 3).count();
                at += SAMPLES * period;
            }
            odd += usize::from(!(8..=26).contains(&met));
        }
        assert!(odd <= 10, "{odd} of 100");
    }
}
