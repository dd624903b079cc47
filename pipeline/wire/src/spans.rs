//! A common view of a span in any format, for code that depends on a span's content but not on its sender.
//!
//! | | OTLP | transaction of Sentry's | its children | Sentry's span of version 2 |
//! | --- | --- | --- | --- | --- |
//! | name | `name` | `transaction` | `description` | `name` |
//! | op | derived, see [`SpanView::op`] | `contexts.trace.op` | `op` | attribute `sentry.op` |
//! | attributes | `attributes` | `contexts.trace.data`, then `tags` | `data`, then `tags` | `value` of `attributes` |
//! | resource | `Resource.attributes` | none | none | none |
//!
//! Sources: opentelemetry-proto `trace/v1/trace.proto`; Sentry developer documentation, "Transaction Payloads" and
//! "Span Interface"; getsentry/relay `relay-event-schema/src/protocol/span_v2.rs`.
//!
//! Invalid data reads as absent: the reader of the request or envelope has already reported it.

mod json;
mod language;
mod process;
#[cfg(test)]
mod tests;
mod value;

use profbridge_model::{ProfilerId, Span, SpanForm, SpanId, Spans};

use self::json::JsonObject;
use crate::otlp::traces::OtherSpanFields;
use crate::otlp::traces::encode::{PROFILER_ID, SAMPLE_RATE};
use crate::otlp::traces::read::resource_attributes;
use crate::sentry::otlp_spans::CLIENT_SAMPLE_RATE;
use crate::sentry::transaction;

pub use self::process::{SpanProcess, process};
pub use self::value::SpanValue;

/// The attribute with the program's own decision whether to keep a span (getsentry/sentry-java
/// `sentry-opentelemetry-core`, `InternalSemanticAttributes`, as the next two).
pub const SAMPLED: &str = "sentry.sampled";

/// The attribute with the sampling decision of the span's parent.
pub const PARENT_SAMPLED: &str = "sentry.parent_sampled";

/// The attribute with the random number from 0 to 1 that is compared with a trace's sample rate.
pub const SAMPLE_RAND: &str = "sentry.sample_rand";

/// A view of a span.
#[derive(Debug)]
pub struct SpanView<'a> {
    spans: &'a Spans,
    span: &'a Span,
    content: SpanContent<'a>,
}

