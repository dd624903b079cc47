//! Encodes a batch of OTLP spans as requests.
//!
//! Spans are copied unmodified. Their changes ([`SpanChanges`]) are written as attributes and replace existing ones
//! with the same keys: `sentry.profiler_id`, `thread.id` and `thread.name` (OpenTelemetry semantic conventions,
//! `thread`), `sentry.sample_rate` as in Sentry's own SDKs on OpenTelemetry. For Sentry's own OTLP endpoint the changes
//! are others ([`sentry::otlp_spans`](crate::sentry::otlp_spans)), so the functions that end in `_with` take them as
//! `Rewrite`s.

use profbridge_model::spans::{SpanChanges, SpanResource, SpanScope};
use profbridge_model::{ByteRange, Span, Spans, varint};

use super::super::encode::put;
use super::super::reader::{LEN, ProtobufReader};
use super::decode::{FLAGS, HAS_IS_REMOTE, IS_REMOTE};
use super::pieces::Pieces;
use super::read::Attributes;
use super::write::{any_double, any_int, any_text};

/// The attribute with the id of the profiler that sampled during a span.
pub const PROFILER_ID: &str = "sentry.profiler_id";

/// The attribute with a span's sample rate.
pub const SAMPLE_RATE: &str = "sentry.sample_rate";

/// The attribute with the thread's id.
pub const THREAD_ID: &str = "thread.id";
/// The attribute with the thread's name.
pub const THREAD_NAME: &str = "thread.name";

/// What is written into a received span.
#[derive(Debug, Default)]
pub(crate) struct Rewrite {
    /// The keys of the received attributes that are left out.
    pub(crate) replaced: Vec<&'static str>,
    /// The attributes that are added, as fields of the span.
    attributes: Vec<u8>,
    /// Whether the flags say that its parent is remote, which makes a span the first of its process.
    pub(crate) has_remote_parent: bool,
}

impl Rewrite {
    /// Adds a text attribute, which replaces a received one with this key.
    pub(crate) fn text(&mut self, key: &'static str, text: &str) {
        self.replaced.push(key);
        put_text_attribute(&mut self.attributes, 0x4a, key, text);
    }

    /// Adds an attribute whose value is an encoded `AnyValue`; it replaces a received one with this key.
    pub(crate) fn value(&mut self, key: &'static str, value: &[u8]) {
        self.replaced.push(key);
        put_attribute(&mut self.attributes, 0x4a, key, value);
    }

    /// Whether the span stays as it is.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { replaced, attributes, has_remote_parent } = self;
        replaced.is_empty() && attributes.is_empty() && !has_remote_parent
    }

    /// The changes of a span for any reader of OTLP.
    fn of_changes(span: &Span) -> Option<Self> {
        let SpanChanges { profiler, sample_rate } = span.changes.as_deref()?;
        let mut rewrite = Self::default();
        if let Some(link) = profiler {
            rewrite.text(PROFILER_ID, &link.profiler_id.to_string());
            if let Some(id) = &link.thread_id {
                rewrite.value(THREAD_ID, &any_thread_id(id));
            }
            if let Some(name) = &link.thread_name {
                rewrite.text(THREAD_NAME, name);
            }
        }
        if let Some(rate) = sample_rate {
            rewrite.value(SAMPLE_RATE, &any_double(*rate));
        }
        Some(rewrite)
    }
}

/// A thread's id as an `AnyValue`: in OpenTelemetry's conventions it is an integer.
pub(crate) fn any_thread_id(id: &str) -> Vec<u8> {
    id.parse().map_or_else(|_| any_text(id), any_int)
}

/// Encodes all spans of a batch as one request.
pub fn encode(spans: &Spans) -> Vec<u8> {
    match spans.received() {
        Some(received) => received.to_vec(),
        None => pieces(spans, &in_order(spans), &Rewrite::of_changes).join(),
    }
}

/// Encodes all spans of a batch as one request; `None` if it would exceed `limit` bytes, which is checked before
/// writing.
pub fn encode_within(spans: &Spans, limit: usize) -> Option<Vec<u8>> {
    if let Some(received) = spans.received() {
        return (received.len() <= limit).then(|| received.to_vec());
    }
    encode_within_with(spans, limit, &Rewrite::of_changes)
}

