//! A batch of OTLP spans becomes requests.
//!
//! A span is copied as it came. What was found out about it on the way ([`SpanChanges`]) becomes attributes, in the place
//! of any that it had under the same keys: `sentry.profiler_id`, `thread.id` and `thread.name` (OpenTelemetry semantic
//! conventions, `thread`), `sentry.sample_rate` as Sentry's own SDKs on OpenTelemetry call it.

use profbridge_model::spans::{SpanChanges, SpanResource, SpanScope};
use profbridge_model::{ByteRange, Span, Spans, varint};

use super::super::encode::put;
use super::super::reader::Reader;
use super::read::Attributes;

/// The attribute that names the profiler of a span's time.
pub const PROFILER_ID: &str = "sentry.profiler_id";

/// The attribute with the probability with which a span was kept.
pub const SAMPLE_RATE: &str = "sentry.sample_rate";

/// The thread's attributes.
pub const THREAD_ID: &str = "thread.id";
/// The thread's name.
pub const THREAD_NAME: &str = "thread.name";

/// Writes all spans of a batch as one request.
pub fn encode(spans: &Spans) -> Vec<u8> {
    if let Some(received) = spans.received() {
        return received.to_vec();
    }
    encode_those(spans, &in_order(spans))
}

/// How long [`encode`]'s request is at most, in bytes.
pub fn encoded_len(spans: &Spans) -> usize {
    match spans.received() {
        Some(received) => received.len(),
        None => {
            let mut size = Size::new(spans);
            spans.spans().iter().map(|span| size.with(span)).last().unwrap_or(0)
        }
    }
}

/// Parts of a batch, each a request of at most `limit` bytes, and the number of spans of each. A span that is larger
/// alone is a part by itself.
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
        Some((encode_those(spans, part), part.len()))
    })
}

/// The positions of the spans, those of one scope together, and the scopes in the order of their resources.
fn in_order(spans: &Spans) -> Vec<u32> {
    let key = |span: &Span| (spans.scope_of(span).resource, span.scope);
    let mut order: Vec<u32> = (0..spans.spans().len() as u32).collect();
    order.sort_by_key(|at| key(&spans.spans()[*at as usize]));
    order
}

fn encode_those(spans: &Spans, order: &[u32]) -> Vec<u8> {
    let at = |position: u32| &spans.spans()[position as usize];
    let mut out = Vec::new();
    // Written inside out: a message's length stands in front of it.
    let (mut resource_spans, mut scope_spans, mut span_message) = (Vec::new(), Vec::new(), Vec::new());
    for of_resource in order.chunk_by(|one, other| same_resource(spans, at(*one), at(*other))) {
        let resource = spans.resource_of(at(of_resource[0]));
        resource_spans.clear();
        write_resource(spans, resource, &mut resource_spans);
        for of_scope in of_resource.chunk_by(|one, other| at(*one).scope == at(*other).scope) {
            scope_spans.clear();
            write_parts(spans, &spans.scope_of(at(of_scope[0])).parts, &mut scope_spans);
            for position in of_scope {
                let span = at(*position);
                match &span.changes {
                    None => put_message(&mut scope_spans, 0x12, spans.get(span.at)),
                    Some(changes) => {
                        span_message.clear();
                        write_changed(spans, span.at, changes, &mut span_message);
                        put_message(&mut scope_spans, 0x12, &span_message);
                    }
                }
            }
            put_message(&mut resource_spans, 0x12, &scope_spans);
        }
        put_message(&mut out, 0x0a, &resource_spans);
    }
    out
}

fn same_resource(spans: &Spans, one: &Span, other: &Span) -> bool {
    spans.scope_of(one).resource == spans.scope_of(other).resource
}

pub(super) fn put_message(out: &mut Vec<u8>, key: u8, message: &[u8]) {
    put::head(out, key, message.len());
    out.extend_from_slice(message);
}

fn write_parts(spans: &Spans, parts: &[ByteRange], out: &mut Vec<u8>) {
    for part in parts {
        out.extend_from_slice(spans.get(*part));
    }
}

/// The fields of `ResourceSpans` but its spans. What was added stands in the same `Resource` as what came: a second one
/// would be merged by protobuf's rules, but not by everybody.
fn write_resource(spans: &Spans, resource: &SpanResource, out: &mut Vec<u8>) {
    if resource.added.is_empty() {
        return write_parts(spans, &resource.parts, out);
    }
    let mut message = Vec::new();
    for part in &resource.parts {
        let mut reader = Reader::at(spans.bytes(), *part);
        loop {
            let start = reader.position();
            let Ok(Some(key)) = reader.key() else { break };
            if key == 0x0a {
                let Ok(inner) = reader.bytes() else { break };
                message.extend_from_slice(inner);
            } else if reader.skip(key).is_ok() {
                let len = (reader.position() - start) as u32;
                out.extend_from_slice(spans.get(ByteRange { start: start as u32, len }));
            } else {
                break;
            }
        }
    }
    for (key, value) in &resource.added {
        put_text_attribute(&mut message, 0x0a, key, value);
    }
    put_message(out, 0x0a, &message);
}

/// A span with its changes, and without the attributes that these replace.
fn write_changed(spans: &Spans, at: ByteRange, changes: &SpanChanges, out: &mut Vec<u8>) {
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
    let mut reader = Reader::at(spans.bytes(), at);
    loop {
        let start = reader.position();
        let Ok(Some(key)) = reader.key() else { break };
        let is_replaced = if key == 0x4a {
            let Ok(message) = reader.message() else { break };
            replaced(Attributes::key_of(message))
        } else if reader.skip(key).is_ok() {
            false
        } else {
            break;
        };
        if !is_replaced {
            let len = (reader.position() - start) as u32;
            out.extend_from_slice(spans.get(ByteRange { start: start as u32, len }));
        }
    }
    if let Some(link) = profiler {
        put_text_attribute(out, 0x4a, PROFILER_ID, &link.profiler_id.to_string());
        match link.thread_id.as_deref().map(|id| (id, id.parse::<i64>())) {
            // The conventions say that a thread's id is a whole number.
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
    put_message(&mut value, 0x0a, text.as_bytes());
    put_attribute(out, field, key, &value);
}

/// A `KeyValue`, whose value is the `AnyValue` in these bytes.
pub(super) fn put_attribute(out: &mut Vec<u8>, field: u8, key: &str, value: &[u8]) {
    let mut message = Vec::with_capacity(key.len() + value.len() + 6);
    put_message(&mut message, 0x0a, key.as_bytes());
    put_message(&mut message, 0x12, value);
    put_message(out, field, &message);
}

/// The size of a request while spans are added to it, never less than what will be written.
struct Size<'a> {
    spans: &'a Spans,
    bytes: usize,
    resource: Option<u32>,
    scope: Option<u32>,
}

/// What a key and a length take at most, in bytes.
const HEAD: usize = 6;

impl<'a> Size<'a> {
    fn new(spans: &'a Spans) -> Self {
        Self { spans, bytes: 0, resource: None, scope: None }
    }

    /// The size with one span more.
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
