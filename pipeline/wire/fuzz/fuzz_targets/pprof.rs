//! Uses arbitrary bytes as an uncompressed pprof profile.
//!
//! Guarantees: no panic; memory in proportion to the profile; an accepted profile is equal after conversion to OTLP and
//! back, and after encoding and decoding it.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use profbridge_model::Profiles;
use profbridge_wire::otlp::{self, EncodeOptions, Limits, memory};
use profbridge_wire::pprof::{decode, encode, groups};

fuzz_target!(|data: &[u8]| {
    let Ok(decoded) = decode(Bytes::copy_from_slice(data), &Limits::default()) else { return };
    let batch = decoded.profiles;
    // Columns whose length is not known in advance grow by doubling.
    assert!(memory(&batch) <= 2 * (8 * data.len() + (1 << 20)));
    let limits = Limits { memory_factor: 1000, max_values: usize::MAX, ..Limits::default() };
    let write = |batch: &Profiles| groups(batch).iter().map(|group| encode(batch, group).bytes).collect::<Vec<_>>();
    let written = write(&batch);
    let request = otlp::encode(&batch, &EncodeOptions::default());
    let again = otlp::decode(request.into(), &limits).expect("what was read is OTLP");
    assert!(again.refused.is_empty());
    assert_eq!(write(&again.profiles), written);
    for profile in written {
        let again = decode(profile.clone().into(), &limits).expect("what was written is read");
        assert_eq!(write(&again.profiles), [profile]);
    }
});
