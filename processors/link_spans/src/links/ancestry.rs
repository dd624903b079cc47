//! Which of some spans are above which, and whether those that run at the same time lie on one line of descent.

/// Spans by number, each with the nearest of them that it was made in. Entering and leaving one, and asking for the
/// innermost, take time that grows with the logarithm of how many there are.
#[derive(Debug)]
pub(super) struct Ancestry {
    /// Where a span and what is below it stand when all are listed with each in front of what is below it.
    places: Vec<Place>,
    /// How many of the spans that run have a place in them, as a Fenwick tree: the count at a place is how many of
    /// those that run are above the span there, itself among them.
    above: Vec<i32>,
    running: usize,
    /// The running spans, the deepest last. Those that have ended are taken out when they come to the end.
    deepest: std::collections::BinaryHeap<(u32, u32)>,
    runs: Vec<bool>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Place {
    first: u32,
    last: u32,
    depth: u32,
}

/// What runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Running {
    /// Nothing.
    Nothing,
    /// All that runs is above this span, or it itself.
    Innermost(u32),
    /// Spans of which neither is above the other.
    Several,
}

impl Ancestry {
    /// Of spans, each with the nearest one above it, by position. Where these lead in a circle it is cut open.
    pub(super) fn new(above: &[Option<u32>]) -> Self {
        let count = above.len();
        // The children of each, one list after the other.
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
        let mut places = vec![Place::default(); count];
        let mut visited = vec![false; count];
        let mut order = 0;
        let mut path: Vec<(u32, u32)> = Vec::new();
        // What hangs from no root is a circle: it is entered anywhere.
        let roots = (0..count).filter(|at| above[*at].is_none()).chain(0..count);
        for root in roots {
            if visited[root] {
                continue;
            }
            visited[root] = true;
            places[root] = Place { first: order, last: order, depth: 0 };
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
                    places[below] = Place { first: order, last: order, depth: places[span].depth + 1 };
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

    /// A span begins, which does not run.
    pub(super) fn enter(&mut self, span: u32) {
        let Place { first, last, depth } = self.places[span as usize];
        self.add(first, 1);
        self.add(last + 1, -1);
        self.running += 1;
        self.runs[span as usize] = true;
        self.deepest.push((depth, span));
    }

    /// A span ends, which runs.
    pub(super) fn leave(&mut self, span: u32) {
        let Place { first, last, .. } = self.places[span as usize];
        self.add(first, -1);
        self.add(last + 1, 1);
        self.running -= 1;
        self.runs[span as usize] = false;
    }

    /// What runs now.
    pub(super) fn running(&mut self) -> Running {
        while let Some(&(_, span)) = self.deepest.peek() {
            if !self.runs[span as usize] {
                self.deepest.pop();
                continue;
            }
            let lie_on_one_line = self.count(self.places[span as usize].first) == self.running;
            return if lie_on_one_line { Running::Innermost(span) } else { Running::Several };
        }
        Running::Nothing
    }

    /// Adds to the counts at all places from one on.
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
        /// Guarantees: whatever begins and ends in whatever order, the innermost is that one below all others that run,
        /// and there is none where two of them are not above each other.
        #[test]
        fn as_by_climbing(
            parents in prop::collection::vec(prop::option::of(0u32..20), 1..20),
            order in prop::collection::vec(0usize..20, 0..60),
        ) {
            // A parent comes before its children, so that there is no circle.
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
                    _ if running.is_empty() => Running::Nothing,
                    Some(span) => Running::Innermost(span),
                    None => Running::Several,
                };
                prop_assert_eq!(ancestry.running(), expected);
            }
        }
    }

    /// Guarantees: spans that name each other as parents, or themselves, are taken without an endless loop.
    #[test]
    fn circles() {
        let mut ancestry = Ancestry::new(&[Some(1), Some(2), Some(0), Some(3), Some(0)]);
        for span in 0..5 {
            ancestry.enter(span);
        }
        assert_eq!(ancestry.running(), Running::Several);
        ancestry.leave(3);
        ancestry.leave(4);
        assert!(matches!(ancestry.running(), Running::Innermost(_)));
    }

    /// Guarantees: a line of descent as long as the table is walked without a deep recursion.
    #[test]
    fn deep() {
        let above: Vec<Option<u32>> = (0..200_000u32).map(|at| at.checked_sub(1)).collect();
        let mut ancestry = Ancestry::new(&above);
        ancestry.enter(0);
        ancestry.enter(199_999);
        assert_eq!(ancestry.running(), Running::Innermost(199_999));
    }
}
