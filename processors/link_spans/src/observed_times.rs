//! When a thread was observed.

/// A stretch of time, in nanoseconds since the Unix epoch, both ends inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimeRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Sorted stretches that do not touch each other. There is at least one.
#[derive(Debug)]
pub(crate) struct ObservedTimes(Vec<TimeRange>);

/// Approximate overhead of a heap allocation, in bytes.
pub(crate) const ALLOCATION: usize = 16;

impl ObservedTimes {
    pub(crate) fn new(first: TimeRange) -> Self {
        Self(vec![first])
    }

    /// Adds stretches, sorted by start. Stretches at most `gap` apart are merged. Takes time linear in the number of
    /// new and known stretches, however they interleave.
    pub(crate) fn add(&mut self, new: impl Iterator<Item = TimeRange>, gap: u64) {
        let mut new = new.peekable();
        // The usual case: the last stretch continues.
        let behind = self.0.iter().rev().nth(1).map_or(0, |of| of.end.saturating_add(gap).saturating_add(1));
        if let Some(last) = self.0.last_mut() {
            let least = behind.max(last.start);
            while let Some(next) = new.next_if(|next| next.start >= least && next.start <= last.end.saturating_add(gap))
            {
                last.end = last.end.max(next.end);
            }
        }
        let Some(first) = new.peek() else { return };
        let before = first.start.saturating_sub(gap);
        let from = self.0.partition_point(|of| of.end < before);
        let mut known = self.0.split_off(from).into_iter().peekable();
        let all = &mut self.0;
        let mut end_of_new = None::<u64>;
        loop {
            let is_new = match (known.peek(), new.peek()) {
                (Some(known), Some(new)) => new.start < known.start,
                (None, Some(_)) => true,
                (Some(_), None) => false,
                (None, None) => break,
            };
            let Some(next) = (if is_new { new.next() } else { known.next() }) else { break };
            let reaches = |end: u64| next.start <= end.saturating_add(gap);
            if is_new {
                let mut joined = next;
                while let Some(of) = all.pop_if(|of| reaches(of.end)) {
                    joined = TimeRange { start: of.start.min(joined.start), end: of.end.max(joined.end) };
                }
                all.push(joined);
                end_of_new = end_of_new.max(Some(next.end));
            } else {
                match all.last_mut().filter(|_| end_of_new.is_some_and(reaches)) {
                    Some(last) => last.end = last.end.max(next.end),
                    None => all.push(next),
                }
            }
        }
    }

    /// The end of the last stretch.
    pub(crate) fn end(&self) -> u64 {
        self.0.last().map_or(0, |last| last.end)
    }

    /// The stretches that overlap a time range.
    fn during(&self, time: TimeRange) -> impl Iterator<Item = &TimeRange> {
        let from = self.0.partition_point(|known| known.end < time.start);
        self.0[from..].iter().take_while(move |known| known.start <= time.end)
    }

    /// Whether any stretch overlaps.
    pub(crate) fn overlaps(&self, with: TimeRange) -> bool {
        self.during(with).next().is_some()
    }

    /// How many nanoseconds of a time range are covered.
    pub(crate) fn within(&self, time: TimeRange) -> u64 {
        let inside = self.during(time).map(|known| known.end.min(time.end) - known.start.max(time.start));
        inside.fold(0, |sum: u64, length| sum.saturating_add(length).saturating_add(1))
    }

    /// Forgets stretches that lie outside a time range. Returns whether any is left; if not, this value must not be
    /// used any more.
    pub(crate) fn remember(&mut self, time: TimeRange) -> bool {
        self.0.retain(|of| of.end >= time.start && of.start <= time.end);
        self.0.shrink_to(2 * self.0.len());
        !self.0.is_empty()
    }

    /// Approximate heap size in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        (ALLOCATION + self.0.capacity() * size_of::<TimeRange>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A stretch from its start and length.
    fn of((start, length): &(u64, u64)) -> TimeRange {
        TimeRange { start: *start, end: start + length }
    }

    proptest! {
        /// Guarantees: the result equals that of a plain list of all stretches whose gaps to new stretches are closed,
        /// in whatever order and number they arrive and whatever the gap.
        #[test]
        fn as_a_list_says(
            batches in vec((vec((0u64..60, 0u64..6), 1..10), 0u64..8), 1..8),
            asked in (0u64..70, 0u64..6),
            before in 0u64..70,
        ) {
            let mut covered = None::<ObservedTimes>;
            let mut times = [false; 80];
            for (stretches, gap) in &batches {
                let mut new: Vec<TimeRange> = stretches.iter().map(of).collect();
                new.sort_unstable();
                covered.get_or_insert_with(|| ObservedTimes::new(new[0])).add(new.iter().copied(), *gap);
                let came: Vec<usize> = new.iter().flat_map(|new| new.start as usize..=new.end as usize).collect();
                came.iter().for_each(|at| times[*at] = true);
                let known: Vec<usize> = (0..times.len()).filter(|at| times[*at]).collect();
                for (one, other) in came.iter().flat_map(|one| known.iter().map(move |other| (*one, *other))) {
                    if one.abs_diff(other) <= *gap as usize {
                        times[one.min(other)..one.max(other)].fill(true);
                    }
                }
            }
            let mut covered = covered.unwrap();
            let all = covered.0.clone();
            prop_assert!(all.windows(2).all(|pair| pair[0].end < pair[1].start), "{:?}", all);
            let with = TimeRange { start: asked.0, end: asked.0 + asked.1 };
            let is_covered = |of: TimeRange| (of.start..=of.end).any(|at| times.get(at as usize).is_some_and(|of| *of));
            prop_assert_eq!(covered.overlaps(with), is_covered(with));
            let count = (with.start..=with.end).filter(|at| is_covered(TimeRange { start: *at, end: *at })).count();
            prop_assert_eq!(covered.within(with), count as u64);
            let remembered = TimeRange { start: before, end: before + 10 };
            prop_assert_eq!(covered.remember(remembered), is_covered(remembered));
            let later = TimeRange { start: with.start.clamp(before, before + 10), end: with.end.clamp(before, before + 10) };
            prop_assert_eq!(covered.overlaps(later), is_covered(later));
        }
    }

    /// Guarantees: a million stretches in order, and then a million between them, do not take quadratic time, which
    /// would be hours.
    #[test]
    fn a_million_out_of_order() {
        const COUNT: u64 = 1_000_000;
        let every =
            |first: u64| (0..COUNT).map(move |at| TimeRange { start: first + at * 1000, end: first + at * 1000 });
        let mut covered = ObservedTimes::new(TimeRange { start: 500, end: 500 });
        covered.add(every(500), 100);
        covered.add(every(0), 100);
        assert_eq!(covered.0.len() as u64, 2 * COUNT);
        assert_eq!((covered.0[0].start, covered.0[1].start, covered.end()), (0, 500, COUNT * 1000 - 500));
        // Stretches in the middle of each gap, with a `gap` that closes all of them.
        covered.add((0..2 * COUNT).map(|at| TimeRange { start: at * 500 + 250, end: at * 500 + 250 }), 250);
        assert_eq!(covered.0, [TimeRange { start: 0, end: COUNT * 1000 - 250 }]);
    }
}
