//! Converts OTLP spans to a container of spans, version 2 (Sentry developer documentation, "Span Protocol").
//!
//! | in OTLP | in the container |
//! | --- | --- |
//! | ids, times, name | the same; one without a name is called `db`, `http.server` and so on, or `unknown` |
//! | no parent, one in another process, or the kind server or consumer | `is_segment` |
//! | status | `error`, or `ok`; its message is the attribute `sentry.status.message` |
//! | attributes | the same, each with its type; `thread.id` as text, lists of different types and maps as JSON, bytes |
//! | | as text if they are UTF-8, else as base64; NaN, infinities, other thread ids are left out and counted |
//! | the profiler and the thread that were found | attributes `sentry.profiler_id`, `thread.id`, `thread.name` |
//! | links, with W3C's flag if it is known | links |
//!
//! A span that was never in a container (it has no `sentry.form`) also gets, where it has no such attribute itself:
//!
//! | from | attribute |
//! | --- | --- |
//! | kind, whether the parent is remote | `sentry.kind`, `sentry.is_remote` |
//! | the first span of its process above it in the batch | `sentry.segment.id`, `sentry.segment.name` |
//! | the resource | `resource.KEY`; `sentry.release`, `sentry.environment`, `sentry.platform`, `server.address` |
//! | the scope | `instrumentation.KEY`, `instrumentation.name`, `instrumentation.version` |
//! | the rate, see [`client_sample_rate`] | `sentry.client_sample_rate` |
//! | the thread | `sentry.thread.id` |
//! | | `sentry.origin` is `auto.otlp.spans`; `sentry.sdk.name`, `sentry.sdk.version` |
//!
//! Operation and description are left to Relay, which infers them from the attributes. Events are left out, because the
//! container has no place for them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use profbridge_model::spans::{ProfilerLink, SpanKind, SpanResource};
use profbridge_model::{Item, Span, SpanForm, SpanId, Spans, TraceId};
use serde_json::{Map, Value, json};

use super::chunk_envelope::SDK_NAME;
use super::otlp_spans::{CLIENT_SAMPLE_RATE, client_sample_rate};
use super::span_v2_reader::CONTENT_TYPE;
use super::transaction::TransactionResource;
use crate::otlp::traces::decode::FORM;
use crate::otlp::traces::encode::{PROFILER_ID, THREAD_ID, THREAD_NAME};
use crate::otlp::traces::read::{resource_attributes, scope_attributes, scope_name};
use crate::otlp::traces::{AnyValue, OtherSpanFields, SpanLink};

/// The size that a container should not exceed, in bytes; Relay takes 12 MiB (getsentry/relay
/// `relay-config/src/config.rs`, `max_container_size`).
const MAX_PAYLOAD: usize = 10 << 20;

/// The origin of converted spans, the same as Relay gives to spans of its OTLP endpoint (getsentry/relay
/// `relay-spans/src/otel_to_sentry_v2.rs`).
const ORIGIN: &str = "auto.otlp.spans";

/// The attributes that the spans of one process share.
#[derive(Debug)]
pub struct ProcessAttributes {
    shared: Map<String, Value>,
    /// The number of values that Sentry cannot represent.
    invalid: u64,
}

impl ProcessAttributes {
    /// The attributes that follow from a resource of this batch. `about` is the same resource, prepared for
    /// transactions.
    pub fn of(spans: &Spans, resource: &SpanResource, about: &TransactionResource) -> Self {
        let received = || resource_attributes(spans, resource);
        let added = resource.added.iter().map(|(key, value)| (&**key, AnyValue::Text(value)));
        let (mut shared, mut invalid) = (Map::new(), 0);
        let own = [
            ("sentry.release", about.release.as_deref()),
            ("sentry.environment", about.environment.as_deref()),
            ("sentry.platform", Some(about.platform)),
            ("sentry.origin", Some(ORIGIN)),
            ("sentry.sdk.name", Some(SDK_NAME)),
            ("sentry.sdk.version", Some(env!("CARGO_PKG_VERSION"))),
        ];
        for (key, value) in own {
            shared.extend(value.map(|value| (key.to_owned(), text(value))));
        }
        for (key, value) in received().chain(added) {
            if let ("host.name", Some(host)) = (key, value.text()) {
                shared.entry("server.address").or_insert_with(|| text(host));
            }
            match typed(value) {
                Some(value) => {
                    shared.entry(format!("resource.{key}")).or_insert(value);
                }
                None => invalid += 1,
            }
        }
        Self { shared, invalid }
    }
}

