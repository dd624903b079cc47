//! The store endpoint: one event as JSON, of SDKs from before envelopes.
//!
//! It becomes an envelope with one item, as Relay makes it (getsentry/relay `relay-server/src/endpoints/store.rs`).
//! Events that are base64 of zlib, which SDKs from before 2017 sent, are refused by name.

use bytes::Bytes;
use profbridge_model::{Envelope, Item};
use profbridge_wire::sentry::envelope::item;
use serde::Deserialize;
use serde_json::json;
use uuid::{Builder, Uuid};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::fault::Fault;

/// What has to be known of an event.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(default, borrow)]
    event_id: Option<std::borrow::Cow<'a, str>>,
    #[serde(default, rename = "type", borrow)]
    kind: Option<std::borrow::Cow<'a, str>>,
}

/// An event as an envelope. Where it has no id it gets one, of its bytes and the time of its arrival, in nanoseconds.
pub(crate) fn envelope(body: Bytes, arrival_unix_nano: u64) -> Result<Envelope, Fault> {
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(Fault::malformed("the event is no JSON object; events as base64 are not taken, update the SDK"));
    }
    let event: Event<'_> = serde_json::from_slice(&body).map_err(|error| {
        Fault::malformed(format!("the event is not valid JSON (line {}, column {})", error.line(), error.column()))
    })?;
    let id = match event.event_id.as_deref() {
        Some(id) => Uuid::try_parse(id).map_err(|_| Fault::malformed("event_id: is not a UUID"))?,
        None => Builder::from_custom_bytes(xxh3_128_with_seed(&body, arrival_unix_nano).to_be_bytes()).into_uuid(),
    };
    let kind = match event.kind.as_deref() {
        Some("transaction") => "transaction",
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

    /// Guarantees: the event is the item, byte for byte, under its own id or one that another event does not get.
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
    }

    /// Attack: what is no event is refused with the rule that it breaks.
    #[test]
    fn no_events() {
        for (body, message) in [
            (&b"eJxVj"[..], "the event is no JSON object; events as base64 are not taken, update the SDK"),
            (b"{\"a\":", "the event is not valid JSON (line 1, column 5)"),
            (b"{\"event_id\":\"x\"}", "event_id: is not a UUID"),
            (b"[]", "the event is no JSON object; events as base64 are not taken, update the SDK"),
        ] {
            assert_eq!(envelope(Bytes::from_static(body), 0).unwrap_err().message, message);
        }
    }
}
