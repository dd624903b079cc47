//! Shared code of the readers of Sentry's two span formats: [`transaction_reader`](super::transaction_reader) and
//! [`span_v2_reader`](super::span_v2_reader).
//!
//! A payload is parsed only as far as the pipeline needs it, and every span keeps its byte range in the payload. The
//! remaining JSON is skipped as text, so that no structure of unknown depth is traversed.

mod elements;

use bytes::Bytes;
use profbridge_model::dictionary::Invalid;
use profbridge_model::spans::{SpanResource, SpanScope};
use profbridge_model::{ByteRange, Span, SpanForm, SpanId, SpanKind, Spans, TraceId};
use serde_json::value::RawValue;

pub(in crate::sentry) use elements::elements;

use super::sampled::text::Text;
use super::timestamp::Timestamp;
use super::trace_header::TraceHeader;

/// The maximum number of spans read from one payload. SDKs send up to 1000 (Sentry developer documentation, "SDK
/// guidelines for tracing", `maxSpans`); the smallest span takes some 130 bytes of JSON.
pub const MAX_SPANS: usize = 1 << 17;

/// Why a payload of spans cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpansError {
    /// The payload is too large.
    #[error("the payload has {bytes} bytes, {limit} are allowed")]
    TooLarge {
        /// The payload's size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The payload has more than [`MAX_SPANS`] spans.
    #[error("the payload has more than {MAX_SPANS} spans")]
    TooMany,
    /// The payload is not JSON, or a key that is read is duplicated or has a value of the wrong type. The message
    /// quotes no values.
    #[error("cannot be read: {0}")]
    Json(String),
    /// The payload breaks a rule.
    #[error(transparent)]
    Rule(#[from] Invalid),
}

impl SpansError {
    pub(super) fn rule(place: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::Rule(Invalid { place: place.into(), rule: rule.into() })
    }

    /// Removes quoted values from the parser's message, because spans are full of names and addresses.
    pub(super) fn json(error: &serde_json::Error) -> Self {
        Self::Json(Self::json_rule(error))
    }

    fn json_rule(error: &serde_json::Error) -> String {
        let what = match error.classify() {
            serde_json::error::Category::Data => "a key stands there twice, or has a value of the wrong type",
            _ => "is not valid JSON",
        };
        format!("{what}, at line {} column {}", error.line(), error.column())
    }
}

/// The result of reading a payload.
#[derive(Debug, Clone)]
pub struct ReadSpans {
    /// The valid spans.
    pub spans: Spans,
    /// Number of elements of the span list that are invalid. They stay in the payload.
    pub unread: u64,
    /// The error of the first invalid element.
    pub first_unread: Option<Invalid>,
}

/// The payload as text.
///
/// # Errors
///
/// The payload is larger than `limit` or 4 GiB, or not UTF-8.
pub(super) fn text_of(payload: &[u8], limit: usize) -> Result<&str, SpansError> {
    let limit = limit.min(u32::MAX as usize);
    if payload.len() > limit {
        return Err(SpansError::TooLarge { bytes: payload.len(), limit });
    }
    std::str::from_utf8(payload).map_err(|error| SpansError::Json(error.to_string()))
}

/// A span's ids and times as written in the payload.
pub(super) struct SpanIds<'a> {
    pub(super) trace_id: Option<Text<'a>>,
    pub(super) span_id: Option<Text<'a>>,
    pub(super) parent_span_id: Option<Text<'a>>,
    pub(super) start: Option<Timestamp>,
    pub(super) end: Option<Timestamp>,
    /// Whether it is the first span of its process, whose parent is in another process.
    pub(super) is_root: bool,
    pub(super) sampled: Option<bool>,
    /// Whether it came in a span container.
    pub(super) is_streamed: bool,
}

