//! Converts protobuf to JSON.
//!
//! The message may use any valid encoding: fields in any order, lists in pieces, messages in parts, unknown fields. If
//! all fields of one name are adjacent, as in practice, each is visited twice: to find it, and to write it.

use super::Message;
use super::base64;
use super::schema::{Field, FieldKind, MAX_FIELDS, Schema, fields_of};
use crate::json;
use crate::otlp::error::{DecodeError, Fault, Result};
use crate::otlp::reader::{FIXED32, FIXED64, LEN, ProtobufReader, VARINT};

/// Maximum nesting of messages, the same as prost's.
const MAX_DEPTH: u32 = 100;

/// Appends a message as JSON on one line, without a line break. Unknown fields are left out.
///
/// # Errors
///
/// The bytes are not this message, or nest deeper than a hundred messages, or `out` exceeds `most` bytes. Part of the
/// message may have been appended: up to `most` bytes, plus one string or number.
pub fn write(
    message: Message,
    protobuf: &[u8],
    most: usize,
    out: &mut Vec<u8>,
) -> std::result::Result<(), DecodeError> {
    if protobuf.len() > i32::MAX as usize {
        return Err(DecodeError::LimitExceeded { what: "bytes of the message", limit: i32::MAX as u64 });
    }
    let mut text = BoundedText { out, most };
    Ok(object(fields_of(message), ProtobufReader::new(protobuf), &mut text, 0)?)
}

/// The output and its maximum length.
struct BoundedText<'a> {
    out: &'a mut Vec<u8>,
    most: usize,
}

impl BoundedText<'_> {
    /// Fails if the output is too long.
    #[inline]
    fn in_limit(&self) -> Result<()> {
        match self.out.len() > self.most {
            true => Err(Fault::limit("bytes of JSON", self.most as u64)),
            false => Ok(()),
        }
    }
}

/// The fields of one name in a message.
#[derive(Debug, Clone, Copy)]
struct FieldPlaces<'a> {
    /// A reader at the first one.
    from: ProtobufReader<'a>,
    /// End offset of the last one.
    end: usize,
    /// Number of fields.
    count: usize,
}

fn object(schema: &'static Schema, message: ProtobufReader<'_>, text: &mut BoundedText<'_>, depth: u32) -> Result<()> {
    if depth >= MAX_DEPTH {
        return Err(Fault::limit("messages in each other", u64::from(MAX_DEPTH)));
    }
    let mut places = [None; MAX_FIELDS];
    let mut last = 0;
    let mut reader = message;
    loop {
        let from = reader;
        let Some(key) = reader.key()? else { break };
        let Some(index) = index(schema, key >> 3, last) else {
            reader.skip(key)?;
            continue;
        };
        check(&schema.fields[index], key, reader)?;
        reader.skip(key)?;
        last = index;
        let place = places[index].get_or_insert(FieldPlaces { from, end: 0, count: 0 });
        *place = FieldPlaces { end: reader.position(), count: place.count + 1, ..*place };
    }
    text.out.push(b'{');
    let start = text.out.len();
    for (index, (field, place)) in schema.fields.iter().zip(places).enumerate() {
        // The last field of a `oneof` wins (protobuf encoding guide, "Last One Wins").
        let Some(place) = place.filter(|_| !schema.one_of || index == last) else { continue };
        let before = text.out.len();
        if before > start {
            text.out.push(b',');
        }
        text.out.push(b'"');
        text.out.extend_from_slice(field.name.as_bytes());
        text.out.extend_from_slice(b"\":");
        let there = match field.repeated {
            true => list(field, place, text, depth),
            false => single(field, place, schema.one_of, text, depth),
        };
        if !there.map_err(|fault| fault.within(field.proto_name))? {
            text.out.truncate(before);
        }
    }
    text.out.push(b'}');
    text.in_limit()
}

/// The index of a field number, which is usually the same as the last one or the next.
#[inline]
fn index(schema: &'static Schema, number: u32, last: usize) -> Option<usize> {
    let fields = schema.fields;
    let is = |index: usize| fields.get(index).is_some_and(|field| field.number == number);
    match () {
        () if is(last) => Some(last),
        () if is(last + 1) => Some(last + 1),
        () => fields.iter().position(|field| field.number == number),
    }
}

fn wire_type(kind: FieldKind) -> u32 {
    match kind {
        FieldKind::Message(_) | FieldKind::String | FieldKind::Bytes | FieldKind::Hex | FieldKind::ProfileId => LEN,
        FieldKind::Double | FieldKind::Fixed64 => FIXED64,
        FieldKind::Fixed32 => FIXED32,
        FieldKind::Bool
        | FieldKind::Int32
        | FieldKind::Int64
        | FieldKind::Uint32
        | FieldKind::Uint64
        | FieldKind::Enum(_) => VARINT,
    }
}

/// Rejects a field with the wrong wire type. A list of numbers may be packed or not.
#[inline]
fn check(field: &'static Field, key: u32, reader: ProtobufReader<'_>) -> Result<()> {
    let found = key & 7;
    if found == wire_type(field.kind) || (found == LEN && field.repeated && field.kind.is_packed()) {
        return Ok(());
    }
    let rule = format!("field {} has wire type {found}, which is not its own", field.number);
    Err(Fault::wire(reader.position(), rule).within(field.proto_name))
}

