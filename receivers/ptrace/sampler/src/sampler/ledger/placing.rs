//! Decides when each sample of a thread and each piece of time without samples begins; their lengths are given.
//!
//! The spans follow each other without overlap and without a gap, since readers of profiles, first of all Sentry, let a
//! sample last until the next one of its thread: an overlap would move time from one function to another. As lengths
//! and order are given, only the positions of the time without samples can be chosen. They are chosen to minimize the
//! largest distance between a sample and the time at which it was taken, and to keep the time without samples in few
//! pieces.

use std::time::{Duration, Instant};

use super::{TimeSpan, Unsampled, nano};

/// A sample, and the length of the time that it covers.
#[derive(Debug, Clone, Copy)]
pub(super) struct WeightedSample {
    /// The sample's index in the batch.
    pub(super) sample: u32,
    /// When the thread was first and last found with this stack.
    pub(super) at: (Instant, Instant),
    /// Whether the thread has been blocked since the previous sample.
    pub(super) unchanged: bool,
    /// How long the covered time is, in nanoseconds.
    pub(super) nano: u64,
}

/// The time that is to be filled with samples and time without samples.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placing {
    pub(super) since: Instant,
    /// The end of the time. If all spans together are longer, they extend beyond it; if they are shorter, the
    /// difference stays empty, in the positions of time without samples.
    pub(super) until: Instant,
    /// How long before the time at which it was taken a sample may begin.
    pub(super) tolerance: Duration,
}

/// The spans, in order of time.
#[derive(Debug, Default)]
pub(super) struct PlacedSpans {
    pub(super) samples: Vec<(u32, TimeSpan)>,
    pub(super) without_samples: Vec<(Unsampled, TimeSpan)>,
}

impl Placing {
    /// Places the samples and the time without samples. Time without samples is used in the order of its kinds.
    pub(super) fn place(&self, mut observed: Vec<WeightedSample>, without_samples: &[(Unsampled, u64)]) -> PlacedSpans {
        // The kernel's samples are read later than they were taken, so an examination may have been added before them.
        observed.sort_by_key(|of| of.at.0);
        let placed = observed.iter().map(|of| of.nano).chain(without_samples.iter().map(|(_, nano)| *nano));
        let placed = placed.fold(0, u64::saturating_add);
        let left_out = nano(self.until.saturating_duration_since(self.since)).saturating_sub(placed);
        let mut left: Vec<_> = without_samples.iter().map(|&(rest, nano)| (Some(rest), nano)).collect();
        left.push((None, left_out));
        let mut layer = SpanLayer { left, cursor: self.since, placed: PlacedSpans::default() };
        let mut before = 0;
        let bounds = self.bounds(&observed);
        for (at, of) in observed.iter().enumerate() {
            let (lowest, highest) = bounds[at];
            if at == 0 || before < lowest {
                // Insert as much as the next samples need too, so that these need no separate piece.
                let met = bounds[at..].iter().take_while(|bounds| bounds.0 <= highest);
                let without_samples = met.fold(lowest, |without_samples, bounds| without_samples.max(bounds.0));
                before += layer.rest(without_samples - before);
            }
            layer.placed.samples.push((of.sample, TimeSpan { begins: layer.cursor, nano: of.nano }));
            layer.cursor = later(layer.cursor, of.nano);
        }
        layer.rest(i128::MAX);
        layer.placed
    }

    /// The minimum and the maximum of the time without samples before each sample, in nanoseconds. Both increase from
    /// sample to sample. If a sample would have to be later than its successor may be, both are moved by half of the
    /// distance, which minimizes the larger of the two errors.
    fn bounds(&self, observed: &[WeightedSample]) -> Vec<(i128, i128)> {
        let offset = |at: Instant| nano(at.min(self.until).saturating_duration_since(self.since));
        let (mut met, mut samples, mut most) = (0, 0, i128::MIN);
        let mut bounds = Vec::with_capacity(observed.len());
        for WeightedSample { at, unchanged, nano: length, .. } in observed {
            let (first, last) = (offset(at.0), offset(at.1));
            let earliest = first.saturating_sub(nano(self.tolerance));
            let earliest = if *unchanged { earliest.min(met) } else { earliest };
            // Where the sample begins if it ends when the thread was last found with its stack.
            let fits = last.saturating_sub(*length);
            most = most.max(i128::from(fits.min(first).max(earliest)) - samples);
            bounds.push((most, i128::from(first.max(fits)) - samples));
            samples += i128::from(*length);
            met = met.max(last);
        }
        let mut least = i128::MAX;
        for (lowest, highest) in bounds.iter_mut().rev() {
            least = least.min(*highest);
            let middle = lowest.midpoint(least);
            (*lowest, *highest) = ((*lowest).min(middle), least.max(middle));
        }
        bounds
    }
}

/// Appends spans one after the other.
struct SpanLayer {
    /// The time without samples that has no position yet; time without a kind stays empty.
    left: Vec<(Option<Unsampled>, u64)>,
    /// Where the next span begins.
    cursor: Instant,
    placed: PlacedSpans,
}

impl SpanLayer {
    /// Appends at most this much of the time without samples, in nanoseconds. Returns how much was appended.
    fn rest(&mut self, most: i128) -> i128 {
        let most = u64::try_from(most.max(0)).unwrap_or(u64::MAX);
        let mut room = most;
        for (rest, left) in &mut self.left {
            let nano = room.min(*left);
            if nano > 0 {
                (*left, room) = (*left - nano, room - nano);
                if let Some(rest) = rest {
                    self.placed.without_samples.push((*rest, TimeSpan { begins: self.cursor, nano }));
                }
                self.cursor = later(self.cursor, nano);
            }
        }
        i128::from(most - room)
    }
}

