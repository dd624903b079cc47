//! Decodes a request into a batch of spans that points into it.
//!
//! The decoder checks once: the wire format of every message, that strings are UTF-8, the depth and number of values,
//! the lengths of ids, and that a span does not end before it begins. An invalid span is left out and reported; the
//! others stay. A wire format error outside of a span rejects the request, since the start of the next span is then
//! unknown.

use bytes::Bytes;
use profbridge_model::dictionary::Invalid;
use profbridge_model::spans::{SpanResource, SpanScope};
use profbridge_model::{ByteRange, Span, SpanForm, SpanId, SpanKind, Spans, TraceId, varint};

use super::super::error::{DecodeError, Fault, Result};
use super::super::limits::{Budget, Limits, VALUE_DEPTH};
use super::super::reader::ProtobufReader;
use super::read::{AnyValue, Attributes};

/// Bit 8 of `Span.flags`: whether `IS_REMOTE` is valid. Bit 9: the parent is remote.
pub(super) const HAS_IS_REMOTE: u32 = 0x100;
pub(super) const IS_REMOTE: u32 = 0x200;

/// Bit 0 of `Span.flags`: W3C's flag `sampled`.
const SAMPLED: u32 = 1;

/// The attribute that names a Sentry span's original format before it was converted to OTLP (`sentry::spans_to_otlp`).
pub(crate) const FORM: &str = "sentry.form";
/// The value for spans of a Sentry container.
pub(crate) const STREAMED: &str = "span_v2";

/// Maximum number of invalid spans reported individually; the others are only counted.
const MOST_SAID: usize = 8;

/// The result of decoding a request.
#[derive(Debug, Clone)]
pub struct DecodedSpans {
    /// The valid spans.
    pub spans: Spans,
    /// The first invalid spans.
    pub refused: Vec<RefusedSpan>,
    /// Number of invalid spans.
    pub refused_spans: u64,
}

impl DecodedSpans {
    /// Heap size in bytes.
    pub fn memory(&self) -> usize {
        self.spans.size_bytes() as usize
    }
}

/// An invalid span, which was left out.
pub type RefusedSpan = Invalid;

/// Decodes an `ExportTraceServiceRequest`, which has the same layout as `TracesData`.
///
/// # Errors
///
/// The request is malformed, or exceeds a limit.
pub fn decode(request: Bytes, limits: &Limits) -> std::result::Result<DecodedSpans, DecodeError> {
    if request.len() > limits.max_request.min(i32::MAX as usize) {
        return Err(DecodeError::LimitExceeded { what: "bytes", limit: limits.max_request as u64 });
    }
    let mut decoder = SpanDecoder {
        budget: Budget::new(limits, request.len()),
        resources: Vec::new(),
        scopes: Vec::new(),
        spans: Vec::new(),
        refused: Vec::new(),
        refused_spans: 0,
        whole: true,
    };
    decoder.request(ProtobufReader::new(&request))?;
    let SpanDecoder { budget: _, resources, scopes, spans, refused, refused_spans, whole } = decoder;
    let spans = Spans::new(SpanForm::Otlp, request, resources, scopes, spans, whole && refused_spans == 0)
        .map_err(|error| DecodeError::from(Fault::value("request", error.0)))?;
    Ok(DecodedSpans { spans, refused, refused_spans })
}

struct SpanDecoder {
    budget: Budget,
    resources: Vec<SpanResource>,
    scopes: Vec<SpanScope>,
    spans: Vec<Span>,
    refused: Vec<RefusedSpan>,
    refused_spans: u64,
    /// Whether the batch contains everything of the request.
    whole: bool,
}

impl SpanDecoder {
    fn request(&mut self, mut reader: ProtobufReader<'_>) -> Result<()> {
        while let Some(key) = reader.key()? {
            match key {
                0x0a => {
                    let at = self.resources.len();
                    let inner = reader.message()?;
                    self.resource_spans(inner).map_err(|fault| fault.within(format_args!("resource_spans[{at}]")))?;
                }
                // Unknown fields are only forwarded with the received bytes; a re-encoded message cannot have them.
                _ => reader.other(key, 1)?,
            }
        }
        Ok(())
    }

    fn resource_spans(&mut self, mut reader: ProtobufReader<'_>) -> Result<()> {
        self.budget.charge::<SpanResource>(1)?;
        let at = self.resources.len() as u32;
        self.resources.push(SpanResource::default());
        let mut parts = FieldRanges::default();
        let mut scopes = 0;
        loop {
            let start = reader.position();
            let Some(key) = reader.key()? else { break };
            match key {
                0x0a => {
                    let inner = reader.message()?;
                    self.resource(inner).map_err(|fault| fault.within("resource"))?;
                }
                0x12 => {
                    let inner = reader.message()?;
                    let named = |fault: Fault| fault.within(format_args!("scope_spans[{scopes}]"));
                    self.scope_spans(inner, at).map_err(named)?;
                    scopes += 1;
                    continue;
                }
                _ => schema_url_or_unknown(&mut reader, key)?,
            }
            parts.add(start, &reader, &mut self.budget)?;
        }
        self.resources[at as usize].parts = parts.0;
        Ok(())
    }

