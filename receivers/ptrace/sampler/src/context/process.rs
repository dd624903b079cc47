//! The process context: a header at the start of a mapping with a known name, and a protobuf message.
//!
//! Source: OTEP 4719. The header is the signature `OTEL_CTX` (8 bytes), the version (4), the length of the message (4),
//! when it was published (8, CLOCK_BOOTTIME; 0 while it is changed) and the message's address (8). The message is
//! `ProcessContext` of `opentelemetry.proto.processcontext.v1development`: a resource and attributes.

use prost::{Message, Oneof};

use super::schema::AttributeSelection;
use crate::message::AttributeValue;
use crate::runtime::{TargetMemory, half_at, word, word_at};

/// The longest message that is read, in bytes.
pub const MAX_PAYLOAD: usize = 64 << 10;

/// The maximum number of attributes of a resource that are passed on.
pub const MAX_RESOURCE_ATTRIBUTES: usize = 128;

/// The maximum size of all attributes together, keys and values, in bytes.
pub const MAX_RESOURCE: usize = 16 << 10;

/// The longest key of an attribute, in bytes.
pub const MAX_KEY: usize = 256;

/// The longest string value of an attribute, in bytes.
pub const MAX_RESOURCE_TEXT: usize = 4096;

const SIGNATURE: &[u8; 8] = b"OTEL_CTX";
const VERSION: u32 = 2;
const HEADER: usize = 32;
const PUBLISHED: u64 = 16;

/// How often a publication is read if it changes during the read.
const ATTEMPTS: usize = 3;

/// The prefixes that the path of such a mapping may have.
const NAMES: [&[u8]; 3] = [b"/memfd:OTEL_CTX", b"[anon_shmem:OTEL_CTX]", b"[anon:OTEL_CTX]"];

/// The attribute that names the layout of thread records.
const SCHEMA: &str = "threadlocal.schema_version";
const KEYS: &str = "threadlocal.attribute_key_map";

/// Whether a mapping with this path may be a process context.
pub fn is_publication(path: &[u8]) -> bool {
    NAMES.iter().any(|name| path.starts_with(name))
}

/// The context that a process publishes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Published {
    /// The publication time, in nanoseconds since boot. It changes with each publication.
    pub at: u64,
    /// The resource's attributes, the last one of each key. Only strings and integers are included.
    pub resource: Vec<(String, AttributeValue)>,
    /// The name of the layout of the threads' records; empty if not given.
    schema: String,
    /// The keys to which these records refer by index.
    keys: Vec<String>,
}

/// Why a process context is not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// There is no context at this address: the mapping is gone, or has other content.
    #[error("there is none")]
    Missing,
    /// The process is changing the context.
    #[error("it is being changed")]
    Changing,
    /// The context has another version.
    #[error("it is of version {0}, and only version 2 is read")]
    Version(u32),
    /// The context is too large.
    #[error("it has {0} bytes, more than 65536")]
    TooLarge(u32),
    /// The context's message is malformed.
    #[error("its message is malformed: {0}")]
    Malformed(String),
}

/// The publication time of the context at this address; `None` if it cannot be read or is being changed.
pub fn published_at(address: u64, target: &mut dyn TargetMemory) -> Option<u64> {
    word(target, address.wrapping_add(PUBLISHED)).filter(|at| *at != 0)
}

/// Reads the process context at this address.
///
/// # Errors
///
/// Why it cannot be read. [`Unreadable::Missing`] and [`Unreadable::Changing`] may be temporary.
pub fn publication(address: u64, target: &mut dyn TargetMemory) -> Result<Published, Unreadable> {
    for _ in 0..ATTEMPTS {
        let header = read_header(address, target).ok_or(Unreadable::Missing)?;
        if header.get(..8) != Some(&SIGNATURE[..]) {
            return Err(Unreadable::Missing);
        }
        let at = word_at(&header, PUBLISHED as usize);
        if at == 0 {
            continue;
        }
        let (version, length) = (half_at(&header, 8), half_at(&header, 12));
        let sensible = version == VERSION && length as usize <= MAX_PAYLOAD;
        let mut payload = vec![0; if sensible { length as usize } else { 0 }];
        let read = payload.is_empty() || target.read(word_at(&header, 24), &mut payload);
        // The data is consistent only if the header is the same afterwards.
        if read_header(address, target) != Some(header) {
            continue;
        }
        return match (version, sensible, read) {
            (VERSION, true, true) => decode(at, &payload),
            (VERSION, true, false) => Err(Unreadable::Malformed("it is not in memory".to_owned())),
            (VERSION, false, _) => Err(Unreadable::TooLarge(length)),
            (version, _, _) => Err(Unreadable::Version(version)),
        };
    }
    Err(Unreadable::Changing)
}

