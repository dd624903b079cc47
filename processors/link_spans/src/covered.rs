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

    /// Adds a stretch. Those that are not further than `gap` from it become one with it.
    pub(crate) fn add(&mut self, new: Millis, gap: u32) {
        if new.start >= self.last.start {
            if new.start <= self.last.end.saturating_add(gap) {
                self.last.end = self.last.end.max(new.end);
            } else {
                self.append(self.last);
                self.last = new;
            }
            return;
        }
        // Out of order: as if the last were one of the others.
        self.append(self.last);
        let mut all = std::mem::take(&mut self.earlier).into_vec();
        let reach = Millis { start: new.start.saturating_sub(gap), end: new.end.saturating_add(gap) };
        let from = all.partition_point(|known| known.end < reach.start);
        let joined = all[from..].iter().take_while(|known| known.start <= reach.end).count();
        if joined == 0 {
            all.insert(from, new);
        } else {
            let (first, last) = (all[from], all[from + joined - 1]);
            all[from] = Millis { start: first.start.min(new.start), end: last.end.max(new.end) };
            all.drain(from + 1..from + joined);
        }
        self.last = all.pop().unwrap_or(new);
        self.earlier = all.into_boxed_slice();
    }

    fn append(&mut self, stretch: Millis) {
        let mut earlier = std::mem::take(&mut self.earlier).into_vec();
        earlier.reserve_exact(1);
        earlier.push(stretch);
        self.earlier = earlier.into_boxed_slice();
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
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Guarantees: what is covered is what a list of all stretches says, with the gaps between neighbours closed, in
        /// whatever order they come; also after the scale moved.
        #[test]
        fn as_a_list_says(
            stretches in proptest::collection::vec((0u32..60, 0u32..6), 1..20),
            gap in 0u32..4,
            asked in (0u32..70, 0u32..6),
            before in 0u32..70,
            by in 0u32..70,
        ) {
            let mut covered = None::<Covered>;
            let mut times = [false; 80];
            for (start, length) in &stretches {
                let new = Millis { start: *start, end: start + length };
                match &mut covered {
                    Some(covered) => covered.add(new, gap),
                    None => covered = Some(Covered::new(new)),
                }
                (*start..=start + length).for_each(|at| times[at as usize] = true);
            }
            let mut covered = covered.unwrap();
            // Closes gaps of at most `gap` until nothing changes.
            let marks: Vec<usize> = (0..times.len()).filter(|at| times[*at]).collect();
            for pair in marks.windows(2) {
                if (pair[1] - pair[0]) as u32 <= gap {
                    (pair[0]..pair[1]).for_each(|at| times[at] = true);
                }
            }
            let with = Millis { start: asked.0, end: asked.0 + asked.1 };
            let is_covered = |of: Millis| (of.start..=of.end).any(|at| times.get(at as usize).is_some_and(|of| *of));
            prop_assert_eq!(covered.overlaps(with), is_covered(with));
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
            stretches in proptest::collection::vec((0u32..60, 0u32..6), 1..20),
            after in 0u32..70,
            asked in (0u32..70, 0u32..6),
        ) {
            let new = |(start, length): &(u32, u32)| Millis { start: *start, end: start + length };
            let mut covered = Covered::new(new(&stretches[0]));
            stretches[1..].iter().for_each(|stretch| covered.add(new(stretch), 1));
            let mut times = [false; 80];
            stretches.iter().map(new).for_each(|of| times[of.start as usize..=of.end as usize].fill(true));
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
