//! One batch of spans, kept in the form in which it arrived.
//!
//! OTLP spans, Sentry transactions and Sentry span containers have different fields, and none can be converted into
//! another without loss. So a batch keeps the received bytes and one [`Span`] per span: the fields that the pipeline
//! needs of every span, and the range of its bytes. Other fields are read from the bytes (`profbridge_wire::spans`).
//! The additions of a processor are stored in [`SpanChanges`] and encoded in the batch's form when the batch is
//! exported.
//!
//! The bytes are immutable and cheap to share: a clone copies the other fields, but not the bytes.

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

use crate::envelope::RequestMeta;
use crate::{ByteRange, Quantities};

/// The form of the received spans, which determines the meaning of the bytes of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpanForm {
    /// OTLP in protobuf. [`Span::at`] is the range of a `Span` message, the parts of resources and scopes are fields of
    /// `ResourceSpans` and `ScopeSpans` (opentelemetry-proto `trace/v1/trace.proto`).
    Otlp,
    /// The payload of an envelope item `transaction`: one JSON object. The first span is the transaction itself, and
    /// its range is the whole object; the ranges of the others are the elements of `spans`.
    SentryTransaction,
    /// The payload of an envelope item `span`: a JSON container of spans, version 2. The range of a span is an element
    /// of `items`.
    SentrySpans,
}

/// A resource: the source of the spans.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpanResource {
    /// For OTLP, the received fields of the `ResourceSpans` without `scope_spans`. Empty in the other forms, in which
    /// the span's own object describes the source.
    pub parts: Vec<ByteRange>,
    /// Attributes added by the pipeline.
    pub added: Vec<AddedAttribute>,
}

/// An attribute added by the pipeline: its key and its value.
pub type AddedAttribute = (Arc<str>, Arc<str>);

/// A scope: the part of a program that made the spans.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpanScope {
    /// The resource, by its position among those of the batch.
    pub resource: u32,
    /// For OTLP, the received fields of the `ScopeSpans` without `spans`.
    pub parts: Vec<ByteRange>,
}

/// A message as received, compressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// The compression, as in `Content-Encoding`.
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
    /// The sender's address without port, if the batch came over a network.
    pub peer: Option<Arc<str>>,
    /// The client of Sentry that sent it to Sentry's own OTLP endpoint, under its project and key. Its spans stay
    /// together, and go to that project.
    pub client: Option<Arc<RequestMeta>>,
}

/// A batch with inconsistent parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadSpans(pub &'static str);

impl std::fmt::Display for BadSpans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for BadSpans {}

impl Spans {
    /// A batch of spans parsed from `bytes`. `whole` means that the bytes are a message of this form with exactly these
    /// spans, so that they may be sent unchanged. The payload of a Sentry item may be sent unchanged even if one of its
    /// spans could not be parsed, because Sentry decides about that span.
    ///
    /// # Errors
    ///
    /// A range is outside of the bytes, or a scope or resource does not exist.
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
        Ok(Self { form, bytes, resources, scopes, spans, unchanged: whole, packed: None, peer: None, client: None })
    }

    /// The form of the batch.
    pub fn form(&self) -> SpanForm {
        self.form
    }

    /// The bytes to which the ranges refer.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The received message, if the batch is unchanged.
    pub fn received(&self) -> Option<&Bytes> {
        self.unchanged.then_some(&self.bytes)
    }

    /// Stores the compressed message, so that an unchanged batch need not be compressed again.
    pub fn keep_packed(&mut self, packed: Packed) {
        self.packed = self.unchanged.then_some(packed);
    }

    /// The compressed message as received, if it was kept and the batch is unchanged.
    pub fn packed(&self) -> Option<&Packed> {
        self.packed.as_ref()
    }

    /// The received message in this compression, if it was received so and the batch is unchanged.
    pub fn received_packed(&self, coding: &str) -> Option<&Bytes> {
        self.packed.as_ref().filter(|packed| packed.coding == coding).map(|packed| &packed.bytes)
    }

    /// Records that the batch no longer matches the received bytes.
    fn changed(&mut self) {
        self.unchanged = false;
        self.packed = None;
    }

    /// Copies the bytes into their own buffer, so that the larger buffer of which they usually are a slice can be
    /// freed.
    pub fn copy_bytes(&mut self) {
        self.bytes = Bytes::copy_from_slice(&self.bytes);
    }

    /// The bytes of a range; empty if the range lies outside of the batch.
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

    /// The spans in their received order, or grouped by [`Segment`].
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

    /// Whether there are no spans.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The number of spans.
    pub fn quantities(&self) -> Quantities {
        Quantities::spans(self.spans.len() as u64)
    }

    /// A batch of one resource and no spans, to look up the origin of spans. The bytes are shared. If the resource does
    /// not exist, the batch has an empty one.
    #[must_use]
    pub fn resource_alone(&self, resource: usize) -> Self {
        let resources = vec![self.resources.get(resource).cloned().unwrap_or_default()];
        let (bytes, peer, client) = (self.bytes.clone(), self.peer.clone(), self.client.clone());
        Self {
            form: self.form,
            bytes,
            resources,
            scopes: Vec::new(),
            spans: Vec::new(),
            unchanged: false,
            packed: None,
            peer,
            client,
        }
    }

    /// Removes the spans for which `keep` returns false. `keep` also gets their positions.
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

    /// A changed batch with these spans of this batch, in another order or with other properties. Spans whose bytes or
    /// scope are not of this batch are left out.
    #[must_use]
    pub fn rearranged(&self, mut spans: Vec<Span>) -> Self {
        let len = self.bytes.len() as u64;
        let inside = |at: &ByteRange| u64::from(at.start) + u64::from(at.len) <= len;
        spans.retain(|span| inside(&span.at) && (span.scope as usize) < self.scopes.len());
        let (resources, scopes) = (self.resources.clone(), self.scopes.clone());
        let (bytes, peer, client) = (self.bytes.clone(), self.peer.clone(), self.client.clone());
        Self { form: self.form, bytes, resources, scopes, spans, unchanged: false, packed: None, peer, client }
    }

    /// Changes the span at a position.
    pub fn change(&mut self, position: usize, change: impl FnOnce(&mut SpanChanges)) {
        if let Some(span) = self.spans.get_mut(position) {
            change(span.changes.get_or_insert_default());
            self.changed();
        }
    }

    /// Adds an attribute to a resource.
    pub fn add_to_resource(&mut self, resource: usize, key: Arc<str>, value: Arc<str>) {
        if let Some(resource) = self.resources.get_mut(resource) {
            resource.added.push((key, value));
            self.changed();
        }
    }

    /// The groups of adjacent spans: those of the same transaction ([`Segment`]) if they were assembled, and spans
    /// without one.
    pub fn segments(&self) -> impl Iterator<Item = &[Span]> {
        let number = |span: &Span| span.segment.map(|segment| segment.number);
        self.spans.chunk_by(move |one, other| number(one) == number(other))
    }

    /// Memory use in bytes.
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