/// A container of spans of one process, and the number of values that are left out because Sentry cannot represent
/// them. `None` if the spans are not OTLP, or if the container would exceed Sentry's size limit.
pub fn item(spans: &Spans, group: &[Span], process: &ProcessAttributes) -> Option<(Item, u64)> {
    if spans.form() != SpanForm::Otlp {
        return None;
    }
    let mut invalid = process.invalid;
    let items: Vec<Value> = group.iter().map(|span| element(spans, span, process, &mut invalid)).collect();
    let payload = json!({ "version": 2, "items": items }).to_string();
    if payload.len() > MAX_PAYLOAD {
        return None;
    }
    let header = json!({
        "type": "span",
        "item_count": items.len(),
        "content_type": CONTENT_TYPE,
        "length": payload.len(),
    });
    Some((Item { header: header.to_string().into(), payload: payload.into() }, invalid))
}

/// A span of a container. Values that Sentry cannot represent are added to `invalid`.
fn element(spans: &Spans, span: &Span, process: &ProcessAttributes, invalid: &mut u64) -> Value {
    let fields = OtherSpanFields::of(spans, span);
    let was_in_container = fields.attributes().find(FORM).is_some();
    let mut attributes = attributes(fields.attributes(), invalid);
    if !fields.status_message.is_empty() {
        attributes.entry("sentry.status.message").or_insert_with(|| text(fields.status_message));
    }
    let found = span.changes.as_ref().and_then(|changes| changes.profiler.as_ref());
    if let Some(ProfilerLink { profiler_id, thread_id, thread_name }) = found {
        attributes.insert(PROFILER_ID.to_owned(), text(&profiler_id.to_string()));
        for (key, found) in [(THREAD_ID, thread_id), (THREAD_NAME, thread_name)] {
            attributes.extend(found.as_ref().map(|found| (key.to_owned(), text(found))));
        }
    }
    if !was_in_container {
        complete(spans, span, process, &mut attributes, invalid);
    }
    let mut object = json!({
        "trace_id": span.trace_id.to_string(),
        "span_id": span.span_id.to_string(),
        "name": name(&fields, span),
        "status": if fields.status_code == 2 { "error" } else { "ok" },
        "is_segment": span.is_local_root(),
        "start_timestamp": seconds(span.start_unix_nano),
        "end_timestamp": seconds(span.end_unix_nano),
        "attributes": attributes,
    });
    if let Some(parent) = span.parent_span_id {
        object["parent_span_id"] = parent.to_string().into();
    }
    let links: Vec<Value> = fields.links().filter_map(|of| link(of, invalid)).collect();
    if !links.is_empty() {
        object["links"] = links.into();
    }
    object
}

/// The name of a span, which Sentry requires. A span without a name gets its operation, as in Relay.
fn name<'a>(fields: &OtherSpanFields<'a>, span: &Span) -> &'a str {
    if !fields.name.is_empty() {
        return fields.name;
    }
    let has = |keys: [&str; 2]| keys.iter().any(|key| fields.attributes().find(key).is_some());
    match span.kind {
        _ if has(["db.system.name", "db.system"]) => "db",
        _ if !has(["http.request.method", "http.method"]) => "unknown",
        SpanKind::Server => "http.server",
        SpanKind::Client => "http.client",
        _ => "http",
    }
}

/// Adds attributes that a container's span needs, from the places where OTLP has the same data.
fn complete(
    spans: &Spans,
    span: &Span,
    process: &ProcessAttributes,
    attributes: &mut Map<String, Value>,
    invalid: &mut u64,
) {
    let mut add = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            attributes.entry(key).or_insert(value);
        }
    };
    let kind = match span.kind {
        SpanKind::Unspecified => None,
        SpanKind::Internal => Some("internal"),
        SpanKind::Server => Some("server"),
        SpanKind::Client => Some("client"),
        SpanKind::Producer => Some("producer"),
        SpanKind::Consumer => Some("consumer"),
    };
    add("sentry.kind", kind.map(text));
    add("sentry.is_remote", span.parent_is_remote.map(|is_remote| json!({ "value": is_remote, "type": "boolean" })));
    let segment = span.segment.and_then(|segment| spans.spans().get(segment.number as usize));
    if let Some(segment) = segment.filter(|segment| segment.is_local_root() && segment.trace_id == span.trace_id) {
        add("sentry.segment.id", Some(text(&segment.span_id.to_string())));
        add("sentry.segment.name", Some(text(name(&OtherSpanFields::of(spans, segment), segment))));
    }
    let rate = client_sample_rate(spans, span);
    add(CLIENT_SAMPLE_RATE, rate.map(|rate| json!({ "value": rate, "type": "double" })));
    let scope = spans.scope_of(span);
    let (name, version) = scope_name(spans, scope);
    add("instrumentation.name", Some(name).filter(|name| !name.is_empty()).map(text));
    add("instrumentation.version", Some(version).filter(|version| !version.is_empty()).map(text));
    for (key, value) in scope_attributes(spans, scope) {
        let value = typed(value);
        *invalid += u64::from(value.is_none());
        add(&format!("instrumentation.{key}"), value);
    }
    for (key, value) in &process.shared {
        add(key, Some(value.clone()));
    }
    if let Some(thread) = attributes.get(THREAD_ID).cloned() {
        attributes.entry("sentry.thread.id").or_insert(thread);
    }
}

