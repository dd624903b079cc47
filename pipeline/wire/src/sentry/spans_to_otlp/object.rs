//! One object of Sentry's JSON is taken apart: what has a place in OTLP, and the rest.

use std::collections::HashSet;

use profbridge_model::{Span, SpanId, SpanKind, TraceId};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{COPIES, FORM, REST, STREAMED, UNNAMED, is_own, value, words};
use crate::otlp::traces::encode::{PROFILER_ID, SAMPLE_RATE};
use crate::otlp::traces::write::{KeyValues, Said, any_array, any_bool, any_double, any_text};
use crate::sentry::sampled::text::{Entries, Text};
use crate::sentry::span_writer::Place;

/// The most keys of an object.
const MAX_KEYS: usize = 1 << 16;

/// The most links of a span that become links.
const MAX_LINKS: usize = 1 << 10;

type Object<'a> = Entries<'a, &'a RawValue, MAX_KEYS>;

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form<'a> {
    /// A transaction, and the elements of its list of spans that could not be read.
    Transaction { unread: &'a [&'a str] },
    /// A span of a transaction.
    Span,
    /// A span of a container.
    Container,
}

impl Form<'_> {
    /// Where it names its profiler.
    pub(super) fn place(self) -> Place {
        match self {
            Self::Transaction { .. } => Place::Transaction,
            Self::Span => Place::Span,
            Self::Container => Place::Attributes,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Transaction { .. } => "transaction",
            Self::Span => "span",
            Self::Container => STREAMED,
        }
    }
}

/// Takes the object of a span apart, which was kept with this rate where one is given.
pub(super) fn take_apart(json: &str, span: &Span, form: Form<'_>, rate: Option<f64>) -> (Said, SpanKind) {
    let mut parts = Parts { rate, ..Parts::new(span) };
    let rest = match form {
        Form::Transaction { unread } => parts.transaction(json, unread),
        Form::Span => parts.span(json, "timestamp", "description"),
        Form::Container => {
            parts.attributes_in = "attributes";
            parts.span(json, "end_timestamp", "name")
        }
    };
    // What cannot be taken apart is the rest as a whole.
    let rest = rest.unwrap_or_else(|| json.to_owned());
    parts.finish(&rest, form)
}

struct Parts<'s> {
    span: &'s Span,
    rate: Option<f64>,
    /// The key of the object whose members become attributes.
    attributes_in: &'static str,
    said: Said,
    /// Whether the name is that of the object.
    is_named: bool,
    /// The keys of the attributes.
    keys: HashSet<String>,
    copies: Vec<Vec<u8>>,
    op: String,
    status: String,
    otel_kind: String,
    /// Attributes to be added where no other has their key.
    wanted: Vec<(String, String)>,
}

impl<'s> Parts<'s> {
    fn new(span: &'s Span) -> Self {
        Self {
            span,
            rate: None,
            attributes_in: "data",
            said: Said::default(),
            is_named: false,
            keys: HashSet::new(),
            copies: Vec::new(),
            op: String::new(),
            status: String::new(),
            otel_kind: String::new(),
            wanted: Vec::new(),
        }
    }

    fn transaction(&mut self, json: &str, unread: &[&str]) -> Option<String> {
        let mut rest = Rest::default();
        for (key, value) in object(json)?.0 {
            match key.as_str() {
                "start_timestamp" | "timestamp" => {}
                "transaction" if self.name(value) => {}
                "spans" if value.get().starts_with('[') => rest.add("spans", &format!("[{}]", unread.join(","))),
                "contexts" => rest.add("contexts", &self.contexts(value.get())?),
                key => {
                    if key == "tags" {
                        self.tags(value);
                    }
                    rest.add(key, value.get());
                }
            }
        }
        Some(rest.finish())
    }

