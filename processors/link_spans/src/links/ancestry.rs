//! The ancestry of spans, and whether all that run at the same time lie on one line of descent.

/// Spans by number, each with its nearest ancestor. Entering a span, leaving it and asking for the innermost one take
/// time logarithmic in the number of spans.
#[derive(Debug)]
pub(super) struct Ancestry {
    /// The place of each span and its descendants in a preorder list.
    places: Vec<PreorderPlace>,
    /// A Fenwick tree over these places: the count at a place is how many running spans are ancestors of the span
    /// there, or that span itself.
    above: Vec<i32>,
    running: usize,
    /// The running spans, deepest on top. Ended spans are removed when they reach the top.
    deepest: std::collections::BinaryHeap<(u32, u32)>,
    runs: Vec<bool>,
}

#[derive(Debug, Clone, Copy, Default)]
struct PreorderPlace {
    first: u32,
    last: u32,
    depth: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunningSpans {
    /// None.
    Nothing,
    /// This span; all other running spans are its ancestors.
    Innermost(u32),
    /// Several spans that are not on one line of descent.
    Several,
}

impl Ancestry {
    /// Builds the ancestry from each span's nearest ancestor, by position. Cycles are cut open.
    pub(super) fn new(above: &[Option<u32>]) -> Self {
        let count = above.len();
        // The children of each span, one list after the other.
        let mut starts = vec![0u32; count + 1];
        above.iter().flatten().for_each(|parent| starts[*parent as usize + 1] += 1);
        for at in 0..count {
            starts[at + 1] += starts[at];
        }
        let mut next = starts.clone();
        let mut children = vec![0u32; above.iter().flatten().count()];
        for (child, parent) in above.iter().enumerate() {
            if let Some(parent) = parent {
                let slot = &mut next[*parent as usize];
                children[*slot as usize] = child as u32;
                *slot += 1;
            }
        }
        let mut places = vec![PreorderPlace::default(); count];
        let mut visited = vec![false; count];
        let mut order = 0;
        let mut path: Vec<(u32, u32)> = Vec::new();
        // Spans not reachable from a root form a cycle, which is entered anywhere.
        let roots = (0..count).filter(|at| above[*at].is_none()).chain(0..count);
        for root in roots {
            if visited[root] {
                continue;
            }
            visited[root] = true;
            places[root] = PreorderPlace { first: order, last: order, depth: 0 };
            order += 1;
            path.push((root as u32, starts[root]));
            while let Some((span, child)) = path.last_mut() {
                let span = *span as usize;
                if *child == starts[span + 1] {
                    places[span].last = order - 1;
                    path.pop();
                    continue;
                }
                let below = children[*child as usize] as usize;
                *child += 1;
                if !std::mem::replace(&mut visited[below], true) {
                    places[below] = PreorderPlace { first: order, last: order, depth: places[span].depth + 1 };
                    order += 1;
                    path.push((below as u32, starts[below]));
                }
            }
        }
        Self {
            places,
            above: vec![0; count + 1],
            running: 0,
            deepest: std::collections::BinaryHeap::new(),
            runs: vec![false; count],
        }
    }

    /// Starts a span that is not running.
    pub(super) fn enter(&mut self, span: u32) {
        let PreorderPlace { first, last, depth } = self.places[span as usize];
        self.add(first, 1);
        self.add(last + 1, -1);
        self.running += 1;
        self.runs[span as usize] = true;
        self.deepest.push((depth, span));
    }

    /// Ends a running span.
    pub(super) fn leave(&mut self, span: u32) {
        let PreorderPlace { first, last, .. } = self.places[span as usize];
        self.add(first, -1);
        self.add(last + 1, 1);
        self.running -= 1;
        self.runs[span as usize] = false;
    }

    /// Which spans are running now.
    pub(super) fn running(&mut self) -> RunningSpans {
        while let Some(&(_, span)) = self.deepest.peek() {
            if !self.runs[span as usize] {
                self.deepest.pop();
                continue;
            }
            let lie_on_one_line = self.count(self.places[span as usize].first) == self.running;
            return if lie_on_one_line { RunningSpans::Innermost(span) } else { RunningSpans::Several };
        }
        RunningSpans::Nothing
    }

    /// Adds `by` to the counts at all places from `place` on.
    fn add(&mut self, place: u32, by: i32) {
        let mut at = place as usize + 1;
        while let Some(count) = self.above.get_mut(at) {
            *count += by;
            at += at & at.wrapping_neg();
        }
    }

    fn count(&self, place: u32) -> usize {
        let (mut at, mut count) = (place as usize + 1, 0);
        while at > 0 {
            count += self.above[at];
            at &= at - 1;
        }
        count as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_above(above: &[Option<u32>], one: u32, other: u32) -> bool {
        let mut at = Some(other);
        while let Some(span) = at {
            if span == one {
                return true;
            }
            at = above[span as usize];
        }
        false
    }

    proptest! {
        /// Guarantees: in whatever order spans start and end, the innermost span is the descendant of all other running
        /// spans; if two running spans are unrelated, no span is the innermost.
        #[test]
        fn as_by_climbing(
            parents in prop::collection::vec(prop::option::of(0u32..20), 1..20),
            order in prop::collection::vec(0usize..20, 0..60),
        ) {
            // A parent comes before its children, so there is no cycle.
            let above: Vec<Option<u32>> =
                parents.iter().enumerate().map(|(at, parent)| parent.filter(|parent| (*parent as usize) < at)).collect();
            let mut ancestry = Ancestry::new(&above);
            let mut running = Vec::new();
            for at in order {
                let span = (at % above.len()) as u32;
                if running.contains(&span) {
                    running.retain(|known| *known != span);
                    ancestry.leave(span);
                } else {
                    running.push(span);
                    ancestry.enter(span);
                }
                let innermost =
                    running.iter().copied().find(|span| running.iter().all(|other| is_above(&above, *other, *span)));
                let expected = match innermost {
                    _ if running.is_empty() => RunningSpans::Nothing,
                    Some(span) => RunningSpans::Innermost(span),
                    None => RunningSpans::Several,
                };
                prop_assert_eq!(ancestry.running(), expected);
            }
        }
    }

    /// Guarantees: spans that name each other, or themselves, as parents cause no endless loop.
    #[test]
    fn circles() {
        let mut ancestry = Ancestry::new(&[Some(1), Some(2), Some(0), Some(3), Some(0)]);
        for span in 0..5 {
            ancestry.enter(span);
        }
        assert_eq!(ancestry.running(), RunningSpans::Several);
        ancestry.leave(3);
        ancestry.leave(4);
        assert!(matches!(ancestry.running(), RunningSpans::Innermost(_)));
    }

    /// Guarantees: a line of descent as long as the table causes no deep recursion.
    #[test]
    fn deep() {
        let above: Vec<Option<u32>> = (0..200_000u32).map(|at| at.checked_sub(1)).collect();
        let mut ancestry = Ancestry::new(&above);
        ancestry.enter(0);
        ancestry.enter(199_999);
        assert_eq!(ancestry.running(), RunningSpans::Innermost(199_999));
    }
}
