//! Writes an envelope.

use std::borrow::Cow;
use std::iter;

use bytes::Bytes;
use profbridge_model::envelope::Payload;
use profbridge_model::{ByteRange, Envelope, Item};
use serde_json::{Map, Value};

use super::{Ending, ItemHeader};

/// A part of a written envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvelopePart<'a> {
    /// Bytes.
    Plain(Cow<'a, [u8]>),
    /// A payload that is only in the received body ([`Payload::Packed`]): its range of the decompressed body.
    Packed(ByteRange),
}

/// The parts of an envelope with this header and these items, in order. Headers and payloads are written unmodified,
/// except that an item's `length` is set if its header does not match its payload because the item was changed: another
/// `length`, or none although the payload has a line break.
pub fn pieces<'a>(header: &'a [u8], items: &'a [Item], ending: Ending) -> impl Iterator<Item = EnvelopePart<'a>> {
    let header = if header.is_empty() { b"{}" } else { header };
    let items = items.iter().flat_map(|item| {
        let (header, payload) = match &item.payload {
            Payload::Plain(payload) => (honest(&item.header, payload), EnvelopePart::Plain(payload[..].into())),
            // It was read with this header, so the two match.
            Payload::Packed(place) => (item.header[..].into(), EnvelopePart::Packed(*place)),
        };
        [LINE_END, EnvelopePart::Plain(header), LINE_END, payload]
    });
    let end = (ending == Ending::Newline).then_some(LINE_END);
    iter::once(EnvelopePart::Plain(header.into())).chain(items).chain(end)
}

const LINE_END: EnvelopePart<'_> = EnvelopePart::Plain(Cow::Borrowed(b"\n"));

/// Writes an envelope from its [`pieces`].
///
/// # Errors
///
/// A payload is only in the received body ([`Payload::Packed`]), which has to be decompressed first.
pub fn write(envelope: &Envelope, ending: Ending) -> Result<Vec<u8>, StillPacked> {
    if let Some(item) = envelope.items.iter().position(|item| item.payload.plain().is_none()) {
        return Err(StillPacked { item });
    }
    let size: usize = envelope.items.iter().map(|item| item.header.len() + item.payload.len() + 32).sum();
    let mut out = Vec::with_capacity(envelope.header.len() + size + 1);
    for piece in pieces(&envelope.header, &envelope.items, ending) {
        if let EnvelopePart::Plain(bytes) = piece {
            out.extend_from_slice(&bytes);
        }
    }
    Ok(out)
}

/// An envelope cannot be written because a payload was not decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("items[{item}]: the payload is only in the compressed body that was received")]
pub struct StillPacked {
    /// The item's position.
    pub item: usize,
}

/// An item with this type and payload, with the length in its header.
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