fn read_header(address: u64, target: &mut dyn TargetMemory) -> Option<[u8; HEADER]> {
    let mut header = [0; HEADER];
    target.read(address, &mut header).then_some(header)
}

fn decode(at: u64, payload: &[u8]) -> Result<Published, Unreadable> {
    let message = ProcessContext::decode(payload).map_err(|error| Unreadable::Malformed(error.to_string()))?;
    let mut published = Published { at, ..Published::default() };
    let mut bytes = 0;
    // In reverse, so that the last one of each key counts.
    for attribute in message.resource.unwrap_or_default().attributes.into_iter().rev() {
        let Some((key, value)) = attribute.plain() else { continue };
        let size = key.len() + value.size();
        let fits = published.resource.len() < MAX_RESOURCE_ATTRIBUTES && bytes + size <= MAX_RESOURCE;
        if fits && !published.resource.iter().any(|(known, _)| *known == key) {
            bytes += size;
            published.resource.push((key, value));
        }
    }
    published.resource.reverse();
    for KeyValue { key, value } in message.attributes {
        match (&*key, value.and_then(|value| value.value)) {
            (key, Some(Any::Text(text))) if key == SCHEMA.as_bytes() => {
                published.schema = String::from_utf8_lossy(&text[..text.len().min(MAX_KEY)]).into_owned();
            }
            (key, Some(Any::Array(array))) if key == KEYS.as_bytes() => {
                let name = |value: AnyValue| match value.value {
                    Some(Any::Text(text)) => String::from_utf8(text).unwrap_or_default(),
                    _ => String::new(),
                };
                // A value that is not a name keeps its position, since names are found by index.
                published.keys = array.values.into_iter().take(256).map(name).collect();
            }
            _ => {}
        }
    }
    Ok(published)
}

impl Published {
    /// The layout of the process's thread records, for the requested attributes `allowed`; `None` if it is not given or
    /// unknown.
    pub fn schema(&self, allowed: &[String]) -> Option<AttributeSelection> {
        AttributeSelection::new(&self.schema, &self.keys, allowed)
    }
}

impl AttributeValue {
    /// The size that counts towards the limit, in bytes.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Int(_) => 8,
        }
    }
}

// Strings are read as bytes, so that a string that is not UTF-8 does not make the whole message unreadable.

#[derive(Clone, PartialEq, Message)]
struct ProcessContext {
    #[prost(message, optional, tag = "1")]
    resource: Option<ResourceMessage>,
    #[prost(message, repeated, tag = "2")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceMessage {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "Any", tags = "1, 3, 5")]
    value: Option<Any>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Any {
    #[prost(bytes, tag = "1")]
    Text(Vec<u8>),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(message, tag = "5")]
    Array(ArrayValue),
}

#[derive(Clone, PartialEq, Message)]
struct ArrayValue {
    #[prost(message, repeated, tag = "1")]
    values: Vec<AnyValue>,
}

impl KeyValue {
    /// The attribute, if it is a string or an integer within the limits.
    fn plain(self) -> Option<(String, AttributeValue)> {
        let key = String::from_utf8(self.key).ok().filter(|key| (1..=MAX_KEY).contains(&key.len()))?;
        let value = match self.value?.value? {
            Any::Text(text) => {
                let text = String::from_utf8(text).ok().filter(|text| (1..=MAX_RESOURCE_TEXT).contains(&text.len()))?;
                AttributeValue::Text(text)
            }
            Any::Int(number) => AttributeValue::Int(number),
            Any::Array(_) => return None,
        };
        Some((key, value))
    }
}
