//! The stretches of time in which a thread was observed, to the millisecond.
//!
//! There is one for each thread and more for threads that paused, of each process of a host: so a stretch takes eight
//! bytes, and the last one of a thread lies where the thread does.

/// A stretch of time, in nanoseconds since the Unix epoch, both ends inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stretch {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// A stretch of whole milliseconds of a [`Scale`], both ends inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Millis {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Millis {
    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }
}

/// Nanoseconds in a millisecond.
pub(crate) const MILLI: u64 = 1_000_000;

/// What is more than this behind the beginning of a scale makes it move, in milliseconds: three quarters of it.
const FULL: u64 = 3 << 30;

/// 49 days, in milliseconds from a beginning on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scale {
    /// In milliseconds since the Unix epoch.
    begin: u64,
}

impl Scale {
    /// With a time in the middle, in nanoseconds since the Unix epoch.
    pub(crate) fn around(unix_nano: u64) -> Self {
        Self { begin: (unix_nano / MILLI).saturating_sub(1 << 31) }
    }

    /// The milliseconds that a stretch touches, where all of it is on the scale.
    pub(crate) fn of(self, stretch: Stretch) -> Option<Millis> {
        let on = |nano: u64| u32::try_from((nano / MILLI).checked_sub(self.begin)?).ok();
        Some(Millis { start: on(stretch.start)?, end: on(stretch.end)? })
    }

    /// The part of a stretch that is on the scale.
    pub(crate) fn part_of(self, stretch: Stretch) -> Option<Millis> {
        let last = self.begin + u64::from(u32::MAX);
        let (start, end) = (stretch.start / MILLI, stretch.end / MILLI);
        let on = |milli: u64| (milli.clamp(self.begin, last) - self.begin) as u32;
        (start <= last && end >= self.begin && start <= end).then(|| Millis { start: on(start), end: on(end) })
    }

    /// Since the Unix epoch, in milliseconds.
    pub(crate) fn unix_milli(self, milli: u32) -> u64 {
        self.begin + u64::from(milli)
    }

    /// By how much the scale moves on, since it is mostly used up at a time.
    pub(crate) fn move_on(&mut self, unix_nano: u64) -> Option<u32> {
        let used = (unix_nano / MILLI).saturating_sub(self.begin);
        let by = u32::try_from(used.checked_sub(FULL)?).ok()?.saturating_add(1 << 30);
        self.begin += u64::from(by);
        Some(by)
    }
}

/// Stretches in order, none of which touch each other. There is one at least.
#[derive(Debug)]
pub(crate) struct Covered {
    last: Millis,
    /// Without room to spare: a thread that pauses does so once a second at most, and what is old is forgotten.
    earlier: Box<[Millis]>,
}

/// What an allocation takes beside what was asked for, in bytes, about.
pub(crate) const ALLOCATION: usize = 16;

impl Covered {
    pub(crate) fn new(first: Millis) -> Self {
        Self { last: first, earlier: Box::default() }
    }

