//! OTLP as JSON: protobuf's mapping (protobuf.dev "ProtoJSON Format") with the exceptions that opentelemetry-proto
//! `docs/specification.md`, "JSON Protobuf Encoding", makes of it.
//!
//! JSON is turned into the protobuf message that says the same, and back, by one table of messages and fields
//! (`schema`). Whoever reads or writes OTLP therefore does it once, for protobuf.
//!
//! What is read is more than what is written, since senders differ:
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
//! Refused are, beside what is no JSON and what does not fit its field: a field that stands twice in a message, in
//! either of its names, and an attribute's value of two types, as protobuf's own readers refuse them; text behind the
//! message; and fields that have the names of earlier layouts (`sample` of opentelemetry-proto 1.8), since a reader
//! that ignored them would lose the profile. The names of 1.9 are those of 1.10.
//!
//! Nesting is bounded: 128 objects and lists in each other are read where they are known, any number of them in fields
//! that are not, without recursion.

mod base64;
mod read;
mod schema;
mod write;

use super::decode::{Decoded, decode_as};
use super::error::DecodeError;
use super::layout::Layout;
use super::limits::Limits;
use schema::Schema;

pub use write::write;

/// The messages that stand alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// `ExportProfilesServiceRequest`, and `ProfilesData`, which has the same fields.
    ProfilesRequest,
    /// `ExportProfilesServiceResponse`.
    ProfilesResponse,
    /// `ExportTraceServiceRequest`, and `TracesData`, which has the same field.
    TracesRequest,
    /// `ExportTraceServiceResponse`.
    TracesResponse,
}

impl Message {
    fn schema(self) -> &'static Schema {
        match self {
            Self::ProfilesRequest => &schema::PROFILES_REQUEST,
            Self::ProfilesResponse => &schema::PROFILES_RESPONSE,
            Self::TracesRequest => &schema::TRACES_REQUEST,
            Self::TracesResponse => &schema::TRACES_RESPONSE,
        }
    }
}

/// Asked before memory is taken for the protobuf message: with how many bytes there are to be of it in all. `false`
/// ends the reading.
pub type Grant<'a> = &'a mut dyn FnMut(usize) -> bool;

/// Reads a message in JSON as the protobuf message that says the same, its fields in their order. That has at most
/// [`Limits::max_request`] bytes, and so has the JSON; four times as many come of
/// lists of short numbers.
///
/// # Errors
///
/// See [`DecodeError`]; its places are in the words of the protocol's definition. What was not granted is an excess of
/// `bytes of memory for the request read from JSON`.
pub fn read(message: Message, json: &[u8], limits: &Limits, grant: Grant<'_>) -> Result<Vec<u8>, DecodeError> {
    let most = limits.max_request.min(i32::MAX as usize);
    if json.len() > most {
        return Err(DecodeError::LimitExceeded { what: "bytes of the request", limit: most as u64 });
    }
    read::read(message.schema(), json, most, grant)
}

/// Decodes an `ExportProfilesServiceRequest` or a `ProfilesData` in JSON, as [`decode`](super::decode()) does one in
/// protobuf, with the same limits. The batch then knows the protobuf message as what it was
/// [received](profbridge_model::Profiles::received) as: it says the same, but for fields that are not known.
///
/// # Errors
///
/// See [`DecodeError`]; nothing of the request is usable then.
pub fn decode(json: &[u8], limits: &Limits) -> Result<Decoded, DecodeError> {
    let request = read(Message::ProfilesRequest, json, limits, &mut |_| true)?;
    decode_as(request.into(), Layout::V1_10, limits).map_err(without_offset)
}

/// What is wrong with a message that was [read](fn@read) from JSON: without the offset in its bytes, which nobody sent.
pub fn without_offset(error: DecodeError) -> DecodeError {
    match error {
        DecodeError::Malformed { place, rule, .. } => DecodeError::Malformed { place, offset: None, rule },
        other => other,
    }
}