    fn resource(&mut self, mut reader: ProtobufReader<'_>) -> Result<()> {
        while let Some(key) = reader.key()? {
            match key {
                0x0a => self.key_value(reader.message()?, 0).map_err(|fault| fault.within("attributes"))?,
                0x10 => drop(reader.varint()?),
                _ => reader.other(key, 2)?,
            }
        }
        Ok(())
    }

    fn scope_spans(&mut self, mut reader: ProtobufReader<'_>, resource: u32) -> Result<()> {
        self.budget.charge::<SpanScope>(1)?;
        let at = self.scopes.len() as u32;
        self.scopes.push(SpanScope { resource, parts: Vec::new() });
        let mut parts = FieldRanges::default();
        let mut spans = 0_u64;
        loop {
            let start = reader.position();
            let Some(key) = reader.key()? else { break };
            match key {
                0x0a => {
                    let inner = reader.message()?;
                    self.scope(inner).map_err(|fault| fault.within("scope"))?;
                }
                0x12 => {
                    let inner = reader.message()?;
                    self.decode_or_report(inner, at, spans)?;
                    spans += 1;
                    continue;
                }
                _ => schema_url_or_unknown(&mut reader, key)?,
            }
            parts.add(start, &reader, &mut self.budget)?;
        }
        self.scopes[at as usize].parts = parts.0;
        Ok(())
    }

    fn scope(&mut self, mut reader: ProtobufReader<'_>) -> Result<()> {
        while let Some(key) = reader.key()? {
            match key {
                0x0a | 0x12 => {
                    let at = reader.position();
                    utf8(reader.bytes()?, at)?;
                }
                0x1a => self.key_value(reader.message()?, 0).map_err(|fault| fault.within("attributes"))?,
                0x20 => drop(reader.varint()?),
                _ => reader.other(key, 4)?,
            }
        }
        Ok(())
    }

    /// Decodes one span, or reports why it is left out. Only a limit of the whole request stops the decoder.
    fn decode_or_report(&mut self, reader: ProtobufReader<'_>, scope: u32, number: u64) -> Result<()> {
        self.budget.charge::<Span>(1)?;
        match self.span(reader, scope) {
            Ok(span) => self.spans.push(span),
            Err(fault) => match DecodeError::from(fault.within(format_args!("spans[{number}]"))) {
                // Only this span's values are too deep; the other spans may be valid.
                DecodeError::LimitExceeded { what: VALUE_DEPTH, limit } => {
                    self.refuse(&format!("spans[{number}]"), format!("values nest deeper than {limit}"));
                }
                DecodeError::LimitExceeded { what, limit } => return Err(Fault::limit(what, limit)),
                DecodeError::Malformed { place, rule, .. } => self.refuse(&place, rule),
                // Cannot happen: spans have a single layout.
                DecodeError::UnclearLayout { why, .. } => self.refuse("spans", why.to_owned()),
            },
        }
        Ok(())
    }

    fn refuse(&mut self, place: &str, rule: String) {
        self.refused_spans += 1;
        if self.refused.len() < MOST_SAID {
            let resource = self.resources.len().saturating_sub(1);
            let scope = self.scopes.iter().filter(|of| of.resource as usize == resource).count().saturating_sub(1);
            let place = format!("resource_spans[{resource}].scope_spans[{scope}].{place}");
            self.refused.push(Invalid { place, rule });
        }
    }

