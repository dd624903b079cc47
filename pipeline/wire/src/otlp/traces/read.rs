//! Reads the fields of a span, a resource or a scope from the bytes of the batch.
//!
//! [`decode`](super::decode::decode) has validated everything. Byte ranges of another batch, or of another format, read
//! as empty.

use std::borrow::Cow;

use profbridge_model::spans::{SpanResource, SpanScope};
use profbridge_model::{Span, Spans};

use super::super::error::Result;
use super::super::reader::ProtobufReader;

/// An attribute's value, decoded from the message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AnyValue<'a> {
    /// No value.
    Empty,
    /// Text.
    Text(&'a str),
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Double(f64),
    /// Bytes.
    Bytes(&'a [u8]),
    /// A list.
    Array(Array<'a>),
    /// A list of keys and values.
    KeyValueList(Attributes<'a>),
}

impl<'a> AnyValue<'a> {
    /// The text, if the value is text.
    pub fn text(self) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The integer, if the value is one. Numbers as text count too, since producers write codes either way.
    pub fn int(self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(number),
            Self::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// A thread's id as text, which is what Sentry joins spans and profiles by: text, or a whole number, which producers
    /// without integers write as a double.
    pub fn thread_id(self) -> Option<Cow<'a, str>> {
        /// From here on, not every whole number has a double of its own: 2^53.
        const INEXACT: f64 = 9_007_199_254_740_992.0;
        match self {
            Self::Text(id) => Some(id.into()),
            Self::Int(id) => Some(id.to_string().into()),
            Self::Double(id) if id.fract() == 0.0 && id.abs() < INEXACT => Some((id as i64).to_string().into()),
            _ => None,
        }
    }

    fn read(reader: ProtobufReader<'a>) -> Self {
        let mut value = Self::Empty;
        each_field(reader, |key, reader| {
            // The last value wins, as in protobuf.
            value = match key {
                0x0a => Self::Text(text_of(reader.bytes()?)),
                0x10 => Self::Bool(reader.varint()? != 0),
                0x18 => Self::Int(reader.varint()? as i64),
                0x21 => Self::Double(f64::from_bits(reader.fixed64()?)),
                0x2a => Self::Array(Array(reader.message()?)),
                0x32 => Self::KeyValueList(Attributes { reader: reader.message()?, key: 0x0a }),
                0x3a => Self::Bytes(reader.bytes()?),
                _ => return reader.skip(key),
            };
            Ok(())
        });
        value
    }
}

/// A list of values.
#[derive(Debug, Clone, Copy)]
pub struct Array<'a>(ProtobufReader<'a>);

impl PartialEq for Array<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0.rest() == other.0.rest()
    }
}

impl<'a> Iterator for Array<'a> {
    type Item = AnyValue<'a>;

    fn next(&mut self) -> Option<AnyValue<'a>> {
        next_message(&mut self.0, 0x0a).map(AnyValue::read)
    }
}

/// Keys and values, in order. OTLP forbids duplicate keys; if there are any, the first one counts.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a> {
    reader: ProtobufReader<'a>,
    /// The key of the message field that has them.
    key: u32,
}

impl PartialEq for Attributes<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.reader.rest() == other.reader.rest() && self.key == other.key
    }
}

