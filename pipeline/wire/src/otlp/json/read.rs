//! JSON to protobuf, in one pass over the text.
//!
//! `serde_json` reads the text and hands over each key and value where it stands; nothing is kept of it but the message
//! under way. A message's length stands in front of it and is known at its end only: one byte is left for it, and where
//! it takes more the message is moved, once for each level that it is in.

use std::fmt;

use profbridge_model::varint;
use serde::Deserialize as _;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::Grant;
use super::base64;
use super::schema::{Field, Kind, Schema};
use crate::otlp::error::DecodeError;
use crate::otlp::reader::{FIXED32, FIXED64, LEN, VARINT};

/// Integers that are written with a fraction or an exponent are exact up to here; beyond it a double has passed over
/// some of them, and it is not known which one was meant.
const MOST_EXACT: f64 = (1u64 << f64::MANTISSA_DIGITS) as f64;

/// Reads a message of at most `most` bytes.
pub(super) fn read(
    schema: &'static Schema,
    json: &[u8],
    most: usize,
    grant: Grant<'_>,
) -> Result<Vec<u8>, DecodeError> {
    let text = std::str::from_utf8(json).map_err(|error| DecodeError::Malformed {
        place: "request".to_owned(),
        offset: Some(error.valid_up_to()),
        rule: "the text is not UTF-8".to_owned(),
    })?;
    let mut state = State { out: Vec::new(), most, grant, path: Vec::new(), stop: None };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let outcome = Object { state: &mut state, schema }.deserialize(&mut deserializer);
    match outcome.and_then(|()| deserializer.end()) {
        Ok(()) => Ok(state.out),
        Err(error) => Err(state.fault(text, &error)),
    }
}

/// What has been written, and where the reader is when it fails.
struct State<'g> {
    out: Vec<u8>,
    most: usize,
    grant: Grant<'g>,
    /// The place of a failure, the innermost step first.
    path: Vec<Step>,
    /// The limit that ended the reading, if it was one.
    stop: Option<DecodeError>,
}

/// A step to a place.
enum Step {
    Field(&'static str),
    Element(usize),
}

impl State<'_> {
    /// Makes room for more bytes.
    #[inline]
    fn reserve<E: serde::de::Error>(&mut self, more: usize) -> Result<(), E> {
        if self.out.capacity() - self.out.len() >= more {
            return Ok(());
        }
        self.grow(more)
    }

    #[cold]
    fn grow<E: serde::de::Error>(&mut self, more: usize) -> Result<(), E> {
        let needed = self.out.len() + more;
        let stop = |what, limit| DecodeError::LimitExceeded { what, limit };
        if needed > self.most {
            self.stop = Some(stop("bytes of the request, read from JSON", self.most as u64));
            return Err(E::custom("too large"));
        }
        let capacity = (self.out.capacity() * 2).max(needed).max(256).min(self.most);
        if !(self.grant)(capacity) {
            self.stop = Some(stop("bytes of memory for the request read from JSON", self.out.capacity() as u64));
            return Err(E::custom("no memory"));
        }
        self.out.reserve_exact(capacity - self.out.len());
        Ok(())
    }

    /// The key of a field. There is room for it.
    #[inline]
    fn key(&mut self, number: u32, wire_type: u32) {
        varint::put(&mut self.out, u64::from(number << 3 | wire_type));
    }

    /// Begins what has its length in front.
    #[inline]
    fn open<E: serde::de::Error>(&mut self, number: u32) -> Result<usize, E> {
        self.reserve(varint::MAX_LEN + 1)?;
        self.key(number, LEN);
        self.out.push(0);
        Ok(self.out.len())
    }

    /// Ends what began at a place.
    #[inline]
    fn close<E: serde::de::Error>(&mut self, start: usize) -> Result<(), E> {
        let length = self.out.len() - start;
        if length < 0x80 {
            self.out[start - 1] = length as u8;
            return Ok(());
        }
        self.close_long(start, length)
    }

    fn close_long<E: serde::de::Error>(&mut self, start: usize, length: usize) -> Result<(), E> {
        let more = varint::len(length as u64) - 1;
        self.reserve(more)?;
        let end = self.out.len();
        self.out.resize(end + more, 0);
        self.out.copy_within(start..end, start + more);
        let mut rest = length;
        for byte in &mut self.out[start - 1..start + more] {
            *byte = rest as u8 & 0x7f | 0x80;
            rest >>= 7;
        }
        self.out[start - 1 + more] &= 0x7f;
        Ok(())
    }

