//! Spans that belong together: a transaction in the making.

use profbridge_model::spans::SpanChanges;
use profbridge_model::{ByteRange, Span, SpanId, TraceId};

use super::queue::Links;

/// Spans of one trace and process that are connected by their parents, local roots by nothing above them.
///
/// Whoever goes from any of them from parent to parent ends at the same place, its top. So a tree has one local root at
/// most, and lacks one parent at most.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The number of their resource.
    pub(crate) resource: u32,
    /// Their trace.
    pub(crate) trace_id: TraceId,
    /// The spans, in the order in which they came. Their places are in `bytes`, their scopes are origins, and only the
    /// local root has a segment.
    pub(crate) spans: Vec<Span>,
    /// What they say.
    pub(crate) bytes: Vec<u8>,
    pub(crate) top: Top,
    /// When it is due, in monotonic nanoseconds.
    pub(crate) deadline: u64,
    pub(super) links: Links,
    /// The memory of what was found out about the spans, in bytes.
    changes: usize,
}

/// Where one ends who goes from parent to parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Top {
    /// At the local root.
    Root,
    /// At a span that has not come.
    Missing {
        /// Which.
        parent: SpanId,
        /// Whether it came and has left.
        has_left: bool,
    },
    /// Nowhere: the parents make a circle.
    Circle,
}

/// What the allocator takes for the three blocks of a tree, in bytes.
const BLOCKS: usize = 3 * 16;

impl Tree {
    pub(super) fn new(resource: u32, trace_id: TraceId) -> Self {
        Self {
            resource,
            trace_id,
            spans: Vec::new(),
            bytes: Vec::new(),
            top: Top::Circle,
            deadline: 0,
            links: Links::default(),
            changes: 0,
        }
    }

    /// Its memory, in bytes.
    pub(crate) fn size(&self) -> usize {
        let spans = self.spans.capacity() * size_of::<Span>();
        size_of::<Self>() + BLOCKS + spans + self.bytes.capacity() + self.changes
    }

    /// What a span of it says.
    pub(crate) fn get(&self, at: ByteRange) -> &[u8] {
        self.bytes.get(at.start as usize..).and_then(|rest| rest.get(..at.len as usize)).unwrap_or_default()
    }

    /// The parent that has not come.
    pub(super) fn missing(&self) -> Option<SpanId> {
        match self.top {
            Top::Missing { parent, .. } => Some(parent),
            Top::Root | Top::Circle => None,
        }
    }

    /// Puts a span behind the others. Returns its position.
    pub(super) fn add(&mut self, span: Span, bytes: &[u8]) -> u32 {
        // A tree goes out when it has some megabytes, and a span is part of a request, so this is far from 4 GiB.
        let at = ByteRange { start: self.bytes.len() as u32, len: bytes.len() as u32 };
        make_room(&mut self.bytes, bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.changes += span.changes.as_ref().map_or(0, |_| size_of::<SpanChanges>());
        make_room(&mut self.spans, 1);
        self.spans.push(Span { at, ..span });
        (self.spans.len() - 1) as u32
    }

    /// Puts the spans of another tree behind its own.
    pub(super) fn append(&mut self, other: Tree) {
        let moved_by = self.bytes.len() as u32;
        make_room(&mut self.bytes, other.bytes.len());
        self.bytes.extend_from_slice(&other.bytes);
        make_room(&mut self.spans, other.spans.len());
        self.spans.extend(other.spans.into_iter().map(|mut span| {
            span.at.start += moved_by;
            span
        }));
        self.changes += other.changes;
    }

    /// Puts the spans into the order in which they leave: the local root first, or the spans whose parent never came;
    /// each then by its beginning. The order in which they came makes no difference.
    pub(crate) fn sort(&mut self) {
        let missing = self.missing();
        self.spans.sort_unstable_by_key(|span| {
            let is_first = span.segment.is_some() || (missing.is_some() && span.parent_span_id == missing);
            (!is_first, span.start_unix_nano, span.span_id, span.at.start)
        });
    }
}

/// Makes room for `more` elements, at least half of what is there: most trees are small, and there are many.
fn make_room<T>(column: &mut Vec<T>, more: usize) {
    if column.capacity() - column.len() < more {
        column.reserve_exact(more.max(column.len() / 2));
    }
}