impl<'a> Attributes<'a> {
    /// The key of a `KeyValue`.
    pub(super) fn key_of(message: ProtobufReader<'a>) -> &'a str {
        let mut found = "";
        each_field(message, |key, message| match key {
            0x0a => message.bytes().map(|text| found = text_of(text)),
            _ => message.skip(key),
        });
        found
    }

    /// The key and the value of a `KeyValue`.
    #[inline]
    pub(super) fn one(message: ProtobufReader<'a>) -> (&'a str, AnyValue<'a>) {
        if let Some(attribute) = short_text(message.rest()) {
            return attribute;
        }
        let (mut key, mut value) = ("", AnyValue::Empty);
        each_field(message, |field, message| match field {
            0x0a => message.bytes().map(|text| key = text_of(text)),
            0x12 => message.message().map(|inner| value = AnyValue::read(inner)),
            _ => message.skip(field),
        });
        (key, value)
    }

    /// The value of a key.
    pub fn find(mut self, key: &str) -> Option<AnyValue<'a>> {
        self.find_map(|(found, value)| (found == key).then_some(value))
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (&'a str, AnyValue<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        next_message(&mut self.reader, self.key).map(Self::one)
    }
}

/// Decodes the most common attribute without loops: a key and a text of less than 128 bytes each, and nothing else.
#[inline]
fn short_text(message: &[u8]) -> Option<(&str, AnyValue<'_>)> {
    let [0x0a, length @ 0..0x80, rest @ ..] = message else { return None };
    let (key, rest) = rest.split_at_checked(usize::from(*length))?;
    let [0x12, length @ 0..0x80, value @ ..] = rest else { return None };
    let [0x0a, text_length @ 0..0x80, text @ ..] = value else { return None };
    let is_all = value.len() == usize::from(*length) && text.len() == usize::from(*text_length);
    is_all.then(|| (text_of(key), AnyValue::Text(text_of(text))))
}

/// The fields of a span that the model does not have.
#[derive(Debug, Clone, Copy)]
pub struct OtherSpanFields<'a> {
    /// The message from its first attribute, event and link on; empty if there is none.
    attributes: ProtobufReader<'a>,
    events: ProtobufReader<'a>,
    links: ProtobufReader<'a>,
    /// Its name.
    pub name: &'a str,
    /// `trace_state`, the W3C header.
    pub trace_state: &'a str,
    /// `Status.code`: 0 unset, 1 ok, 2 error.
    pub status_code: u64,
    /// `Status.message`.
    pub status_message: &'a str,
}

impl<'a> OtherSpanFields<'a> {
    /// Reads the fields of a span of this batch.
    pub fn of(spans: &'a Spans, span: &Span) -> Self {
        let mut reader = ProtobufReader::at(spans.bytes(), span.at);
        let none = ProtobufReader::new(&[]);
        let mut fields = Self {
            attributes: none,
            events: none,
            links: none,
            name: "",
            trace_state: "",
            status_code: 0,
            status_message: "",
        };
        loop {
            let from = reader;
            let Ok(Some(key)) = reader.key() else { break };
            let first = match key {
                0x4a => Some(&mut fields.attributes),
                0x5a => Some(&mut fields.events),
                0x6a => Some(&mut fields.links),
                _ => None,
            };
            if let Some(first) = first.filter(|first| first.rest().is_empty()) {
                *first = from;
            }
            let read = match key {
                0x1a => reader.bytes().map(|text| fields.trace_state = text_of(text)),
                0x2a => reader.bytes().map(|text| fields.name = text_of(text)),
                0x7a => reader.message().map(|inner| fields.status(inner)),
                _ => reader.skip(key),
            };
            if read.is_err() {
                break;
            }
        }
        fields
    }

    fn status(&mut self, reader: ProtobufReader<'a>) {
        each_field(reader, |key, reader| match key {
            0x12 => reader.bytes().map(|text| self.status_message = text_of(text)),
            0x18 => reader.varint().map(|code| self.status_code = code),
            _ => reader.skip(key),
        });
    }

    /// Its attributes, without changes made on the way.
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes { reader: self.attributes, key: 0x4a }
    }

    /// Its events.
    pub fn events(&self) -> impl Iterator<Item = Event<'a>> + use<'a> {
        let mut reader = self.events;
        std::iter::from_fn(move || next_message(&mut reader, 0x5a)).map(Event::read)
    }

    /// The spans that it links to.
    pub fn links(&self) -> impl Iterator<Item = SpanLink<'a>> + use<'a> {
        let mut reader = self.links;
        std::iter::from_fn(move || next_message(&mut reader, 0x6a)).map(|link| {
            let attributes = Attributes { reader: link, key: 0x22 };
            let mut found = SpanLink { trace_id: &[], span_id: &[], flags: 0, attributes };
            each_field(link, |key, reader| match key {
                0x0a => reader.bytes().map(|id| found.trace_id = id),
                0x12 => reader.bytes().map(|id| found.span_id = id),
                0x35 => reader.fixed32().map(|flags| found.flags = flags),
                _ => reader.skip(key),
            });
            found
        })
    }
}

