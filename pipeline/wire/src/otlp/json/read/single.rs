//! Reads a single value of a field from JSON, for each of protobuf's types.

use std::fmt;

use profbridge_model::varint;
use serde::Deserialize as _;
use serde::de::{DeserializeSeed, Deserializer, Error as _, Visitor};
use serde_json::value::RawValue;

use super::ObjectSeed;
use super::state::ReadState;
use crate::otlp::json::base64;
use crate::otlp::json::schema::{Field, FieldKind};
use crate::otlp::reader::{FIXED32, FIXED64, LEN, VARINT};

/// Integers with a fraction or an exponent are exact up to this limit; above it a double skips integers, and the
/// intended one is unknown.
const MOST_EXACT: f64 = (1u64 << f64::MANTISSA_DIGITS) as f64;

/// How a single value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// With its key, unless it is zero.
    Implicit,
    /// With its key, even if it is zero.
    Explicit,
    /// Without a key, as an element of a packed list.
    Packed,
}

/// Reads a single value.
pub(super) struct Single<'s, 'g> {
    pub(super) state: &'s mut ReadState<'g>,
    pub(super) field: &'static Field,
    pub(super) form: Form,
}

impl<'de> DeserializeSeed<'de> for Single<'_, '_> {
    type Value = ();

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let Self { state, field, .. } = self;
        match field.kind {
            FieldKind::Message(schema) => {
                let start = state.open(field.number)?;
                ObjectSeed { state: &mut *state, schema }.deserialize(deserializer)?;
                state.close(start)
            }
            FieldKind::Double => {
                // Parses the raw text, since serde_json does not always parse doubles to the last bit.
                let text = <&RawValue>::deserialize(deserializer)?.get();
                let value = double(text).map_err(D::Error::custom)?;
                Single { state, ..self }.double(value)
            }
            _ => deserializer.deserialize_any(Single { state, ..self }),
        }
    }
}

impl Single<'_, '_> {
    /// Writes the key, unless the form has none. `None` if nothing is to be written.
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

    /// Negative zero is not zero here, so its bits are compared.
    fn double<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.fixed64(value.to_bits())
    }

    #[inline]
    fn unsigned<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        let in_range = match self.field.kind {
            FieldKind::Uint64 => return self.varint(value),
            FieldKind::Fixed64 => return self.fixed64(value),
            FieldKind::Int64 => i64::try_from(value).is_ok(),
            FieldKind::Int32 | FieldKind::Enum(_) => i32::try_from(value).is_ok(),
            FieldKind::Uint32 => u32::try_from(value).is_ok(),
            FieldKind::Fixed32 => match u32::try_from(value) {
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
            FieldKind::Int64 => self.varint(value as u64),
            // A negative integer takes ten bytes in every type (protobuf encoding guide, "Signed Integers").
            FieldKind::Int32 | FieldKind::Enum(_) if i32::try_from(value).is_ok() => self.varint(value as u64),
            FieldKind::Int32
            | FieldKind::Enum(_)
            | FieldKind::Uint32
            | FieldKind::Uint64
            | FieldKind::Fixed32
            | FieldKind::Fixed64 => Err(out_of_range(value)),
            _ => Err(self.wrong(format_args!("the number {value}"))),
        }
    }

    /// Reads an integer with a zero fraction or an exponent, such as `1e3`.
    fn fraction<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        if !self.field.kind.is_packed() || matches!(self.field.kind, FieldKind::Bool) {
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

    /// Reads a number in a string.
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

    /// Decodes bytes from text with `read`; the result has at most `most` bytes.
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

    /// The error for a value that does not fit the field.
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
            FieldKind::Bool => self.varint(value.into()),
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
            FieldKind::String => self.text(text),
            FieldKind::Bytes => self.bytes(text, base64::most_bytes(text.len()), base64::read),
            FieldKind::Hex if base64::is_id(text.as_bytes()) => {
                self.bytes(text, base64::most_bytes(text.len()), base64::read)
            }
            FieldKind::Hex => self.bytes(text, text.len().div_ceil(2), hexadecimal),
            FieldKind::ProfileId if text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                self.bytes(text, 16, hexadecimal)
            }
            FieldKind::ProfileId => self.bytes(text, base64::most_bytes(text.len()), base64::read),
            FieldKind::Enum(names) => match names.iter().find(|(name, _)| *name == text) {
                Some((_, value)) => self.signed((*value).into()),
                None => self.quoted(text),
            },
            FieldKind::Bool | FieldKind::Double | FieldKind::Message(_) => {
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

/// Parses a double: a number, or a string with a number or a name.
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
        // The standard library's parser accepts more than JSON numbers.
        number if number.starts_with(|c: char| c.is_ascii_digit() || c == '-') && !number.contains('i') => {
            double(number)
        }
        _ => Err(refused()),
    }
}

/// Decodes hexadecimal digits in any case into `out`, and returns the number of bytes.
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

/// A text for an error message: quoted and truncated.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// The expected type of a field, in words.
struct Expected(&'static Field);

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(field) = self;
        f.write_str(match field.kind {
            FieldKind::Message(_) => "an object",
            FieldKind::String => "a string",
            FieldKind::Bytes => "base64",
            FieldKind::Hex => "an id in hexadecimal digits",
            FieldKind::ProfileId => "an id in hexadecimal digits or base64",
            FieldKind::Bool => "true or false",
            FieldKind::Double => "a number",
            FieldKind::Enum(_) => "an integer or a name of the enumeration",
            FieldKind::Int32
            | FieldKind::Int64
            | FieldKind::Uint32
            | FieldKind::Uint64
            | FieldKind::Fixed32
            | FieldKind::Fixed64 => "an integer",
        })
    }
}

/// Describes the expected value of a field.
pub(super) fn expected(field: &'static Field, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match field.repeated {
        true => write!(f, "a list, each element {}", Expected(field)),
        false => write!(f, "{}", Expected(field)),
    }
}
