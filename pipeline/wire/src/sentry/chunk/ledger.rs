//! Rule 4: what a thread is shown to have, against what was sampled of it.
//!
//! An observation stands for its weight, and in Sentry owns the time until the next one of its thread. Where timers jitter
//! one comes a little late and the next a little early, and the two cancel out; where they come late all the time (a
//! profiler that means to look every 10 ms and looks every 14 ms), every open gap adds time that nobody sampled. So the
//! difference is carried from gap to gap.

/// The account of one thread in one chunk, in ticks.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The time that is shown so far beyond the time that was sampled; below nothing where it is less.
    surplus: i64,
    /// The largest weight so far: what the thread may be shown to have too much.
    limit: i64,
    /// The time that has no place, since the next observation comes too early for it.
    pub(super) clipped: u64,
}

impl Ledger {
    /// Takes an observation of this weight, after which the next one of its thread comes at this distance. Returns after
    /// what time its run is to be closed, and nothing where the gap stays open.
    ///
    /// Open is what is no longer than the thread is owed, and a gap up to one and a half weights (timers jitter by less
    /// than half a period) as long as all of them together add no more than one weight.
    #[inline]
    pub(super) fn gap(&mut self, weight: u64, distance: u64) -> Option<u64> {
        let due = self.due(weight);
        let (weight, distance) = (weight as i64, distance as i64);
        let after = self.surplus + distance - weight;
        if after <= 0 || (after <= self.limit && distance <= weight + weight / 2) {
            self.surplus = after;
            return None;
        }
        self.surplus += due as i64 - weight;
        Some(due)
    }

    /// Takes the last observation of the thread. Returns after what time it is to be closed.
    pub(super) fn last(&mut self, weight: u64) -> u64 {
        self.due(weight)
    }

    /// The time after which a run is closed that ends with an observation of this weight: its weight, and what the thread
    /// is owed where that has come to half a weight. No more than one weight can be owed: what lies further back is none
    /// of this observation's, so it is counted as lost.
    #[inline]
    fn due(&mut self, weight: u64) -> u64 {
        let weight = weight as i64;
        self.limit = self.limit.max(weight);
        if self.surplus < -weight {
            self.clipped += (-weight - self.surplus) as u64;
            self.surplus = -weight;
        }
        let owed = if self.surplus <= -weight / 2 { -self.surplus } else { 0 };
        (weight + owed) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What each observation of a thread owns, and what was lost.
    fn owned(weights: &[u64], times: &[u64]) -> (Vec<u64>, u64) {
        let mut ledger = Ledger::default();
        let mut owned = Vec::new();
        for (at, &weight) in weights.iter().enumerate() {
            owned.push(match times.get(at + 1) {
                Some(next) => ledger.gap(weight, next - times[at]).unwrap_or(next - times[at]),
                None => ledger.last(weight),
            });
        }
        (owned, ledger.clipped)
    }

    proptest! {
        /// Guarantees: whatever the distances and the weights, what a thread owns and what is counted as lost is what was
        /// sampled, but for the largest of its weights; no observation owns time behind the next one.
        #[test]
        fn sums_are_kept(observations in prop::collection::vec((0_u64..3_000, 0_u64..1_000), 1..200)) {
            let weights: Vec<u64> = observations.iter().map(|(weight, _)| *weight).collect();
            let times: Vec<u64> = observations.iter().scan(0, |at, (_, distance)| { *at += distance; Some(*at) }).collect();
            let (owned, clipped) = owned(&weights, &times);
            let (sum, sampled) = (owned.iter().sum::<u64>() + clipped, weights.iter().sum::<u64>());
            let largest = weights.iter().copied().max().unwrap();
            prop_assert!(sum.abs_diff(sampled) <= largest, "{sum} of {sampled}");
            prop_assert!(owned.iter().zip(times.windows(2)).all(|(owned, pair)| *owned <= pair[1] - pair[0]));
        }

        /// Guarantees: a timer that jitters by up to a fifth of its period and does not drift closes no gap, for hours.
        #[test]
        fn jitter_closes_nothing(late in prop::collection::vec(0_u64..200, 2..5_000)) {
            let times: Vec<u64> = late.iter().enumerate().map(|(n, late)| n as u64 * 1_000 + late).collect();
            let mut ledger = Ledger::default();
            prop_assert!(times.windows(2).all(|pair| ledger.gap(1_000, pair[1] - pair[0]).is_none()));
        }
    }

    /// Guarantees: a gap is closed a weight after its observation once the gaps before have added a weight's worth, and a
    /// gap that is shorter than a weight pays back.
    #[test]
    fn surplus_is_carried() {
        assert_eq!(owned(&[10; 6], &[0, 14, 28, 42, 56, 70]), (vec![14, 14, 10, 10, 10, 10], 0));
        assert_eq!(owned(&[10; 6], &[0, 14, 28, 42, 48, 62]), (vec![14, 14, 10, 6, 14, 10], 0));
    }

    /// Guarantees: what a thread is owed is paid back where there is room for it, at most one weight; the rest is counted.
    #[test]
    fn debt_is_paid_or_counted() {
        // Seen on one core and then on another one whose timer ticks earlier.
        assert_eq!(owned(&[10; 4], &[0, 2, 20, 100]), (vec![2, 18, 10, 10], 0));
        assert_eq!(owned(&[10; 3], &[0, 2, 100]), (vec![2, 18, 10], 0));
        assert_eq!(owned(&[10; 5], &[0, 0, 0, 0, 50]), (vec![0, 0, 0, 20, 10], 20));
        assert_eq!(owned(&[90_000, 10, 10], &[0, 46_000, 47_000]), (vec![46_000, 20, 10], 43_990));
    }
}
