//! The stretches of time in which a thread was observed.

/// A stretch of time, in nanoseconds since the Unix epoch, both ends inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stretch {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Stretch {
    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }
}

/// Stretches in order, none of which touch each other.
#[derive(Debug, Default)]
pub(crate) struct Covered(Vec<Stretch>);

impl Covered {
    /// Adds a stretch. Those that are not further than `gap` from it become one with it.
    pub(crate) fn add(&mut self, new: Stretch, gap: u64) {
        let reach = Stretch { start: new.start.saturating_sub(gap), end: new.end.saturating_add(gap) };
        let from = self.0.partition_point(|known| known.end < reach.start);
        let joined = self.0[from..].iter().take_while(|known| known.start <= reach.end).count();
        let Some((first, last)) = self.0[from..from + joined].first().zip(self.0[from..from + joined].last()) else {
            return self.0.insert(from, new);
        };
        let whole = Stretch { start: first.start.min(new.start), end: last.end.max(new.end) };
        self.0[from] = whole;
        self.0.drain(from + 1..from + joined);
    }

    /// Whether any of them overlaps.
    pub(crate) fn overlaps(&self, with: Stretch) -> bool {
        let at = self.0.partition_point(|known| known.end < with.start);
        self.0.get(at).is_some_and(|known| known.overlaps(with))
    }

    /// Forgets what ended before a time. Whether anything is left.
    pub(crate) fn forget_before(&mut self, time: u64) -> bool {
        let gone = self.0.partition_point(|known| known.end < time);
        self.0.drain(..gone);
        !self.0.is_empty()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Guarantees: what is covered is what a list of all stretches says, with the gaps between neighbours closed, in
        /// whatever order they come.
        #[test]
        fn as_a_list_says(
            stretches in proptest::collection::vec((0u64..60, 0u64..6), 0..20),
            gap in 0u64..4,
            asked in (0u64..70, 0u64..6),
            before in 0u64..70,
        ) {
            let mut covered = Covered::default();
            let mut times = [false; 80];
            for (start, length) in &stretches {
                covered.add(Stretch { start: *start, end: start + length }, gap);
                (*start..=start + length).for_each(|at| times[at as usize] = true);
            }
            // Closes gaps of at most `gap` until nothing changes.
            let marks: Vec<usize> = (0..times.len()).filter(|at| times[*at]).collect();
            for pair in marks.windows(2) {
                if (pair[1] - pair[0]) as u64 <= gap {
                    (pair[0]..pair[1]).for_each(|at| times[at] = true);
                }
            }
            let with = Stretch { start: asked.0, end: asked.0 + asked.1 };
            let expected = (with.start..=with.end).any(|at| times[at as usize]);
            prop_assert_eq!(covered.overlaps(with), expected);
            let left = covered.forget_before(before);
            prop_assert_eq!(left, covered.len() > 0);
            let later = Stretch { start: with.start.max(before), end: with.end.max(before) };
            let expected = (later.start..=later.end).any(|at| times[at as usize]);
            prop_assert_eq!(covered.overlaps(later), expected);
        }
    }
}
