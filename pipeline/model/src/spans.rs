//! One batch of spans, kept in the form in which it came.
//!
//! OTLP spans, a transaction of Sentry's and a container of Sentry's spans say different things in different words, and
//! none of them can be written in another's without loss. So a batch keeps the bytes that came, and beside them one
//! [`Span`] for each span: what the pipeline asks of all of them, and where the rest of it stands in the bytes. Whoever
//! needs more than that reads it there (`profbridge_wire::spans`). What a processor finds out about a span is a change
//! ([`SpanChanges`]), which is written in the words of the form when the batch leaves.
//!
//! Spans are immutable in their bytes and cheap to share: a clone copies what stands beside the bytes, not them.

mod assembly;
mod ids;
pub mod origins;
mod span;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;

pub use assembly::Assembly;
pub use ids::{SpanId, TraceId};
pub use origins::{Origin, Origins};
pub use span::{ProfilerLink, Segment, Span, SpanChanges, SpanKind};

use crate::{ByteRange, Quantities};

/// The form in which spans came, which says what the bytes of a batch are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpanForm {
    /// OTLP in protobuf. [`Span::at`] is a `Span` message, the parts of resources and scopes are fields of
    /// `ResourceSpans` and `ScopeSpans` (opentelemetry-proto `trace/v1/trace.proto`).
    Otlp,
    /// The payload of an envelope's item `transaction`: one JSON object. The first span is the transaction itself, and
    /// its place is the whole object; the places of the others are the elements of `spans`.
    SentryTransaction,
    /// The payload of an envelope's item `span` that is a container of spans in JSON, of version 2. The place of a span
    /// is an element of `items`.
    SentrySpans,
}

/// A resource: what made the spans.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpanResource {
    /// OTLP: the fields of its `ResourceSpans`, as they came, without `scope_spans`. Empty in the other forms, where
    /// what made a span stands in the same object.
    pub parts: Vec<ByteRange>,
    /// Attributes that it came without and was given on the way: keys and values.
    pub added: Vec<AddedAttribute>,
}

/// An attribute that was added on the way: its key and its value.
pub type AddedAttribute = (Arc<str>, Arc<str>);

/// A scope: what in a program made the spans.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpanScope {
    /// The resource, by its position among those of the batch.
    pub resource: u32,
    /// OTLP: the fields of its `ScopeSpans`, as they came, without `spans`.
    pub parts: Vec<ByteRange>,
}

/// A message as it came compressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// How it is compressed, in the words of `Content-Encoding`.
    pub coding: &'static str,
    /// The compressed bytes.
    pub bytes: Bytes,
}

/// One batch of spans.
#[derive(Debug, Clone)]
pub struct Spans {
    form: SpanForm,
    bytes: Bytes,
    resources: Vec<SpanResource>,
    scopes: Vec<SpanScope>,
    spans: Vec<Span>,
    unchanged: bool,
    packed: Option<Packed>,
    /// Who sent it, where it came over a network: an address without a port.
    pub peer: Option<Arc<str>>,
}

/// A batch whose parts do not belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadSpans(pub &'static str);

impl std::fmt::Display for BadSpans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for BadSpans {}

impl Spans {
    /// A batch of spans that were read of `bytes`. `whole` says that the bytes are a message of this form which says
    /// nothing but these spans, so that they may leave as they are. The payload of an item of Sentry's may leave as it
    /// is even where a span of it could not be read: Sentry decides about that one.
    ///
    /// # Errors
    ///
    /// A place is outside of the bytes, or there is no such scope or resource.
    pub fn new(
        form: SpanForm,
        bytes: Bytes,
        resources: Vec<SpanResource>,
        scopes: Vec<SpanScope>,
        spans: Vec<Span>,
        whole: bool,
    ) -> Result<Self, BadSpans> {
        let len = bytes.len() as u64;
        let inside = |at: &ByteRange| u64::from(at.start) + u64::from(at.len) <= len;
        let mut parts = resources.iter().flat_map(|of| &of.parts).chain(scopes.iter().flat_map(|of| &of.parts));
        if !parts.all(inside) || !spans.iter().all(|span| inside(&span.at)) {
            return Err(BadSpans("a part of the batch is outside of its bytes"));
        }
        if !scopes.iter().all(|scope| (scope.resource as usize) < resources.len()) {
            return Err(BadSpans("a scope has no resource"));
        }
        if !spans.iter().all(|span| (span.scope as usize) < scopes.len()) {
            return Err(BadSpans("a span has no scope"));
        }
        Ok(Self { form, bytes, resources, scopes, spans, unchanged: whole, packed: None, peer: None })
    }

    /// The form in which they came.
    pub fn form(&self) -> SpanForm {
        self.form
    }