/// Calls `take` for each field with this number, after its key.
fn each<'a>(
    field: &'static Field,
    place: FieldPlaces<'a>,
    mut take: impl FnMut(u32, &mut ProtobufReader<'a>) -> Result<()>,
) -> Result<()> {
    let mut reader = place.from;
    while reader.position() < place.end {
        let Some(key) = reader.key()? else { break };
        match key >> 3 == field.number {
            true => take(key & 7, &mut reader)?,
            false => reader.skip(key)?,
        }
    }
    Ok(())
}

/// Writes a list, and returns whether it has elements.
fn list(field: &'static Field, place: FieldPlaces<'_>, text: &mut BoundedText<'_>, depth: u32) -> Result<bool> {
    text.out.push(b'[');
    let mut index = 0;
    each(field, place, |wire, reader| {
        let mut one = |reader: &mut ProtobufReader<'_>, text: &mut BoundedText<'_>| {
            if index > 0 {
                text.out.push(b',');
            }
            text.in_limit()?;
            index += 1;
            let written = match field.kind {
                FieldKind::Message(schema) => object(schema, reader.message()?, text, depth + 1),
                kind => scalar(kind, reader, text.out).map(drop),
            };
            written.map_err(|fault| fault.within(format_args!("[{}]", index - 1)))
        };
        if wire != LEN || !field.kind.is_packed() {
            return one(reader, text);
        }
        let mut packed = reader.message()?;
        while !packed.rest().is_empty() {
            one(&mut packed, text)?;
        }
        Ok(())
    })?;
    text.out.push(b']');
    Ok(index > 0)
}

/// Writes a single value, and returns whether anything was written: a zero only if it is `explicit`.
fn single(
    field: &'static Field,
    place: FieldPlaces<'_>,
    explicit: bool,
    text: &mut BoundedText<'_>,
    depth: u32,
) -> Result<bool> {
    let start = text.out.len();
    let mut is_zero = true;
    if let FieldKind::Message(schema) = field.kind {
        let mut parts = Vec::new();
        each(field, place, |_, reader| {
            let part = reader.message()?;
            if place.count == 1 {
                return object(schema, part, text, depth + 1);
            }
            // Concatenating the parts of a message gives the merged message (protobuf encoding guide, "Last One Wins").
            parts.extend_from_slice(part.rest());
            Ok(())
        })?;
        if place.count > 1 {
            object(schema, ProtobufReader::new(&parts), text, depth + 1)?;
        }
        return Ok(true);
    }
    each(field, place, |_, reader| {
        text.out.truncate(start);
        is_zero = scalar(field.kind, reader, text.out)?;
        Ok(())
    })?;
    Ok(explicit || !is_zero)
}

/// Writes a scalar value, and returns whether it is zero.
fn scalar(kind: FieldKind, reader: &mut ProtobufReader<'_>, out: &mut Vec<u8>) -> Result<bool> {
    let position = reader.position();
    let number = match kind {
        FieldKind::String => {
            let text = reader.bytes()?;
            if std::str::from_utf8(text).is_err() {
                return Err(Fault::wire(position, "the text is not UTF-8"));
            }
            out.push(b'"');
            json::escaped(out, text);
            out.push(b'"');
            return Ok(text.is_empty());
        }
        FieldKind::Bytes | FieldKind::Hex | FieldKind::ProfileId => {
            let bytes = reader.bytes()?;
            out.push(b'"');
            match kind {
                FieldKind::Bytes => base64::write(out, bytes),
                // An id of another length is invalid, and a wrong number of digits is read as base64.
                FieldKind::ProfileId if bytes.len() != 16 => base64::write(out, bytes),
                _ => hexadecimal(out, bytes),
            }
            out.push(b'"');
            return Ok(bytes.is_empty());
        }
        FieldKind::Double | FieldKind::Fixed64 => reader.fixed64()?,
        FieldKind::Fixed32 => reader.fixed32()?.into(),
        FieldKind::Message(_) => return Err(Fault::wire(position, "is a message")),
        FieldKind::Bool
        | FieldKind::Int32
        | FieldKind::Int64
        | FieldKind::Uint32
        | FieldKind::Uint64
        | FieldKind::Enum(_) => reader.varint()?,
    };
    match kind {
        FieldKind::Bool => out.extend_from_slice(if number == 0 { b"false" } else { b"true" }),
        FieldKind::Double => double(out, f64::from_bits(number)),
        // Protobuf takes a 32-bit integer from the lower half.
        FieldKind::Int32 | FieldKind::Enum(_) => signed(out, (number as i32).into()),
        FieldKind::Uint32 | FieldKind::Fixed32 => json::number(out, u64::from(number as u32)),
        FieldKind::Int64 => {
            out.push(b'"');
            signed(out, number as i64);
            out.push(b'"');
        }
        _ => {
            out.push(b'"');
            json::number(out, number);
            out.push(b'"');
        }
    }
    Ok(number == 0)
}

fn signed(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    json::number(out, value.unsigned_abs());
}

/// Writes a double with as few digits as identify it; JSON has no number for some doubles.
fn double(out: &mut Vec<u8>, value: f64) {
    let name: &[u8] = match value {
        value if value.is_nan() => b"\"NaN\"",
        f64::INFINITY => b"\"Infinity\"",
        f64::NEG_INFINITY => b"\"-Infinity\"",
        // Writing a finite number into memory does not fail.
        value => return drop(serde_json::to_writer(out, &value)),
    };
    out.extend_from_slice(name);
}

fn hexadecimal(out: &mut Vec<u8>, bytes: &[u8]) {
    let digit = |value: u8| b"0123456789abcdef"[usize::from(value & 15)];
    out.extend(bytes.iter().flat_map(|&byte| [digit(byte >> 4), digit(byte)]));
}
