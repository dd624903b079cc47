//! The processor time of threads that ended before they were looked at.
//!
//! The kernel counts the processor time of a whole process, including ended threads. The part of it that exceeds the
//! time of the known threads, settled or not, was used by threads that started and ended between two ticks. Only this
//! amount is known of them.

/// How many periods must be missing before that is reported: the counters of running threads are late.
const LEAST: u64 = 4;

/// How much must be missing at the end, in nanoseconds: nothing late comes any more, but the counters of threads
/// that still run are behind by up to a timer tick of the kernel.
const LEFT: u64 = 10_000_000;

/// The account of one process.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    /// What the process had used when its clock was read last, in nanoseconds.
    clock: Option<u64>,
    /// By how much the process's clock exceeded the counters of its threads when this account began.
    before: Option<i128>,
    /// The running time that was settled since then, in nanoseconds.
    accounted: u128,
}

impl Unseen {
    /// Adds running time that was settled, in nanoseconds.
    pub(super) fn account(&mut self, nano: u64) {
        self.accounted += u128::from(nano);
    }

    /// Notes what the process has used by now, in nanoseconds, if that can be read.
    pub(super) fn note(&mut self, clock_nano: Option<u64>) {
        self.clock = clock_nano.or(self.clock);
    }

    /// The processor time that no known thread accounts for, in nanoseconds: `known_nano` of what the process had used
    /// when that was noted last is known of its threads but not settled yet. The first call only sets the starting
    /// point, and returns 0.
    pub(super) fn missing(&mut self, known_nano: i128) -> u64 {
        let Some(clock_nano) = self.clock else { return 0 };
        let accounted = i128::try_from(self.accounted).unwrap_or(i128::MAX);
        let beyond = i128::from(clock_nano).saturating_sub(known_nano).saturating_sub(accounted);
        let before = *self.before.get_or_insert(beyond);
        u64::try_from(beyond.saturating_sub(before)).unwrap_or(0)
    }

    /// Whether so much is worth reporting. The counters of the `running` threads are late.
    pub(super) fn worth_saying(missing_nano: u64, period_nano: u64, running: u64) -> bool {
        missing_nano >= period_nano.saturating_mul(LEAST.saturating_add(running))
    }

    /// Whether so much is to be said at the end.
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

    /// Guarantees: what a process used before it was sampled is not missing, and neither is what is known of its living
    /// threads.
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

    /// Guarantees: a few periods, and one more for each running thread, are put down to late counters.
    #[test]
    fn late_counters() {
        assert!(!Unseen::worth_saying(39, 10, 0) && Unseen::worth_saying(40, 10, 0));
        assert!(!Unseen::worth_saying(59, 10, 2) && Unseen::worth_saying(60, 10, 2));
    }

    /// Guarantees: at the end what is left is said but for what counters of running threads may be late by.
    #[test]
    fn left_at_the_end() {
        assert!(!Unseen::is_left(LEFT - 1, 0) && Unseen::is_left(LEFT, 0));
        assert!(!Unseen::is_left(3 * LEFT - 1, 2) && Unseen::is_left(3 * LEFT, 2));
    }

    proptest! {
        /// Guarantees: in whatever order threads end unseen, threads are looked at and batches are sent, all that is
        /// reported adds up to what the process used, to the nanosecond.
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
