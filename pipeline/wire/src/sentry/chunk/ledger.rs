//! Keeps the time that Sentry shows for a thread close to the sampled time.
//!
//! An observation represents a sampled time, its weight, but Sentry attributes to it the time until the next one of its
//! thread. If timers jitter, one observation is a little late and the next a little early, and the two cancel out. If
//! they are always late (a profiler with a period of 10 ms that samples every 14 ms), every gap left open adds time
//! that was not sampled. So the difference is carried from gap to gap.
//!
//! An observation with its own duration is exact: it is neither extended to the next observation nor used to make up
//! for missing time of the thread.

use super::limits::{JITTER, MOST_OWED};

/// The account of one thread in one chunk, in ticks.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Shown time so far minus sampled time; negative if shown time is missing ("owed").
    surplus: i64,
    /// The missing time before the last gap, as a number not above 0.
    owed_before: i64,
    /// The maximum surplus: the largest weight of the thread so far.
    limit: i64,
    /// Sampled time that cannot be shown, because the next observation comes too early.
    pub(super) clipped: u64,
}

impl Ledger {
    /// Adds an observation of this weight; `distance` is the time to the next observation of its thread. Returns the
    /// time after which a closing sample is needed, or `None` if the gap stays open.
    ///
    /// A gap stays open if it is no longer than the observation's weight plus the missing time, for which one
    /// observation makes up by at most its own weight. A gap also stays open if [`JITTER`] explains it, as long as all
    /// such gaps together add at most one weight.
    #[inline]
    pub(super) fn gap(&mut self, weight: u64, distance: u64, exact: bool) -> Option<u64> {
        if exact {
            self.clipped += weight.saturating_sub(distance);
            return (weight < distance).then_some(weight);
        }
        let due = self.due(weight);
        let (weight, distance) = (weight as i64, distance as i64);
        let after = self.surplus + distance - weight;
        let paid = distance <= weight + weight.min(-self.surplus);
        self.owed_before = self.surplus.min(0);
        if paid || (after <= self.limit && distance <= weight + weight / JITTER) {
            self.surplus = after;
            return None;
        }
        self.surplus += due as i64 - weight;
        Some(due)
    }

    /// Adds the last observation of the thread. Returns the time after which a closing sample is needed. Time that is
    /// still missing is lost, except for the less than half a weight that jitter leaves.
    pub(super) fn last(&mut self, weight: u64, exact: bool) -> u64 {
        let due = if exact { weight } else { self.due(weight) };
        self.surplus += due as i64 - weight as i64;
        if self.surplus < -(self.limit.min(weight as i64) / JITTER) {
            self.clipped += self.surplus.unsigned_abs();
            self.surplus = 0;
        }
        due
    }

