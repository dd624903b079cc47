//! The fields that a transaction shares with its spans: ids, times, data, links.

use std::borrow::Cow;

use profbridge_model::{ProfilerId, Span, SpanId, SpanKind, Spans, TraceId};
use uuid::Uuid;

use super::describe::Described;
use super::keys::{AttributeKey, KnownAttributes};
use super::limits::{MAX_EVENTS, MAX_TEXT_BYTES, MAX_TRANSACTION_BYTES};
use super::shed::OptionalParts;
use super::status;
use super::value::{Json, UniqueKeys};
use crate::otlp::traces::{AnyValue, Event, OtherSpanFields, SpanLink, read};

/// The origin of a span. Sentry's own OTLP endpoint uses the same value (Sentry developer documentation, "Trace
/// Origin": `auto`, a category, the author).
const ORIGIN: &str = "auto.otlp.spans";

/// A span that is being written.
pub(super) struct SpanFields<'a> {
    pub(super) span: &'a Span,
    pub(super) fields: OtherSpanFields<'a>,
    pub(super) known: KnownAttributes<'a>,
}

/// The thread of a span, and the profiler that sampled it.
#[derive(Default)]
struct SpanThread<'a> {
    profiler_id: Option<ProfilerId>,
    id: Option<Cow<'a, str>>,
    name: Option<&'a str>,
}

impl<'a> SpanFields<'a> {
    /// A span of a batch. Its known attributes are available after its data has been written.
    pub(super) fn of(spans: &'a Spans, span: &'a Span) -> Self {
        Self { span, fields: OtherSpanFields::of(spans, span), known: KnownAttributes::new() }
    }

    /// Writes `"trace_id":…,"span_id":…,"parent_span_id":…`.
    pub(super) fn ids(&self, json: &mut Json) {
        json.raw("\"trace_id\":\"");
        hex(&mut json.out, self.span.trace_id.bytes());
        json.raw("\",\"span_id\":\"");
        hex(&mut json.out, self.span.span_id.bytes());
        if let Some(parent) = self.span.parent_span_id {
            json.raw("\",\"parent_span_id\":\"");
            hex(&mut json.out, parent.bytes());
        }
        json.out.push(b'"');
    }

    /// Writes `,"start_timestamp":…,"timestamp":…`.
    pub(super) fn times(&self, json: &mut Json) {
        json.raw(",\"start_timestamp\":");
        json.time(self.span.start_unix_nano);
        json.raw(",\"timestamp\":");
        json.time(self.span.end_unix_nano);
    }

    /// Writes `,"data":{…}` and `,"links":[…]`, and collects the known attributes. The optional parts are recorded in
    /// `pieces`. Returns the profiler that the data names.
    pub(super) fn data(&mut self, spans: &'a Spans, json: &mut Json, pieces: &mut OptionalParts) -> Option<ProfilerId> {
        json.raw(",\"data\":{");
        pieces.write(json, |json| self.attributes(spans, json));
        let thread = self.thread(json);
        json.raw("\"sentry.origin\":\"");
        json.raw(self.origin());
        json.out.push(b'"');
        if let Some(profiler_id) = thread.profiler_id {
            json.raw(",\"profiler_id\":\"");
            json.display(profiler_id);
            json.out.push(b'"');
        }
        if let Some(id) = &thread.id {
            json.string(",\"thread.id\":", id, MAX_TEXT_BYTES);
        }
        if let Some(name) = thread.name {
            json.string(",\"thread.name\":", name, MAX_TEXT_BYTES);
        }
        json.out.push(b'}');
        pieces.write(json, |json| links(&self.fields, json));
        thread.profiler_id
    }

    /// Writes `,"op":…,"status":…,"origin":…`.
    pub(super) fn kind(&self, described: &Described<'_>, json: &mut Json) {
        if let Some(op) = &described.op {
            json.string(",\"op\":", op, MAX_TEXT_BYTES);
        }
        json.raw(",\"status\":\"");
        json.raw(status::sentry_status(&self.fields, &self.known));
        json.out.push(b'"');
        json.raw(",\"origin\":\"");
        json.raw(self.origin());
        json.out.push(b'"');
    }