    /// The bytes in which the places are.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The bytes as a message, where the batch still says what they say.
    pub fn received(&self) -> Option<&Bytes> {
        self.unchanged.then_some(&self.bytes)
    }

    /// Keeps the message as it came compressed, so that it need not be compressed again where it leaves as it came.
    pub fn keep_packed(&mut self, packed: Packed) {
        self.packed = self.unchanged.then_some(packed);
    }

    /// The message as it came compressed in this way, where the batch still says what it says.
    pub fn received_packed(&self, coding: &str) -> Option<&Bytes> {
        self.packed.as_ref().filter(|packed| packed.coding == coding).map(|packed| &packed.bytes)
    }

    /// From here on the batch says something else than the bytes.
    fn changed(&mut self) {
        self.unchanged = false;
        self.packed = None;
    }

    /// Copies the bytes. They are usually a slice of a larger buffer, which can be freed then.
    pub fn copy_bytes(&mut self) {
        self.bytes = Bytes::copy_from_slice(&self.bytes);
    }

    /// The bytes at a place of this batch; nothing for a place of another one.
    pub fn get(&self, at: ByteRange) -> &[u8] {
        let start = at.start as usize;
        self.bytes.get(start..start + at.len as usize).unwrap_or_default()
    }

    /// The resources.
    pub fn resources(&self) -> &[SpanResource] {
        &self.resources
    }

    /// The scopes.
    pub fn scopes(&self) -> &[SpanScope] {
        &self.scopes
    }

    /// The spans, in the order in which they came, or those of one [`Segment`] after the other.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The scope of a span of this batch.
    pub fn scope_of(&self, span: &Span) -> &SpanScope {
        &self.scopes[span.scope as usize]
    }

    /// The resource of a span of this batch.
    pub fn resource_of(&self, span: &Span) -> &SpanResource {
        &self.resources[self.scope_of(span).resource as usize]
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// How many there are.
    pub fn quantities(&self) -> Quantities {
        Quantities::spans(self.spans.len() as u64)
    }

    /// A batch of one of the resources and no spans, for whoever asks whose spans were. The bytes are shared. Nothing
    /// is said of a resource that is not there.
    #[must_use]
    pub fn resource_alone(&self, resource: usize) -> Self {
        let resources = vec![self.resources.get(resource).cloned().unwrap_or_default()];
        let (bytes, peer) = (self.bytes.clone(), self.peer.clone());
        Self {
            form: self.form,
            bytes,
            resources,
            scopes: Vec::new(),
            spans: Vec::new(),
            unchanged: false,
            packed: None,
            peer,
        }
    }

    /// Leaves out the spans for which `keep` says no, given their positions.
    pub fn retain(&mut self, mut keep: impl FnMut(usize, &Span) -> bool) {
        let before = self.spans.len();
        let mut position = 0;
        self.spans.retain(|span| {
            position += 1;
            keep(position - 1, span)
        });
        if self.spans.len() < before {
            self.changed();
        }
    }

    /// Changes what is known of a span, where it stands in the batch.
    pub fn change(&mut self, position: usize, change: impl FnOnce(&mut SpanChanges)) {
        if let Some(span) = self.spans.get_mut(position) {
            change(span.changes.get_or_insert_default());
            self.changed();
        }
    }

    /// Gives a resource an attribute that it came without.
    pub fn add_to_resource(&mut self, resource: usize, key: Arc<str>, value: Arc<str>) {
        if let Some(resource) = self.resources.get_mut(resource) {
            resource.added.push((key, value));
            self.changed();
        }
    }

    /// The spans of each transaction, where they were put together ([`Segment`]): runs of spans with the same number.
    /// Spans that were not are runs without one.
    pub fn segments(&self) -> impl Iterator<Item = &[Span]> {
        let number = |span: &Span| span.segment.map(|segment| segment.number);
        self.spans.chunk_by(move |one, other| number(one) == number(other))
    }

    /// The memory of it, in bytes.
    pub fn size_bytes(&self) -> u64 {
        let parts = |parts: &Vec<ByteRange>| parts.capacity() * size_of::<ByteRange>();
        let resources: usize = self
            .resources
            .iter()
            .map(|of| {
                let added = of.added.iter().map(|(key, value)| 64 + key.len() + value.len()).sum::<usize>();
                size_of::<SpanResource>() + parts(&of.parts) + added
            })
            .sum();
        let scopes: usize = self.scopes.iter().map(|of| size_of::<SpanScope>() + parts(&of.parts)).sum();
        let changes = self.spans.iter().filter(|span| span.changes.is_some()).count() * size_of::<SpanChanges>();
        let packed = self.packed.as_ref().map_or(0, |packed| packed.bytes.len());
        (self.bytes.len() + packed + resources + scopes + self.spans.capacity() * size_of::<Span>() + changes) as u64
    }
}