fn later(than: Instant, nano: u64) -> Instant {
    than.checked_add(Duration::from_nanos(nano)).unwrap_or(than)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A sample: when the thread was first found with its stack, for how long, whether it was blocked since the
    /// previous sample, and how much time the sample covers.
    type Drawn = (u64, u64, bool, u64);

    const KINDS: [Unsampled; 2] = [Unsampled::WaitingForProcessor, Unsampled::NotSampled];

    fn place(drawn: &[Drawn], without_samples: [u64; 2], until: u64, tolerance: u64) -> (Instant, PlacedSpans) {
        let since = Instant::now();
        let at = |offset| since + Duration::from_nanos(offset);
        let observed = drawn.iter().zip(0..).map(|(&(first, long, unchanged, nano), sample)| WeightedSample {
            sample,
            at: (at(first), at(first + long)),
            unchanged,
            nano,
        });
        let placing = Placing { since, until: at(until), tolerance: Duration::from_nanos(tolerance) };
        (since, placing.place(observed.collect(), &[(KINDS[0], without_samples[0]), (KINDS[1], without_samples[1])]))
    }

    proptest! {
        /// Guarantees: the spans follow each other to the nanosecond, in the order in which the samples were taken;
        /// each sample and each kind of time without samples keeps its length, and empty time fills the range.
        #[test]
        fn tiles(
            drawn in prop::collection::vec((0u64..1_000, 0u64..100, any::<bool>(), 0u64..100), 0..30),
            without_samples in prop::array::uniform2(0u64..300),
            more in 0u64..300,
            tolerance in 0u64..50,
        ) {
            let all = drawn.iter().map(|of| of.3).sum::<u64>() + without_samples.iter().sum::<u64>();
            for until in [all, all + more, all / 2] {
                let (since, placed) = place(&drawn, without_samples, until, tolerance);
                let mut taken: Vec<u64> = placed.samples.iter().map(|(sample, _)| drawn[*sample as usize].0).collect();
                prop_assert!(taken.is_sorted() && taken.len() == drawn.len());
                taken.dedup();
                prop_assert!(placed.samples.iter().all(|(of, stretch)| stretch.nano == drawn[*of as usize].3));
                for (kind, length) in KINDS.iter().zip(without_samples) {
                    let pieces = placed.without_samples.iter().filter(|(of, ..)| of == kind);
                    prop_assert_eq!(pieces.map(|(_, stretch)| stretch.nano).sum::<u64>(), length);
                }
                let mut stretches: Vec<TimeSpan> = placed.samples.iter().map(|(_, stretch)| *stretch).collect();
                stretches.extend(placed.without_samples.iter().map(|(_, stretch)| *stretch));
                stretches.sort_by_key(|stretch| (stretch.begins, stretch.nano));
                let mut end = since;
                let mut gaps = 0;
                for stretch in &stretches {
                    prop_assert!(stretch.begins >= end, "two stretches overlap");
                    gaps += nano(stretch.begins - end);
                    end = stretch.begins + Duration::from_nanos(stretch.nano);
                }
                let left_out = until.saturating_sub(all);
                prop_assert!(gaps <= left_out && nano(end - since) == all + gaps);
            }
        }

        /// Guarantees: no other arrangement of these samples in this order has a smaller largest distance from the time
        /// at which a sample was taken. The unavoidable error is computed by comparing all pairs of samples.
        #[test]
        fn nearest(
            drawn in prop::collection::vec((0u64..1_000, 1u64..60), 1..20),
            spare in 0u64..400,
            tolerance in 0u64..50,
        ) {
            let mut drawn: Vec<Drawn> = drawn.into_iter().map(|(at, nano)| (at, 0, false, nano)).collect();
            drawn.sort();
            let all = drawn.iter().map(|of| of.3).sum::<u64>() + spare;
            let (since, placed) = place(&drawn, [spare, 0], all, tolerance);
            // The range of each sample's beginning, minus the length of the previous samples.
            let mut before = 0;
            let ranges: Vec<(i64, i64)> = drawn.iter().map(|&(at, _, _, nano)| {
                let (at, sum) = (at.min(all) as i64, before);
                before += nano as i64;
                ((at - tolerance.min(nano) as i64).max(0) - sum, at - sum)
            }).collect();
            let pairs = (0..ranges.len()).flat_map(|k| (0..=k).map(move |j| (j, k)));
            let pairs = pairs.map(|(j, k)| (ranges[j].0 - ranges[k].1 + 1) / 2);
            let ends = ranges.iter().flat_map(|range| [range.0 - spare as i64, -range.1]);
            let least = pairs.chain(ends).fold(0, i64::max);
            let mut before = 0;
            for ((_, stretch), range) in placed.samples.iter().zip(&ranges) {
                let without_samples = nano(stretch.begins - since) as i64 - before;
                before += stretch.nano as i64;
                let missed = (range.0 - without_samples).max(without_samples - range.1);
                prop_assert!(missed <= least, "{missed} beside its place, where {least} is possible");
            }
        }
    }

    /// Guarantees: time without samples stays in one piece while the samples are within their tolerance, and is placed
    /// where the thread was not observed.
    #[test]
    fn few_pieces() {
        let drawn = [9, 22, 30, 139, 152, 160].map(|at| (at, 0, false, 10));
        let (since, placed) = place(&drawn, [100, 0], 160, 10);
        let begins: Vec<u64> = placed.samples.iter().map(|(_, stretch)| nano(stretch.begins - since)).collect();
        assert_eq!((begins, placed.without_samples.len()), (vec![2, 12, 22, 130, 140, 150], 2));
    }
}
