//! Uses arbitrary bytes as the JSON of a `profile_chunk`.
//!
//! Guarantees: no panic; error messages are short; an accepted chunk is equal after encoding it as OTLP and decoding
//! it, and is converted to chunks that Relay accepts and that can be read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use profbridge_model::content_hash::content_hashes;
use profbridge_relay_rules::{Strictness, validate};
use profbridge_wire::otlp::{EncodeOptions, Limits, decode, encode};
use profbridge_wire::sentry::chunk::{Collected, Converter, Settings};
use profbridge_wire::sentry::chunk_reader;

/// The longest message about a chunk, in bytes, because it is logged in one line.
const MAX_MESSAGE: usize = 1 << 10;

fuzz_target!(|data: &[u8]| {
    let batch = match chunk_reader::read(data) {
        Ok(batch) => batch,
        Err(error) => return assert!(error.to_string().len() <= MAX_MESSAGE, "{error}"),
    };
    let request = encode(&batch, &EncodeOptions::default());
    let decoded = decode(request.into(), &Limits::default()).expect("what was encoded is read");
    assert!(decoded.refused.is_empty(), "{:?}", decoded.refused);
    assert_eq!(content_hashes(&decoded.profiles), content_hashes(&batch));
    let mut collected = Collected::default();
    let report = Converter::new(Settings::default()).convert(&batch, &mut collected);
    assert!(report.balanced(), "{report:?}");
    for (json, _) in &collected.chunks {
        // The profiler may be another program, whose id need not have the form of profbridge's.
        if let Err(violations) = validate(json, Strictness::Relay) {
            panic!("{violations:?}: {}", String::from_utf8_lossy(json));
        }
        chunk_reader::read(json).expect("a chunk of ours is read");
    }
});
