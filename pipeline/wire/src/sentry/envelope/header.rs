//! Parses headers on demand; the header itself is kept as the received bytes.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The keys of an envelope's header that are used here.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub struct Header<'a> {
    /// The id of the event or transaction; not validated.
    pub event_id: Option<Cow<'a, str>>,
    /// The DSN, which replaces the request's own authentication. Contains a key: never log it.
    pub dsn: Option<Cow<'a, str>>,
    /// The time of sending, RFC 3339; not validated.
    pub sent_at: Option<Cow<'a, str>>,
}

/// The keys of an item's header that are used here.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub struct ItemHeader<'a> {
    /// The item's type, such as `profile_chunk`.
    #[serde(rename = "type", borrow)]
    pub kind: Cow<'a, str>,
    /// The payload's length, in bytes.
    pub length: Option<u64>,
    /// The payload's media type.
    pub content_type: Option<Cow<'a, str>>,
    /// The platform, which for a `profile_chunk` must equal the payload's.
    pub platform: Option<Cow<'a, str>>,
    /// Number of elements in a container.
    pub item_count: Option<u64>,
    /// Whether the item's transaction was sampled; if not, a profile is sent without its transaction.
    pub sampled: Option<bool>,
}

impl<'a> Header<'a> {
    /// Parses the header line.
    ///
    /// # Errors
    ///
    /// The line is not a JSON object, a key is duplicate, or its value is not a string.
    pub fn read(line: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(line)
    }

    /// Replaces the DSN, which may contain a key: do not log the result. All other bytes stay the same. `None` if the
    /// line has no DSN.
    pub fn replace_dsn(line: &[u8], dsn: &str) -> Option<Bytes> {
        replace(line, RawHeader::read(line)?.dsn?, dsn)
    }

    /// Replaces the time of sending. All other bytes stay the same. `None` if the line has none.
    pub fn replace_sent_at(line: &[u8], sent_at: &str) -> Option<Bytes> {
        replace(line, RawHeader::read(line)?.sent_at?, sent_at)
    }
}

/// The replaceable values, as raw text.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct RawHeader<'a> {
    dsn: Option<&'a RawValue>,
    sent_at: Option<&'a RawValue>,
}

impl<'a> RawHeader<'a> {
    fn read(line: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }
}

/// Replaces a value, which is a slice of the line, by a text.
fn replace(line: &[u8], value: &RawValue, text: &str) -> Option<Bytes> {
    let old = value.get().as_bytes();
    let start = (old.as_ptr() as usize).checked_sub(line.as_ptr() as usize)?;
    let after = line.get(start + old.len()..)?;
    let new = serde_json::to_string(text).ok()?;
    Some([&line[..start], new.as_bytes(), after].concat().into())
}

impl<'a> ItemHeader<'a> {
    /// Parses the header line.
    ///
    /// # Errors
    ///
    /// The line is not a JSON object, has no `type`, a key is duplicate, or a value has the wrong type.
    pub fn read(line: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(line)
    }

    /// Whether the item is a chunk of a continuous profile. `profile_chunk_ui` is another name of the same type
    /// (getsentry/relay `relay-server/src/envelope/item.rs`).
    pub fn is_profile_chunk(&self) -> bool {
        matches!(&*self.kind, "profile_chunk" | "profile_chunk_ui")
    }
}
