//! The store endpoint: one event as JSON, from SDKs before envelopes.
//!
//! It is converted into an envelope with one item, as in Relay (getsentry/relay `relay-server/src/endpoints/store.rs`).

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use profbridge_model::{Envelope, Item};
use profbridge_wire::sentry::envelope::item;
use serde::Deserialize;
use serde_json::json;
use uuid::{Builder, Uuid};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::fault::Fault;

/// The fields of an event that are needed here.
#[derive(Deserialize)]
struct StoredEvent<'a> {
    #[serde(default, borrow)]
    event_id: Option<Cow<'a, str>>,
    #[serde(default, rename = "type", borrow)]
    kind: Option<Cow<'a, str>>,
}

/// The content of a base64-encoded event: a zlib stream, as SDKs before 2017 send it, or JSON. `None` if the body is
/// not base64.
pub(crate) fn packed(body: &[u8]) -> Option<Bytes> {
    let text = body.trim_ascii();
    // JSON starts with a brace, which base64 cannot.
    (!text.starts_with(b"{")).then(|| STANDARD.decode(text).ok().map(Bytes::from)).flatten()
}

/// Replaces numbers that JSON lacks (`NaN`, `Infinity`, `-Infinity`) by `null`. Python writes them, and Sentry's server
/// accepts none.
fn with_nulls(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len());
    let (mut rest, mut in_string) = (body, false);
    while let [first, behind @ ..] = rest {
        let number = [&b"NaN"[..], b"Infinity", b"-Infinity"].into_iter().find(|number| rest.starts_with(number));
        match number {
            Some(number) if !in_string => {
                out.extend_from_slice(b"null");
                rest = &rest[number.len()..];
                continue;
            }
            _ => {}
        }
        // A quote after a backslash does not end the string.
        let length = if in_string && *first == b'\\' && !behind.is_empty() { 2 } else { 1 };
        in_string ^= *first == b'"';
        out.extend_from_slice(&rest[..length]);
        rest = &rest[length..];
    }
    out
}

/// Wraps an event in an envelope. An event without an id gets one from its bytes and its arrival time in nanoseconds.
pub(crate) fn envelope(body: Bytes, arrival_unix_nano: u64) -> Result<Envelope, Fault> {
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(Fault::malformed("the event is neither a JSON object nor base64 of one"));
    }
    let read = |body: &Bytes| serde_json::from_slice::<StoredEvent<'_>>(body).map(drop);
    let body = match read(&body) {
        Ok(()) => body,
        Err(_) => with_nulls(&body).into(),
    };
    let event: StoredEvent<'_> = serde_json::from_slice(&body).map_err(|error| {
        Fault::malformed(format!("the event is not valid JSON (line {}, column {})", error.line(), error.column()))
    })?;
    let id = match event.event_id.as_deref() {
        Some(id) => Uuid::try_parse(id).map_err(|_| Fault::malformed("event_id: is not a UUID"))?,
        None => Builder::from_custom_bytes(xxh3_128_with_seed(&body, arrival_unix_nano).to_be_bytes()).into_uuid(),
    };
    let kind = match event.kind.as_deref() {
        Some("transaction") => "transaction",
        Some("csp" | "hpkp" | "expectct" | "expectstaple") => "security",
        _ => "event",
    };
    let header = json!({ "event_id": id.simple().to_string() }).to_string().into();
    let Item { header: item_header, payload } = item(kind, Some("application/json"), body);
    Ok(Envelope { header, items: vec![Item { header: item_header, payload }], ..Envelope::default() })
}

#[cfg(test)]
mod tests {
    use profbridge_wire::sentry::envelope::{Header, ItemHeader};

    use super::*;

    /// Guarantees: the item is the event byte for byte, under its own id or an id that no other event gets.
    #[test]
    fn events() {
        let body = Bytes::from_static(b" {\"event_id\":\"9EC79C33-EC99-42AB-8353-589FCB2E04DC\", \"x\":1.50}");
        let made = envelope(body.clone(), 1).unwrap();
        assert_eq!(made.items[0].payload.plain(), Some(&body));
        let id = Header::read(&made.header).unwrap().event_id.unwrap();
        assert_eq!(id, "9ec79c33ec9942ab8353589fcb2e04dc");
        let of = |body: &'static [u8], time| {
            let made = envelope(Bytes::from_static(body), time).unwrap();
            let kind = ItemHeader::read(&made.items[0].header).unwrap().kind.into_owned();
            (Header::read(&made.header).unwrap().event_id.unwrap().into_owned(), kind)
        };
        let (first, kind) = of(b"{\"type\":\"transaction\"}", 1);
        assert_eq!(kind, "transaction");
        assert_ne!(of(b"{\"type\":\"transaction\"}", 2).0, first);
        assert_eq!(of(b"{\"type\":\"default\"}", 1).1, "event");
        assert_eq!(of(b"{\"type\":\"csp\"}", 1).1, "security");
    }

    /// Guarantees: numbers that JSON lacks become null, except inside strings, whatever precedes them.
    /// rule: transport#path-store
    #[test]
    fn numbers_that_json_does_not_have() {
        let body = br#"{"a":NaN,"b":[-Infinity,Infinity],"c":"NaN","d\\":NaN,"e\"NaN":"\\\"Infinity"}"#;
        let shown = br#"{"a":null,"b":[null,null],"c":"NaN","d\\":null,"e\"NaN":"\\\"Infinity"}"#;
        let made = envelope(Bytes::from_static(body), 1).unwrap();
        assert_eq!(made.items[0].payload.plain().unwrap(), &shown[..]);
        assert_eq!(with_nulls(b"\"\\"), b"\"\\");
    }

    /// Attack: a body that is no event is refused with the broken rule.
    /// rule: transport#path-store
    #[test]
    fn no_events() {
        for (body, message) in [
            (&b"eJxVj"[..], "the event is neither a JSON object nor base64 of one"),
            (b"{\"a\":", "the event is not valid JSON (line 1, column 5)"),
            (b"{\"event_id\":\"x\"}", "event_id: is not a UUID"),
            (b"[]", "the event is neither a JSON object nor base64 of one"),
        ] {
            assert_eq!(envelope(Bytes::from_static(body), 0).unwrap_err().message, message);
        }
    }
}
