//! What a header says, read when it is asked for; the header itself stays the bytes it came as.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

/// What an envelope's header says, as far as anything here needs to know.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub struct Header<'a> {
    /// The id of the event or transaction in it; not checked.
    pub event_id: Option<Cow<'a, str>>,
    /// The DSN, a stand-in for the request's own authentication. Holds a key: never printed.
    pub dsn: Option<Cow<'a, str>>,
    /// When it was sent, RFC 3339; not checked.
    pub sent_at: Option<Cow<'a, str>>,
}

/// What an item's header says, as far as anything here needs to know.
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
    /// How many things a container holds.
    pub item_count: Option<u64>,
    /// Whether the item's transaction was sampled; a profile whose transaction was not is sent without it.
    pub sampled: Option<bool>,
}

impl<'a> Header<'a> {
    /// Reads the line.
    ///
    /// # Errors
    ///
    /// It is no JSON object, one of the keys stands there twice, or its value is no string.
    pub fn read(line: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(line)
    }

    /// The line with another DSN, which may name a key: not to be printed. Everything else stays byte for byte. `None`
    /// where the line has no DSN.
    pub fn replace_dsn(line: &[u8], dsn: &str) -> Option<Bytes> {
        replace(line, RawHeader::read(line)?.dsn?, dsn)
    }

    /// The line with another time of sending. Everything else stays byte for byte. `None` where the line has none.
    pub fn replace_sent_at(line: &[u8], sent_at: &str) -> Option<Bytes> {
        replace(line, RawHeader::read(line)?.sent_at?, sent_at)
    }
}

/// The values of keys that may be replaced, as the text that stands there.
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

/// The line with a text in place of a value, which is a slice of it.
fn replace(line: &[u8], value: &RawValue, text: &str) -> Option<Bytes> {
    let old = value.get().as_bytes();
    let start = (old.as_ptr() as usize).checked_sub(line.as_ptr() as usize)?;
    let after = line.get(start + old.len()..)?;
    let new = serde_json::to_string(text).ok()?;
    Some([&line[..start], new.as_bytes(), after].concat().into())
}

impl<'a> ItemHeader<'a> {
    /// Reads the line.
    ///
    /// # Errors
    ///
    /// It is no JSON object, has no `type`, one of the keys stands there twice, or a value has another type.
    pub fn read(line: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(line)
    }

    /// Whether the item is a chunk of a continuous profile. `profile_chunk_ui` is the same type by another name
    /// (getsentry/relay `relay-server/src/envelope/item.rs`).
    pub fn is_profile_chunk(&self) -> bool {
        matches!(&*self.kind, "profile_chunk" | "profile_chunk_ui")
    }
}