/// Encodes all spans of a batch, rewritten, as one request; `None` if it would exceed `limit` bytes.
pub(crate) fn encode_within_with(spans: &Spans, limit: usize, rewrite: RewriteSpan<'_>) -> Option<Vec<u8>> {
    let pieces = pieces(spans, &in_order(spans), rewrite);
    (pieces.len() <= limit).then(|| pieces.join())
}

/// Returns what is written into a span, if anything is.
type RewriteSpan<'a> = &'a dyn Fn(&Span) -> Option<Rewrite>;

/// Splits a batch into requests of at most `limit` bytes, each with its number of spans. A single span above the limit
/// gets its own request.
pub fn split(spans: &Spans, limit: usize) -> impl Iterator<Item = (Vec<u8>, usize)> {
    split_with(spans, limit, &Rewrite::of_changes)
}

/// Splits a batch like [`split`], with its spans rewritten.
pub(crate) fn split_with<'a>(
    spans: &'a Spans,
    limit: usize,
    rewrite: RewriteSpan<'a>,
) -> impl Iterator<Item = (Vec<u8>, usize)> {
    let order = in_order(spans);
    let mut from = 0;
    std::iter::from_fn(move || {
        if from >= order.len() {
            return None;
        }
        let mut size = RequestSize::new(spans, rewrite);
        let fits = order[from..].iter().take_while(|at| size.with(&spans.spans()[**at as usize]) <= limit).count();
        let part = &order[from..from + fits.max(1)];
        from += part.len();
        Some((pieces(spans, part, rewrite).join(), part.len()))
    })
}

/// The positions of the spans, grouped by scope, with the scopes grouped by resource.
fn in_order(spans: &Spans) -> Vec<u32> {
    let key = |span: &Span| (spans.scope_of(span).resource, span.scope);
    let mut order: Vec<u32> = (0..spans.spans().len() as u32).collect();
    order.sort_by_key(|at| key(&spans.spans()[*at as usize]));
    order
}

/// The pieces of the request for these spans.
fn pieces<'a>(spans: &'a Spans, order: &[u32], rewrite: RewriteSpan<'_>) -> Pieces<'a> {
    let at = |position: u32| &spans.spans()[position as usize];
    let mut out = Pieces::new(spans.bytes());
    for of_resource in order.chunk_by(|one, other| same_resource(spans, at(*one), at(*other))) {
        let resource_spans = out.open(0x0a);
        write_resource(spans, spans.resource_of(at(of_resource[0])), &mut out);
        for of_scope in of_resource.chunk_by(|one, other| at(*one).scope == at(*other).scope) {
            let scope_spans = out.open(0x12);
            spans.scope_of(at(of_scope[0])).parts.iter().for_each(|part| out.received(*part));
            for position in of_scope {
                let span = at(*position);
                match rewrite(span) {
                    None => out.received_message(0x12, span.at),
                    Some(rewrite) => {
                        let message = out.open(0x12);
                        write_rewritten(spans, span.at, &rewrite, &mut out);
                        out.close(message);
                    }
                }
            }
            out.close(scope_spans);
        }
        out.close(resource_spans);
    }
    out
}

fn same_resource(spans: &Spans, one: &Span, other: &Span) -> bool {
    spans.scope_of(one).resource == spans.scope_of(other).resource
}

/// Writes the fields of `ResourceSpans` except its spans. Added attributes go into the received `Resource`: protobuf
/// would merge a second one, but not every reader does.
fn write_resource(spans: &Spans, resource: &SpanResource, out: &mut Pieces<'_>) {
    let SpanResource { parts, added } = resource;
    if added.is_empty() {
        return parts.iter().for_each(|part| out.received(*part));
    }
    let fields = || parts.iter().flat_map(|part| fields(ProtobufReader::at(spans.bytes(), *part)));
    fields().filter(|(key, ..)| *key != RESOURCE).for_each(|(_, other, _)| out.received(other));
    let message = out.open(RESOURCE as u8);
    fields().filter(|(key, ..)| *key == RESOURCE).for_each(|(.., inner)| out.received(inner.place()));
    for (key, value) in added {
        out.written(|out| put_text_attribute(out, 0x0a, key, value));
    }
    out.close(message);
}

