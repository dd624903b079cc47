//! When the time was that samples stand for. How much it is follows from the kernel's counters for all samples of a
//! thread together; when each was taken is known as well, and what links samples with spans depends on that.
//!
//! Stretches follow each other without gaps as far as that goes: a sample begins at most a period before it was taken,
//! or where the thread was met before and has not run since, and never behind that. Where samples are further apart
//! than what they stand for, the time between is what no sample stands for: a thread that waits for a processor is not
//! sampled meanwhile. Where there is none of that left, since shares are right on average only, samples overlap or
//! leave a gap.

use std::time::{Duration, Instant};

use super::{Rest, Settled, Stretch};

/// A sample, and for how long it stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observed {
    /// Its index in the batch.
    pub(super) sample: u32,
    /// When the thread was first and last met so.
    pub(super) at: (Instant, Instant),
    /// Whether the thread has been blocked since it was met before.
    pub(super) unchanged: bool,
    pub(super) nano: u64,
}

/// What is placed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placing {
    /// All of it is between these moments.
    pub(super) since: Instant,
    pub(super) now: Instant,
    /// By how much a sample may begin before it was taken.
    pub(super) tolerance: Duration,
    /// Whether samples keep to that; else they follow each other without gaps.
    pub(super) exact: bool,
    /// Whether only running time counts, so that there are gaps in any case.
    pub(super) cpu: bool,
}

impl Placing {
    /// Places samples, and the time that no sample stands for.
    pub(super) fn place(&self, mut observed: Vec<Observed>, rests: [(Rest, u64); 4], settled: &mut Settled) {
        // The kernel's samples are read a moment later, and looks may come before that.
        observed.sort_by_key(|of| of.at.0);
        let mut rests = Rests { left: rests, cursor: self.since };
        if self.cpu && !self.exact {
            let all = observed.iter().map(|of| of.nano).sum::<u64>().saturating_add(rests.nano());
            rests.cursor = earlier(self.now, Duration::from_nanos(all)).max(self.since);
        }
        let (mut met, mut beside) = (self.since, observed.first().map(|of| of.sample));
        for Observed { sample, at: (first, last), unchanged, nano } in observed {
            let [first, last] = [first, last].map(|at| at.clamp(self.since, self.now));
            let earliest = earlier(first, self.tolerance);
            if rests.cursor < earliest {
                rests.place(first, beside, settled);
            }
            let earliest = if unchanged { earliest.min(met) } else { earliest };
            let begins = if self.exact { rests.cursor.clamp(earliest, first) } else { rests.cursor.min(self.now) };
            let begins = begins.max(self.since);
            settled.samples.push((sample, Stretch { begins, nano }));
            rests.cursor = later(begins, nano);
            (met, beside) = (met.max(last), Some(sample));
        }
        let latest = earlier(self.now, Duration::from_nanos(rests.nano()));
        rests.cursor = if self.cpu { latest } else { rests.cursor.min(latest) }.max(self.since);
        rests.place(later(rests.cursor, rests.nano()), beside, settled);
    }
}

/// The time that no sample stands for and that has no place yet.
struct Rests {
    left: [(Rest, u64); 4],
    /// Where the next stretch begins.
    cursor: Instant,
}

impl Rests {
    fn nano(&self) -> u64 {
        self.left.iter().map(|(_, nano)| *nano).fold(0, u64::saturating_add)
    }

    /// Places what there is up to a moment, or until nothing is left.
    fn place(&mut self, until: Instant, beside: Option<u32>, settled: &mut Settled) {
        for (rest, left) in &mut self.left {
            let room = until.saturating_duration_since(self.cursor).as_nanos();
            let nano = u64::try_from(room).unwrap_or(u64::MAX).min(*left);
            if nano > 0 {
                *left -= nano;
                settled.rests.push((*rest, Stretch { begins: self.cursor, nano }, beside));
                self.cursor = later(self.cursor, nano);
            }
        }
    }
}

fn earlier(than: Instant, by: Duration) -> Instant {
    than.checked_sub(by).unwrap_or(than)
}

fn later(than: Instant, nano: u64) -> Instant {
    than.checked_add(Duration::from_nanos(nano)).unwrap_or(than)
}
