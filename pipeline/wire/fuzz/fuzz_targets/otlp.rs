//! Uses arbitrary bytes as an OTLP request.
//!
//! Guarantees: no panic; memory in proportion to the request; an accepted request is encoded in the computed size, and
//! decoded with the same content; the parts of a batch have all of its observations.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use profbridge_model::content_hash::content_hashes;
use profbridge_wire::otlp::{EncodeOptions, Limits, decode, encode, encoded_len, sniff, split};

fuzz_target!(|data: &[u8]| {
    sniff(data);
    let Ok(decoded) = decode(Bytes::copy_from_slice(data), &Limits::default()) else { return };
    // Columns whose length is not known in advance grow by doubling.
    assert!(decoded.memory() <= 2 * (8 * data.len() + (1 << 20)));
    let options = EncodeOptions { original_payload: true, ..EncodeOptions::default() };
    let bytes = encode(&decoded.profiles, &options);
    assert_eq!(bytes.len(), encoded_len(&decoded.profiles, &options));
    let again = decode(bytes.clone().into(), &Limits::default()).expect("what was encoded is read");
    assert!(again.refused.is_empty());
    assert_eq!(encode(&again.profiles, &options), bytes);
    assert_eq!(content_hashes(&again.profiles), content_hashes(&decoded.profiles));
    let parts = split(&decoded.profiles, data.len() / 3, &options);
    assert_eq!(parts.map(|part| part.observations()).sum::<u64>(), decoded.profiles.observations());
});
