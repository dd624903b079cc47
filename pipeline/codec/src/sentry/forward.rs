//! Envelopes of others.

use bytes::Bytes;
use profbridge_model::Envelope;
use profbridge_wire::sentry::Dsn;
use profbridge_wire::sentry::envelope::{self, Ending, Header};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

/// What is known of an envelope that is passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forwarded {
    /// XXH3-64 of its bytes before compression.
    pub hash: u64,
}

/// An envelope's bytes, addressed to a DSN, and what is known of them.
pub(super) fn written(envelope: &Envelope, to: Option<&Dsn>) -> (Vec<u8>, Forwarded) {
    let plain = match to.and_then(|to| readdressed(envelope, to)) {
        Some(header) => {
            let envelope = Envelope { header, items: envelope.items.clone(), ..Envelope::default() };
            envelope::write(&envelope, Ending::Newline)
        }
        None => envelope::write(envelope, Ending::Newline),
    };
    let hash = xxh3_64(&plain);
    (plain, Forwarded { hash })
}

/// The envelope's header without its DSN, where it names another than the one it goes to: Relay refuses the difference
/// (getsentry/relay `relay-server/src/envelope/mod.rs`). `None` where it can stay as it is.
fn readdressed(envelope: &Envelope, to: &Dsn) -> Option<Bytes> {
    let header = Header::read(&envelope.header).ok()?;
    let named = header.dsn?;
    let same = named.parse::<Dsn>().is_ok_and(|named| {
        named.project_id() == to.project_id() && named.public_key().eq_ignore_ascii_case(to.public_key())
    });
    if same {
        return None;
    }
    let mut header: serde_json::Map<String, Value> = serde_json::from_slice(&envelope.header).ok()?;
    header.remove("dsn");
    Some(Value::Object(header).to_string().into())
}
