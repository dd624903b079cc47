//! Decides when a process has its ticks.
//!
//! Time is divided into slots of one period. Each slot has one tick at a random moment of its middle half: this keeps
//! the average rate, and a target with its own period is not always sampled in the same phase. Ticks are skipped if the
//! sampler is late or has lowered its rate; skipped ticks are counted, and not caught up on.

use std::time::{Duration, Instant};

/// The ticks of one process.
#[derive(Debug)]
pub(super) struct TickSchedule {
    start: Instant,
    period_nano: u64,
    /// Only one slot in this many has a tick.
    stride: u64,
    next: u64,
    random: u64,
    due: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tick {
    /// The slot to which the tick belongs.
    pub(super) slot: u64,
    /// How many ticks before this one were left out because the sampler was late.
    pub(super) missed: u64,
}

impl TickSchedule {
    /// Creates a schedule whose first slot starts now. The rate is in hertz; `seed` is the seed for the random moments.
    pub(super) fn new(now: Instant, rate: f64, seed: u64) -> Self {
        let period = Duration::from_secs_f64(1.0 / rate.clamp(1.0, 1000.0));
        let mut schedule = Self {
            start: now,
            period_nano: u64::try_from(period.as_nanos()).unwrap_or(u64::MAX),
            stride: 1,
            next: 1,
            random: seed | 1,
            due: now,
        };
        schedule.set_due();
        schedule
    }

    /// The time between two ticks, in nanoseconds.
    pub(super) fn period_nano(&self) -> u64 {
        self.period_nano
    }

    /// When the next tick is due.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// The slot that contains a moment.
    pub(super) fn slot(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.start).as_nanos();
        u64::try_from(since / u128::from(self.period_nano)).unwrap_or(u64::MAX)
    }

    /// Makes only one slot in `stride` have a tick from now on.
    pub(super) fn set_stride(&mut self, stride: u64) {
        self.stride = stride.max(1);
    }

    pub(super) fn stride(&self) -> u64 {
        self.stride
    }

    /// Starts the tick that is due.
    pub(super) fn begin(&mut self, now: Instant) -> Tick {
        let slot = self.slot(now).max(self.next);
        let missed = (slot - self.next) / self.stride;
        self.next = (slot / self.stride + 1) * self.stride;
        self.set_due();
        Tick { slot, missed }
    }

    fn set_due(&mut self) {
        // Xorshift (Marsaglia 2003): nothing depends on its quality.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let jitter = self.period_nano / 4 + self.random % (self.period_nano / 2).max(1);
        let offset = u128::from(self.next) * u128::from(self.period_nano) + u128::from(jitter);
        self.due = self.start + Duration::from_nanos(u64::try_from(offset).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: every slot has exactly one tick, at a varying distance, and none is missed as long as ticks start in
    /// time.
    #[test]
    fn one_tick_per_slot() {
        let start = Instant::now();
        let mut schedule = TickSchedule::new(start, 100.0, 42);
        let mut distances = std::collections::BTreeSet::new();
        let mut last = start;
        for slot in 1..1000 {
            let due = schedule.due();
            assert_eq!(schedule.slot(due), slot);
            assert_eq!(schedule.begin(due), Tick { slot, missed: 0 });
            let distance = due - last;
            assert!(distance >= Duration::from_millis(5) && distance < Duration::from_millis(18));
            distances.insert(distance.as_millis());
            last = due;
        }
        assert!(distances.len() > 5, "{distances:?}");
    }

    /// Guarantees: if a tick is late, slots are skipped instead of caught up on, and the number of skipped slots is
    /// returned.
    #[test]
    fn late_ticks() {
        let start = Instant::now();
        let mut schedule = TickSchedule::new(start, 100.0, 42);
        assert_eq!(schedule.begin(start + Duration::from_millis(55)), Tick { slot: 5, missed: 4 });
        assert_eq!(schedule.slot(schedule.due()), 6);
        schedule.set_stride(4);
        assert_eq!(schedule.begin(schedule.due()).slot, 6);
        assert_eq!(schedule.slot(schedule.due()), 8);
        let due = schedule.due();
        assert_eq!(schedule.begin(due), Tick { slot: 8, missed: 0 });
        assert_eq!(schedule.slot(schedule.due()), 12);
    }
}
