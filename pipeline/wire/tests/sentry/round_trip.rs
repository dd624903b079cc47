//! Converts chunks to OTLP and back.

use bytes::Bytes;
use profbridge_model::Profiles;
use profbridge_relay_rules::{Strictness, validate};
use profbridge_testkit::profcheck::assert_valid;
use profbridge_wire::otlp::{EncodeOptions, Limits, decode, encode};
use profbridge_wire::sentry::chunk::{Collected, Converter, Settings};
use profbridge_wire::sentry::profile_items::read_items;
use profbridge_wire::sentry::{chunk_reader, envelope};
use proptest::prelude::*;

use crate::sentry::arbitrary::chunk;
use crate::sentry::canonical::ComparableChunk;

const CAPTURES: [&[u8]; 3] = [
    include_bytes!("../../testdata/sentry/python-2.75-profile_chunk.envelope"),
    include_bytes!("../../testdata/sentry/node-10.75-profile_chunk.envelope"),
    include_bytes!("../../testdata/sentry/node-11.1-profile_chunk.envelope"),
];

/// Encodes and decodes a batch, so that it is as another program receives it.
fn through_otlp(batch: &Profiles) -> Profiles {
    let bytes = encode(batch, &EncodeOptions::default());
    assert_valid(&bytes);
    let decoded = decode(bytes.into(), &Limits::default()).unwrap();
    assert!(decoded.refused.is_empty(), "{:?}", decoded.refused);
    decoded.profiles
}

/// Converts a batch to a chunk, which must be the only one.
fn converted(batch: &Profiles) -> Vec<u8> {
    let mut collected = Collected::default();
    let report = Converter::new(Settings::default()).convert(batch, &mut collected);
    assert!(report.balanced() && report.losses.is_none(), "{report:?}");
    assert_eq!((report.synthesized, report.coalesced, report.notes.left_out), (0, 0, 0));
    assert_eq!(collected.chunks.len(), 1);
    let (json, summary) = collected.chunks.remove(0);
    assert_eq!(summary.json_bytes, json.len() as u64);
    json
}

/// Guarantees: chunks of real SDKs are equal after conversion to OTLP and back.
/// rule: round-trip#content
#[test]
fn captures() {
    for capture in CAPTURES {
        let envelope = envelope::read(Bytes::from_static(capture)).unwrap().envelope;
        let before = envelope.items[0].payload.plain().unwrap();
        let batch = read_items(&envelope).next().unwrap().1.unwrap();
        let after = converted(&through_otlp(&batch));
        assert!(
            ComparableChunk::read(before).equals(&ComparableChunk::read(&after)),
            "{}",
            String::from_utf8_lossy(&after)
        );
        assert!(!after.contains(&b'\n'));
    }
}

proptest! {
    /// Guarantees: any chunk that Relay accepts is equal after conversion to OTLP and back, also repeatedly, however
    /// its samples, frames and images are encoded.
    /// rule: sample-format-v2#measurements, sample-format-v2#measurement-value, sample-format-v2#thread-priority
    /// rule: round-trip#content, round-trip#profcheck, profiles-sdk#v2-measurements, profiles-sdk#measurements
    /// rule: differences#ids
    #[test]
    fn any_chunk(chunk in chunk(), is_pretty: bool) {
        let before = if is_pretty { serde_json::to_vec_pretty(&chunk) } else { serde_json::to_vec(&chunk) }.unwrap();
        prop_assert!(validate(&before, Strictness::Relay).is_ok(), "{:?}", validate(&before, Strictness::Relay));
        let after = converted(&through_otlp(&chunk_reader::read(&before).unwrap()));
        prop_assert!(!after.contains(&b'\n'));
        let valid = validate(&after, Strictness::Relay);
        prop_assert!(valid.is_ok(), "{valid:?}: {}", String::from_utf8_lossy(&after));
        let (a, b) = (ComparableChunk::read(&before), ComparableChunk::read(&after));
        prop_assert!(a.equals(&b), "{a:#?}\n{b:#?}");
        let again = converted(&through_otlp(&chunk_reader::read(&after).unwrap()));
        let (a, b) = (ComparableChunk::read(&after), ComparableChunk::read(&again));
        prop_assert!(a.equals(&b));
    }
}