#[derive(Debug)]
enum SpanContent<'a> {
    Otlp(OtherSpanFields<'a>),
    /// The root span of a transaction, that is, the transaction itself.
    Transaction(JsonObject<'a>),
    Child(JsonObject<'a>),
    V2(JsonObject<'a>),
}

impl<'a> SpanView<'a> {
    /// Views a span of this batch. The JSON of a Sentry span is parsed once, here.
    pub fn of(spans: &'a Spans, span: &'a Span) -> Self {
        let object = || JsonObject::read(spans.get(span.at));
        let content = match spans.form() {
            SpanForm::Otlp => SpanContent::Otlp(OtherSpanFields::of(spans, span)),
            SpanForm::SentrySpans => SpanContent::V2(object()),
            SpanForm::SentryTransaction => {
                let object = object();
                // Only the transaction itself has contexts, never a child.
                if object.has("contexts") { SpanContent::Transaction(object) } else { SpanContent::Child(object) }
            }
        };
        Self { spans, span, content }
    }

    /// The span.
    pub fn span(&self) -> &'a Span {
        self.span
    }

    /// Whether it is a transaction of Sentry's itself.
    pub fn is_transaction(&self) -> bool {
        matches!(self.content, SpanContent::Transaction(_))
    }

    /// The span's name: a transaction's name, or a child's description. Empty if there is none.
    pub fn name(&self) -> String {
        let text = |value: Option<SpanValue<'_>>| value.and_then(|value| value.into_text()).unwrap_or_default();
        match &self.content {
            SpanContent::Otlp(fields) => fields.name.to_owned(),
            SpanContent::Transaction(object) => text(object.find(&["transaction"])),
            SpanContent::Child(object) => text(object.find(&["description"])),
            SpanContent::V2(object) => text(object.find(&["name"])),
        }
    }

    /// The kind of work as Sentry names it, such as `http.server`. For OTLP spans the attribute `sentry.op`, or else
    /// derived from OpenTelemetry's conventions ([`transaction::op`]).
    pub fn op(&self) -> Option<String> {
        let value = match &self.content {
            SpanContent::Otlp(_) => return transaction::op(self.spans, self.span),
            SpanContent::V2(_) => self.attribute("sentry.op"),
            SpanContent::Transaction(object) => object.find(&["contexts", "trace", "op"]),
            SpanContent::Child(object) => object.find(&["op"]),
        };
        value.and_then(SpanValue::into_text)
    }

    /// The name of the service: `service.name` of the resource, or else of the span.
    pub fn service_name(&self) -> Option<String> {
        let value = self.resource_attribute("service.name").or_else(|| self.attribute("service.name"));
        value.and_then(SpanValue::into_text)
    }

    /// An attribute of the span. Lists and objects count as absent.
    pub fn attribute(&self, key: &str) -> Option<SpanValue<'a>> {
        match &self.content {
            SpanContent::Otlp(fields) => fields.attributes().find(key).and_then(SpanValue::of_otlp),
            SpanContent::Transaction(object) => {
                object.find(&["contexts", "trace", "data", key]).or_else(|| object.tag(key))
            }
            SpanContent::Child(object) => object.find(&["data", key]).or_else(|| object.tag(key)),
            SpanContent::V2(object) => object.find(&["attributes", key, "value"]),
        }
    }

    /// An attribute of the resource, including those added on the way.
    pub fn resource_attribute(&self, key: &str) -> Option<SpanValue<'a>> {
        let resource = self.spans.resource_of(self.span);
        let mut came = match self.content {
            SpanContent::Otlp(_) => Some(resource_attributes(self.spans, resource)).into_iter().flatten(),
            _ => None.into_iter().flatten(),
        };
        let came = came.find(|(found, _)| *found == key).and_then(|(_, value)| SpanValue::of_otlp(value));
        let added = || resource.added.iter().find(|(found, _)| **found == *key);
        came.or_else(|| added().map(|(_, value)| SpanValue::from(&**value)))
    }

    /// The program's decision whether to keep the span. For a Sentry span, the decision for its trace counts too, since
    /// an SDK passes that on in the envelope's header.
    pub fn decision(&self) -> Option<bool> {
        let known = || self.span.sampled.filter(|_| self.spans.form() != SpanForm::Otlp);
        self.attribute(SAMPLED).and_then(|value| value.bool()).or_else(known)
    }

    /// The sampling decision of the span's parent, if known: stated by the program, or the W3C Trace Context flag of an
    /// OTLP span with a parent. A root has no parent, whatever its own flag is.
    pub fn parent_decision(&self) -> Option<bool> {
        let handed = || self.span.parent_span_id.and(self.span.sampled).filter(|_| self.spans.form() == SpanForm::Otlp);
        self.attribute(PARENT_SAMPLED).and_then(|value| value.bool()).or_else(handed)
    }

    /// The sample rate so far, if known: above 0 and at most 1.
    pub fn sample_rate(&self) -> Option<f64> {
        let changed = self.span.changes.as_ref().and_then(|changes| changes.sample_rate);
        let value = || [SAMPLE_RATE, CLIENT_SAMPLE_RATE].iter().find_map(|key| self.attribute(key)?.number());
        changed.or_else(value).filter(|rate| *rate > 0.0 && *rate <= 1.0)
    }

    /// The random number that is compared with the trace's sample rate, if the program has drawn one: 0 <= number < 1.
    pub fn sample_rand(&self) -> Option<f64> {
        self.attribute(SAMPLE_RAND)?.number().filter(|number| (0.0..1.0).contains(number))
    }

    /// The profiler that sampled the span's thread, if the span names one.
    pub fn profiler_id(&self) -> Option<ProfilerId> {
        if let Some(link) = self.span.changes.as_ref().and_then(|changes| changes.profiler.as_ref()) {
            return Some(link.profiler_id);
        }
        let value = match &self.content {
            SpanContent::Transaction(object) => object.find(&["contexts", "profile", "profiler_id"]),
            SpanContent::Child(_) => self.attribute("profiler_id"),
            SpanContent::Otlp(_) | SpanContent::V2(_) => None,
        };
        let text = value.or_else(|| self.attribute(PROFILER_ID))?.into_text()?;
        uuid::Uuid::try_parse(&text).ok().map(ProfilerId::from_uuid)
    }

    /// The first span of its process in its trace, if the span names it, as those of containers do.
    pub fn segment_id(&self) -> Option<SpanId> {
        SpanId::parse(&self.attribute("sentry.segment.id")?.into_text()?)
    }

    /// The name of that span.
    pub fn segment_name(&self) -> Option<String> {
        self.attribute("sentry.segment.name").and_then(SpanValue::into_text)
    }

    /// The rate at which the span was kept by a program, other than the rate of its trace: above 0 and at most 1.
    pub fn client_sample_rate(&self) -> Option<f64> {
        self.attribute(CLIENT_SAMPLE_RATE)?.number().filter(|rate| *rate > 0.0 && *rate <= 1.0)
    }

    /// The host name, if the span itself names it, as Sentry's spans do. In a span of a call over HTTP `server.address`
    /// is that of the web server, if the SDK writes OpenTelemetry's attributes: Python's for the spans of requests that
    /// it serves, Node's for both sides, which it marks with a kind.
    pub fn host_name(&self) -> Option<String> {
        let is = |key: &str, values: &[&str]| {
            self.attribute(key).and_then(SpanValue::into_text).is_some_and(|text| values.contains(&&*text))
        };
        let value = match &self.content {
            SpanContent::Transaction(object) => object.find(&["server_name"]),
            SpanContent::V2(_) if is("sentry.op", &["http.server"]) || is("sentry.kind", &["server", "client"]) => None,
            SpanContent::V2(_) => self.attribute("server.address"),
            SpanContent::Otlp(_) | SpanContent::Child(_) => None,
        };
        value.and_then(SpanValue::into_text)
    }
}