/// A span that another one links to.
#[derive(Debug, Clone, Copy)]
pub struct SpanLink<'a> {
    /// Its trace.
    pub trace_id: &'a [u8],
    /// Its id.
    pub span_id: &'a [u8],
    /// W3C's flags in the lowest byte; 0 if they are unknown.
    pub flags: u32,
    /// The attributes of the link.
    pub attributes: Attributes<'a>,
}

/// Something that happened during a span.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    message: ProtobufReader<'a>,
    /// The time, in nanoseconds since the Unix epoch.
    pub time_unix_nano: u64,
    /// The event's name.
    pub name: &'a str,
}

impl<'a> Event<'a> {
    fn read(message: ProtobufReader<'a>) -> Self {
        let mut event = Self { message, time_unix_nano: 0, name: "" };
        each_field(message, |key, reader| match key {
            0x09 => reader.fixed64().map(|time| event.time_unix_nano = time),
            0x12 => reader.bytes().map(|text| event.name = text_of(text)),
            _ => reader.skip(key),
        });
        event
    }

    /// Its attributes.
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes { reader: self.message, key: 0x1a }
    }
}

/// The attributes received with a resource, without those added on the way ([`SpanResource::added`]).
pub fn resource_attributes<'a>(
    spans: &'a Spans,
    resource: &'a SpanResource,
) -> impl Iterator<Item = (&'a str, AnyValue<'a>)> {
    messages(spans, &resource.parts).flat_map(|resource| Attributes { reader: resource, key: 0x0a })
}

/// The name and the version of a scope.
pub fn scope_name<'a>(spans: &'a Spans, scope: &'a SpanScope) -> (&'a str, &'a str) {
    let (mut name, mut version) = ("", "");
    for reader in messages(spans, &scope.parts) {
        each_field(reader, |key, reader| match key {
            0x0a => reader.bytes().map(|text| name = text_of(text)),
            0x12 => reader.bytes().map(|text| version = text_of(text)),
            _ => reader.skip(key),
        });
    }
    (name, version)
}

/// The attributes of a scope.
pub fn scope_attributes<'a>(spans: &'a Spans, scope: &'a SpanScope) -> impl Iterator<Item = (&'a str, AnyValue<'a>)> {
    messages(spans, &scope.parts).flat_map(|scope| Attributes { reader: scope, key: 0x1a })
}

/// The `Resource` in the fields of `ResourceSpans`, or the `InstrumentationScope` in those of `ScopeSpans`: field 1 of
/// both. Protobuf merges a repeated message, so all are read.
fn messages<'a>(
    spans: &'a Spans,
    parts: &'a [profbridge_model::ByteRange],
) -> impl Iterator<Item = ProtobufReader<'a>> {
    parts.iter().flat_map(|part| {
        let mut reader = ProtobufReader::at(spans.bytes(), *part);
        std::iter::from_fn(move || next_message(&mut reader, 0x0a))
    })
}

/// Calls `read` with each field of a message, up to an invalid one; a batch has none.
#[inline(always)]
fn each_field<'a>(mut reader: ProtobufReader<'a>, mut read: impl FnMut(u32, &mut ProtobufReader<'a>) -> Result<()>) {
    while let Ok(Some(key)) = reader.key() {
        if read(key, &mut reader).is_err() {
            break;
        }
    }
}

/// The next message in the given field; other fields are skipped.
fn next_message<'a>(reader: &mut ProtobufReader<'a>, field: u32) -> Option<ProtobufReader<'a>> {
    while let Ok(Some(key)) = reader.key() {
        if key == field {
            return reader.message().ok();
        }
        reader.skip(key).ok()?;
    }
    None
}

/// Text that was already validated as UTF-8.
fn text_of(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}
