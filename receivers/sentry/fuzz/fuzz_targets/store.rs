//! Fuzzes the event of an old SDK, which is converted into an envelope.
//!
//! Guarantees: no panic; an accepted event becomes one item with unchanged bytes and an id; the envelope encodes and
//! decodes to itself.
#![no_main]
#![allow(dead_code, reason = "modules of the receiver, of which this needs a part")]

#[path = "../../src/fault.rs"]
mod fault;
#[path = "../../src/store.rs"]
mod store;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use profbridge_wire::sentry::envelope::{self, Ending, Header, ItemHeader};

fuzz_target!(|data: &[u8]| {
    let body = Bytes::copy_from_slice(data);
    let envelope = match store::envelope(body.clone(), 1) {
        Ok(envelope) => envelope,
        Err(fault) => {
            assert!(fault.status == http::StatusCode::BAD_REQUEST && fault.message.len() < 600, "{fault:?}");
            return;
        }
    };
    let [item] = &envelope.items[..] else { panic!("{} items", envelope.items.len()) };
    assert_eq!(item.payload.plain(), Some(&body));
    let id = Header::read(&envelope.header).expect("a header").event_id.expect("an id").into_owned();
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    let kind = ItemHeader::read(&item.header).expect("a header").kind.into_owned();
    assert!(kind == "event" || kind == "transaction", "{kind}");
    let written = envelope::write(&envelope, Ending::Newline).expect("nothing is packed");
    let again = envelope::read(written.into()).expect("what was written is read").envelope;
    assert_eq!((again.header, again.items), (envelope.header, envelope.items));
});
