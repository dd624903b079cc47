//! An envelope to bytes.

use std::borrow::Cow;

use bytes::Bytes;
use profbridge_model::envelope::Payload;
use profbridge_model::{Envelope, Item};
use serde_json::{Map, Value};

use super::{Ending, ItemHeader};

/// Writes an envelope. Headers and payloads are written as they are, with one exception: where an item's header would
/// lie about its payload (a payload with a line's end and no `length`, or another `length`: somebody changed the item),
/// its `length` is set.
///
/// # Errors
///
/// A payload is only in the body that was received ([`Payload::Packed`]): that has to be unpacked first.
pub fn write(envelope: &Envelope, ending: Ending) -> Result<Vec<u8>, StillPacked> {
    let size: usize = envelope.items.iter().map(|item| item.header.len() + item.payload.len() + 32).sum();
    let mut out = Vec::with_capacity(envelope.header.len() + size + 1);
    match &envelope.header[..] {
        [] => out.extend_from_slice(b"{}"),
        header => out.extend_from_slice(header),
    }
    for (position, item) in envelope.items.iter().enumerate() {
        let Payload::Plain(payload) = &item.payload else { return Err(StillPacked { item: position }) };
        out.push(b'\n');
        out.extend_from_slice(&honest(&item.header, payload));
        out.push(b'\n');
        out.extend_from_slice(payload);
    }
    if ending == Ending::Newline {
        out.push(b'\n');
    }
    Ok(out)
}

/// Why an envelope cannot be written: a payload was not unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("items[{item}]: the payload is only in the compressed body that was received")]
pub struct StillPacked {
    /// The item's position.
    pub item: usize,
}

/// An item of a type and a payload, with its length in its header.
pub fn item(kind: &str, content_type: Option<&str>, payload: impl Into<Bytes>) -> Item {
    let payload = payload.into();
    let mut header = Map::new();
    header.insert("type".to_owned(), Value::from(kind));
    if let Some(content_type) = content_type {
        header.insert("content_type".to_owned(), Value::from(content_type));
    }
    header.insert("length".to_owned(), Value::from(payload.len()));
    Item { header: Value::Object(header).to_string().into(), payload: payload.into() }
}

fn honest<'a>(header: &'a Bytes, payload: &Bytes) -> Cow<'a, [u8]> {
    let length = ItemHeader::read(header).ok().and_then(|header| header.length);
    let honest = match length {
        Some(length) => length == payload.len() as u64,
        None => !payload.contains(&b'\n'),
    };
    if honest {
        return Cow::Borrowed(header);
    }
    let mut header: Map<String, Value> = serde_json::from_slice(header).unwrap_or_default();
    header.insert("length".to_owned(), Value::from(payload.len()));
    Cow::Owned(Value::Object(header).to_string().into_bytes())
}
