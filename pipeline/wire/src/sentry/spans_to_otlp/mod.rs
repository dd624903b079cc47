//! Sentry's spans leave as OTLP spans; [`spans_from_otlp`](super::spans_from_otlp) is the way back.
//!
//! | in Sentry's JSON | in OTLP |
//! | --- | --- |
//! | `trace_id`, `span_id`, `parent_span_id`, both times | the fields; a transaction's own parent is remote |
//! | `transaction`; `description` of a span; `name` of a span of a container | the name; else `op` |
//! | `op` (`sentry.op`) | the kind, see below; the attribute `sentry.op` |
//! | `status` | the status, see below |
//! | `contexts.trace.data`, `data`, `attributes` | attributes under the same keys |
//! | `links` | links |
//! | `tags` | attributes, where there is none under that key |
//! | `origin`, `contexts.profile.profiler_id`, `data.profiler_id` | attributes `sentry.origin`, `sentry.profiler_id` |
//! | `release` | resource `service.name` and `service.version` where it is `NAME@VERSION`; else `service.version` and `sentry.release` |
//! | `contexts.otel.resource`: `service.name` | resource `service.name`, before the release's |
//! | neither | resource `service.name` is `unknown_service:` and the SDK's name |
//! | `environment`, `server_name`, `platform` | resource `deployment.environment.name`, `host.name`, `sentry.platform` |
//! | `sdk` | resource `telemetry.sdk.{name,version,language}`, the scope's name and version |
//! | everything else, and what no attribute can hold | attribute `sentry.rest` |
//!
//! The kinds of `op` (Sentry developer documentation, "Span Operations"; OpenTelemetry specification, `SpanKind`): what
//! ends in `.server` is SERVER and `queue.process` CONSUMER, of a transaction's own span and a segment only, since
//! inside of one they would begin another; what ends in `.client`, and `db`, `cache` and `gen_ai` with what is under
//! them are CLIENT; `queue.publish` and `queue.submit` PRODUCER; everything else is INTERNAL. An attribute `otel.kind`
//! wins. The status `ok` is OK; `cancelled`, `unknown` and none are unset, since Sentry counts them as no failure; all
//! others are ERROR with the status as the message.
//!
//! # What the way back needs
//!
//! Every span has `sentry.form`: `transaction`, `span` (of a transaction) or `span_v2` (of a container), and
//! `sentry.rest`: its JSON object without what stands in a field or an attribute of its own. A value becomes an
//! attribute of its own only where it comes back equal. `sentry.copies` lists the attributes that repeat something for
//! readers of OTLP, and `sentry.unnamed` is true where the name does. The way back passes over these.

mod object;
mod origin;
pub(super) mod value;
mod words;

use profbridge_model::{Span, SpanForm, Spans};
use serde_json::value::RawValue;

use super::span_reader::{elements, place_in};
use super::span_writer;
use super::trace_header::TraceHeader;
use super::transaction_reader;
pub(super) use crate::otlp::traces::decode::{FORM, STREAMED};
use crate::otlp::traces::write::{self, Origin, Said};
use object::Form;

/// The attribute with what has no place in OTLP, as JSON.
pub(super) const REST: &str = "sentry.rest";
/// The attribute that lists those that are copies.
pub(super) const COPIES: &str = "sentry.copies";
/// The attribute that says that the name is a copy.
pub(super) const UNNAMED: &str = "sentry.unnamed";

/// Whether an attribute is one of those that the way back needs.
pub(super) fn is_own(key: &str) -> bool {
    matches!(key, FORM | REST | COPIES | UNNAMED)
}

/// A view of a transaction or of a container as an `ExportTraceServiceRequest`, which has exactly the spans of the
/// view, in their order, with what was found out about them. Spans that are OTLP already become nothing.
pub fn request(spans: &Spans) -> Vec<u8> {
    let text = std::str::from_utf8(spans.bytes()).unwrap_or_default();
    let is_transaction = spans.form() == SpanForm::SentryTransaction;
    let whole = match is_transaction {
        true => Some(Whole::of(spans, text)),
        false if spans.form() == SpanForm::SentrySpans => None,
        false => return Vec::new(),
    };
    let of_transaction = whole.as_ref().map(|_| origin::of_event(text));
    let written = spans.spans().iter().map(|span| {
        let object = std::str::from_utf8(spans.get(span.at)).unwrap_or_default();
        let form = match &whole {
            None => Form::Container,
            Some(whole) if whole.start == span.at.start => Form::Transaction { unread: &whole.unread },
            Some(_) => Form::Span,
        };
        let mut json = object.as_bytes().to_vec();
        if let Some(changes) = &span.changes {
            span_writer::set_link(&mut json, form.place(), changes);
        }
        let json = String::from_utf8(json).unwrap_or_default();
        let rate = span.changes.as_ref().and_then(|changes| changes.sample_rate);
        let (said, kind) = object::take_apart(&json, span, form, rate);
        let origin = of_transaction.clone().unwrap_or_else(|| origin::of_span(&json));
        (origin, Span { kind, ..span.clone() }, said)
    });
    let written: Vec<(Origin, Span, Said)> = written.collect();
    write::request(&written)
}

/// What has to be known of a transaction beside its spans.
struct Whole<'a> {
    /// Where its object begins.
    start: u32,
    /// The elements of its list of spans that could not be read.
    unread: Vec<&'a str>,
}

impl<'a> Whole<'a> {
    fn of(spans: &Spans, text: &'a str) -> Self {
        let start = (text.len() - text.trim_start().len()) as u32;
        let mut unread = Vec::new();
        let list: Option<&RawValue> =
            serde_json::from_str::<transaction_reader::Transaction<'_>>(text).ok().and_then(|of| of.spans);
        let read = transaction_reader::read(spans.bytes(), &TraceHeader::default());
        if let (Some(list), Ok(read)) = (list, read) {
            let mut places = read.spans.spans().iter().skip(1).map(|span| span.at.start).peekable();
            let walked = elements(list, |element| {
                if places.next_if_eq(&place_in(text, element).start).is_none() {
                    unread.push(element);
                }
                Ok::<(), std::convert::Infallible>(())
            });
            debug_assert!(walked.is_ok(), "the list was read before");
        }
        Self { start, unread }
    }
}

#[cfg(test)]
mod tests;
