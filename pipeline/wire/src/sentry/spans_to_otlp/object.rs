//! Converts one span object of Sentry's JSON to OTLP.

use std::collections::HashSet;

use profbridge_model::spans::{ProfilerLink, SpanChanges};
use profbridge_model::{Span, SpanId, SpanKind, TraceId};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{FORM, STREAMED, value, words};
use crate::otlp::traces::encode::{PROFILER_ID, SAMPLE_RATE, THREAD_ID, THREAD_NAME, any_thread_id};
use crate::otlp::traces::write::{SpanFields, any_double, any_text};
use crate::sentry::sampled::text::{Entries, Text};
use crate::sentry::span_writer::SpanObject;

/// Maximum number of keys in an object.
const MAX_KEYS: usize = 1 << 16;

/// Maximum number of a span's links that are converted.
const MAX_LINKS: usize = 1 << 10;

/// Converts a span's object and its changes; `place` is where it names its profiler. Also returns the span's kind.
pub(super) fn span_fields(json: &str, span: &Span, place: SpanObject) -> (SpanFields, SpanKind) {
    let mut parts = SpanParts::default();
    if let Some(SpanChanges { profiler, sample_rate }) = span.changes.as_deref() {
        if let Some(ProfilerLink { profiler_id, thread_id, thread_name }) = profiler {
            parts.attribute(PROFILER_ID, any_text(&profiler_id.to_string()));
            thread_id.iter().for_each(|id| parts.attribute(THREAD_ID, any_thread_id(id)));
            thread_name.iter().for_each(|name| parts.attribute(THREAD_NAME, any_text(name)));
        }
        sample_rate.iter().for_each(|rate| parts.attribute(SAMPLE_RATE, any_double(*rate)));
    }
    match place {
        SpanObject::Transaction => parts.transaction(json),
        SpanObject::Span => parts.span(json, "description"),
        SpanObject::Attributes => {
            parts.span_fields.attributes.text(FORM, STREAMED);
            parts.span(json, "name");
        }
    }
    let is_first = match place {
        SpanObject::Transaction => true,
        SpanObject::Span => false,
        SpanObject::Attributes => span.is_local_root(),
    };
    parts.finish(is_first)
}

#[derive(Default)]
struct SpanParts {
    span_fields: SpanFields,
    /// The keys of the attributes so far.
    keys: HashSet<String>,
    op: String,
    status: String,
    otel_kind: String,
    /// Attributes to add if no other has the same key.
    wanted: Vec<(String, String)>,
}

impl SpanParts {
    fn transaction(&mut self, json: &str) {
        for (key, value) in object(json) {
            match key.as_str() {
                "transaction" => self.span_fields.name = text(value),
                "contexts" => self.contexts(value.get()),
                "tags" => self.tags(value),
                "transaction_info" => self.want_member("sentry.source", value, "source"),
                _ => {}
            }
        }
    }

    fn contexts(&mut self, json: &str) {
        for (key, value) in object(json) {
            match key.as_str() {
                "trace" => object(value.get()).iter().for_each(|(key, value)| self.common(key.as_str(), value)),
                "profile" => self.want_member(PROFILER_ID, value, "profiler_id"),
                _ => {}
            }
        }
    }

    /// Reads a span of either format; `name` is the key of its name.
    fn span(&mut self, json: &str, name: &str) {
        for (key, value) in object(json) {
            match key.as_str() {
                key if key == name => self.span_fields.name = text(value),
                "tags" => self.tags(value),
                key => self.common(key, value),
            }
        }
    }

    /// Reads the keys that a transaction's trace context and spans of both formats share.
    fn common(&mut self, key: &str, value: &RawValue) {
        match key {
            "data" => self.data(value.get(), Some),
            "attributes" => self.data(value.get(), |mut value| value.get_mut("value").map(Value::take)),
            "op" => {
                self.op = text(value);
                self.want("sentry.op", self.op.clone());
            }
            "origin" => self.want("sentry.origin", text(value)),
            "status" => self.status = text(value),
            "links" => self.links(value.get()),
            _ => {}
        }
    }

