//! Reads a container of spans, version 2, as a batch of spans that point into its JSON.
//!
//! The container is `{"version": 2, "items": [...]}`, and its item's header has the number of spans (Sentry developer
//! documentation, "Span Protocol"; sent by Node's SDK 11). A span's range is its element of `items`. An invalid span is
//! left unread.

use bytes::Bytes;
use profbridge_model::SpanForm;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::sampled::text::Text;
use super::span_reader::{Collected, ReadSpans, SpanIds, SpansError, text_of, truth};
use super::timestamp::Timestamp;
use super::trace_header::TraceHeader;

/// The media type of a container (getsentry/relay `relay-server/src/envelope/content_type.rs`).
pub const CONTENT_TYPE: &str = "application/vnd.sentry.items.span.v2+json";

/// Maximum size of a container in bytes, the same as Relay's (getsentry/relay `relay-config/src/config.rs`,
/// `max_container_size`).
pub const MAX_BYTES: usize = 12 << 20;

/// The version of the container.
const VERSION: u64 = 2;

#[derive(Deserialize)]
pub(super) struct Container<'a> {
    version: Option<u64>,
    /// The list, as raw text.
    #[serde(borrow)]
    pub(super) items: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct SpanJson<'a> {
    trace_id: Option<Text<'a>>,
    span_id: Option<Text<'a>>,
    parent_span_id: Option<Text<'a>>,
    start_timestamp: Option<Timestamp>,
    end_timestamp: Option<Timestamp>,
    is_segment: Option<&'a RawValue>,
}

/// Reads a container from an item's payload. `item_count` is the number of spans in the item's header, and `header` has
/// the trace data of the envelope's header.
///
/// # Errors
///
/// The payload is not JSON, too large, in another version, or has another number of spans: Relay rejects such a
/// container (getsentry/relay `relay-server/src/envelope/container.rs`).
pub fn read(payload: &Bytes, item_count: Option<u64>, header: &TraceHeader) -> Result<ReadSpans, SpansError> {
    let (read, listed) = read_any(payload, header)?;
    if item_count != Some(listed) {
        return Err(SpansError::rule("item_count", format!("the item's header does not say that there are {listed}")));
    }
    Ok(read)
}

/// Reads a container, and returns the number of spans it lists.
///
/// # Errors
///
/// As for [`read`], except for the number of spans.
pub(super) fn read_any(payload: &Bytes, header: &TraceHeader) -> Result<(ReadSpans, u64), SpansError> {
    let text = text_of(payload, MAX_BYTES)?;
    let container: Container<'_> = serde_json::from_str(text).map_err(|error| SpansError::json(&error))?;
    if container.version.is_some_and(|version| version != VERSION) {
        return Err(SpansError::rule("version", "is not 2"));
    }
    let mut collected = Collected::default();
    let listed = collected.add_list(text, ("items", container.items), header, |element| {
        let span: SpanJson<'_> = serde_json::from_str(element)?;
        Ok(SpanIds {
            trace_id: span.trace_id,
            span_id: span.span_id,
            parent_span_id: span.parent_span_id,
            start: span.start_timestamp,
            end: span.end_timestamp,
            is_root: truth(span.is_segment) == Some(true),
            sampled: None,
            is_streamed: true,
        })
    })?;
    collected.finish(SpanForm::SentrySpans, payload.clone()).map(|read| (read, listed))
}
