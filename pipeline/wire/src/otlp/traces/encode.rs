//! Encodes a batch of OTLP spans as requests.
//!
//! Spans are copied unmodified. Their changes ([`SpanChanges`]) are written as attributes and replace existing ones
//! with the same keys: `sentry.profiler_id`, `thread.id` and `thread.name` (OpenTelemetry semantic conventions,
//! `thread`), `sentry.sample_rate` as in Sentry's own SDKs on OpenTelemetry.

use profbridge_model::spans::{SpanChanges, SpanResource, SpanScope};
use profbridge_model::{ByteRange, Span, Spans, varint};

use super::super::encode::put;
use super::super::reader::{LEN, ProtobufReader};
use super::pieces::Pieces;
use super::read::Attributes;

/// The attribute with the id of the profiler that sampled during a span.
pub const PROFILER_ID: &str = "sentry.profiler_id";

/// The attribute with a span's sample rate.
pub const SAMPLE_RATE: &str = "sentry.sample_rate";

/// The attribute with the thread's id.
pub const THREAD_ID: &str = "thread.id";
/// The attribute with the thread's name.
pub const THREAD_NAME: &str = "thread.name";

/// Encodes all spans of a batch as one request.
pub fn encode(spans: &Spans) -> Vec<u8> {
    match spans.received() {
        Some(received) => received.to_vec(),
        None => pieces(spans, &in_order(spans)).join(),
    }
}

/// Encodes all spans of a batch as one request; `None` if it would exceed `limit` bytes, which is checked before
/// writing.
pub fn encode_within(spans: &Spans, limit: usize) -> Option<Vec<u8>> {
    if let Some(received) = spans.received() {
        return (received.len() <= limit).then(|| received.to_vec());
    }
    let pieces = pieces(spans, &in_order(spans));
    (pieces.len() <= limit).then(|| pieces.join())
}

/// Splits a batch into requests of at most `limit` bytes, each with its number of spans. A single span above the limit
/// gets its own request.
pub fn split(spans: &Spans, limit: usize) -> impl Iterator<Item = (Vec<u8>, usize)> {
    let order = in_order(spans);
    let mut from = 0;
    std::iter::from_fn(move || {
        if from >= order.len() {
            return None;
        }
        let mut size = Size::new(spans);
        let fits = order[from..].iter().take_while(|at| size.with(&spans.spans()[**at as usize]) <= limit).count();
        let part = &order[from..from + fits.max(1)];
        from += part.len();
        Some((pieces(spans, part).join(), part.len()))
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
fn pieces<'a>(spans: &'a Spans, order: &[u32]) -> Pieces<'a> {
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
                match &span.changes {
                    None => out.received_message(0x12, span.at),
                    Some(changes) => {
                        let message = out.open(0x12);
                        write_changed(spans, span.at, changes, &mut out);
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

/// Writes a span with its changes, and without the attributes that they replace.
fn write_changed(spans: &Spans, at: ByteRange, changes: &SpanChanges, out: &mut Pieces<'_>) {
    let SpanChanges { profiler, sample_rate } = changes;
    let names_thread = profiler.as_ref().is_some_and(|link| link.thread_id.is_some());
    let names_thread_name = profiler.as_ref().is_some_and(|link| link.thread_name.is_some());
    let replaced = |key: &str| match key {
        PROFILER_ID => profiler.is_some(),
        THREAD_ID => names_thread,
        THREAD_NAME => names_thread_name,
        SAMPLE_RATE => sample_rate.is_some(),
        _ => false,
    };
    for (key, field, inner) in fields(ProtobufReader::at(spans.bytes(), at)) {
        if key != 0x4a || !replaced(Attributes::key_of(inner)) {
            out.received(field);
        }
    }
    out.written(|out| write_changes(changes, out));
}

/// Writes changes as attributes of a span.
fn write_changes(changes: &SpanChanges, out: &mut Vec<u8>) {
    let SpanChanges { profiler, sample_rate } = changes;
    if let Some(link) = profiler {
        put_text_attribute(out, 0x4a, PROFILER_ID, &link.profiler_id.to_string());
        match link.thread_id.as_deref().map(|id| (id, id.parse::<i64>())) {
            // In the conventions a thread's id is an integer.
            Some((_, Ok(id))) => {
                let mut value = vec![0x18];
                varint::put(&mut value, id as u64);
                put_attribute(out, 0x4a, THREAD_ID, &value);
            }
            Some((id, Err(_))) => put_text_attribute(out, 0x4a, THREAD_ID, id),
            None => {}
        }
        if let Some(name) = &link.thread_name {
            put_text_attribute(out, 0x4a, THREAD_NAME, name);
        }
    }
    if let Some(rate) = sample_rate {
        let mut value = vec![0x21];
        value.extend_from_slice(&rate.to_bits().to_le_bytes());
        put_attribute(out, 0x4a, SAMPLE_RATE, &value);
    }
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
struct Size<'a> {
    spans: &'a Spans,
    bytes: usize,
    resource: Option<u32>,
    scope: Option<u32>,
}

/// Maximum size of a key and a length, in bytes.
const HEAD: usize = 6;

impl<'a> Size<'a> {
    fn new(spans: &'a Spans) -> Self {
        Self { spans, bytes: 0, resource: None, scope: None }
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
        self.bytes += span.at.len as usize + HEAD + span.changes.as_deref().map_or(0, changes_len);
        self.bytes
    }
}

fn changes_len(changes: &SpanChanges) -> usize {
    let SpanChanges { profiler, sample_rate } = changes;
    let attribute = |key: &str, len: usize| key.len() + len + 4 * HEAD;
    let of_profiler = profiler.as_ref().map_or(0, |link| {
        attribute(PROFILER_ID, 36)
            + attribute(THREAD_ID, link.thread_id.as_ref().map_or(0, |id| id.len().max(10)))
            + attribute(THREAD_NAME, link.thread_name.as_ref().map_or(0, |name| name.len()))
    });
    of_profiler + sample_rate.map_or(0, |_| attribute(SAMPLE_RATE, 8))
}
