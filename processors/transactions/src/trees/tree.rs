//! Spans that belong together: a transaction in the making.

use profbridge_model::spans::{Segment, SpanChanges};
use profbridge_model::{ByteRange, Span, SpanId, SpanKind, TraceId};

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
    /// The spans, in the order in which they came.
    pub(crate) spans: Vec<HeldSpan>,
    /// How long their messages are together, in bytes.
    pub(crate) said: usize,
    pub(crate) top: Top,
    /// When it is due, in monotonic nanoseconds.
    pub(crate) deadline: u64,
    pub(super) links: Links,
    /// The memory of what was found out about the spans, in bytes.
    changes: usize,
}

/// A span that is held: a [`Span`] without what its tree says for all of them, and without a place, which is that of
/// another batch.
#[derive(Debug)]
pub(crate) struct HeldSpan {
    pub(crate) span_id: SpanId,
    parent_span_id: Option<SpanId>,
    start_unix_nano: u64,
    end_unix_nano: u64,
    kind: SpanKind,
    parent_is_remote: Option<bool>,
    sampled: Option<bool>,
    is_streamed: bool,
    /// Whether it is the local root.
    is_root: bool,
    /// Its origin.
    pub(crate) scope: u32,
    changes: Option<Box<SpanChanges>>,
    /// Its message. One block for each: what grows would be copied again and again, and be larger than it has to be.
    pub(crate) bytes: Box<[u8]>,
}

impl HeldSpan {
    fn new(span: Span, bytes: &[u8]) -> Self {
        let Span { trace_id: _, span_id, parent_span_id, start_unix_nano, end_unix_nano, kind, .. } = span;
        let Span { parent_is_remote, sampled, is_streamed, scope, at: _, segment, changes, .. } = span;
        let (is_root, bytes) = (segment.is_some(), bytes.into());
        Self {
            span_id,
            parent_span_id,
            start_unix_nano,
            end_unix_nano,
            kind,
            parent_is_remote,
            sampled,
            is_streamed,
            is_root,
            scope,
            changes,
            bytes,
        }
    }

    /// The span of this trace in the segment with this number, without a place, and its message.
    pub(crate) fn leave(self, trace_id: TraceId, number: u32) -> (Span, Box<[u8]>) {
        let Self { span_id, parent_span_id, start_unix_nano, end_unix_nano, kind, .. } = self;
        let Self { parent_is_remote, sampled, is_streamed, is_root, scope, changes, bytes, .. } = self;
        let span = Span {
            trace_id,
            span_id,
            parent_span_id,
            start_unix_nano,
            end_unix_nano,
            kind,
            parent_is_remote,
            sampled,
            is_streamed,
            scope,
            at: ByteRange::default(),
            segment: Some(Segment { number, is_root }),
            changes,
        };
        (span, bytes)
    }
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

/// What the allocator takes for a block beside what is in it, in bytes.
const BLOCK: usize = 16;

impl Tree {
    pub(super) fn new(resource: u32, trace_id: TraceId) -> Self {
        Self {
            resource,
            trace_id,
            spans: Vec::new(),
            said: 0,
            top: Top::Circle,
            deadline: 0,
            links: Links::default(),
            changes: 0,
        }
    }

    /// Its memory, in bytes.
    pub(crate) fn size(&self) -> usize {
        let spans = self.spans.capacity() * size_of::<HeldSpan>() + self.spans.len() * BLOCK + self.said;
        size_of::<Self>() + 2 * BLOCK + spans + self.changes
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
        self.said += bytes.len();
        self.changes += span.changes.as_ref().map_or(0, |_| size_of::<SpanChanges>());
        make_room(&mut self.spans, 1);
        self.spans.push(HeldSpan::new(span, bytes));
        (self.spans.len() - 1) as u32
    }

    /// Puts the spans of another tree behind its own.
    pub(super) fn append(&mut self, other: Tree) {
        make_room(&mut self.spans, other.spans.len());
        self.spans.extend(other.spans);
        self.said += other.said;
        self.changes += other.changes;
    }

    /// Puts the spans into the order in which they leave: the local root first, or the spans whose parent never came;
    /// each then by its beginning. The order in which they came makes no difference.
    pub(crate) fn sort(&mut self) {
        let missing = self.missing();
        let key = |span: &HeldSpan| {
            let is_first = span.is_root || (missing.is_some() && span.parent_span_id == missing);
            (!is_first, span.start_unix_nano, span.span_id)
        };
        self.spans.sort_unstable_by(|one, other| key(one).cmp(&key(other)).then_with(|| one.bytes.cmp(&other.bytes)));
    }
}

/// Makes room for `more` elements, two at first and then half of what is there: most trees are small, and there are
/// many.
fn make_room<T>(column: &mut Vec<T>, more: usize) {
    if column.capacity() - column.len() < more {
        column.reserve_exact(more.max(column.len() / 2).max(2));
    }
}
