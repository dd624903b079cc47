//! Uses arbitrary bytes as an OTLP request in an earlier layout, which the first byte selects.
//!
//! Guarantees: no panic; memory in proportion to the request; an accepted request can be encoded, decoded as 1.10, and
//! has the same content then. Decoding with layout detection does not panic either.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use profbridge_model::content_hash::content_hashes;
use profbridge_wire::otlp::{EncodeOptions, Layout, Limits, decode, decode_as, encode, encoded_len};

fuzz_target!(|data: &[u8]| {
    let Some((&first, request)) = data.split_first() else { return };
    let layout = Layout::ALL[usize::from(first) % Layout::ALL.len()];
    let request = Bytes::copy_from_slice(request);
    drop(decode(request.clone(), &Limits::default()));
    let Ok(decoded) = decode_as(request.clone(), layout, &Limits::default()) else { return };
    assert_eq!(decoded.layout, layout);
    // Columns whose length is not known in advance grow by doubling.
    assert!(decoded.memory() <= 2 * (8 * request.len() + (1 << 20)));
    assert!(layout == Layout::V1_10 || decoded.profiles.received.is_none());
    let options = EncodeOptions { original_payload: true, ..EncodeOptions::default() };
    let bytes = encode(&decoded.profiles, &options);
    assert_eq!(bytes.len(), encoded_len(&decoded.profiles, &options));
    let again = decode_as(bytes.into(), Layout::V1_10, &Limits::default()).expect("what was encoded is read");
    assert!(again.refused.is_empty());
    assert_eq!(content_hashes(&again.profiles), content_hashes(&decoded.profiles));
});