    fn contexts(&mut self, json: &str) -> Option<String> {
        let mut rest = Rest::default();
        for (key, value) in object(json)?.0 {
            match key.as_str() {
                "trace" => {
                    let mut trace = Rest::default();
                    for (key, value) in object(value.get())?.0 {
                        if !self.common(key.as_str(), value, &mut trace) {
                            trace.add(key.as_str(), value.get());
                        }
                    }
                    rest.add("trace", &trace.finish());
                }
                key => {
                    if key == "profile" {
                        self.profiler_in(value.get());
                    }
                    rest.add(key, value.get());
                }
            }
        }
        Some(rest.finish())
    }

    /// A span of either form, where these are the keys of its end and of its name.
    fn span(&mut self, json: &str, end: &str, name: &str) -> Option<String> {
        let mut rest = Rest::default();
        for (key, value) in object(json)?.0 {
            match key.as_str() {
                "start_timestamp" => {}
                key if key == end => {}
                key if key == name && self.name(value) => {}
                key if self.common(key, value, &mut rest) => {}
                key => {
                    // Spans of the second form have attributes instead.
                    if key == "tags" && self.attributes_in == "data" {
                        self.tags(value);
                    }
                    rest.add(key, value.get());
                }
            }
        }
        Some(rest.finish())
    }

    /// Takes what the trace context of a transaction and spans of both forms have in common. Says whether that was all
    /// that is to be done with it.
    fn common(&mut self, key: &str, value: &RawValue, rest: &mut Rest) -> bool {
        match key {
            "trace_id" => text(value).is_some_and(|id| id == self.span.trace_id.to_string()),
            "span_id" => text(value).is_some_and(|id| id == self.span.span_id.to_string()),
            "parent_span_id" => {
                let parent = self.span.parent_span_id.map(|id| id.to_string());
                parent.is_some() && text(value) == parent
            }
            key if key == self.attributes_in && value.get().starts_with('{') => {
                let left = if key == "data" { self.data(value.get()) } else { self.attributes(value.get()) };
                left.is_some_and(|left| {
                    rest.add(key, &left);
                    true
                })
            }
            "op" => {
                self.op = text(value).unwrap_or_default();
                self.wanted.push(("sentry.op".to_owned(), self.op.clone()));
                false
            }
            "origin" => {
                self.wanted.push(("sentry.origin".to_owned(), text(value).unwrap_or_default()));
                false
            }
            "status" => {
                self.status = text(value).unwrap_or_default();
                false
            }
            "links" => {
                self.links(value.get());
                false
            }
            _ => false,
        }
    }

    /// Takes the name, where it is text.
    fn name(&mut self, value: &RawValue) -> bool {
        let name = text(value);
        self.is_named = name.is_some();
        self.said.name = name.unwrap_or_default();
        self.is_named
    }

    /// Makes attributes of the entries of `data`. Hands back what is left of it.
    fn data(&mut self, json: &str) -> Option<String> {
        let mut rest = Rest::default();
        for (key, raw) in object(json)?.0 {
            let key = key.as_str();
            let parsed = serde_json::from_str::<Value>(raw.get()).ok();
            match (key, parsed.as_ref().and_then(Value::as_str)) {
                ("otel.kind", Some(kind)) => self.otel_kind = kind.to_owned(),
                ("profiler_id", Some(id)) => self.wanted.push((PROFILER_ID.to_owned(), id.to_owned())),
                _ => {}
            }
            if !self.attribute(key, parsed.as_ref().and_then(value::exact)) {
                rest.add(key, raw.get());
            }
        }
        Some(rest.finish())
    }