    /// What to say of a failure.
    #[cold]
    fn fault(mut self, text: &str, error: &serde_json::Error) -> DecodeError {
        if let Some(stop) = self.stop.take() {
            return stop;
        }
        let (line, column) = (error.line(), error.column());
        let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
        let said = error.to_string();
        let rule = said.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&said).to_owned();
        let offset = (line > 0).then(|| (start + column.saturating_sub(1)).min(text.len()));
        DecodeError::Malformed { place: self.place(), offset, rule }
    }

    /// The place of the failure, in the words of the protocol's definition.
    fn place(&self) -> String {
        let mut place = String::new();
        for step in self.path.iter().rev() {
            match step {
                Step::Field(name) if place.is_empty() => place.push_str(name),
                Step::Field(name) => {
                    place.push('.');
                    place.push_str(name);
                }
                Step::Element(index) => place.push_str(&format!("[{index}]")),
            }
        }
        if place.is_empty() { "request".to_owned() } else { place }
    }
}

/// Reads a message: what stands between its length and its end.
struct Object<'s, 'g> {
    state: &'s mut State<'g>,
    schema: &'static Schema,
}

impl<'de> DeserializeSeed<'de> for Object<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { state, schema } = self;
        let mut seen = 0u64;
        let mut set: Option<&'static str> = None;
        let mut next = 0;
        while let Some(key) = map.next_key_seed(Name { schema, next })? {
            let Some(index) = key else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            next = index + 1;
            let field = &schema.fields[index];
            if seen & 1 << index != 0 {
                state.path.push(Step::Field(field.proto_name));
                return Err(A::Error::custom(format_args!("the field {:?} stands twice", field.name)));
            }
            seen |= 1 << index;
            let value = Value { state: &mut *state, field, explicit: schema.one_of };
            let there = match map.next_value_seed(value) {
                Ok(there) => there,
                Err(error) => {
                    state.path.push(Step::Field(field.proto_name));
                    return Err(error);
                }
            };
            if schema.one_of && there {
                if let Some(other) = set {
                    let rule = format_args!("has both {other:?} and {:?}, and may have one of them", field.name);
                    return Err(A::Error::custom(rule));
                }
                set = Some(field.name);
            }
        }
        Ok(())
    }
}

/// Finds the field of a name: its number in the schema's list; `None` where there is no such field.
struct Name {
    schema: &'static Schema,
    /// The field that stands behind the one before: senders write them in order.
    next: usize,
}

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    #[inline]
    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Option<usize>, E> {
        let fields = self.schema.fields;
        let (before, after) = fields.split_at(self.next.min(fields.len()));
        if let Some(index) = after.iter().position(|field| field.name == name) {
            return Ok(Some(before.len() + index));
        }
        if let Some(index) = before.iter().position(|field| field.name == name) {
            return Ok(Some(index));
        }
        if let Some(index) = fields.iter().position(|field| field.proto_name == name) {
            return Ok(Some(index));
        }
        if self.schema.former.contains(&name) {
            let rule = format_args!(
                "the field {name:?} is of an earlier layout; JSON is read with the names of opentelemetry-proto 1.9 and later"
            );
            return Err(E::custom(rule));
        }
        Ok(None)
    }
}

/// Reads what a field holds, and says whether it was there: `null` is not.
struct Value<'s, 'g> {
    state: &'s mut State<'g>,
    field: &'static Field,
    /// Whether a zero is written.
    explicit: bool,
}

impl<'de> DeserializeSeed<'de> for Value<'_, '_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Value<'_, '_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        expected(self.field, f)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        let Self { state, field, explicit } = self;
        if field.repeated {
            deserializer.deserialize_seq(List { state, field })?;
        } else {
            Single { state, field, form: if explicit { Form::Explicit } else { Form::Implicit } }
                .deserialize(deserializer)?;
        }
        Ok(true)
    }
}

/// Reads the elements of a list.
struct List<'s, 'g> {
    state: &'s mut State<'g>,
    field: &'static Field,
}

impl<'de> Visitor<'de> for List<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        expected(self.field, f)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Self { state, field } = self;
        let packed = field.kind.is_packed();
        let form = if packed { Form::Packed } else { Form::Explicit };
        let before = state.out.len();
        let start = if packed { state.open(field.number)? } else { before };
        let mut index = 0;
        loop {
            match list.next_element_seed(Single { state: &mut *state, field, form }) {
                Ok(Some(())) => index += 1,
                Ok(None) => break,
                Err(error) => {
                    state.path.push(Step::Element(index));
                    return Err(error);
                }
            }
        }
        match (packed, index) {
            (false, _) => Ok(()),
            (true, 0) => {
                state.out.truncate(before);
                Ok(())
            }
            (true, _) => state.close(start),
        }
    }
}

/// How one value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// With its key, unless it is zero.
    Implicit,
    /// With its key.
    Explicit,
    /// Without a key, among others.
    Packed,
}

/// Reads one value.
struct Single<'s, 'g> {
    state: &'s mut State<'g>,
    field: &'static Field,
    form: Form,
}