/// Attributes with their types. Of duplicate keys the first one counts. Values that Sentry cannot represent are added
/// to `invalid`.
fn attributes<'a>(all: impl Iterator<Item = (&'a str, AnyValue<'a>)>, invalid: &mut u64) -> Map<String, Value> {
    let mut typed = Map::new();
    for (key, value) in all.filter(|(key, _)| *key != FORM) {
        let value = match key {
            THREAD_ID => value.thread_id().map(|id| text(&id)),
            _ => self::typed(value),
        };
        match value {
            Some(value) => {
                typed.entry(key).or_insert(value);
            }
            None => *invalid += 1,
        }
    }
    typed
}

/// A value with its type. `None` for NaN and infinities.
fn typed(value: AnyValue<'_>) -> Option<Value> {
    match value {
        AnyValue::Bytes(bytes) => Some(match std::str::from_utf8(bytes) {
            Ok(readable) => text(readable),
            Err(_) => text(&STANDARD.encode(bytes)),
        }),
        AnyValue::Double(number) if !number.is_finite() => None,
        value => Some(typed_value(json(value))),
    }
}

/// Converts an `AnyValue` to JSON. Values without a JSON form become `null` (NaN and infinities) or base64 (bytes), as
/// in OTLP's own JSON.
pub(super) fn json(value: AnyValue<'_>) -> Value {
    match value {
        AnyValue::Empty => Value::Null,
        AnyValue::Text(text) => text.into(),
        AnyValue::Bool(is_true) => is_true.into(),
        AnyValue::Int(number) => number.into(),
        AnyValue::Double(number) => number.into(),
        AnyValue::Bytes(bytes) => STANDARD.encode(bytes).into(),
        AnyValue::Array(values) => values.map(json).collect(),
        AnyValue::KeyValueList(members) => members.map(|(key, value)| (key.to_owned(), json(value))).collect(),
    }
}

/// Adds the type to a value (getsentry/relay `relay-event-schema/src/protocol/attributes.rs`).
fn typed_value(value: Value) -> Value {
    let kind = match &value {
        Value::Null => return json!({ "value": null }),
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "double",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(values) if is_of_one_type(values) => "array",
        Value::Array(_) | Value::Object(_) => return text(&value.to_string()),
    };
    json!({ "value": value, "type": kind })
}

fn text(text: &str) -> Value {
    json!({ "value": text, "type": "string" })
}

/// Whether Sentry accepts a list: all values have the same type, and none is a list or an object.
fn is_of_one_type(values: &[Value]) -> bool {
    let is_plain = |value: &Value| matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_));
    let kind = |value: &Value| (std::mem::discriminant(value), value.is_f64());
    values.iter().all(is_plain) && values.windows(2).all(|pair| kind(&pair[0]) == kind(&pair[1]))
}

/// A time in seconds since the Unix epoch, to the microsecond, which is Sentry's precision.
fn seconds(unix_nano: u64) -> f64 {
    (unix_nano.saturating_add(500) / 1_000) as f64 / 1e6
}

fn link(link: SpanLink<'_>, invalid: &mut u64) -> Option<Value> {
    let (trace_id, span_id) = (TraceId::new(link.trace_id)?, SpanId::new(link.span_id)?);
    let mut written = json!({ "trace_id": trace_id.to_string(), "span_id": span_id.to_string() });
    if link.flags != 0 {
        written["sampled"] = (link.flags & 1 == 1).into();
    }
    let of_link = attributes(link.attributes, invalid);
    if !of_link.is_empty() {
        written["attributes"] = of_link.into();
    }
    Some(written)
}

#[cfg(test)]
mod tests;
