use profbridge_model::Profiles;
use serde_json::Value as Json;

use super::*;
use crate::sentry::chunk::Settings;
use crate::sentry::envelope::{self, Ending};
use crate::sentry::profile_items::read_items;
use profbridge_relay_rules::{Strictness, validate};

const NODE: &[u8] = include_bytes!("../../../testdata/sentry/node-10.75-v1-transaction+profile.envelope");
const CHUNK: &[u8] = include_bytes!("../../../testdata/sentry/node-11.1-profile_chunk.envelope");

fn read(bytes: &'static [u8]) -> (Envelope, Profiles) {
    let envelope = envelope::read(Bytes::from_static(bytes)).unwrap().envelope;
    let profiles = read_items(&envelope).next().unwrap().1.unwrap();
    (envelope, profiles)
}

fn upgraded(envelope: &Envelope, profiles: &Profiles) -> Result<Upgraded, UpgradeError> {
    upgrade(envelope, profiles, &mut Converter::new(Settings::default()))
}

/// Guarantees: a profile of Node's SDK becomes a chunk that Sentry accepts, and its transaction names the profiler and
/// the thread and is otherwise unchanged, in either order of the two items.
/// rule: profiles-sdk#v1-envelope
#[test]
fn a_real_envelope() {
    let (mut envelope, profiles) = read(NODE);
    for at in [0, 1] {
        let Upgraded { chunks, transaction, report } = upgraded(&envelope, &profiles).unwrap();
        assert!(report.balanced() && report.losses.is_none() && report.samples == 89, "{report:?}");
        let [chunk] = &chunks[..] else { panic!("one chunk") };
        let payload = chunk.payload.plain().unwrap();
        validate(payload, Strictness::Relay).unwrap();
        let json: Json = serde_json::from_slice(payload).unwrap();
        let header = ItemHeader::read(&chunk.header).unwrap();
        assert!(header.is_profile_chunk() && header.platform.as_deref() == json["platform"].as_str());
        assert_eq!(header.length, Some(payload.len() as u64));

        let (position, item) = transaction.unwrap();
        assert_eq!(position, at);
        let before = std::str::from_utf8(envelope.items[at].payload.plain().unwrap()).unwrap();
        let after = std::str::from_utf8(item.payload.plain().unwrap()).unwrap();
        let link = r#","profile":{"profiler_id":"899366251bb2401fbdfc7f94d71a64dc"}"#;
        assert_eq!(after.replacen(r#","thread.id":"0""#, "", 1).replacen(link, "", 1), before);
        let after: Json = serde_json::from_str(after).unwrap();
        assert_eq!(after["contexts"]["profile"]["profiler_id"], json["profiler_id"]);
        let thread = after["contexts"]["trace"]["data"]["thread.id"].as_str().unwrap();
        assert_eq!(json["profile"]["thread_metadata"][thread]["name"], "main");

        // The envelope can be written and read with its other items.
        let mut sent = envelope.clone();
        sent.items[at] = item;
        sent.items[1 - at] = chunks.into_iter().next().unwrap();
        let written = envelope::write(&sent, Ending::Newline).unwrap();
        assert_eq!(envelope::read(written.into()).unwrap().envelope.items.len(), 2);
        envelope.items.reverse();
    }
}

/// Guarantees: a length in the transaction's header is updated, and its other keys stay.
#[test]
fn lengths() {
    let (mut envelope, profiles) = read(NODE);
    let length = envelope.items[0].payload.len();
    envelope.items[0].header = format!("{{\"k\":1.0,\"length\":{length},\"type\":\"transaction\"}}").into();
    let (_, item) = upgraded(&envelope, &profiles).unwrap().transaction.unwrap();
    assert_eq!(item.header, format!("{{\"k\":1.0,\"length\":{},\"type\":\"transaction\"}}", item.payload.len()));
}

/// Guarantees: without a transaction there is only a chunk; a transaction that cannot be edited or is still compressed
/// gives an error, and so does a batch that is not a V1 profile.
#[test]
fn what_cannot_be_upgraded() {
    let (envelope, profiles) = read(NODE);
    let with = |payload: profbridge_model::envelope::Payload| {
        let mut envelope = envelope.clone();
        envelope.items[0].payload = payload;
        upgraded(&envelope, &profiles).map(|_| ()).unwrap_err().to_string()
    };
    let mut alone = envelope.clone();
    alone.items.remove(0);
    assert!(upgraded(&alone, &profiles).unwrap().transaction.is_none());
    assert_eq!(
        with(profbridge_model::envelope::Payload::Packed(profbridge_model::ByteRange { start: 9, len: 7 })),
        "items[0]: the transaction is only in the compressed body that was received"
    );
    assert!(with(Bytes::from_static(b"{").into()).starts_with("items[0]: the transaction: cannot be read: EOF"));
    assert_eq!(
        with(Bytes::from_static(b"{\"contexts\":[]}").into()),
        "items[0]: the transaction: contexts is no object"
    );
    let (envelope, chunk) = read(CHUNK);
    assert_eq!(upgraded(&envelope, &chunk).map(|_| ()), Err(UpgradeError::NoProfile));
}
