//! Converts Sentry spans to OTLP spans.
//!
//! | in Sentry's JSON | in OTLP |
//! | --- | --- |
//! | `trace_id`, `span_id`, `parent_span_id`, both times | the fields; a transaction's own parent is remote |
//! | `transaction`; a span's `description`; a container span's `name` | the name, or else `op` |
//! | `op` (`sentry.op`) | the kind, see below; the attribute `sentry.op` |
//! | `status` | the status, see below |
//! | `contexts.trace.data`, `data`, `attributes` | attributes under the same keys |
//! | `links` | links |
//! | `tags` | attributes, unless the key exists |
//! | `origin`, `contexts.profile.profiler_id`, `data.profiler_id` | attributes `sentry.origin`, `sentry.profiler_id` |
//! | `transaction_info.source` | attribute `sentry.source` |
//! | `release` as `NAME@VERSION` | resource `service.name` and `service.version` |
//! | another `release` | resource `service.version` and `sentry.release` |
//! | `contexts.otel.resource`: `service.name` | resource `service.name`, before the release's |
//! | neither of the two | resource `service.name` is `unknown_service:` and the SDK's name |
//! | `environment`, `server_name` | resource `deployment.environment.name`, `host.name` |
//! | `platform` | resource `sentry.platform` |
//! | `sdk` | resource `telemetry.sdk.{name,version,language}`, the scope's name and version |
//! | a span of a container | attribute `sentry.form`: `span_v2` |
//!
//! All other data (breadcrumbs, the request, the user, measurements, other contexts) is left out, because OTLP has no
//! place for it.
//!
//! The kind follows from `op` (Sentry developer documentation, "Span Operations"; OpenTelemetry specification,
//! `SpanKind`):
//!
//! * `*.server` is SERVER and `queue.process` CONSUMER, but only for a transaction's own span or a segment: inside of
//!   one they would begin another.
//! * `*.client`, and `db`, `cache`, `gen_ai` and everything below them are CLIENT.
//! * `queue.publish` and `queue.submit` are PRODUCER. Everything else is INTERNAL.
//!
//! An attribute `otel.kind` wins. The status `ok` is OK; `cancelled`, `unknown` and a missing status are unset, since
//! Sentry does not count them as failures; all others are ERROR with the status as the message.

mod object;
mod origin;
mod value;
mod words;

use profbridge_model::{Span, SpanForm, Spans};

use super::span_writer::SpanObject;
pub(super) use crate::otlp::traces::decode::{FORM, STREAMED};
use crate::otlp::traces::write::{self, Origin, SpanFields};

/// Converts a view of a transaction or of a container to an `ExportTraceServiceRequest` with exactly the spans of the
/// view, in order, including their changes. Returns no bytes if the spans are already OTLP.
pub fn request(spans: &Spans) -> Vec<u8> {
    let text = std::str::from_utf8(spans.bytes()).unwrap_or_default();
    // The start of the transaction's object, which contains its spans.
    let start = (text.len() - text.trim_start().len()) as u32;
    let of_transaction = match spans.form() {
        SpanForm::SentryTransaction => Some(origin::of_event(text)),
        SpanForm::SentrySpans => None,
        SpanForm::Otlp => return Vec::new(),
    };
    let written = spans.spans().iter().map(|span| {
        let place = match &of_transaction {
            None => SpanObject::Attributes,
            Some(_) if start == span.at.start => SpanObject::Transaction,
            Some(_) => SpanObject::Span,
        };
        let json = std::str::from_utf8(spans.get(span.at)).unwrap_or_default();
        let (span_fields, kind) = object::span_fields(json, span, place);
        let origin = of_transaction.clone().unwrap_or_else(|| origin::of_span(json));
        (origin, Span { kind, ..span.clone() }, span_fields)
    });
    let written: Vec<(Origin, Span, SpanFields)> = written.collect();
    write::request(&written)
}

#[cfg(test)]
mod tests;
