//! An envelope to bytes.

use std::borrow::Cow;

use bytes::Bytes;
use profbridge_model::{Envelope, Item};
use serde_json::{Map, Value};

use super::{Ending, ItemHeader};

/// Writes an envelope. Headers and payloads are written as they are, with one exception: where an item's header would
/// lie about its payload (a payload with a line's end and no `length`, or another `length`: somebody changed the item),
/// its `length` is set.
pub fn write(envelope: &Envelope, ending: Ending) -> Vec<u8> {
    let size: usize = envelope.items.iter().map(|item| item.header.len() + item.payload.len() + 32).sum();
    let mut out = Vec::with_capacity(envelope.header.len() + size + 1);
    match &envelope.header[..] {
        [] => out.extend_from_slice(b"{}"),
        header => out.extend_from_slice(header),
    }
    for item in &envelope.items {
        out.push(b'\n');
        out.extend_from_slice(&honest(item));
        out.push(b'\n');
        out.extend_from_slice(&item.payload);
    }
    if ending == Ending::Newline {
        out.push(b'\n');
    }
    out
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
    Item { header: Value::Object(header).to_string().into(), payload }
}

fn honest(item: &Item) -> Cow<'_, [u8]> {
    let length = ItemHeader::read(&item.header).ok().and_then(|header| header.length);
    let honest = match length {
        Some(length) => length == item.payload.len() as u64,
        None => !item.payload.contains(&b'\n'),
    };
    if honest {
        return Cow::Borrowed(&item.header);
    }
    let mut header: Map<String, Value> = serde_json::from_slice(&item.header).unwrap_or_default();
    header.insert("length".to_owned(), Value::from(item.payload.len()));
    Cow::Owned(Value::Object(header).to_string().into_bytes())
}
