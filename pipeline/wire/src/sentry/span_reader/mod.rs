//! What the readers of Sentry's two forms of spans have in common: [`transaction_reader`](super::transaction_reader)
//! and [`span_v2_reader`](super::span_v2_reader).
//!
//! A payload is taken apart as far as the pipeline asks for it, and every span keeps its place in the payload. So that
//! nothing of unknown depth is walked through, what is not asked for is passed over as text.

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

/// The most spans that are read of one payload. SDKs send up to 1000 (Sentry developer documentation, "SDK
/// guidelines for tracing", `maxSpans`); the smallest span takes some 130 bytes of JSON.
pub const MAX_SPANS: usize = 1 << 17;

/// Why a payload of spans cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpansError {
    /// It is too large.
    #[error("the payload has {bytes} bytes, {limit} are allowed")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The largest that is read.
        limit: usize,
    },
    /// It has more than [`MAX_SPANS`] spans.
    #[error("the payload has more than {MAX_SPANS} spans")]
    TooMany,
    /// It is no JSON, or a key that is read stands there twice or has a value of another type. The message holds no
    /// values.
    #[error("cannot be read: {0}")]
    Json(String),
    /// It breaks a rule.
    #[error(transparent)]
    Rule(#[from] Invalid),
}

impl SpansError {
    pub(super) fn rule(place: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::Rule(Invalid { place: place.into(), rule: rule.into() })
    }

    /// The parser's message without what it quotes: spans are full of names and addresses.
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

/// What was read of a payload.
#[derive(Debug, Clone)]
pub struct ReadSpans {
    /// The spans that break no rule.
    pub spans: Spans,
    /// How many elements of the list of spans do, or are none. They stay in the payload.
    pub unread: u64,
    /// The first of them.
    pub first_unread: Option<Invalid>,
}

/// A payload as text.
///
/// # Errors
///
/// It is larger than `limit` or 4 GiB, or not UTF-8.
pub(super) fn text_of(payload: &[u8], limit: usize) -> Result<&str, SpansError> {
    let limit = limit.min(u32::MAX as usize);
    if payload.len() > limit {
        return Err(SpansError::TooLarge { bytes: payload.len(), limit });
    }
    std::str::from_utf8(payload).map_err(|error| SpansError::Json(error.to_string()))
}

/// The ids and times of a span, as they stand there.
pub(super) struct Named<'a> {
    pub(super) trace_id: Option<Text<'a>>,
    pub(super) span_id: Option<Text<'a>>,
    pub(super) parent_span_id: Option<Text<'a>>,
    pub(super) start: Option<Timestamp>,
    pub(super) end: Option<Timestamp>,
    /// Whether it is the first span of its process: then its parent is in another one.
    pub(super) is_root: bool,
    pub(super) sampled: Option<bool>,
    /// Whether it is one of a container.
    pub(super) is_streamed: bool,
}

impl Named<'_> {
    /// The span, whose place is `at`.
    ///
    /// # Errors
    ///
    /// The first rule that it breaks: those after which Sentry refuses a transaction (getsentry/relay
    /// `relay-event-normalization/src/validation.rs`: ids and times are there, and it ends after it starts), and
    /// that it is not in itself.
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

/// Spans while they are read one after the other.
#[derive(Default)]
pub(super) struct Collected {
    spans: Vec<Span>,
    unread: u64,
    first_unread: Option<Invalid>,
}

impl Collected {
    /// Takes the spans of a list, which stands under `name` in a payload: each element as `read` has it. How many
    /// elements the list has.
    ///
    /// # Errors
    ///
    /// It is no list, or has too many spans.
    pub(super) fn add_list<'a>(
        &mut self,
        payload: &'a str,
        (name, list): (&str, &'a RawValue),
        header: &TraceHeader,
        read: impl Fn(&'a str) -> serde_json::Result<Named<'a>>,
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

    /// Takes the next span of a list, or notes why it cannot be read.
    ///
    /// # Errors
    ///
    /// There are too many.
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

    /// The batch, whose spans are in the payload.
    ///
    /// # Errors
    ///
    /// Never: a place is one of the payload.
    pub(super) fn finish(self, form: SpanForm, payload: Bytes) -> Result<ReadSpans, SpansError> {
        let Self { mut spans, unread, first_unread } = self;
        // What is held for a minute should not have the slack of its growth.
        spans.shrink_to_fit();
        let (resources, scopes) = (vec![SpanResource::default()], vec![SpanScope::default()]);
        let spans = Spans::new(form, payload, resources, scopes, spans, true)
            .map_err(|error| SpansError::rule("spans", error.0))?;
        Ok(ReadSpans { spans, unread, first_unread })
    }
}

/// Where a part of a payload stands in it.
pub(in crate::sentry) fn place_in(payload: &str, part: &str) -> ByteRange {
    let start = (part.as_ptr() as usize).saturating_sub(payload.as_ptr() as usize);
    ByteRange { start: start as u32, len: part.len() as u32 }
}

/// Whether a value is `true` or `false`; a string of that counts too, as trace headers have it.
pub(super) fn truth(value: Option<&RawValue>) -> Option<bool> {
    match value?.get() {
        "true" | "\"true\"" => Some(true),
        "false" | "\"false\"" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
