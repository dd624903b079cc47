//! OTLP spans that were Sentry's become what they were: the way back of [`spans_to_otlp`](super::spans_to_otlp), whose
//! text says how they are told and what is where.
//!
//! An item that comes back says what it said, in another order of its keys and elements, with times within a
//! microsecond. What was found out about its spans in between is in it: attributes that were added, a profiler,
//! children. An attribute that only repeats something for readers of OTLP changes nothing.

use std::collections::HashSet;
use std::sync::Arc;

use profbridge_model::spans::{ProfilerLink, SpanChanges};
use profbridge_model::{Item, ProfilerId, Span, SpanForm, Spans};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use uuid::Uuid;

use super::envelope;
use super::sampled::text::Entries;
use super::span_v2_reader;
use super::span_writer::{Place, set_link};
use super::spans_to_otlp::{COPIES, FORM, REST, STREAMED, UNNAMED, is_own, value};
use super::{splice, transaction_reader};
use crate::otlp::traces::encode::{PROFILER_ID, THREAD_ID, THREAD_NAME};
use crate::otlp::traces::{AnyValue, Fields};

/// An item that came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Returned {
    /// The item: a transaction, or a container of spans.
    pub item: Item,
    /// The transaction's `event_id`, which belongs into the envelope's header.
    pub event_id: Option<String>,
}

/// The item that the spans of one segment were. `None` where its first span, or the one that it is made of, was no
/// transaction and no span of a container: then it was never Sentry's, or has lost what is needed for the way back; and
/// where the item would be larger than Sentry takes.
pub fn item(spans: &Spans, segment: &[Span]) -> Option<Returned> {
    if spans.form() != SpanForm::Otlp {
        return None;
    }
    let is_root = |span: &&Span| span.segment.is_some_and(|segment| segment.is_root);
    let root = segment.iter().find(is_root).or(segment.first())?;
    let parts = Parts::of(spans, root);
    match parts.form {
        "transaction" => transaction(spans, segment, root, &parts),
        STREAMED => container(spans, segment),
        _ => None,
    }
}

fn transaction(spans: &Spans, segment: &[Span], root: &Span, parts: &Parts<'_>) -> Option<Returned> {
    let rest = parts.rest?;
    let trace = splice::get(rest, &["contexts", "trace"]).unwrap_or("{}");
    let trace = with_data(&with_ids(trace, root)?, "data", parts)?;
    let children = segment.iter().filter(|span| !std::ptr::eq(*span, root)).map(|span| child(spans, span));
    let children: Vec<String> = children.collect::<Option<_>>()?;
    let mut json = splice::set(rest.as_bytes(), &["contexts", "trace"], &trace).ok()?;
    let list = splice::get(rest, &["spans"]);
    if list.is_some() || !children.is_empty() {
        let list = splice::extended(
            list.filter(|list| list.starts_with('[')).unwrap_or("[]"),
            children.iter().map(|child| &**child),
        );
        json = splice::set(&json, &["spans"], &list).ok()?;
    }
    let mut more = times(root, "timestamp").to_vec();
    more.extend(parts.name.map(|name| member("transaction", &Value::from(name).to_string())));
    let mut json = with_members(std::str::from_utf8(&json).ok()?, &more)?.into_bytes();
    link(&mut json, Place::Transaction, root, parts);
    if json.len() > transaction_reader::MAX_BYTES {
        return None;
    }
    let event_id = splice::get(rest, &["event_id"]).and_then(|id| serde_json::from_str(id).ok());
    Some(Returned { item: envelope::item("transaction", Some("application/json"), json), event_id })
}

/// A span of a transaction.
fn child(spans: &Spans, span: &Span) -> Option<String> {
    let parts = Parts::of(spans, span);
    // What joined the transaction on the way says only what OTLP has.
    let rest = parts.rest.filter(|_| parts.form == "span").unwrap_or("{}");
    let json = with_data(&with_ids(rest, span)?, "data", &parts)?;
    let mut more = times(span, "timestamp").to_vec();
    more.extend(parts.name.map(|name| member("description", &Value::from(name).to_string())));
    let mut json = with_members(&json, &more)?.into_bytes();
    link(&mut json, Place::Span, span, &parts);
    String::from_utf8(json).ok()
}

fn container(spans: &Spans, segment: &[Span]) -> Option<Returned> {
    let items = segment.iter().map(|span| {
        let parts = Parts::of(spans, span);
        let rest = parts.rest.filter(|_| parts.form == STREAMED);
        // What is left of one that somebody has broken is what OTLP says.
        rest.and_then(|rest| element(span, &parts, rest)).or_else(|| element(span, &parts, "{}"))
    });
    let items: Vec<String> = items.collect::<Option<_>>()?;
    let payload = format!("{{\"version\":2,\"items\":[{}]}}", items.join(","));
    if payload.len() > span_v2_reader::MAX_BYTES {
        return None;
    }
    let header = json!({
        "type": "span",
        "item_count": items.len(),
        "content_type": span_v2_reader::CONTENT_TYPE,
        "length": payload.len(),
    });
    Some(Returned { item: Item { header: header.to_string().into(), payload: payload.into() }, event_id: None })
}

