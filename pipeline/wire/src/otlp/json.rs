//! OTLP as JSON: protobuf's mapping (protobuf.dev "ProtoJSON Format") with the exceptions of opentelemetry-proto
//! `docs/specification.md`, "JSON Protobuf Encoding".
//!
//! JSON is converted to the equivalent protobuf message and back, driven by one table of messages and fields
//! (`schema`). Thus OTLP itself is only decoded and encoded as protobuf.
//!
//! Senders differ, so the reader accepts more than the writer produces:
//!
//! | | read | written |
//! | --- | --- | --- |
//! | names of fields | lowerCamelCase, and as in the definition (`time_unix_nano`) | lowerCamelCase |
//! | integers of 64 bits | numbers and strings | strings |
//! | other integers | numbers and strings | numbers |
//! | ids of traces and spans | hexadecimal digits in any case | lower case |
//! | ids of profiles | 32 hexadecimal digits, or base64 | hexadecimal digits |
//! | bytes | base64 in the standard and the URL alphabet, padded or not | standard, padded |
//! | enumerations | numbers and names | numbers |
//! | doubles | numbers, numbers in strings, `"NaN"`, `"Infinity"`, `"-Infinity"` | numbers, and those three |
//! | fields that are zero, unless they are a value of an attribute | the same as left out, as is `null` | left out |
//! | unknown fields | ignored | |
//!
//! The reader rejects malformed JSON and values that do not fit their field. It also rejects duplicate fields, under
//! either name, and attribute values of two types, as protobuf's own readers do; text after the message; and field
//! names of earlier layouts (`sample` of opentelemetry-proto 1.8), since ignoring them would lose the profile. The
//! names of 1.9 are those of 1.10.
//!
//! Nesting is bounded: up to 128 levels of objects and lists in known fields. Unknown fields may nest to any depth,
//! because they are skipped without recursion.

mod base64;
mod read;
mod schema;
mod write;

use bytes::Bytes;

use super::decode::{Decoded, decode_as};
use super::error::DecodeError;
use super::layout::Layout;
use super::limits::Limits;
pub use super::signal::Message;
pub use write::write;

/// Called before memory is allocated for the protobuf message, with the total size in bytes so far. Returning `false`
/// stops the reader.
pub type Grant<'a> = &'a mut dyn FnMut(usize) -> bool;

/// Converts JSON to the equivalent protobuf message, with its fields in their order. JSON and message may each have at
/// most [`Limits::max_request`] bytes: a list of short numbers can grow to four times its size.
///
/// # Errors
///
/// See [`DecodeError`]; its paths use the names of the protocol's definition. If `grant` refuses memory, the limit of
/// `bytes of memory for the request read from JSON` is exceeded.
pub fn read(message: Message, json: &[u8], limits: &Limits, grant: Grant<'_>) -> Result<Vec<u8>, DecodeError> {
    let most = limits.max_request.min(i32::MAX as usize);
    if json.len() > most {
        return Err(DecodeError::LimitExceeded { what: "bytes of the request", limit: most as u64 });
    }
    read::read(schema::fields_of(message), json, most, grant)
}

/// Converts like [`read`](fn@read), and drops the text and unused memory: a request may be kept for long. `grant` says
/// why it refuses memory.
///
/// # Errors
///
/// `grant` refuses the memory, or the text is `unreadable`.
pub fn read_granted<R, E: From<R>>(
    message: Message,
    text: Bytes,
    limits: &Limits,
    mut grant: impl FnMut(usize) -> Result<(), R>,
    unreadable: impl FnOnce(DecodeError) -> E,
) -> Result<Bytes, E> {
    let mut refused = Ok(());
    let read = read(message, &text, limits, &mut |wanted| {
        refused = grant(wanted);
        refused.is_ok()
    });
    refused?;
    read.map(|request| request.into_boxed_slice().into()).map_err(unreadable)
}

/// Whether ids of traces or spans in a JSON request are base64, which [`read`](fn@read) accepts, but few other readers
/// do: OTLP has them in hexadecimal digits. Looks for keys that end in `Id` or `_id`, without parsing the text.
pub fn has_base64_ids(text: &[u8]) -> bool {
    let mut rest = text;
    while let Some(at) = rest.windows(3).position(|end| matches!(end, b"Id\"" | b"id\"")) {
        rest = &rest[at + 3..];
        let Some(value) = rest.trim_ascii_start().strip_prefix(b":") else { continue };
        let Some(value) = value.trim_ascii_start().strip_prefix(b"\"") else { continue };
        let end = value.iter().take(25).position(|byte| *byte == b'"');
        if end.is_some_and(|end| base64::is_id(&value[..end])) {
            return true;
        }
    }
    false
}

/// Decodes an `ExportProfilesServiceRequest` or a `ProfilesData` in JSON, with the limits of the protobuf
/// [`decode`](super::decode()). The batch keeps the converted protobuf message as
/// [`received`](profbridge_model::Profiles::received): it is equivalent except for unknown fields.
///
/// # Errors
///
/// See [`DecodeError`]; no part of the request is usable then.
pub fn decode(json: &[u8], limits: &Limits) -> Result<Decoded, DecodeError> {
    let request = read(Message::ProfilesRequest, json, limits, &mut |_| true)?;
    decode_as(request.into(), Layout::V1_10, limits).map_err(without_offset)
}

/// Removes the byte offset from an error of a message that was [read](fn@read) from JSON, because the sender never saw
/// those bytes.
pub fn without_offset(error: DecodeError) -> DecodeError {
    match error {
        DecodeError::Malformed { place, rule, .. } => DecodeError::Malformed { place, offset: None, rule },
        other => other,
    }
}
