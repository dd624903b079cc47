//! The processor time of threads that ended before they were examined.
//!
//! The kernel counts the processor time of a whole process, including threads that have ended. The part that exceeds
//! the time of the known threads, settled or not, was used by threads that started and ended between two ticks. Only
//! its amount is known.

/// How many periods must be missing to be reported: the counters of running threads are late.
const LEAST: u64 = 4;

/// How much time must be missing at the end to be reported, in nanoseconds. No later readings follow, but the counters
/// of threads that still run are late by up to a timer tick of the kernel.
const LEFT: u64 = 10_000_000;

/// The time of one process that no known thread accounts for.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    /// The process's CPU time at the last reading, in nanoseconds.
    clock: Option<u64>,
    /// By how much the process's CPU time exceeded the counters of its threads at the first reading.
    before: Option<i128>,
    /// The running time that was settled since then, in nanoseconds.
    accounted: u128,
}

impl Unseen {
    /// Adds running time that was settled, in nanoseconds.
    pub(super) fn account(&mut self, nano: u64) {
        self.accounted += u128::from(nano);
    }

    /// Sets the current CPU time of the process, in nanoseconds, if it can be read.
    pub(super) fn note(&mut self, clock_nano: Option<u64>) {
        self.clock = clock_nano.or(self.clock);
    }

    /// The processor time that no known thread accounts for, in nanoseconds. `known_nano` is the running time that the
    /// counters of its threads show but that is not settled yet. The first call only sets the starting point, and
    /// returns 0.
    pub(super) fn missing(&mut self, known_nano: i128) -> u64 {
        let Some(clock_nano) = self.clock else { return 0 };
        let accounted = i128::try_from(self.accounted).unwrap_or(i128::MAX);
        let beyond = i128::from(clock_nano).saturating_sub(known_nano).saturating_sub(accounted);
        let before = *self.before.get_or_insert(beyond);
        u64::try_from(beyond.saturating_sub(before)).unwrap_or(0)
    }

    /// Whether this amount is worth reporting. The counters of the `running` threads are late.
    pub(super) fn is_significant(missing_nano: u64, period_nano: u64, running: u64) -> bool {
        missing_nano >= period_nano.saturating_mul(LEAST.saturating_add(running))
    }

    /// Whether this amount is worth reporting at the end.
    pub(super) fn is_left(missing_nano: u64, running: u64) -> bool {
        missing_nano >= LEFT.saturating_mul(running.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Unseen {
        fn missing_at(&mut self, clock_nano: u64, known_nano: i128) -> u64 {
            self.note(Some(clock_nano));
            self.missing(known_nano)
        }
    }

    /// Guarantees: neither the time before sampling began nor the known time of living threads is missing.
    #[test]
    fn nothing_missing() {
        let mut unseen = Unseen::default();
        assert_eq!(unseen.missing_at(5_000, 700), 0);
        assert_eq!(unseen.missing_at(6_000, 1_700), 0);
        unseen.account(1_500);
        assert_eq!(unseen.missing_at(6_000, 200), 0);
        assert_eq!(unseen.missing_at(6_000, 300), 0, "the counters are late, or the clock is");
        assert_eq!(unseen.missing_at(6_450, 200), 450);
        unseen.note(None);
        assert_eq!(unseen.missing(200), 450, "what is known of a process that has ended");
    }

    /// Guarantees: a few periods, and one more for each running thread, are attributed to late counters.
    #[test]
    fn late_counters() {
        assert!(!Unseen::is_significant(39, 10, 0) && Unseen::is_significant(40, 10, 0));
        assert!(!Unseen::is_significant(59, 10, 2) && Unseen::is_significant(60, 10, 2));
    }

    /// Guarantees: at the end, the missing time is reported if it exceeds the possible delay of the running threads'
    /// counters.
    #[test]
    fn left_at_the_end() {
        assert!(!Unseen::is_left(LEFT - 1, 0) && Unseen::is_left(LEFT, 0));
        assert!(!Unseen::is_left(3 * LEFT - 1, 2) && Unseen::is_left(3 * LEFT, 2));
    }

    proptest! {
        /// Guarantees: in whatever order threads end without having been examined, threads are examined and batches are
        /// sent, the reported times add up to the process's processor time, to the nanosecond.
        #[test]
        fn all_is_said(steps in prop::collection::vec((0u64..1_000, 0u64..1_000, any::<bool>()), 1..100)) {
            let mut unseen = Unseen::default();
            let (mut clock, mut known, mut said) = (123, 45_i128, 0);
            prop_assert_eq!(unseen.missing_at(clock, known), 0);
            let (start, waits) = (clock, known);
            for (gone, seen, batch) in steps {
                clock += gone + seen;
                known += i128::from(seen);
                if batch {
                    let settled = u64::try_from(known - waits).unwrap();
                    known = waits;
                    unseen.account(settled);
                    let missing = unseen.missing_at(clock, known);
                    unseen.account(missing);
                    said += settled + missing;
                    prop_assert_eq!(said, clock - start);
                }
            }
        }
    }
}