impl<'de> DeserializeSeed<'de> for Single<'_, '_> {
    type Value = ();

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let Self { state, field, .. } = self;
        match field.kind {
            Kind::Message(schema) => {
                let start = state.open(field.number)?;
                Object { state: &mut *state, schema }.deserialize(deserializer)?;
                state.close(start)
            }
            Kind::Double => {
                // The text itself, since serde_json reads doubles not always to the last bit.
                let text = <&RawValue>::deserialize(deserializer)?.get();
                let value = double(text).map_err(D::Error::custom)?;
                Single { state, ..self }.double(value)
            }
            _ => deserializer.deserialize_any(Single { state, ..self }),
        }
    }
}

impl Single<'_, '_> {
    /// Writes the key, unless the form has none. `None` where nothing is written.
    #[inline]
    fn put<E: serde::de::Error>(&mut self, wire_type: u32, is_zero: bool) -> Result<Option<&mut Vec<u8>>, E> {
        if is_zero && self.form == Form::Implicit {
            return Ok(None);
        }
        self.state.reserve(2 * varint::MAX_LEN)?;
        if self.form != Form::Packed {
            self.state.key(self.field.number, wire_type);
        }
        Ok(Some(&mut self.state.out))
    }

    #[inline]
    fn varint<E: serde::de::Error>(mut self, value: u64) -> Result<(), E> {
        if let Some(out) = self.put(VARINT, value == 0)? {
            varint::put(out, value);
        }
        Ok(())
    }

    fn fixed64<E: serde::de::Error>(mut self, value: u64) -> Result<(), E> {
        if let Some(out) = self.put(FIXED64, value == 0)? {
            out.extend_from_slice(&value.to_le_bytes());
        }
        Ok(())
    }

    fn fixed32<E: serde::de::Error>(mut self, value: u32) -> Result<(), E> {
        if let Some(out) = self.put(FIXED32, value == 0)? {
            out.extend_from_slice(&value.to_le_bytes());
        }
        Ok(())
    }

    /// Negative zero is a value of its own.
    fn double<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.fixed64(value.to_bits())
    }

    #[inline]
    fn unsigned<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        let in_range = match self.field.kind {
            Kind::Uint64 => return self.varint(value),
            Kind::Fixed64 => return self.fixed64(value),
            Kind::Int64 => i64::try_from(value).is_ok(),
            Kind::Int32 | Kind::Enum(_) => i32::try_from(value).is_ok(),
            Kind::Uint32 => u32::try_from(value).is_ok(),
            Kind::Fixed32 => match u32::try_from(value) {
                Ok(value) => return self.fixed32(value),
                Err(_) => false,
            },
            _ => return Err(self.wrong(format_args!("the number {value}"))),
        };
        if in_range { self.varint(value) } else { Err(out_of_range(value)) }
    }

    fn signed<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        if let Ok(value) = u64::try_from(value) {
            return self.unsigned(value);
        }
        match self.field.kind {
            Kind::Int64 => self.varint(value as u64),
            // A negative integer has ten bytes, whatever its type (protobuf encoding guide, "Signed Integers").
            Kind::Int32 | Kind::Enum(_) if i32::try_from(value).is_ok() => self.varint(value as u64),
            Kind::Int32 | Kind::Enum(_) | Kind::Uint32 | Kind::Uint64 | Kind::Fixed32 | Kind::Fixed64 => {
                Err(out_of_range(value))
            }
            _ => Err(self.wrong(format_args!("the number {value}"))),
        }
    }

    /// An integer with a fraction of zero or with an exponent, such as `1e3`.
    fn fraction<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        if !self.field.kind.is_packed() || matches!(self.field.kind, Kind::Bool) {
            return Err(self.wrong(format_args!("the number {value}")));
        }
        if value.fract() != 0.0 {
            return Err(E::custom(format_args!("{value} is not an integer")));
        }
        if value.abs() > MOST_EXACT {
            return Err(E::custom(format_args!("{value} is out of range, or not exact")));
        }
        self.signed(value as i64)
    }

    /// A number in a string.
    fn quoted<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        if let Ok(value) = text.parse() {
            return self.unsigned(value);
        }
        if let Ok(value) = text.parse() {
            return self.signed(value);
        }
        if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') && text.len() > 18 {
            return Err(out_of_range(shortened(text)));
        }
        match text.parse::<f64>() {
            Ok(value) if text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte)) => {
                self.fraction(value)
            }
            _ => Err(self.wrong(format_args!("the string {}", shortened(text)))),
        }
    }

    fn text<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        if text.is_empty() && self.form == Form::Implicit {
            return Ok(());
        }
        let Self { state, field, .. } = self;
        state.reserve(2 * varint::MAX_LEN + text.len())?;
        state.key(field.number, LEN);
        varint::put(&mut state.out, text.len() as u64);
        state.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    /// Bytes, of which `most` may come of the text, as `read` reads them.
    fn bytes<E: serde::de::Error>(
        self,
        text: &str,
        most: usize,
        read: fn(&str, &mut [u8]) -> Result<usize, String>,
    ) -> Result<(), E> {
        if text.is_empty() && self.form == Form::Implicit {
            return Ok(());
        }
        let Self { state, field, .. } = self;
        let start = state.open(field.number)?;
        state.reserve(most)?;
        state.out.resize(start + most, 0);
        let length = read(text, &mut state.out[start..]).map_err(E::custom)?;
        state.out.truncate(start + length);
        state.close(start)
    }

    /// What is said of a value that does not fit the field.
    #[cold]
    fn wrong<E: serde::de::Error>(&self, what: fmt::Arguments<'_>) -> E {
        E::custom(format_args!("{what} stands where {} belongs", Expected(self.field)))
    }
}