/// The key of `ResourceSpans.resource`.
const RESOURCE: u32 = 0x0a;

/// The fields of a message: key, byte range, and a reader if the value is length-delimited.
fn fields(mut reader: ProtobufReader<'_>) -> impl Iterator<Item = (u32, ByteRange, ProtobufReader<'_>)> {
    std::iter::from_fn(move || {
        let from = reader;
        let key = reader.key().ok()??;
        let mut inner = ProtobufReader::new(&[]);
        match key & 7 {
            LEN => inner = reader.message().ok()?,
            _ => reader.skip(key).ok()?,
        }
        let len = (reader.position() - from.position()) as u32;
        Some((key, ByteRange { start: from.position() as u32, len }, inner))
    })
}

fn write_rewritten(spans: &Spans, at: ByteRange, rewrite: &Rewrite, out: &mut Pieces<'_>) {
    let mut flags = HAS_IS_REMOTE | IS_REMOTE;
    for (key, field, inner) in fields(ProtobufReader::at(spans.bytes(), at)) {
        match key {
            0x4a if rewrite.replaced.contains(&Attributes::key_of(inner)) => {}
            FLAGS if rewrite.has_remote_parent => {
                let received = spans.get(field).last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
                flags |= received;
            }
            _ => out.received(field),
        }
    }
    out.written(|out| {
        out.extend_from_slice(&rewrite.attributes);
        if rewrite.has_remote_parent {
            varint::put(out, u64::from(FLAGS));
            out.extend_from_slice(&flags.to_le_bytes());
        }
    });
}

pub(super) fn put_text_attribute(out: &mut Vec<u8>, field: u8, key: &str, text: &str) {
    let mut value = Vec::with_capacity(text.len() + 3);
    put::encoded(&mut value, 0x0a, text.as_bytes());
    put_attribute(out, field, key, &value);
}

/// Writes a `KeyValue`; `value` is the encoded `AnyValue`.
pub(super) fn put_attribute(out: &mut Vec<u8>, field: u8, key: &str, value: &[u8]) {
    let mut message = Vec::with_capacity(key.len() + value.len() + 6);
    put::encoded(&mut message, 0x0a, key.as_bytes());
    put::encoded(&mut message, 0x12, value);
    put::encoded(out, field, &message);
}

/// Tracks the size of a request while spans are added; never less than the final size.
struct RequestSize<'a> {
    spans: &'a Spans,
    rewrite: RewriteSpan<'a>,
    bytes: usize,
    resource: Option<u32>,
    scope: Option<u32>,
}

/// Maximum size of a key and a length, in bytes.
const HEAD: usize = 6;

impl<'a> RequestSize<'a> {
    fn new(spans: &'a Spans, rewrite: RewriteSpan<'a>) -> Self {
        Self { spans, rewrite, bytes: 0, resource: None, scope: None }
    }

    /// The size with one more span.
    fn with(&mut self, span: &Span) -> usize {
        let parts = |parts: &[ByteRange]| parts.iter().map(|part| part.len as usize).sum::<usize>();
        let SpanScope { resource, parts: of_scope } = self.spans.scope_of(span);
        if self.resource != Some(*resource) {
            let SpanResource { parts: of_resource, added } = self.spans.resource_of(span);
            let added: usize = added.iter().map(|(key, value)| key.len() + value.len() + 4 * HEAD).sum();
            self.bytes += parts(of_resource) + added + 2 * HEAD;
            (self.resource, self.scope) = (Some(*resource), None);
        }
        if self.scope != Some(span.scope) {
            self.bytes += parts(of_scope) + HEAD;
            self.scope = Some(span.scope);
        }
        // The flags take six bytes.
        let added = (self.rewrite)(span).map_or(0, |rewrite| rewrite.attributes.len() + HEAD);
        self.bytes += span.at.len as usize + HEAD + added;
        self.bytes
    }
}