/// A span of a container, whose own JSON is `rest` without what stands in OTLP's fields.
fn element(span: &Span, parts: &Parts<'_>, rest: &str) -> Option<String> {
    let json = with_data(&with_ids(rest, span)?, "attributes", parts)?;
    let mut more = times(span, "end_timestamp").to_vec();
    more.extend(parts.name.map(|name| member("name", &Value::from(name).to_string())));
    let mut json = with_members(&json, &more)?.into_bytes();
    link(&mut json, Place::Attributes, span, parts);
    String::from_utf8(json).ok()
}

/// What a span says of Sentry's.
struct Parts<'a> {
    form: &'a str,
    /// The JSON object that has what OTLP has no place for.
    rest: Option<&'a str>,
    /// The name, where it is not a copy.
    name: Option<&'a str>,
    /// The attributes that are not copies.
    attributes: Vec<(&'a str, AnyValue<'a>)>,
}

impl<'a> Parts<'a> {
    fn of(spans: &'a Spans, span: &Span) -> Self {
        let fields = Fields::of(spans, span);
        let (mut form, mut rest, mut is_named) = ("", None, true);
        let mut copies: HashSet<&str> = HashSet::new();
        for (key, value) in fields.attributes() {
            match (key, value) {
                (FORM, AnyValue::Text(text)) => form = text,
                (REST, AnyValue::Text(text)) => rest = Some(text).filter(|text| text.starts_with('{')),
                (UNNAMED, AnyValue::Bool(is_unnamed)) => is_named = !is_unnamed,
                (COPIES, AnyValue::Array(keys)) => copies.extend(keys.filter_map(AnyValue::text)),
                _ => {}
            }
        }
        let attributes = fields.attributes().filter(|(key, _)| !is_own(key) && !copies.contains(key)).collect();
        Self { form, rest, name: is_named.then_some(fields.name), attributes }
    }

    fn text(&self, key: &str) -> Option<String> {
        let (_, value) = self.attributes.iter().find(|(known, _)| *known == key)?;
        match value {
            AnyValue::Text(text) => Some((*text).to_owned()),
            AnyValue::Int(number) => Some(number.to_string()),
            _ => None,
        }
    }
}

/// An object with what stands in fields of a span: its ids.
fn with_ids(json: &str, span: &Span) -> Option<String> {
    let id = |key: &str, id: &dyn std::fmt::Display| member(key, &format!("\"{id}\""));
    let mut ids = vec![id("trace_id", &span.trace_id), id("span_id", &span.span_id)];
    ids.extend(span.parent_span_id.map(|parent| id("parent_span_id", &parent)));
    with_members(json, &ids)
}

/// An object with the attributes of a span under a key.
fn with_data(json: &str, key: &str, parts: &Parts<'_>) -> Option<String> {
    let left = splice::get(json, &[key]);
    let takes_more = left.is_none_or(|left| left.starts_with('{') || left == "null");
    if parts.attributes.is_empty() || !takes_more {
        return Some(json.to_owned());
    }
    let members = parts.attributes.iter().map(|(name, value)| {
        let value = value::json(*value);
        let value = if key == "attributes" { value::typed(&value) } else { value };
        member(name, &value.to_string()).1
    });
    let members: Vec<String> = members.collect();
    let data = splice::extended("{}", members.iter().map(|member| &**member));
    // Of a key that stands there twice the last counts, which was left.
    let left = left.filter(|left| left.starts_with('{')).map_or("", |left| left[1..left.len() - 1].trim());
    let data = splice::extended(&data, Some(left).filter(|left| !left.is_empty()));
    let set = splice::set(json.as_bytes(), &[key], &data).ok()?;
    String::from_utf8(set).ok()
}

/// When a span began and ended, the latter under a key: seconds since the Unix epoch.
fn times(span: &Span, end: &str) -> [(String, String); 2] {
    let seconds = |nanos: u64| format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    [member("start_timestamp", &seconds(span.start_unix_nano)), member(end, &seconds(span.end_unix_nano))]
}

/// A key, and it with its value as they stand in an object.
fn member(key: &str, json: &str) -> (String, String) {
    (key.to_owned(), format!("{}:{json}", Value::from(key)))
}

/// An object with those members whose keys it has not: what stands there was kept because it is written in its own way.
fn with_members(json: &str, members: &[(String, String)]) -> Option<String> {
    const MAX_KEYS: usize = 1 << 16;
    let known: Entries<'_, &RawValue, MAX_KEYS> = serde_json::from_str(json).ok()?;
    let is_known = |key: &str| known.0.iter().any(|(known, _)| known.as_str() == key);
    let new = members.iter().filter(|(key, _)| !is_known(key)).map(|(_, member)| &**member);
    Some(splice::extended(json, new))
}

/// Names the profiler that was found out on the way, here or by somebody before: an attribute that is no copy.
fn link(json: &mut Vec<u8>, place: Place, span: &Span, parts: &Parts<'_>) {
    let mut changes = span.changes.as_deref().cloned().unwrap_or_default();
    if changes.profiler.is_none() && place != Place::Attributes {
        let profiler = parts.text(PROFILER_ID).and_then(|id| Uuid::try_parse(&id).ok());
        changes.profiler = profiler.map(|id| ProfilerLink {
            profiler_id: ProfilerId::from_uuid(id),
            thread_id: parts.text(THREAD_ID).map(Arc::from),
            thread_name: parts.text(THREAD_NAME).map(Arc::from),
        });
    }
    set_link(json, place, &SpanChanges { sample_rate: None, ..changes });
}
