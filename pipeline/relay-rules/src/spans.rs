//! The strict check of a container of spans, version 2: reports what Relay would drop.
//!
//! Relay drops a container with an invalid shape as a whole, and each span that lacks a field; it silently replaces a
//! value of the wrong type by null. Source of the rules: getsentry/relay `relay-server/src/processing/spans`,
//! `relay-server/src/envelope/container.rs` and `relay-event-schema/src/protocol/span_v2.rs`, and the behaviour of its
//! conversion on crafted spans. Stricter than Relay: there are at most 1000 spans, each with a unique id.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::Violation;

/// The largest container, in bytes.
const MAX_BYTES: usize = 12 << 20;

/// Checks the payload of a container whose header states `item_count` spans.
///
/// # Errors
///
/// Every rule that it breaks.
pub fn validate_span_container(payload: &[u8], item_count: usize) -> Result<(), Vec<Violation>> {
    let mut found = Vec::new();
    let mut broken = |place: String, rule: &str| found.push(Violation { place, rule: rule.to_owned() });
    if payload.len() > MAX_BYTES {
        broken("payload".to_owned(), "is larger than 12 MiB");
    }
    let container: Value = serde_json::from_slice(payload).unwrap_or_default();
    if container["version"] != 2 {
        broken("version".to_owned(), "is not 2");
    }
    let items = container["items"].as_array().map_or(&[][..], |items| items);
    if items.len() != item_count || !(1..=1000).contains(&items.len()) {
        broken("items".to_owned(), "are not as many as the header says, or not 1 to 1000");
    }
    let mut ids = BTreeSet::new();
    for (at, span) in items.iter().enumerate() {
        let place = |key: &str| format!("items[{at}].{key}");
        for (key, digits) in [("trace_id", 32), ("span_id", 16)] {
            if !is_id(&span[key], digits) {
                broken(place(key), "is no id");
            }
        }
        if span.get("parent_span_id").is_some_and(|parent| !is_id(parent, 16)) {
            broken(place("parent_span_id"), "is no id");
        }
        if span["trace_id"] != items[0]["trace_id"] {
            broken(place("trace_id"), "is another one than that of the envelope");
        }
        if !ids.insert(span["span_id"].as_str().unwrap_or_default()) {
            broken(place("span_id"), "is there twice");
        }
        if span["name"].as_str().is_none_or(str::is_empty) {
            broken(place("name"), "is missing");
        }
        if !matches!(span["status"].as_str(), Some("ok" | "error")) {
            broken(place("status"), "is neither ok nor error");
        }
        if !span["is_segment"].is_boolean() {
            broken(place("is_segment"), "is no boolean");
        }
        match (span["start_timestamp"].as_f64(), span["end_timestamp"].as_f64()) {
            (Some(start), Some(end)) if start <= end => {}
            _ => broken(place("start_timestamp"), "is missing, or after the end"),
        }
        let none = Map::new();
        let attributes = span["attributes"].as_object().unwrap_or(&none);
        for (key, attribute) in attributes {
            if !has_its_type(attribute) {
                broken(place(&format!("attributes.{key}")), "has a value that does not have its type");
            }
        }
        let segment = attributes.get("sentry.segment.id").map(|attribute| &attribute["value"]);
        if segment.is_some_and(|segment| !is_id(segment, 16)) {
            broken(place("attributes.sentry.segment.id"), "is no id of a span");
        }
        if span["is_segment"] == true && segment.is_some_and(|segment| *segment != span["span_id"]) {
            broken(place("attributes.sentry.segment.id"), "of a segment is not its own");
        }
        for key in ["sentry.profiler_id", "thread.id", "sentry.thread.id"] {
            if attributes.get(key).is_some_and(|attribute| attribute["type"] != "string") {
                broken(place(&format!("attributes.{key}")), "is no text, so no profile is found by it");
            }
        }
    }
    if found.is_empty() { Ok(()) } else { Err(found) }
}

fn is_id(value: &Value, digits: usize) -> bool {
    let is_hexadecimal = |text: &str| text.bytes().all(|digit| digit.is_ascii_hexdigit());
    value
        .as_str()
        .is_some_and(|text| text.len() == digits && is_hexadecimal(text) && text.bytes().any(|digit| digit != b'0'))
}

/// Whether the value of an attribute has the declared type. A null value has none.
fn has_its_type(attribute: &Value) -> bool {
    let value = &attribute["value"];
    match attribute["type"].as_str() {
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64(),
        Some("double") => value.is_number(),
        Some("array") => value.as_array().is_some_and(|values| {
            let kind = |value: &Value| (std::mem::discriminant(value), value.is_f64());
            let is_plain = |value: &Value| !value.is_array() && !value.is_object() && !value.is_null();
            values.iter().all(is_plain) && values.windows(2).all(|pair| kind(&pair[0]) == kind(&pair[1]))
        }),
        _ => value.is_null(),
    }
}
