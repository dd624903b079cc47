//! One reading of a span, whatever its form: for whoever decides by what a span says and does not care who wrote it.
//!
//! | | OTLP | transaction of Sentry's | its children | Sentry's span of version 2 |
//! | --- | --- | --- | --- | --- |
//! | name | `name` | `transaction` | `description` | `name` |
//! | op | as its transaction has it ([`SpanView::op`]) | `contexts.trace.op` | `op` | attribute `sentry.op` |
//! | attributes | `attributes` | `contexts.trace.data`, then `tags` | `data`, then `tags` | `attributes`, each its `value` |
//! | resource | `Resource.attributes` | none | none | none |
//!
//! Sources: opentelemetry-proto `trace/v1/trace.proto`; Sentry developer documentation, "Transaction Payloads" and
//! "Span Interface"; getsentry/relay `relay-event-schema/src/protocol/span_v2.rs`.
//!
//! What cannot be read reads as nothing: what reads a request or an envelope has said so.

mod json;
mod language;
mod process;
#[cfg(test)]
mod tests;
mod value;

use profbridge_model::{ProfilerId, Span, SpanForm, Spans};

use self::json::Object;
use crate::otlp::traces::Fields;
use crate::otlp::traces::encode::{PROFILER_ID, SAMPLE_RATE};
use crate::otlp::traces::read::resource_attributes;
use crate::sentry::transaction;

pub use self::process::{Process, process};
pub use self::value::SpanValue;

/// The attribute in which a program says whether a span is to be kept (getsentry/sentry-java
/// `sentry-opentelemetry-core`, `InternalSemanticAttributes`, as the next two).
pub const SAMPLED: &str = "sentry.sampled";

/// The attribute with the decision that came with the span's parent.
pub const PARENT_SAMPLED: &str = "sentry.parent_sampled";

/// The attribute with the number, from 0 to 1, with which the rate of a trace is compared.
pub const SAMPLE_RAND: &str = "sentry.sample_rand";

/// What a span says.
#[derive(Debug)]
pub struct SpanView<'a> {
    spans: &'a Spans,
    span: &'a Span,
    said: Said<'a>,
}

