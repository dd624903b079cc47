//! Uses arbitrary bytes as the JSON of a `profile` in sample format V1, beside a transaction.
//!
//! Guarantees: no panic; error messages are short; an accepted profile is equal after encoding it as OTLP and decoding
//! it, and is converted to chunks that Relay accepts and that can be read; the transaction names the chunk's profiler.
#![no_main]

use libfuzzer_sys::fuzz_target;
use profbridge_model::Envelope;
use profbridge_model::content_hash::content_hashes;
use profbridge_relay_rules::{Strictness, validate};
use profbridge_wire::otlp::{EncodeOptions, Limits, decode, encode};
use profbridge_wire::sentry::chunk::{Converter, Settings};
use profbridge_wire::sentry::v1_reader::{Companion, read};
use profbridge_wire::sentry::v1_upgrade::upgrade;
use profbridge_wire::sentry::{chunk_reader, envelope};

/// The longest message about a profile, in bytes, because it is logged in one line.
const MAX_MESSAGE: usize = 1 << 10;

const TRANSACTION: &str = r#"{"contexts":{"trace":{"span_id":"00000000000000ff"}},"sdk":{"name":"a","version":"1"}}"#;

fuzz_target!(|data: &[u8]| {
    let items = vec![envelope::item("transaction", None, TRANSACTION)];
    let envelope = Envelope { items, ..Envelope::default() };
    let batch = match read(data, &Companion::find(&envelope, None)) {
        Ok(read) => read.profiles,
        Err(error) => return assert!(error.to_string().len() <= MAX_MESSAGE, "{error}"),
    };
    let request = encode(&batch, &EncodeOptions::default());
    let decoded = decode(request.into(), &Limits::default()).expect("what was encoded is read");
    assert!(decoded.refused.is_empty(), "{:?}", decoded.refused);
    assert_eq!(content_hashes(&decoded.profiles), content_hashes(&batch));
    let Ok(upgraded) = upgrade(&envelope, &batch, &mut Converter::new(Settings::default())) else { return };
    assert!(upgraded.report.balanced(), "{:?}", upgraded.report);
    let (_, transaction) = upgraded.transaction.expect("there is a transaction");
    let transaction = transaction.payload.plain().expect("it is here");
    for chunk in &upgraded.chunks {
        let json = chunk.payload.plain().expect("it is here");
        // The profiler's id is that of the profile, which need not have the form of profbridge's.
        if let Err(violations) = validate(json, Strictness::Relay) {
            panic!("{violations:?}: {}", String::from_utf8_lossy(json));
        }
        let chunk = chunk_reader::read(json).expect("a chunk of ours is read");
        let id = chunk.window.expect("it is of a profiler").profiler_id.to_string();
        assert!(String::from_utf8_lossy(transaction).contains(&id));
    }
});
