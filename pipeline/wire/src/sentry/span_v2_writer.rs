//! Converts OTLP spans to a container of spans, version 2 (Sentry developer documentation, "Span Protocol").
//!
//! | in OTLP | in the container |
//! | --- | --- |
//! | ids, times, name | the same; a span without a name is called `unknown`, since Sentry takes none without |
//! | no parent, one in another process, or the kind server or consumer | `is_segment` |
//! | status | `error`, or `ok`; its message is the attribute `sentry.status.message` |
//! | attributes | the same, each with its type; `thread.id` as text, lists of different types and maps as JSON |
//! | the profiler and the thread that were found | attributes `sentry.profiler_id`, `thread.id`, `thread.name` |
//! | links | links |
//!
//! Events and the data of resource and scope are left out, because the container has no place for them. The sample rate
//! determined on the way is in the envelope's header.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use profbridge_model::spans::ProfilerLink;
use profbridge_model::{Item, Span, SpanForm, SpanId, Spans, TraceId};
use serde_json::{Map, Value, json};

use super::span_v2_reader::{CONTENT_TYPE, MAX_BYTES};
use crate::otlp::traces::decode::FORM;
use crate::otlp::traces::encode::{PROFILER_ID, THREAD_ID, THREAD_NAME};
use crate::otlp::traces::{AnyValue, Fields};

/// A container of spans. `None` if they are not OTLP, or if it would exceed Sentry's size limit.
pub fn item(spans: &Spans, group: &[Span]) -> Option<Item> {
    if spans.form() != SpanForm::Otlp {
        return None;
    }
    let items: Vec<Value> = group.iter().map(|span| element(spans, span)).collect();
    let payload = json!({ "version": 2, "items": items }).to_string();
    if payload.len() > MAX_BYTES {
        return None;
    }
    let header = json!({
        "type": "span",
        "item_count": items.len(),
        "content_type": CONTENT_TYPE,
        "length": payload.len(),
    });
    Some(Item { header: header.to_string().into(), payload: payload.into() })
}

/// A span of a container.
fn element(spans: &Spans, span: &Span) -> Value {
    let fields = Fields::of(spans, span);
    let mut attributes = attributes(fields.attributes());
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
    let mut object = json!({
        "trace_id": span.trace_id.to_string(),
        "span_id": span.span_id.to_string(),
        "name": if fields.name.is_empty() { "unknown" } else { fields.name },
        "status": if fields.status_code == 2 { "error" } else { "ok" },
        "is_segment": span.is_local_root(),
        "start_timestamp": seconds(span.start_unix_nano),
        "end_timestamp": seconds(span.end_unix_nano),
        "attributes": attributes,
    });
    if let Some(parent) = span.parent_span_id {
        object["parent_span_id"] = parent.to_string().into();
    }
    let links: Vec<Value> = fields.links().filter_map(link).collect();
    if !links.is_empty() {
        object["links"] = links.into();
    }
    object
}

/// Attributes with their types. Of duplicate keys the first one counts.
fn attributes<'a>(all: impl Iterator<Item = (&'a str, AnyValue<'a>)>) -> Map<String, Value> {
    let mut typed = Map::new();
    for (key, value) in all.filter(|(key, _)| *key != FORM) {
        let value = match (key, value) {
            (THREAD_ID, AnyValue::Int(number)) => text(&number.to_string()),
            (_, value) => typed_value(json(value)),
        };
        typed.entry(key).or_insert(value);
    }
    typed
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

fn link<'a>(
    (trace, span, of_link): (&'a [u8], &'a [u8], impl Iterator<Item = (&'a str, AnyValue<'a>)>),
) -> Option<Value> {
    let mut link = json!({ "trace_id": TraceId::new(trace)?.to_string(), "span_id": SpanId::new(span)?.to_string() });
    let of_link = attributes(of_link);
    if !of_link.is_empty() {
        link["attributes"] = of_link.into();
    }
    Some(link)
}

#[cfg(test)]
mod tests;
