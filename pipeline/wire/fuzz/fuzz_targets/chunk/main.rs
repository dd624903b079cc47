//! Builds small batches from the bytes, and converts them to an OTLP request, back, and to chunks.
//!
//! Guarantees: no panic; an encoded batch is decoded with as many observations; every observation is in a chunk or
//! counted under a reason; every chunk is valid, lies in its window and can be read; a converter that converted other
//! batches before writes the same chunks.
#![no_main]

mod spec;

use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use profbridge_model::Profiles;
use profbridge_relay_rules::validate_json;
use profbridge_wire::otlp::{EncodeOptions, Limits, decode, encode};
use profbridge_wire::sentry::chunk::{Collected, Converter};
use profbridge_wire::sentry::chunk_reader;

/// The last time with which chunks can be read: in 2262.
const LAST: u64 = i64::MAX as u64 - (1 << 20);

fuzz_target!(|data: &[u8]| {
    let mut bytes = Unstructured::new(data);
    let Ok(settings) = spec::settings(&mut bytes) else { return };
    let Some(first) = batch(&mut bytes) else { return };
    let other = batch(&mut bytes);
    let mut converter = Converter::new(settings);
    let chunks = convert(&mut converter, &first);
    if let Some(other) = other {
        convert(&mut converter, &other);
    }
    assert_eq!(convert(&mut converter, &first), chunks, "the converter remembers");
});

/// Builds the next batch from the bytes. It is like a batch that was decoded from a request and cut.
fn batch(bytes: &mut Unstructured<'_>) -> Option<Profiles> {
    let made = spec::batch(bytes).ok()?.finish().ok()?;
    let window = spec::window(bytes, &made).ok()?;
    let request = encode(&made, &EncodeOptions::default());
    let decoded = decode(request.into(), &Limits::default()).expect("what was encoded is read");
    assert!(decoded.refused.is_empty(), "{:?}", decoded.refused);
    assert_eq!(decoded.profiles.observations(), made.observations());
    let mut batch = decoded.profiles;
    batch.window = Some(window);
    Some(batch)
}

fn convert(converter: &mut Converter, batch: &Profiles) -> Vec<Vec<u8>> {
    let window = batch.window.as_ref().expect("was cut");
    let mut collected = Collected::default();
    let report = converter.convert(batch, &mut collected);
    assert!(report.balanced(), "{report:?}");
    assert_eq!(report.chunks, collected.chunks.len() as u64);
    for (json, summary) in &collected.chunks {
        if let Err(violations) = validate_json(json) {
            panic!("{violations:?}: {}", String::from_utf8_lossy(json));
        }
        assert_eq!(summary.observations + summary.synthesized, summary.samples + summary.coalesced);
        assert!(summary.first_unix_nano >= window.start_unix_nano, "{summary:?} in {window:?}");
        let last = summary.first_unix_nano + summary.billed_nanos;
        assert!(last <= window.end_unix_nano, "{summary:?} in {window:?}");
        if last <= LAST {
            chunk_reader::read(json).expect("a chunk of ours is read");
        }
    }
    collected.chunks.into_iter().map(|(json, _)| json).collect()
}
