//! Decides when to scrape a program next.

use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

/// The schedule of one program. Times are relative to the receiver's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schedule {
    interval: Duration,
    next: Duration,
}

impl Schedule {
    /// The first time lies within the first interval, at an offset derived from a hash of the name. So programs are not
    /// all scraped at once, and each has the same offset after a restart.
    pub(crate) fn new(name: &str, interval: Duration) -> Self {
        let nanos = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self { interval: Duration::from_nanos(nanos), next: Duration::from_nanos(xxh3_64(name.as_bytes()) % nanos) }
    }

    /// The time to wait from now. If the previous profile took longer than the interval, the next one starts at once;
    /// further missed ones are skipped.
    pub(crate) fn wait(&mut self, now: Duration) -> Duration {
        let missed = now.saturating_sub(self.next).as_nanos() / self.interval.as_nanos().max(1);
        let missed = u32::try_from(missed).unwrap_or(u32::MAX);
        let planned = self.next.saturating_add(self.interval.saturating_mul(missed));
        self.next = planned.saturating_add(self.interval);
        planned.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Guarantees: the first time lies within the interval, is equal for equal names, and differs between names.
    #[test]
    fn first() {
        let interval = 60 * SECOND;
        let firsts: Vec<Duration> =
            (0..100).map(|n| Schedule::new(&format!("shop-{n}"), interval).wait(Duration::ZERO)).collect();
        assert!(firsts.iter().all(|&first| first < interval));
        assert_eq!(firsts[7], Schedule::new("shop-7", interval).wait(Duration::ZERO));
        for part in 0..4 {
            let within = firsts.iter().filter(|first| (first.as_secs() / 15) == part).count();
            assert!((10..=40).contains(&within), "{within}");
        }
    }

    /// Guarantees: profiles follow each other at the interval; after a profile that took longer, the next one starts at
    /// once, and further missed ones are skipped.
    #[test]
    fn following() {
        let mut schedule = Schedule { interval: 10 * SECOND, next: 3 * SECOND };
        assert_eq!(schedule.wait(Duration::ZERO), 3 * SECOND);
        assert_eq!(schedule.wait(4 * SECOND), 9 * SECOND);
        assert_eq!(schedule.wait(24 * SECOND), Duration::ZERO);
        assert_eq!(schedule.wait(25 * SECOND), 8 * SECOND);
        assert_eq!(schedule.wait(100 * SECOND), Duration::ZERO);
        assert_eq!(schedule.wait(100 * SECOND), 3 * SECOND);
        let mut tiny = Schedule::new("x", Duration::ZERO);
        assert_eq!(tiny.wait(SECOND), Duration::ZERO);
    }
}