    /// Makes attributes of those of a span of a container, which have a value and its type. Hands back what is left.
    fn attributes(&mut self, json: &str) -> Option<String> {
        let mut rest = Rest::default();
        for (key, raw) in object(json)?.0 {
            let key = key.as_str();
            let parsed = serde_json::from_str::<Value>(raw.get()).ok();
            let inner = parsed.as_ref().and_then(|attribute| attribute.get("value"));
            match (key, inner.and_then(Value::as_str)) {
                ("otel.kind", Some(kind)) => self.otel_kind = kind.to_owned(),
                ("sentry.op", Some(op)) => self.op = op.to_owned(),
                _ => {}
            }
            let exact = inner.and_then(value::exact);
            let is_exact = inner.map(value::typed) == parsed;
            if is_exact && self.attribute(key, exact.clone()) {
                continue;
            }
            rest.add(key, raw.get());
            // A value of which something is missing is better than none.
            if !is_exact && !is_own(key) && self.attribute(key, exact) {
                self.copies.push(any_text(key));
            }
        }
        Some(rest.finish())
    }

    /// Adds an attribute, where there is a value and no attribute of that key.
    fn attribute(&mut self, key: &str, value: Option<Vec<u8>>) -> bool {
        let Some(value) = value else { return false };
        let is_replaced = self.rate.is_some() && key == SAMPLE_RATE;
        if is_own(key) || key.is_empty() || is_replaced || !self.keys.insert(key.to_owned()) {
            return false;
        }
        self.said.attributes.add(key, value);
        true
    }

    fn profiler_in(&mut self, profile: &str) {
        let id = object(profile).and_then(|profile| {
            let found = profile.0.iter().find(|(key, _)| key.as_str() == "profiler_id")?;
            text(found.1)
        });
        if let Some(id) = id {
            self.wanted.push((PROFILER_ID.to_owned(), id));
        }
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
        struct Link<'a> {
            trace_id: Text<'a>,
            span_id: Text<'a>,
        }
        let links: Vec<&RawValue> = serde_json::from_str(json).unwrap_or_default();
        let links = links.into_iter().take(MAX_LINKS).filter_map(|link| {
            let link: Link<'_> = serde_json::from_str(link.get()).ok()?;
            Some((TraceId::parse(link.trace_id.as_str())?, SpanId::parse(link.span_id.as_str())?))
        });
        self.said.links = links.collect();
    }

    fn finish(mut self, rest: &str, form: Form<'_>) -> (Said, SpanKind) {
        for (key, text) in std::mem::take(&mut self.wanted) {
            if !text.is_empty() && self.attribute(&key, Some(any_text(&text))) {
                self.copies.push(any_text(&key));
            }
        }
        if let Some(rate) = self.rate.take() {
            self.attribute(SAMPLE_RATE, Some(any_double(rate)));
            self.copies.push(any_text(SAMPLE_RATE));
        }
        let is_first = match form {
            Form::Transaction { .. } => true,
            Form::Span => false,
            Form::Container => self.span.is_local_root(),
        };
        let kind = words::kind(&self.op, &self.otel_kind, is_first);
        (self.said.status_code, self.said.status_message) = words::status(&self.status);
        if !self.is_named {
            self.said.name = self.op;
            self.said.attributes.add(UNNAMED, any_bool(true));
        }
        let attributes: &mut KeyValues = &mut self.said.attributes;
        attributes.text(FORM, form.name());
        attributes.text(REST, rest);
        if !self.copies.is_empty() {
            attributes.add(COPIES, any_array(&self.copies));
        }
        (self.said, kind)
    }
}

/// The members of an object; `None` where it is none, has too many or a key that is no text.
fn object(json: &str) -> Option<Object<'_>> {
    serde_json::from_str(json).ok()
}

/// A value that is text.
fn text(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// An object while it is written.
#[derive(Default)]
struct Rest(String);

impl Rest {
    fn add(&mut self, key: &str, json: &str) {
        let comma = if self.0.is_empty() { "" } else { "," };
        self.0.push_str(comma);
        self.0.push_str(&Value::from(key).to_string());
        self.0.push(':');
        self.0.push_str(json);
    }

    fn finish(self) -> String {
        format!("{{{}}}", self.0)
    }
}