    /// Converts the entries of an object to attributes; `value_of` extracts the value of each.
    fn data(&mut self, json: &str, value_of: impl Fn(Value) -> Option<Value>) {
        for (key, raw) in object(json) {
            let Some(value) = serde_json::from_str(raw.get()).ok().and_then(&value_of) else { continue };
            match (key.as_str(), value.as_str()) {
                ("otel.kind", Some(kind)) => self.otel_kind = kind.to_owned(),
                ("sentry.op", Some(op)) if self.op.is_empty() => self.op = op.to_owned(),
                ("profiler_id", Some(id)) => {
                    self.want(PROFILER_ID, id.to_owned());
                    continue;
                }
                _ => {}
            }
            match (key.as_str(), value.as_str()) {
                (THREAD_ID, Some(id)) => self.attribute(THREAD_ID, any_thread_id(id)),
                (key, _) if !value.is_null() => self.attribute(key, value::any(&value)),
                _ => {}
            }
        }
    }

    /// Adds an attribute, unless its key exists.
    fn attribute(&mut self, key: &str, value: Vec<u8>) {
        if key != FORM && !key.is_empty() && self.keys.insert(key.to_owned()) {
            self.span_fields.attributes.add(key, value);
        }
    }

    fn want(&mut self, key: &str, text: String) {
        self.wanted.push((key.to_owned(), text));
    }

    /// Stores a member of an object as an attribute to add if its key does not exist.
    fn want_member(&mut self, key: &str, json: &RawValue, member: &str) {
        let found = object(json.get()).into_iter().find(|(key, _)| key.as_str() == member);
        self.want(key, found.map(|(_, value)| text(value)).unwrap_or_default());
    }

    /// Tags are an object, or a list of pairs.
    fn tags(&mut self, value: &RawValue) {
        match serde_json::from_str(value.get()) {
            Ok(Value::Object(tags)) => {
                let tags = tags.into_iter().filter_map(|(key, value)| Some((key, value.as_str()?.to_owned())));
                self.wanted.extend(tags);
            }
            Ok(Value::Array(tags)) => {
                let pair = |tag: &Value| Some((tag.get(0)?.as_str()?.to_owned(), tag.get(1)?.as_str()?.to_owned()));
                self.wanted.extend(tags.iter().filter_map(pair));
            }
            _ => {}
        }
    }

    fn links(&mut self, json: &str) {
        #[derive(Deserialize)]
        #[serde(bound(deserialize = "'de: 'a"))]
        struct SpanLinkJson<'a> {
            trace_id: Text<'a>,
            span_id: Text<'a>,
        }
        let links: Vec<&RawValue> = serde_json::from_str(json).unwrap_or_default();
        let links = links.into_iter().take(MAX_LINKS).filter_map(|link| {
            let link: SpanLinkJson<'_> = serde_json::from_str(link.get()).ok()?;
            Some((TraceId::parse(link.trace_id.as_str())?, SpanId::parse(link.span_id.as_str())?))
        });
        self.span_fields.links = links.collect();
    }

    /// Finishes the span. `is_first` means that it is the first span of its process.
    fn finish(mut self, is_first: bool) -> (SpanFields, SpanKind) {
        for (key, text) in std::mem::take(&mut self.wanted) {
            if !text.is_empty() {
                self.attribute(&key, any_text(&text));
            }
        }
        let kind = words::kind(&self.op, &self.otel_kind, is_first);
        (self.span_fields.status_code, self.span_fields.status_message) = words::status(&self.status);
        if self.span_fields.name.is_empty() {
            self.span_fields.name = self.op;
        }
        (self.span_fields, kind)
    }
}

/// The members of an object; empty if it is not an object, has too many members, or has an invalid key.
fn object(json: &str) -> Vec<(Text<'_>, &RawValue)> {
    serde_json::from_str::<Entries<'_, &RawValue, MAX_KEYS>>(json).unwrap_or_default().0
}

/// A text value; empty if it is something else.
fn text(value: &RawValue) -> String {
    serde_json::from_str(value.get()).unwrap_or_default()
}