    /// Adds stretches, in the order of their starts. What is not further than `gap` from one of them becomes one with
    /// it. It takes time for each of them, and once for those that are there, however they lie between each other.
    pub(crate) fn add(&mut self, new: impl Iterator<Item = Millis>, gap: u32) {
        let mut new = new.peekable();
        // The usual case: what was observed last went on.
        let behind = self.earlier.last().map_or(0, |of| of.end.saturating_add(gap).saturating_add(1));
        let least = behind.max(self.last.start);
        while let Some(next) =
            new.next_if(|next| next.start >= least && next.start <= self.last.end.saturating_add(gap))
        {
            self.last.end = self.last.end.max(next.end);
        }
        let Some(first) = new.peek() else { return };
        let before = first.start.saturating_sub(gap);
        let mut all = std::mem::take(&mut self.earlier).into_vec();
        all.reserve_exact(2);
        all.push(self.last);
        let from = all.partition_point(|of| of.end < before);
        let mut known = all.split_off(from).into_iter().peekable();
        let mut end_of_new = None::<u32>;
        loop {
            let is_new = match (known.peek(), new.peek()) {
                (Some(known), Some(new)) => new.start < known.start,
                (None, Some(_)) => true,
                (Some(_), None) => false,
                (None, None) => break,
            };
            let Some(next) = (if is_new { new.next() } else { known.next() }) else { break };
            let reaches = |end: u32| next.start <= end.saturating_add(gap);
            if is_new {
                let mut joined = next;
                while let Some(of) = all.pop_if(|of| reaches(of.end)) {
                    joined = Millis { start: of.start.min(joined.start), end: of.end.max(joined.end) };
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
        self.last = all.pop().unwrap_or(self.last);
        self.earlier = all.into_boxed_slice();
    }

    /// When the last of them ends.
    pub(crate) fn end(&self) -> u32 {
        self.last.end
    }

    /// Whether any of them overlaps.
    pub(crate) fn overlaps(&self, with: Millis) -> bool {
        if self.last.overlaps(with) {
            return true;
        }
        let at = self.earlier.partition_point(|known| known.end < with.start);
        self.earlier.get(at).is_some_and(|known| known.overlaps(with))
    }

    /// For how many milliseconds of a time they last.
    pub(crate) fn within(&self, time: Millis) -> u64 {
        let from = self.earlier.partition_point(|known| known.end < time.start);
        let earlier = self.earlier[from..].iter().take_while(|known| known.start <= time.end);
        let touching = earlier.chain([&self.last]).filter(|known| known.overlaps(time));
        touching.map(|known| u64::from(known.end.min(time.end) - known.start.max(time.start)) + 1).sum()
    }

    /// Forgets what ended before a time. Whether anything is left; if nothing is, it is of no use any more.
    pub(crate) fn forget_before(&mut self, time: u32) -> bool {
        let gone = self.earlier.partition_point(|known| known.end < time);
        if gone > 0 {
            self.earlier = self.earlier[gone..].into();
        }
        self.last.end >= time
    }

    /// Forgets what began after a time. Whether anything is left; if nothing is, it is of no use any more.
    pub(crate) fn forget_after(&mut self, time: u32) -> bool {
        if self.last.start > time {
            let left = self.earlier.partition_point(|known| known.start <= time);
            let Some((last, earlier)) = self.earlier[..left].split_last() else { return false };
            (self.last, self.earlier) = (*last, earlier.into());
        }
        true
    }

    /// Makes it one of a scale that began so much later. Whether anything of it is on that one.
    pub(crate) fn move_by(&mut self, by: u32) -> bool {
        let left = self.forget_before(by);
        let moved = |of: Millis| Millis { start: of.start.saturating_sub(by), end: of.end.saturating_sub(by) };
        self.last = moved(self.last);
        self.earlier.iter_mut().for_each(|of| *of = moved(*of));
        left
    }

    /// The memory that it takes elsewhere, in bytes, about.
    pub(crate) fn bytes(&self) -> u64 {
        match self.earlier.len() {
            0 => 0,
            count => (ALLOCATION + count * size_of::<Millis>()) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::iter::once;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A stretch, by its start and its length.
    fn of((start, length): &(u32, u32)) -> Millis {
        Millis { start: *start, end: start + length }
    }

    proptest! {
        /// Guarantees: what is covered is what a list of all stretches says, with the gaps closed between what came and
        /// what is there, in whatever order and however many at once they come, whatever gap each time closes; also
        /// after the scale moved.
        #[test]
        fn as_a_list_says(
            batches in vec((vec((0u32..60, 0u32..6), 1..10), 0u32..8), 1..8),
            asked in (0u32..70, 0u32..6),
            before in 0u32..70,
            by in 0u32..70,
        ) {
            let mut covered = None::<Covered>;
            let mut times = [false; 80];
            for (stretches, gap) in &batches {
                let mut new: Vec<Millis> = stretches.iter().map(of).collect();
                new.sort_unstable();
                covered.get_or_insert_with(|| Covered::new(new[0])).add(new.iter().copied(), *gap);
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
            let all: Vec<Millis> = covered.earlier.iter().copied().chain([covered.last]).collect();
            prop_assert!(all.windows(2).all(|pair| pair[0].end < pair[1].start), "{:?}", all);
            let with = Millis { start: asked.0, end: asked.0 + asked.1 };
            let is_covered = |of: Millis| (of.start..=of.end).any(|at| times.get(at as usize).is_some_and(|of| *of));
            prop_assert_eq!(covered.overlaps(with), is_covered(with));
            let count = (with.start..=with.end).filter(|at| is_covered(Millis { start: *at, end: *at })).count();
            prop_assert_eq!(covered.within(with), count as u64);
            let left = covered.forget_before(before);
            prop_assert_eq!(left, is_covered(Millis { start: before, end: 80 }));
            if !left {
                return Ok(());
            }
            let later = Millis { start: with.start.max(before), end: with.end.max(before) };
            prop_assert_eq!(covered.overlaps(later), is_covered(later));
            let from = before.max(by);
            if covered.move_by(by) {
                let later = Millis { start: with.start.max(from), end: with.end.max(from) };
                let moved = Millis { start: later.start - by, end: later.end - by };
                prop_assert_eq!(covered.overlaps(moved), is_covered(later));
            } else {
                let anything = Millis { start: from, end: 80 };
                prop_assert!(!is_covered(anything));
            }
        }
    }

    proptest! {
        /// Guarantees: what began after a time is forgotten, what began by then stays with all of its length.
        #[test]
        fn what_begins_later_is_forgotten(
            stretches in vec((0u32..60, 0u32..6), 1..20),
            after in 0u32..70,
            asked in (0u32..70, 0u32..6),
        ) {
            let mut covered = Covered::new(of(&stretches[0]));
            stretches[1..].iter().for_each(|stretch| covered.add(once(of(stretch)), 1));
            let mut times = [false; 80];
            stretches.iter().map(of).for_each(|of| times[of.start as usize..=of.end as usize].fill(true));
            let begin = (after as usize + 1..times.len()).find(|at| times[*at] && !times[at - 1]);
            times[begin.unwrap_or(80)..].fill(false);
            prop_assert_eq!(covered.forget_after(after), times.contains(&true));
            if times.contains(&true) {
                let with = Millis { start: asked.0, end: asked.0 + asked.1 };
                let is_covered = (with.start..=with.end).any(|at| times.get(at as usize) == Some(&true));
                prop_assert_eq!(covered.overlaps(with), is_covered);
            }
        }
    }

    /// Guarantees: a million stretches that come behind others, and then a million that lie between those, take no time
    /// that grows with the square of their number: that would be hours.
    #[test]
    fn a_million_out_of_order() {
        const COUNT: u32 = 1_000_000;
        let every = |first: u32| (0..COUNT).map(move |at| Millis { start: first + at * 1000, end: first + at * 1000 });
        let mut covered = Covered::new(Millis { start: 500, end: 500 });
        covered.add(every(500), 100);
        covered.add(every(0), 100);
        assert_eq!(covered.earlier.len() as u32, 2 * COUNT - 1);
        assert_eq!((covered.earlier[0].start, covered.earlier[1].start, covered.end()), (0, 500, COUNT * 1000 - 500));
        // A gap that closes all of them, by what lies in the middle of each two.
        covered.add((0..2 * COUNT).map(|at| Millis { start: at * 500 + 250, end: at * 500 + 250 }), 250);
        assert!(covered.earlier.is_empty());
        assert_eq!(covered.last, Millis { start: 0, end: COUNT * 1000 - 250 });
    }

    /// Guarantees: times are on a scale for 24 days around its middle; what is not is said, and of what is partly on it
    /// that part counts; a scale that is used up moves on and keeps the last 24 days.
    #[test]
    fn scales() {
        const T: u64 = 1_767_225_600_000 * MILLI;
        const DAY: u64 = 86_400_000 * MILLI;
        let mut scale = Scale::around(T);
        let at = |start, end| Stretch { start, end };
        let middle = 1u32 << 31;
        assert_eq!(scale.of(at(T, T + 3 * MILLI - 1)), Some(Millis { start: middle, end: middle + 2 }));
        assert_eq!((scale.of(at(T - 25 * DAY, T)), scale.of(at(T, T + 25 * DAY))), (None, None));
        assert_eq!(scale.part_of(at(T - 25 * DAY, T)), Some(Millis { start: 0, end: middle }));
        assert_eq!(scale.part_of(at(T, u64::MAX)), Some(Millis { start: middle, end: u32::MAX }));
        assert_eq!(scale.part_of(at(T - 27 * DAY, T - 26 * DAY)), None);
        assert_eq!(scale.part_of(at(T + 1, T)).map(|of| of.start), Some(middle), "the same millisecond");
        assert_eq!(scale.part_of(at(T + DAY, T)), None);
        assert_eq!(scale.move_on(T + 12 * DAY), None);
        let before = scale.of(at(T + 13 * DAY, T + 13 * DAY)).unwrap();
        let by = scale.move_on(T + 13 * DAY).unwrap();
        let now = scale.of(at(T + 13 * DAY, T + 13 * DAY)).unwrap();
        assert_eq!((now.start, now.end), (before.start - by, before.end - by));
        assert!(now.start >= 1 << 31 && now.start < 3 << 30);
    }
}