    fn span(&mut self, mut reader: ProtobufReader<'_>, scope: u32) -> Result<Span> {
        let at = reader.place();
        let (mut trace_id, mut span_id, mut parent): (&[u8], &[u8], &[u8]) = (&[], &[], &[]);
        let (mut start, mut end, mut kind, mut flags) = (0, 0, 0, 0);
        let mut is_streamed = false;
        while let Some(key) = reader.key()? {
            match key {
                0x0a => trace_id = reader.bytes()?,
                0x12 => span_id = reader.bytes()?,
                0x1a => text(&mut reader, "trace_state")?,
                0x22 => parent = reader.bytes()?,
                0x2a => text(&mut reader, "name")?,
                0x30 => kind = reader.varint()?,
                0x39 => start = reader.fixed64()?,
                0x41 => end = reader.fixed64()?,
                0x4a => {
                    let attribute = reader.message()?;
                    is_streamed |= attribute.rest().len() == STREAMED_LEN && says_streamed(attribute);
                    self.key_value(attribute, 0).map_err(|fault| fault.within("attributes"))?;
                }
                // The sender's counts of dropped attributes, events and links.
                0x50 | 0x60 | 0x70 => drop(reader.varint()?),
                0x5a => self.event(reader.message()?).map_err(|fault| fault.within("events"))?,
                0x6a => self.link(reader.message()?).map_err(|fault| fault.within("links"))?,
                0x7a => self.status(reader.message()?).map_err(|fault| fault.within("status"))?,
                FLAGS => flags = reader.fixed32()?,
                _ => reader.other(key, 16)?,
            }
        }
        let trace_id = TraceId::new(trace_id).ok_or_else(|| wrong_id("trace_id", 16, trace_id))?;
        let span_id = SpanId::new(span_id).ok_or_else(|| wrong_id("span_id", 8, span_id))?;
        // "If this is a root span, then this field must be empty"; some senders write zeros.
        let parent_span_id = match parent {
            [] => None,
            parent if parent.iter().all(|byte| *byte == 0) => None,
            parent => Some(SpanId::new(parent).ok_or_else(|| wrong_id("parent_span_id", 8, parent))?),
        };
        if end < start {
            return Err(Fault::value("end_time_unix_nano", format!("{end} is before the start at {start}")));
        }
        if parent_span_id == Some(span_id) {
            return Err(Fault::value("parent_span_id", "is the span itself"));
        }
        Ok(Span {
            trace_id,
            span_id,
            parent_span_id,
            start_unix_nano: start,
            end_unix_nano: end,
            kind: SpanKind::from_number(kind),
            parent_is_remote: (flags & HAS_IS_REMOTE != 0).then_some(flags & IS_REMOTE != 0),
            sampled: (flags & SAMPLED != 0).then_some(true),
            is_streamed,
            scope,
            at,
            segment: None,
            changes: None,
        })
    }

    fn event(&mut self, mut reader: ProtobufReader<'_>) -> Result<()> {
        while let Some(key) = reader.key()? {
            match key {
                0x09 => drop(reader.fixed64()?),
                0x12 => text(&mut reader, "name")?,
                0x1a => self.key_value(reader.message()?, 0).map_err(|fault| fault.within("attributes"))?,
                0x20 => drop(reader.varint()?),
                _ => reader.other(key, 4)?,
            }
        }
        Ok(())
    }

    fn link(&mut self, mut reader: ProtobufReader<'_>) -> Result<()> {
        while let Some(key) = reader.key()? {
            match key {
                0x0a | 0x12 => drop(reader.bytes()?),
                0x1a => text(&mut reader, "trace_state")?,
                0x22 => self.key_value(reader.message()?, 0).map_err(|fault| fault.within("attributes"))?,
                0x28 => drop(reader.varint()?),
                0x35 => drop(reader.fixed32()?),
                _ => reader.other(key, 6)?,
            }
        }
        Ok(())
    }

    fn status(&mut self, mut reader: ProtobufReader<'_>) -> Result<()> {
        while let Some(key) = reader.key()? {
            match key {
                0x12 => text(&mut reader, "message")?,
                0x18 => drop(reader.varint()?),
                // Field 1 was a code in early releases, and is ignored (opentelemetry-proto `trace.proto`, `Status`).
                _ => reader.skip(key)?,
            }
        }
        Ok(())
    }

    #[inline]
    fn key_value(&mut self, reader: ProtobufReader<'_>, depth: u32) -> Result<()> {
        if is_plain(reader.rest()) {
            return self.budget.value(depth);
        }
        self.any_key_value(reader, depth)
    }

    #[inline(never)]
    fn any_key_value(&mut self, mut reader: ProtobufReader<'_>, depth: u32) -> Result<()> {
        while let Some(key) = reader.key()? {
            match key {
                0x0a => text(&mut reader, "key")?,
                0x12 => self.value(reader.message()?, depth)?,
                // A reference to a string table, which only profiles have.
                0x18 => drop(reader.varint()?),
                _ => reader.other(key, 3)?,
            }
        }
        Ok(())
    }

