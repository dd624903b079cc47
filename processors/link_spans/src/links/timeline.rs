//! Which span a thread ran at which time.

use super::ancestry::{Ancestry, Running};

/// A span that ran on a thread: its start (inclusive) and end (exclusive) in nanoseconds since the Unix epoch, and its
/// number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) span: u32,
}

/// What a thread ran at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ran {
    /// No span.
    Nothing,
    /// The innermost span, by number.
    Span(u32),
    /// Unrelated spans, as asynchronous programs run them.
    Several,
}

/// What a thread ran from `start` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct From {
    start: u64,
    ran: Ran,
}

/// What a thread ran over time. Lookups are fast if the times are mostly in order.
#[derive(Debug)]
pub(super) struct Course {
    /// Sorted by time, without equal neighbours. The first entry starts at time zero.
    all: Vec<From>,
    /// The position of the last lookup.
    at: usize,
}

impl Course {
    /// Builds the course from the spans of a thread, each with the position of its nearest ancestor.
    pub(super) fn new(spans: &[Interval], above: &[Option<u32>]) -> Self {
        let mut all = vec![From { start: 0, ran: Ran::Nothing }];
        // At the same time, ends come before starts.
        let ends = spans.iter().enumerate().map(|(at, span)| (span.end, false, at as u32));
        let starts = spans.iter().enumerate().map(|(at, span)| (span.start, true, at as u32));
        let mut events: Vec<(u64, bool, u32)> = ends.chain(starts).collect();
        events.sort_unstable();
        let mut ancestry = Ancestry::new(above);
        for (at, &(time, begins, span)) in events.iter().enumerate() {
            if begins {
                ancestry.enter(span)
            } else {
                ancestry.leave(span)
            }
            if events.get(at + 1).is_some_and(|(next, ..)| *next == time) {
                continue;
            }
            let ran = match ancestry.running() {
                Running::Nothing => Ran::Nothing,
                Running::Innermost(at) => Ran::Span(spans[at as usize].span),
                Running::Several => Ran::Several,
            };
            if all.last().is_none_or(|last| last.ran != ran) {
                all.push(From { start: time, ran });
            }
        }
        Self { all, at: 0 }
    }

    /// Marks every time at which a span ran as ambiguous: a thread that runs spans in turns may also have run others
    /// that were not sampled.
    pub(super) fn doubt(&mut self) {
        for from in self.all.iter_mut().filter(|from| from.ran != Ran::Nothing) {
            from.ran = Ran::Several;
        }
    }

    /// What ran at a time.
    #[inline]
    pub(super) fn at(&mut self, time: u64) -> Ran {
        self.go_to(time);
        self.all[self.at].ran
    }

    /// What ran from `start` to `end`, both inclusive, if it was the same the whole time.
    pub(super) fn throughout(&mut self, start: u64, end: u64) -> Option<Ran> {
        self.go_to(start);
        let ran = self.all[self.at].ran;
        self.all.get(self.at + 1).is_none_or(|next| next.start > end).then_some(ran)
    }

    #[inline]
    fn go_to(&mut self, time: u64) {
        let is_in = |at: usize| {
            self.all.get(at).is_some_and(|from| from.start <= time)
                && self.all.get(at + 1).is_none_or(|next| time < next.start)
        };
        if is_in(self.at) {
            return;
        }
        self.at = if is_in(self.at + 1) {
            self.at + 1
        } else {
            self.all.partition_point(|from| from.start <= time).saturating_sub(1)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(start: u64, end: u64, span: u32) -> Interval {
        Interval { start, end, span }
    }

    /// Guarantees: the innermost span counts; if one ends when the next begins, that instant belongs to the next; times
    /// with unrelated spans belong to none.
    #[test]
    fn course_of_a_thread() {
        // Span 10 runs from 0 to 100 and contains 11 and 12, one after the other; 13 has no ancestor and starts at 50.
        let spans = [interval(0, 100, 10), interval(10, 20, 11), interval(20, 30, 12), interval(50, 120, 13)];
        let mut course = Course::new(&spans, &[None, Some(0), Some(0), None]);
        for (time, ran) in [
            (0, Ran::Span(10)),
            (10, Ran::Span(11)),
            (19, Ran::Span(11)),
            (20, Ran::Span(12)),
            (30, Ran::Span(10)),
            (50, Ran::Several),
            (99, Ran::Several),
            (100, Ran::Span(13)),
            (120, Ran::Nothing),
            (5, Ran::Span(10)),
        ] {
            assert_eq!(course.at(time), ran, "{time}");
        }
        assert_eq!(course.throughout(10, 19), Some(Ran::Span(11)));
        assert_eq!(course.throughout(10, 20), None);
        assert_eq!(course.throughout(120, 500), Some(Ran::Nothing));
    }

    /// Guarantees: on a thread that runs spans in turns, every time at which any ran is ambiguous.
    #[test]
    fn turns() {
        let spans = [interval(0, 100, 10), interval(10, 20, 11), interval(200, 300, 12)];
        let mut course = Course::new(&spans, &[None, None, None]);
        course.doubt();
        for (time, ran) in
            [(5, Ran::Several), (15, Ran::Several), (150, Ran::Nothing), (250, Ran::Several), (300, Ran::Nothing)]
        {
            assert_eq!(course.at(time), ran, "{time}");
        }
    }

    /// Guarantees: the cost per request of an event loop does not grow with the number of open requests, up to a
    /// hundred thousand.
    #[test]
    fn many_at_a_time() {
        const MANY: u64 = 100_000;
        let spans: Vec<Interval> = (0..MANY).map(|at| interval(1 + at, 1 + MANY + at, at as u32)).collect();
        let mut course = Course::new(&spans, &vec![None; MANY as usize]);
        assert_eq!(course.at(1), Ran::Span(0));
        assert_eq!(course.at(MANY), Ran::Several);
        assert_eq!(course.at(2 * MANY - 1), Ran::Span(MANY as u32 - 1));
        // Each is nested in the one before, so all are on one line.
        let above: Vec<Option<u32>> = (0..MANY as u32).map(|at| at.checked_sub(1)).collect();
        let mut course = Course::new(&spans, &above);
        assert_eq!(course.at(MANY), Ran::Span(MANY as u32 - 1));
    }
}