#[derive(Debug)]
enum Said<'a> {
    Otlp(Fields<'a>),
    /// The first span of a transaction: the transaction itself.
    Transaction(Object<'a>),
    Child(Object<'a>),
    V2(Object<'a>),
}

impl<'a> SpanView<'a> {
    /// What a span of this batch says. The text of a span of Sentry's is read once, here.
    pub fn of(spans: &'a Spans, span: &'a Span) -> Self {
        let object = || Object::read(spans.get(span.at));
        let said = match spans.form() {
            SpanForm::Otlp => Said::Otlp(Fields::of(spans, span)),
            SpanForm::SentrySpans => Said::V2(object()),
            SpanForm::SentryTransaction => {
                let object = object();
                // A child has no contexts, and the transaction always has: they say which span it is.
                if object.has("contexts") { Said::Transaction(object) } else { Said::Child(object) }
            }
        };
        Self { spans, span, said }
    }

    /// The span that is read.
    pub fn span(&self) -> &'a Span {
        self.span
    }

    /// What it is called: of a transaction its name, of a child of one its description. Empty where nothing is said.
    pub fn name(&self) -> String {
        let text = |value: Option<SpanValue<'_>>| value.and_then(|value| value.into_text()).unwrap_or_default();
        match &self.said {
            Said::Otlp(fields) => fields.name.to_owned(),
            Said::Transaction(object) => text(object.find(&["transaction"])),
            Said::Child(object) => text(object.find(&["description"])),
            Said::V2(object) => text(object.find(&["name"])),
        }
    }

    /// What kind of work it is, as Sentry calls it: `http.server`. Of an OTLP span what its attribute `sentry.op` says,
    /// or what follows from OpenTelemetry's conventions ([`transaction::op`]).
    pub fn op(&self) -> Option<String> {
        let said = match &self.said {
            Said::Otlp(_) => return transaction::op(self.spans, self.span),
            Said::V2(_) => self.attribute("sentry.op"),
            Said::Transaction(object) => object.find(&["contexts", "trace", "op"]),
            Said::Child(object) => object.find(&["op"]),
        };
        said.and_then(SpanValue::into_text)
    }

    /// The name of its service: `service.name` of its resource, or its own.
    pub fn service_name(&self) -> Option<String> {
        let value = self.resource_attribute("service.name").or_else(|| self.attribute("service.name"));
        value.and_then(SpanValue::into_text)
    }

    /// One of its own attributes. Lists and objects are none.
    pub fn attribute(&self, key: &str) -> Option<SpanValue<'a>> {
        match &self.said {
            Said::Otlp(fields) => fields.attributes().find(key).and_then(SpanValue::of_otlp),
            Said::Transaction(object) => object.find(&["contexts", "trace", "data", key]).or_else(|| object.tag(key)),
            Said::Child(object) => object.find(&["data", key]).or_else(|| object.tag(key)),
            Said::V2(object) => object.find(&["attributes", key, "value"]),
        }
    }

    /// An attribute of what made it, those among them that were added on the way.
    pub fn resource_attribute(&self, key: &str) -> Option<SpanValue<'a>> {
        let resource = self.spans.resource_of(self.span);
        let mut came = match self.said {
            Said::Otlp(_) => Some(resource_attributes(self.spans, resource)).into_iter().flatten(),
            _ => None.into_iter().flatten(),
        };
        let came = came.find(|(found, _)| *found == key).and_then(|(_, value)| SpanValue::of_otlp(value));
        let added = || resource.added.iter().find(|(found, _)| **found == *key);
        came.or_else(|| added().map(|(_, value)| SpanValue::from(&**value)))
    }

    /// Whether its program said that it is to be kept, or not. What is known of a span of Sentry's trace is that: an
    /// SDK hands the decision on in the header of the envelope.
    pub fn decision(&self) -> Option<bool> {
        let known = || self.span.sampled.filter(|_| self.spans.form() != SpanForm::Otlp);
        self.attribute(SAMPLED).and_then(|value| value.bool()).or_else(known)
    }

    /// Whether its parent was decided to be kept, where that is known: the program says so, or the OTLP span has a
    /// parent and the flag of W3C Trace Context that it was handed. A root has no parent, whatever its own flag says.
    pub fn parent_decision(&self) -> Option<bool> {
        let handed = || self.span.parent_span_id.and(self.span.sampled).filter(|_| self.spans.form() == SpanForm::Otlp);
        self.attribute(PARENT_SAMPLED).and_then(|value| value.bool()).or_else(handed)
    }

    /// The probability with which it was kept up to here, where that is known: above 0 and at most 1.
    pub fn sample_rate(&self) -> Option<f64> {
        let changed = self.span.changes.as_ref().and_then(|changes| changes.sample_rate);
        let said = || self.attribute(SAMPLE_RATE).and_then(|value| value.number());
        changed.or_else(said).filter(|rate| *rate > 0.0 && *rate <= 1.0)
    }

    /// The number with which its trace's rate is compared, where its program has drawn one: from 0, inclusive, to 1.
    pub fn sample_rand(&self) -> Option<f64> {
        self.attribute(SAMPLE_RAND)?.number().filter(|number| (0.0..1.0).contains(number))
    }

    /// The profiler that saw what its thread did, where it names one.
    pub fn profiler_id(&self) -> Option<ProfilerId> {
        if let Some(link) = self.span.changes.as_ref().and_then(|changes| changes.profiler.as_ref()) {
            return Some(link.profiler_id);
        }
        let said = match &self.said {
            Said::Transaction(object) => object.find(&["contexts", "profile", "profiler_id"]),
            Said::Child(_) => self.attribute("profiler_id"),
            Said::Otlp(_) | Said::V2(_) => None,
        };
        let text = said.or_else(|| self.attribute(PROFILER_ID))?.into_text()?;
        uuid::Uuid::try_parse(&text).ok().map(ProfilerId::from_uuid)
    }

    /// The name of its host, where it says that itself, as Sentry's spans do.
    fn host_name(&self) -> Option<String> {
        let said = match &self.said {
            Said::Transaction(object) => object.find(&["server_name"]),
            Said::V2(_) => self.attribute("server.address"),
            Said::Otlp(_) | Said::Child(_) => None,
        };
        said.and_then(SpanValue::into_text)
    }
}