    fn value(&mut self, mut reader: ProtobufReader<'_>, depth: u32) -> Result<()> {
        self.budget.value(depth)?;
        while let Some(key) = reader.key()? {
            match key {
                0x0a => text(&mut reader, "value")?,
                0x10 | 0x18 | 0x40 => drop(reader.varint()?),
                0x21 => drop(reader.fixed64()?),
                0x2a => {
                    let mut inner = reader.message()?;
                    while let Some(key) = inner.key()? {
                        match key {
                            0x0a => self.value(inner.message()?, depth + 1)?,
                            _ => inner.other(key, 1)?,
                        }
                    }
                }
                0x32 => {
                    let mut inner = reader.message()?;
                    while let Some(key) = inner.key()? {
                        match key {
                            0x0a => self.key_value(inner.message()?, depth + 1)?,
                            _ => inner.other(key, 1)?,
                        }
                    }
                }
                0x3a => drop(reader.bytes()?),
                _ => reader.other(key, 8)?,
            }
        }
        Ok(())
    }
}

/// The key of `Span.flags`: field 16, four bytes.
pub(super) const FLAGS: u32 = 16 << 3 | 5;

/// Length of the attribute that marks a span of a Sentry container: a key and a text, each after two bytes, and the two
/// bytes of the value. Few other attributes have this length, so hardly any has to be compared.
const STREAMED_LEN: usize = 2 + FORM.len() + 4 + STREAMED.len();

/// Whether an attribute marks a span of a Sentry container.
fn says_streamed(attribute: ProtobufReader<'_>) -> bool {
    Attributes::one(attribute) == (FORM, AnyValue::Text(STREAMED))
}

/// The byte ranges of fields that are kept unmodified. Adjacent fields are merged.
#[derive(Default)]
struct FieldRanges(Vec<ByteRange>);

impl FieldRanges {
    /// Adds the field from `start` to the reader's position.
    fn add(&mut self, start: usize, reader: &ProtobufReader<'_>, budget: &mut Budget) -> Result<()> {
        let (start, len) = (start as u32, (reader.position() - start) as u32);
        match self.0.last_mut() {
            Some(last) if last.start + last.len == start => last.len += len,
            _ => {
                budget.charge::<ByteRange>(1)?;
                self.0.push(ByteRange { start, len });
            }
        }
        Ok(())
    }
}

/// Reads the fields of `ResourceSpans` and `ScopeSpans` other than their messages: `schema_url`, and unknown ones.
fn schema_url_or_unknown(reader: &mut ProtobufReader<'_>, key: u32) -> Result<()> {
    match key {
        0x1a => text(reader, "schema_url"),
        _ => reader.other(key, 3),
    }
}

/// Whether a `KeyValue` has the most common shape: an ASCII key and an ASCII text or an integer, both encoded in the
/// shortest form, each shorter than 128 bytes, and nothing else. Such a message is valid and is checked without loops.
/// Its lengths and field keys are ASCII too, so the whole message is checked at once.
#[inline]
fn is_plain(message: &[u8]) -> bool {
    let [0x0a, length @ ..0x80, rest @ ..] = message else { return false };
    let Some((key, [0x12, length @ ..0x80, value @ ..])) = rest.split_at_checked(usize::from(*length)) else {
        return false;
    };
    if value.len() != usize::from(*length) {
        return false;
    }
    match value {
        [0x0a, length @ ..0x80, text @ ..] => text.len() == usize::from(*length) && is_ascii(message),
        [0x18, number @ ..] => {
            let mut number = number;
            varint::take(&mut number).is_some() && number.is_empty() && is_ascii(key)
        }
        _ => false,
    }
}

/// Faster than the standard library for short texts: that one is optimised for long texts and stops early.
#[inline]
fn is_ascii(text: &[u8]) -> bool {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let (words, rest) = text.as_chunks::<8>();
    let all = match text.last_chunk::<8>() {
        Some(last) => words.iter().fold(u64::from_le_bytes(*last), |all, word| all | u64::from_le_bytes(*word)),
        None => rest.iter().fold(0, |all, byte| all | u64::from(*byte)),
    };
    all & HIGH == 0
}

/// Reads a text field.
#[inline]
fn text(reader: &mut ProtobufReader<'_>, field: &'static str) -> Result<()> {
    let at = reader.position();
    utf8(reader.bytes()?, at).map_err(|fault| fault.within(field))
}

/// Nearly all keys and values are ASCII, about twenty bytes long, and unaligned. `from_utf8` checks most of such a text
/// byte by byte, since it only loads aligned words; `is_ascii` loads unaligned ones.
#[inline]
fn utf8(text: &[u8], at: usize) -> Result<()> {
    if is_ascii(text) || std::str::from_utf8(text).is_ok() {
        return Ok(());
    }
    Err(Fault::wire(at, "is not UTF-8"))
}

#[cold]
fn wrong_id(field: &'static str, length: usize, id: &[u8]) -> Fault {
    let rule = match id.len() {
        0 => "is missing".to_owned(),
        len if len == length => "is all zero".to_owned(),
        len => format!("has {len} bytes where an id has {length}"),
    };
    Fault::value(field, rule)
}
