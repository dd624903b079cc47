//! Reads a transaction as a batch of spans that point into its JSON.
//!
//! The first span is the transaction itself (`contexts.trace`, `start_timestamp`, `timestamp`), with the whole object
//! as its range; the others are the elements of `spans` (Sentry developer documentation, "Event Payloads", "Transaction
//! Payloads", "Span Interface"). An invalid span is left unread; if the transaction itself is invalid, nothing is read.
//! All other keys are skipped.

use bytes::Bytes;
use profbridge_model::SpanForm;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::sampled::text::Text;
use super::span_reader::{Collected, ReadSpans, SpanIds, SpansError, place_in, text_of, truth};
use super::timestamp::Timestamp;
use super::trace_header::TraceHeader;

/// Maximum size of a transaction in bytes, the same as Relay's (getsentry/relay `relay-config/src/config.rs`,
/// `max_event_size`).
pub const MAX_BYTES: usize = 1 << 20;

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(super) struct TransactionJson<'a> {
    contexts: Option<ContextsJson<'a>>,
    start_timestamp: Option<Timestamp>,
    timestamp: Option<Timestamp>,
    /// The list, as raw text.
    pub(super) spans: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ContextsJson<'a> {
    #[serde(borrow)]
    trace: Option<TraceContextJson<'a>>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct TraceContextJson<'a> {
    trace_id: Option<Text<'a>>,
    span_id: Option<Text<'a>>,
    parent_span_id: Option<Text<'a>>,
    sampled: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Child<'a> {
    trace_id: Option<Text<'a>>,
    span_id: Option<Text<'a>>,
    parent_span_id: Option<Text<'a>>,
    start_timestamp: Option<Timestamp>,
    timestamp: Option<Timestamp>,
}

/// Reads a transaction from an item's payload; `header` has the trace data of the envelope's header.
///
/// # Errors
///
/// The payload is not JSON or too large, or the transaction itself breaks a rule.
pub fn read(payload: &Bytes, header: &TraceHeader) -> Result<ReadSpans, SpansError> {
    let text = text_of(payload, MAX_BYTES)?;
    let whole: &RawValue = serde_json::from_str(text).map_err(|error| SpansError::json(&error))?;
    let transaction: TransactionJson<'_> =
        serde_json::from_str(whole.get()).map_err(|error| SpansError::json(&error))?;
    let trace = transaction.contexts.and_then(|contexts| contexts.trace);
    let trace = trace.ok_or_else(|| SpansError::rule("contexts.trace", "is missing"))?;
    let root = SpanIds {
        trace_id: trace.trace_id,
        span_id: trace.span_id,
        parent_span_id: trace.parent_span_id,
        start: transaction.start_timestamp,
        end: transaction.timestamp,
        is_root: true,
        sampled: truth(trace.sampled),
        is_streamed: false,
    };
    let root = root.span(place_in(text, whole.get()), header)?;
    let sampled = root.sampled;
    let mut collected = Collected::default();
    collected.add(Ok(root))?;
    if let Some(list) = transaction.spans {
        collected.add_list(text, ("spans", list), header, |element| {
            let child: Child<'_> = serde_json::from_str(element)?;
            Ok(SpanIds {
                trace_id: child.trace_id,
                span_id: child.span_id,
                parent_span_id: child.parent_span_id,
                start: child.start_timestamp,
                end: child.timestamp,
                is_root: false,
                sampled,
                is_streamed: false,
            })
        })?;
    }
    collected.finish(SpanForm::SentryTransaction, payload.clone())
}
