//! Connected spans: a transaction that is not complete yet.

use profbridge_model::spans::{Segment, SpanChanges};
use profbridge_model::{ByteRange, Span, SpanId, SpanKind, TraceId};

use super::queue::Links;

/// Spans of one trace and process that are connected by their parents. A local root has no parent in the process.
///
/// All paths from span to parent end at the same place, the top of the tree. So a tree has at most one local root, and
/// at most one missing parent.
#[derive(Debug)]
pub(crate) struct Tree {
    /// Index of the spans' resource.
    pub(crate) resource: u32,
    /// The spans' trace.
    pub(crate) trace_id: TraceId,
    /// The spans, in order of arrival.
    pub(crate) spans: Vec<BufferedSpan>,
    /// Total length of the encoded spans, in bytes.
    pub(crate) encoded_bytes: usize,
    pub(crate) top: TreeTop,
    /// Deadline in monotonic nanoseconds.
    pub(crate) deadline: u64,
    pub(super) links: Links,
    /// Heap size of the changes that processors made to the spans, in bytes.
    changes: usize,
}

/// A buffered span: a [`Span`] without the fields that are the same for the whole tree, and without its byte range,
/// which refers to another batch.
#[derive(Debug)]
pub(crate) struct BufferedSpan {
    pub(crate) span_id: SpanId,
    parent_span_id: Option<SpanId>,
    start_unix_nano: u64,
    end_unix_nano: u64,
    kind: SpanKind,
    parent_is_remote: Option<bool>,
    sampled: Option<bool>,
    is_streamed: bool,
    /// Whether the span is the local root.
    is_root: bool,
    /// The index of the span's origin.
    pub(crate) scope: u32,
    changes: Option<Box<SpanChanges>>,
    /// The encoded span. Each has its own allocation: a shared buffer would be copied when it grows, and would have
    /// unused capacity.
    pub(crate) bytes: Box<[u8]>,
}

impl BufferedSpan {
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

    /// Converts this back to a [`Span`] of a trace and a segment number, without a byte range, and its encoded bytes.
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

/// The end of all paths from span to parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TreeTop {
    /// The local root.
    Root,
    /// A parent that has not arrived.
    Missing {
        parent: SpanId,
        /// Whether the parent has been sent already.
        has_left: bool,
    },
    /// There is no end: the parents form a cycle.
    Circle,
}

/// The allocator's overhead per block, in bytes.
const BLOCK: usize = 16;

impl Tree {
    pub(super) fn new(resource: u32, trace_id: TraceId) -> Self {
        Self {
            resource,
            trace_id,
            spans: Vec::new(),
            encoded_bytes: 0,
            top: TreeTop::Circle,
            deadline: 0,
            links: Links::default(),
            changes: 0,
        }
    }

    /// The heap size in bytes.
    pub(crate) fn size(&self) -> usize {
        let spans = self.spans.capacity() * size_of::<BufferedSpan>() + self.spans.len() * BLOCK + self.encoded_bytes;
        size_of::<Self>() + 2 * BLOCK + spans + self.changes
    }

    /// The id of the parent that has not arrived.
    pub(super) fn missing(&self) -> Option<SpanId> {
        match self.top {
            TreeTop::Missing { parent, .. } => Some(parent),
            TreeTop::Root | TreeTop::Circle => None,
        }
    }

    /// Appends a span. Returns its index.
    pub(super) fn push(&mut self, span: Span, bytes: &[u8]) -> u32 {
        self.encoded_bytes += bytes.len();
        self.changes += span.changes.as_ref().map_or(0, |_| size_of::<SpanChanges>());
        make_room(&mut self.spans, 1);
        self.spans.push(BufferedSpan::new(span, bytes));
        (self.spans.len() - 1) as u32
    }

    /// Appends the spans of another tree.
    pub(super) fn append(&mut self, other: Tree) {
        make_room(&mut self.spans, other.spans.len());
        self.spans.extend(other.spans);
        self.encoded_bytes += other.encoded_bytes;
        self.changes += other.changes;
    }

    /// Sorts spans into output order: first the local root, or the spans whose parent is missing; then by start time.
    /// The result does not depend on the order of arrival.
    pub(crate) fn sort(&mut self) {
        let missing = self.missing();
        let key = |span: &BufferedSpan| {
            let is_first = span.is_root || (missing.is_some() && span.parent_span_id == missing);
            (!is_first, span.start_unix_nano, span.span_id)
        };
        self.spans.sort_unstable_by(|one, other| key(one).cmp(&key(other)).then_with(|| one.bytes.cmp(&other.bytes)));
    }
}

/// Reserves room for `more` elements: for two at first, then for half of the length. There are many trees, mostly
/// small.
fn make_room<T>(column: &mut Vec<T>, more: usize) {
    if column.capacity() - column.len() < more {
        column.reserve_exact(more.max(column.len() / 2).max(2));
    }
}