impl SpanIds<'_> {
    /// Converts to a span with the byte range `at`.
    ///
    /// # Errors
    ///
    /// The first broken one of these rules: those for which Sentry rejects a transaction (getsentry/relay
    /// `relay-event-normalization/src/validation.rs`: ids and times are present, and the span ends after it starts),
    /// and that a span is not its own parent.
    pub(super) fn span(self, at: ByteRange, header: &TraceHeader) -> Result<Span, Invalid> {
        let wrong = |place: &str, rule: &str| Invalid { place: place.to_owned(), rule: rule.to_owned() };
        let missing = |place| move || wrong(place, "is missing");
        let trace_id = self.trace_id.ok_or_else(missing("trace_id"))?;
        let trace_id = TraceId::parse(trace_id.as_str())
            .ok_or_else(|| wrong("trace_id", "is not 32 hexadecimal digits, or all zero"))?;
        let not_an_id = "is not 16 hexadecimal digits, or all zero";
        let span_id = self.span_id.ok_or_else(missing("span_id"))?;
        let span_id = SpanId::parse(span_id.as_str()).ok_or_else(|| wrong("span_id", not_an_id))?;
        let parent_span_id = match self.parent_span_id {
            Some(parent) if !parent.as_str().bytes().all(|digit| digit == b'0') => {
                Some(SpanId::parse(parent.as_str()).ok_or_else(|| wrong("parent_span_id", not_an_id))?)
            }
            _ => None,
        };
        if parent_span_id == Some(span_id) {
            return Err(wrong("parent_span_id", "is the span itself"));
        }
        let Timestamp(start) = self.start.ok_or_else(missing("start_timestamp"))?;
        let Timestamp(end) = self.end.ok_or_else(missing("timestamp"))?;
        if end < start {
            return Err(wrong("timestamp", "is before the start"));
        }
        Ok(Span {
            trace_id,
            span_id,
            parent_span_id,
            start_unix_nano: start,
            end_unix_nano: end,
            kind: SpanKind::Unspecified,
            parent_is_remote: parent_span_id.map(|_| self.is_root),
            sampled: self.sampled.or_else(|| header.of(trace_id).sampled),
            is_streamed: self.is_streamed,
            scope: 0,
            at,
            segment: None,
            changes: None,
        })
    }
}

/// Collects spans while they are read.
#[derive(Default)]
pub(super) struct Collected {
    spans: Vec<Span>,
    unread: u64,
    first_unread: Option<Invalid>,
}

impl Collected {
    /// Adds the spans of a list, which is under `name` in a payload; `read` parses each element. Returns the length of
    /// the list.
    ///
    /// # Errors
    ///
    /// It is not a list, or has too many spans.
    pub(super) fn add_list<'a>(
        &mut self,
        payload: &'a str,
        (name, list): (&str, &'a RawValue),
        header: &TraceHeader,
        read: impl Fn(&'a str) -> serde_json::Result<SpanIds<'a>>,
    ) -> Result<u64, SpansError> {
        let mut position = 0;
        elements(list, |element| {
            let place = || format!("{name}[{position}]");
            let span = match read(element) {
                Ok(span) => span
                    .span(place_in(payload, element), header)
                    .map_err(|invalid| Invalid { place: format!("{}.{}", place(), invalid.place), ..invalid }),
                Err(error) => Err(Invalid { place: place(), rule: SpansError::json_rule(&error) }),
            };
            position += 1;
            self.add(span)
        })
        .map_err(|error| SpansError::json(&error))??;
        Ok(position)
    }

    /// Adds the next span of a list, or records why it is invalid.
    ///
    /// # Errors
    ///
    /// There are too many spans.
    pub(super) fn add(&mut self, span: Result<Span, Invalid>) -> Result<(), SpansError> {
        match span {
            Ok(_) if self.spans.len() == MAX_SPANS => return Err(SpansError::TooMany),
            Ok(span) => self.spans.push(span),
            Err(invalid) => {
                self.unread += 1;
                self.first_unread.get_or_insert(invalid);
            }
        }
        Ok(())
    }

    /// Builds the batch; its spans point into the payload.
    ///
    /// # Errors
    ///
    /// Never fails in practice, because every range is within the payload.
    pub(super) fn finish(self, form: SpanForm, payload: Bytes) -> Result<ReadSpans, SpansError> {
        let Self { mut spans, unread, first_unread } = self;
        // The batch may be held for a minute, so spare capacity is freed.
        spans.shrink_to_fit();
        let (resources, scopes) = (vec![SpanResource::default()], vec![SpanScope::default()]);
        let spans = Spans::new(form, payload, resources, scopes, spans, true)
            .map_err(|error| SpansError::rule("spans", error.0))?;
        Ok(ReadSpans { spans, unread, first_unread })
    }
}

pub(in crate::sentry) fn place_in(payload: &str, part: &str) -> ByteRange {
    let start = (part.as_ptr() as usize).saturating_sub(payload.as_ptr() as usize);
    ByteRange { start: start as u32, len: part.len() as u32 }
}

/// Parses a boolean. The strings `"true"` and `"false"` count as well, as trace headers use them.
pub(super) fn truth(value: Option<&RawValue>) -> Option<bool> {
    match value?.get() {
        "true" | "\"true\"" => Some(true),
        "false" | "\"false\"" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
