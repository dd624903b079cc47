//! Which span was active on a thread at which time.

use super::ancestry::{Ancestry, RunningSpans};

/// When a span was active on a thread: start (inclusive) and end (exclusive) in nanoseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpanInterval {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) span: u32,
}

/// What was active on a thread at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ActiveSpan {
    /// No span.
    Nothing,
    /// The innermost span, by number.
    Span(u32),
    /// Unrelated spans, as asynchronous programs run them.
    Several,
}

/// What was active on a thread from `start` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ActiveSince {
    start: u64,
    active: ActiveSpan,
}

/// What was active on a thread over time. Lookups are fast if the times are mostly in order.
#[derive(Debug)]
pub(super) struct SpanTimeline {
    /// Sorted by time, without equal neighbours. The first entry starts at time zero.
    all: Vec<ActiveSince>,
    /// The position of the last lookup.
    at: usize,
}

impl SpanTimeline {
    /// Builds the course from the spans of a thread, each with the position of its nearest ancestor.
    pub(super) fn new(spans: &[SpanInterval], above: &[Option<u32>]) -> Self {
        let mut all = vec![ActiveSince { start: 0, active: ActiveSpan::Nothing }];
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
            let active = match ancestry.running() {
                RunningSpans::Nothing => ActiveSpan::Nothing,
                RunningSpans::Innermost(at) => ActiveSpan::Span(spans[at as usize].span),
                RunningSpans::Several => ActiveSpan::Several,
            };
            if all.last().is_none_or(|last| last.active != active) {
                all.push(ActiveSince { start: time, active });
            }
        }
        Self { all, at: 0 }
    }

    /// Marks every time at which a span was active as ambiguous: a thread that runs spans in turns may also have run
    /// others that were not sampled.
    pub(super) fn mark_ambiguous(&mut self) {
        for from in self.all.iter_mut().filter(|from| from.active != ActiveSpan::Nothing) {
            from.active = ActiveSpan::Several;
        }
    }

    /// What was active at a time.
    #[inline]
    pub(super) fn at(&mut self, time: u64) -> ActiveSpan {
        self.seek(time);
        self.all[self.at].active
    }

    /// What was active from `start` to `end`, both inclusive, if it was the same the whole time.
    pub(super) fn throughout(&mut self, start: u64, end: u64) -> Option<ActiveSpan> {
        self.seek(start);
        let active = self.all[self.at].active;
        self.all.get(self.at + 1).is_none_or(|next| next.start > end).then_some(active)
    }

    #[inline]
    fn seek(&mut self, time: u64) {
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

    fn interval(start: u64, end: u64, span: u32) -> SpanInterval {
        SpanInterval { start, end, span }
    }

    /// Guarantees: the innermost span counts; if one ends when the next begins, that instant belongs to the next; times
    /// with unrelated spans belong to none.
    #[test]
    fn course_of_a_thread() {
        // Span 10 runs from 0 to 100 and contains 11 and 12, one after the other; 13 has no ancestor and starts at 50.
        let spans = [interval(0, 100, 10), interval(10, 20, 11), interval(20, 30, 12), interval(50, 120, 13)];
        let mut course = SpanTimeline::new(&spans, &[None, Some(0), Some(0), None]);
        for (time, active) in [
            (0, ActiveSpan::Span(10)),
            (10, ActiveSpan::Span(11)),
            (19, ActiveSpan::Span(11)),
            (20, ActiveSpan::Span(12)),
            (30, ActiveSpan::Span(10)),
            (50, ActiveSpan::Several),
            (99, ActiveSpan::Several),
            (100, ActiveSpan::Span(13)),
            (120, ActiveSpan::Nothing),
            (5, ActiveSpan::Span(10)),
        ] {
            assert_eq!(course.at(time), active, "{time}");
        }
        assert_eq!(course.throughout(10, 19), Some(ActiveSpan::Span(11)));
        assert_eq!(course.throughout(10, 20), None);
        assert_eq!(course.throughout(120, 500), Some(ActiveSpan::Nothing));
    }

    /// Guarantees: on a thread that runs spans in turns, every time at which any span was active is ambiguous.
    #[test]
    fn turns() {
        let spans = [interval(0, 100, 10), interval(10, 20, 11), interval(200, 300, 12)];
        let mut course = SpanTimeline::new(&spans, &[None, None, None]);
        course.mark_ambiguous();
        for (time, active) in [
            (5, ActiveSpan::Several),
            (15, ActiveSpan::Several),
            (150, ActiveSpan::Nothing),
            (250, ActiveSpan::Several),
            (300, ActiveSpan::Nothing),
        ] {
            assert_eq!(course.at(time), active, "{time}");
        }
    }

    /// Guarantees: the cost per request of an event loop does not grow with the number of open requests, up to a
    /// hundred thousand.
    #[test]
    fn many_at_a_time() {
        const MANY: u64 = 100_000;
        let spans: Vec<SpanInterval> = (0..MANY).map(|at| interval(1 + at, 1 + MANY + at, at as u32)).collect();
        let mut course = SpanTimeline::new(&spans, &vec![None; MANY as usize]);
        assert_eq!(course.at(1), ActiveSpan::Span(0));
        assert_eq!(course.at(MANY), ActiveSpan::Several);
        assert_eq!(course.at(2 * MANY - 1), ActiveSpan::Span(MANY as u32 - 1));
        // Each is nested in the one before, so all are on one line.
        let above: Vec<Option<u32>> = (0..MANY as u32).map(|at| at.checked_sub(1)).collect();
        let mut course = SpanTimeline::new(&spans, &above);
        assert_eq!(course.at(MANY), ActiveSpan::Span(MANY as u32 - 1));
    }
}