impl Visitor<'_> for Single<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        expected(self.field, f)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        match self.field.kind {
            Kind::Bool => self.varint(value.into()),
            _ => Err(self.wrong(format_args!("{value}"))),
        }
    }

    #[inline]
    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.unsigned(value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.signed(value)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.fraction(value)
    }

    #[inline]
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        match self.field.kind {
            Kind::String => self.text(text),
            Kind::Bytes => self.bytes(text, base64::most_bytes(text.len()), base64::read),
            Kind::Hex => self.bytes(text, text.len().div_ceil(2), hexadecimal),
            Kind::ProfileId if text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                self.bytes(text, 16, hexadecimal)
            }
            Kind::ProfileId => self.bytes(text, base64::most_bytes(text.len()), base64::read),
            Kind::Enum(names) => match names.iter().find(|(name, _)| *name == text) {
                Some((_, value)) => self.signed((*value).into()),
                None => self.quoted(text),
            },
            Kind::Bool | Kind::Double | Kind::Message(_) => {
                Err(self.wrong(format_args!("the string {}", shortened(text))))
            }
            _ => self.quoted(text),
        }
    }
}

#[cold]
fn out_of_range<E: serde::de::Error>(value: impl fmt::Display) -> E {
    E::custom(format_args!("{value} is out of the range of its field"))
}

/// A double as it stands in the text: a number, or a string with a number or a name in it.
fn double(text: &str) -> Result<f64, String> {
    let refused = || format!("{} stands where a number belongs", shortened(text.trim_matches('"')));
    let Some(quoted) = text.strip_prefix('"') else {
        let value: f64 = text.parse().map_err(|_| refused())?;
        return if value.is_finite() {
            Ok(value)
        } else {
            Err(format!("{} is out of the range of a double", shortened(text)))
        };
    };
    match quoted.strip_suffix('"').unwrap_or(quoted) {
        "NaN" => Ok(f64::NAN),
        "Infinity" => Ok(f64::INFINITY),
        "-Infinity" => Ok(f64::NEG_INFINITY),
        // The standard library's reader takes more than JSON has numbers.
        number if number.starts_with(|c: char| c.is_ascii_digit() || c == '-') && !number.contains('i') => {
            double(number)
        }
        _ => Err(refused()),
    }
}

/// Reads hexadecimal digits in any case into `out`, and says how many bytes they were.
fn hexadecimal(text: &str, out: &mut [u8]) -> Result<usize, String> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    for ([high, low], byte) in pairs.iter().zip(&mut *out) {
        match (digit(*high), digit(*low)) {
            (Some(high), Some(low)) => *byte = high << 4 | low,
            _ => return Err(format!("{} is not hexadecimal", shortened(text))),
        }
    }
    if odd.is_empty() { Ok(pairs.len()) } else { Err(format!("{} is an odd number of digits", shortened(text))) }
}

/// A text as a message shows it: quoted, and not all of it.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// What a field is, in words.
struct Expected(&'static Field);

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(field) = self;
        f.write_str(match field.kind {
            Kind::Message(_) => "an object",
            Kind::String => "a string",
            Kind::Bytes => "base64",
            Kind::Hex => "an id in hexadecimal digits",
            Kind::ProfileId => "an id in hexadecimal digits or base64",
            Kind::Bool => "true or false",
            Kind::Double => "a number",
            Kind::Enum(_) => "an integer or a name of the enumeration",
            Kind::Int32 | Kind::Int64 | Kind::Uint32 | Kind::Uint64 | Kind::Fixed32 | Kind::Fixed64 => "an integer",
        })
    }
}

fn expected(field: &'static Field, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match field.repeated {
        true => write!(f, "a list, each element {}", Expected(field)),
        false => write!(f, "{}", Expected(field)),
    }
}