    /// The time from an observation of this weight to the closing sample of its run: the weight and, if at least half a
    /// weight is missing, up to one weight of the missing time. Missing time from the last gap is carried up to one
    /// weight of this observation, and in total up to [`MOST_OWED`] weights. The rest belongs to another time (perhaps
    /// half of a long wait, which would double the short observations after it), so it is counted as lost.
    #[inline]
    fn due(&mut self, weight: u64) -> u64 {
        let weight = weight as i64;
        self.limit = self.limit.max(weight);
        let most = (self.owed_before - weight).max(weight.saturating_mul(-MOST_OWED));
        if self.surplus < most {
            self.clipped += (most - self.surplus) as u64;
            self.surplus = most;
        }
        let owed = if self.surplus <= -weight / JITTER { weight.min(-self.surplus).max(0) } else { 0 };
        (weight + owed) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The time attributed to each observation of a thread, and the time lost.
    fn owned(weights: &[u64], times: &[u64]) -> (Vec<u64>, u64) {
        let mut ledger = Ledger::default();
        let mut owned = Vec::new();
        for (at, &weight) in weights.iter().enumerate() {
            owned.push(match times.get(at + 1) {
                Some(next) => ledger.gap(weight, next - times[at], false).unwrap_or(next - times[at]),
                None => ledger.last(weight, false),
            });
        }
        (owned, ledger.clipped)
    }

    /// Weights and distances. Most distances are about one weight long, some are 0, some far longer.
    fn observations() -> impl Strategy<Value = Vec<(u64, u64)>> {
        let weight = prop_oneof![8 => Just(1_000_u64), 1 => 0_u64..3_000];
        let percent = prop_oneof![12 => 50_u64..160, 2 => 0_u64..50, 1 => 160_u64..500, 1 => 2_000_u64..90_000];
        prop::collection::vec((weight, percent).prop_map(|(weight, part)| (weight, weight * part / 100)), 1..300)
    }

    /// Distances of 1,000 that each vary by up to this many percent, so that the deviation accumulates.
    fn wandering() -> impl Strategy<Value = Vec<u64>> {
        (1_u64..=50)
            .prop_flat_map(|percent| prop::collection::vec(1_000 - percent * 10..=1_000 + percent * 10, 2..4_000))
    }

    fn times(distances: impl Iterator<Item = u64>) -> Vec<u64> {
        distances.scan(0, |at, distance| Some(std::mem::replace(at, *at + distance))).collect()
    }

    proptest! {
        /// Guarantees: for any distances and weights, attributed time plus lost time equals sampled time, up to the
        /// thread's largest weight; no observation is attributed time after the next one, nor more than twice its
        /// weight if its run is closed.
        /// rule: differences#sample-time
        #[test]
        fn sums_are_kept(observations in prop_oneof![
            observations(),
            prop::collection::vec((0_u64..3_000, 0_u64..1_000), 1..200),
        ]) {
            let weights: Vec<u64> = observations.iter().map(|(weight, _)| *weight).collect();
            let times = times(observations.iter().map(|(_, distance)| *distance));
            let (owned, clipped) = owned(&weights, &times);
            let (sum, sampled) = (owned.iter().sum::<u64>() + clipped, weights.iter().sum::<u64>());
            let largest = weights.iter().copied().max().unwrap();
            prop_assert!(sum.abs_diff(sampled) <= largest, "{sum} of {sampled}");
            prop_assert!(owned.iter().zip(times.windows(2)).all(|(owned, pair)| *owned <= pair[1] - pair[0]));
            prop_assert!(owned.iter().zip(&weights).all(|(owned, weight)| *owned <= 2 * weight));
        }

        /// Guarantees: if distances vary by up to a half, only unavoidable time is lost: the time by which some range
        /// up to the end is shorter than its weights. The test finds it by trying every range.
        #[test]
        fn wandering_spacings_lose_nothing(distances in wandering()) {
            let times = times(distances.iter().copied());
            let (owned, clipped) = owned(&vec![1_000; times.len()], &times);
            let end = times[times.len() - 1];
            let missing = |from: usize| (1_000 * (times.len() - 1 - from) as u64).saturating_sub(end - times[from]);
            let most = (0..times.len()).map(missing).max().unwrap();
            prop_assume!(most < 1_000 * (MOST_OWED as u64 - 2));
            let (sum, sampled) = (owned.iter().sum::<u64>(), 1_000 * times.len() as u64);
            prop_assert!(clipped <= most + 1_000, "{clipped} lost, {most} missing");
            prop_assert!(sum <= sampled + 1_000 && sum + most + 1_000 >= sampled, "{sum} of {sampled}, {most} missing");
            prop_assert!(owned.iter().zip(times.windows(2)).all(|(owned, pair)| *owned <= pair[1] - pair[0]));
        }

        /// Guarantees: a timer that jitters by up to a fifth of its period and does not drift closes no gap, for hours.
        #[test]
        fn jitter_closes_nothing(late in prop::collection::vec(0_u64..200, 2..5_000)) {
            let times: Vec<u64> = late.iter().enumerate().map(|(n, late)| n as u64 * 1_000 + late).collect();
            let mut ledger = Ledger::default();
            prop_assert!(times.windows(2).all(|pair| ledger.gap(1_000, pair[1] - pair[0], false).is_none()));
        }
    }

    /// Guarantees: an exact observation gets exactly its own time, and leaves no surplus or missing time; time without
    /// room is lost.
    #[test]
    fn exact_time_is_neither_bridged_nor_stretched() {
        let mut ledger = Ledger::default();
        assert_eq!(
            (ledger.gap(10, 4, false), ledger.gap(10, 14, true), ledger.gap(10, 10, true)),
            (None, Some(10), None)
        );
        assert_eq!((ledger.gap(10, 7, true), ledger.clipped), (None, 3));
        assert_eq!((ledger.last(10, true), ledger.clipped), (10, 9));
    }

    /// Guarantees: once earlier gaps have added a weight, a gap is closed one weight after its observation, and a gap
    /// shorter than a weight reduces the surplus.
    #[test]
    fn surplus_is_carried() {
        assert_eq!(owned(&[10; 6], &[0, 14, 28, 42, 56, 70]), (vec![14, 14, 10, 10, 10, 10], 0));
        assert_eq!(owned(&[10; 6], &[0, 14, 28, 42, 48, 62]), (vec![14, 14, 10, 6, 14, 10], 0));
    }

    /// Guarantees: missing time is made up for as soon as there is room, by at most one weight per observation; time
    /// that remains missing is counted.
    #[test]
    fn debt_is_paid_or_counted() {
        // Sampled on one core, then on another one whose timer ticks earlier.
        assert_eq!(owned(&[10; 4], &[0, 2, 20, 100]), (vec![2, 18, 10, 10], 0));
        assert_eq!(owned(&[10; 3], &[0, 2, 100]), (vec![2, 18, 10], 0));
        assert_eq!(owned(&[10; 5], &[0, 0, 0, 0, 50]), (vec![0, 0, 0, 20, 20], 10));
        assert_eq!(owned(&[10; 7], &[0, 0, 0, 0, 50, 100, 150]), (vec![0, 0, 0, 20, 20, 20, 10], 0));
        assert_eq!(owned(&[90_000, 10, 10], &[0, 46_000, 47_000]), (vec![46_000, 20, 10], 43_990));
    }

    /// Guarantees: a long wait that is cut short does not lengthen the many short observations after it, and the
    /// missing time is bounded.
    #[test]
    fn debt_is_bounded() {
        let weights: Vec<u64> = std::iter::once(90_000).chain([10; 4_000]).collect();
        let distances = std::iter::once(46_000).chain(std::iter::repeat(40));
        let (time, clipped) = owned(&weights, &times(distances.take(weights.len())));
        assert_eq!((time[0], time[1..].iter().sum::<u64>(), clipped), (46_000, 40_010, 43_990));

        let distances = std::iter::repeat_n(0, 1_000).chain(std::iter::repeat(40));
        let (time, clipped) = owned(&[10; 3_000], &times(distances.take(3_000)));
        let paid = time[1_000..].iter().filter(|time| **time == 20).count() as i64;
        assert_eq!((paid, clipped), (MOST_OWED, (1_000 - MOST_OWED as u64) * 10));
    }
}