    /// The span's name in Sentry.
    pub(super) fn described(&self, json: &mut Json) -> Described<'a> {
        Described::of(self.fields.name, self.span.kind, &self.known, &mut json.notes)
    }

    fn origin(&self) -> &'a str {
        let origin = self.known.text(&[AttributeKey::SentryOrigin]).filter(|text| text.len() <= MAX_TEXT_BYTES);
        // Words separated by dots (Sentry developer documentation, "Trace Origin"), which need no escapes in JSON.
        origin
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._".contains(&byte)))
            .unwrap_or(ORIGIN)
    }

    /// Writes `"KEY":VALUE,` for each attribute and the other data of the span.
    fn attributes(&mut self, spans: &'a Spans, json: &mut Json) {
        json.full = json.out.len().saturating_add(MAX_TRANSACTION_BYTES);
        let mut names = UniqueKeys::default();
        for (key, value) in self.fields.attributes() {
            let known = AttributeKey::of(key);
            let is_new = match known {
                Some(known) => self.known.note(known, value) && !known.has_its_own_place(),
                None => names.is_new(key),
            };
            match known {
                _ if !is_new || json.is_full() => {}
                Some(_) => json.plain_member(key, value, 0),
                None => json.member(key, value, 0),
            }
        }
        if json.is_full() {
            return;
        }
        let kind = match self.span.kind {
            SpanKind::Unspecified | SpanKind::Internal => None,
            SpanKind::Server => Some("SERVER"),
            SpanKind::Client => Some("CLIENT"),
            SpanKind::Producer => Some("PRODUCER"),
            SpanKind::Consumer => Some("CONSUMER"),
        };
        let (scope, version) = read::scope_name(spans, spans.scope_of(self.span));
        for (key, value) in [
            ("otel.kind", kind.unwrap_or_default()),
            ("otel.scope.name", scope),
            ("otel.scope.version", version),
            ("sentry.status.message", self.fields.status_message),
        ] {
            if !value.is_empty() && names.is_new(key) {
                json.plain_member(key, AnyValue::Text(value), 0);
            }
        }
        if let (Some(code), None) =
            (self.known.int(&[AttributeKey::HttpStatusCode]), self.known.get(AttributeKey::HttpResponseStatusCode))
        {
            json.member("http.response.status_code", AnyValue::Int(code), 0);
        }
        if names.is_new("otel.events") {
            events(self.fields.events(), json);
        }
    }

    /// The span's thread: determined on the way, or else from the span's own attributes.
    fn thread(&self, json: &mut Json) -> SpanThread<'a> {
        let changes = self.span.changes.as_deref();
        if let Some(link) = changes.and_then(|changes| changes.profiler.as_ref()) {
            let id = link.thread_id.as_deref().map(Into::into);
            return SpanThread { profiler_id: Some(link.profiler_id), id, name: link.thread_name.as_deref() };
        }
        let mut thread = SpanThread::default();
        if let Some(profiler_id) = self.known.get(AttributeKey::SentryProfilerId) {
            thread.profiler_id =
                profiler_id.text().and_then(|text| Uuid::try_parse(text).ok()).map(ProfilerId::from_uuid);
            json.notes.invalid_values += u64::from(thread.profiler_id.is_none());
        }
        // A string, like the keys of a chunk's threads, whatever the type in OTLP.
        let id = self.known.get(AttributeKey::ThreadId);
        thread.id = id.and_then(AnyValue::thread_id);
        json.notes.invalid_values += u64::from(id.is_some() && thread.id.is_none());
        thread.name = self.known.text(&[AttributeKey::ThreadName]);
        thread
    }
}

/// Writes `"otel.events":[…],` if there are events: mostly exceptions.
fn events<'a>(events: impl Iterator<Item = Event<'a>>, json: &mut Json) {
    let mut events = events.peekable();
    if events.peek().is_none() {
        return;
    }
    json.raw("\"otel.events\":[");
    for event in events.by_ref().take(MAX_EVENTS) {
        json.string("{\"name\":", event.name, MAX_TEXT_BYTES);
        json.raw(",\"timestamp\":");
        json.time(event.time_unix_nano);
        attributes_of(event.attributes(), json);
        json.raw("},");
        if json.is_full() {
            break;
        }
    }
    json.notes.invalid_values += events.count() as u64;
    json.end(b']');
    json.out.push(b',');
}

/// Writes `,"links":[…]` if there are links, as Sentry's SDKs do (getsentry/sentry-javascript
/// `packages/core/src/utils/spanUtils.ts`, `convertSpanLinksForEnvelope`).
fn links(fields: &OtherSpanFields<'_>, json: &mut Json) {
    json.full = json.out.len().saturating_add(MAX_TRANSACTION_BYTES);
    let mut written = 0;
    for SpanLink { trace_id, span_id, attributes, .. } in fields.links() {
        if TraceId::new(trace_id).is_none() || SpanId::new(span_id).is_none() || written == MAX_EVENTS {
            json.notes.invalid_values += 1;
            continue;
        }
        json.raw(if written == 0 { ",\"links\":[{\"trace_id\":\"" } else { "{\"trace_id\":\"" });
        hex(&mut json.out, trace_id);
        json.raw("\",\"span_id\":\"");
        hex(&mut json.out, span_id);
        json.out.push(b'"');
        attributes_of(attributes, json);
        json.raw("},");
        written += 1;
        if json.is_full() {
            break;
        }
    }
    if written > 0 {
        json.end(b']');
    }
}

/// Writes `,"attributes":{…}` if there are attributes.
fn attributes_of<'a>(attributes: impl Iterator<Item = (&'a str, AnyValue<'a>)>, json: &mut Json) {
    let mut names = UniqueKeys::default();
    let mut open = false;
    for (key, value) in attributes {
        if !names.is_new(key) {
            continue;
        }
        if !std::mem::replace(&mut open, true) {
            json.raw(",\"attributes\":{");
        }
        json.member(key, value, 1);
        if json.is_full() {
            break;
        }
    }
    if open {
        json.end(b'}');
    }
}

/// Appends up to sixteen bytes as lower-case hexadecimal digits.
fn hex(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 32];
    for (pair, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    }
    out.extend_from_slice(&text[..(bytes.len() * 2).min(32)]);
}
