//! Tests each rule separately, and payloads of real SDKs.

use serde_json::{Value, json};

use super::{Strictness, validate, validate_json};

/// A payload that keeps every rule.
fn good() -> Value {
    json!({
        "version": "2", "platform": "python",
        "chunk_id": "3e11a5c9831f4e49939c0a81944ea2cb", "profiler_id": "71bba98d90b545c39f2ae73f702d7ef4",
        "client_sdk": {"name": "profbridge.rust", "version": "0.1.0"},
        "profile": {
            "samples": [
                {"timestamp": 1.0, "stack_id": 1, "thread_id": "7"},
                {"timestamp": 2.0, "stack_id": 1, "thread_id": "7"},
                {"timestamp": 67.0, "stack_id": 0, "thread_id": "7"},
            ],
            "stacks": [[], [0]],
            "frames": [{"function": "main", "lineno": 4_294_967_295_u32, "instruction_addr": "0x10"}],
            "thread_metadata": {"7": {"name": "main"}},
        },
        "debug_meta": {"images": [{
            "type": "symbolic", "debug_id": "7f4a3eb0-885e-8d4c-a04b-05fa32cc4cbd",
            "image_addr": "0x10", "image_vmaddr": "0x0", "image_size": 16,
        }]},
    })
}

fn broken(pointer: &str, value: Value) -> Vec<String> {
    let mut chunk = good();
    *chunk.pointer_mut(pointer).unwrap() = value;
    match validate_json(chunk.to_string().as_bytes()) {
        Ok(()) => Vec::new(),
        Err(violations) => violations.iter().map(ToString::to_string).collect(),
    }
}

/// Guarantees: a payload at the limits (66.0 s, the largest line number) passes.
/// rule: differences#rejections
#[test]
fn limits_pass() {
    assert_eq!(validate_json(good().to_string().as_bytes()), Ok(()));
}

/// Guarantees: a violation of each of Relay's rules is found and reported with its place (getsentry/relay
/// `relay-profiling/src/sample/v2.rs` and the files beside it; Relay's profile crate was observed to reject each row).
/// rule: differences#two-samples, differences#rejections, differences#image-type, differences#measurement-values
/// rule: differences#ids, differences#frame-function, sample-format-v2#measurement-unit, sample-format-v2#frames
/// rule: sample-format-v2#reject-no-metadata, profiles-sdk#v2-reject-no-metadata, event-schema#image-type
#[test]
fn each_rule() {
    let rows = [
        ("/version", json!(2), "version: must be \"2\""),
        ("/chunk_id", json!("3E11A5C9831F4E49939C0A81944EA2CB"), "chunk_id: must be a UUID v4"),
        ("/profiler_id", json!(null), "profiler_id: must be a string"),
        ("/platform", json!("cocoa"), "platform: \"cocoa\" is no platform of a server"),
        ("/client_sdk", json!({"name": "x"}), "client_sdk.version: is missing"),
        ("/profile/samples", json!([]), "profile.samples: no thread has two samples"),
        ("/profile/samples/0/thread_id", json!(7), "profile.samples[0].thread_id: must be a string"),
        ("/profile/samples/0/timestamp", json!("1"), "profile.samples[0].timestamp: must be a finite number"),
        ("/profile/samples/0/stack_id", json!(2), "profile.samples[0].stack_id: must be the index of a stack"),
        ("/profile/samples/0/stack_id", json!(0), "thread 7: has 1 samples with frames"),
        ("/profile/samples/2/timestamp", json!(67.1), "profile.samples: span 66.1"),
        ("/profile/stacks/1", json!([1]), "profile.stacks[1]: 1 is not the index of a frame"),
        ("/profile/frames/0/lineno", json!(-1), "profile.frames[0].lineno: must be an unsigned number"),
        ("/profile/frames/0/lineno", json!(1_u64 << 32), "profile.frames[0].lineno: must be an unsigned number"),
        ("/profile/frames/0/instruction_addr", json!(16), "profile.frames[0].instruction_addr: must be a string"),
        ("/profile/frames/0/function", json!(""), "profile.frames[0].function: Sentry aggregates"),
        ("/profile/thread_metadata", json!(null), "profile.thread_metadata: must be an object"),
        ("/profile/thread_metadata/7", json!({"priority": -5}), "profile.thread_metadata.7.priority"),
        ("/profile/thread_metadata", json!({"8": {}}), "profile.thread_metadata.8: no sample"),
        ("/debug_meta", json!(null), "debug_meta.images: must be an array"),
        ("/debug_meta/images/0/type", json!("elf"), "debug_meta.images[0].type: \"elf\""),
        ("/debug_meta/images/0/image_addr", json!(16), "debug_meta.images[0].image_addr: must be a string"),
        ("/debug_meta/images/0/image_size", json!(null), "debug_meta.images[0].image_size: must be a number"),
    ];
    for (pointer, value, expected) in rows {
        let found = broken(pointer, value);
        assert!(found.iter().any(|violation| violation.starts_with(expected)), "{pointer}: {found:?}");
    }
    let mut chunk = good();
    chunk["measurements"] = json!({"cpu": {"unit": "furlong", "values": {}}});
    let found = validate_json(chunk.to_string().as_bytes()).unwrap_err();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(validate_json(b"[]").is_err() && validate_json(b"{").is_err());
}

/// Guarantees: a measurement must have one of the units that Relay knows (getsentry/relay
/// `relay-profiling/src/measurements.rs`), which include those of Sentry's sample format V2, and its values must be a
/// list.
/// rule: sample-format-v2#measurement-unit
#[test]
fn units_of_measurements() {
    let checked = |unit: &str| {
        let mut chunk = good();
        chunk["measurements"] = json!({"cpu": {"unit": unit, "values": [{"timestamp": 1.5, "value": 2.5}]}});
        validate_json(chunk.to_string().as_bytes())
    };
    for unit in ["nanosecond", "ns", "hertz", "hz", "byte", "percent", "nanojoule", "nj"] {
        assert_eq!(checked(unit), Ok(()), "{unit}");
    }
    for unit in ["furlong", "", "Byte", "s"] {
        assert!(checked(unit).is_err(), "{unit}");
    }
}

/// Guarantees: chunks captured from Sentry's own SDKs pass under Relay's rules.
/// rule: sample-format-v2#measurement-unit
#[test]
fn real_payloads() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../wire/testdata/sentry");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if !path.to_string_lossy().ends_with("profile_chunk.envelope") {
            continue;
        }
        let envelope = std::fs::read(&path).unwrap();
        let payload = envelope.split(|&byte| byte == b'\n').nth(2).unwrap();
        assert_eq!(validate(payload, Strictness::Relay), Ok(()), "{}", path.display());
        seen += 1;
    }
    assert_eq!(seen, 3);
}

/// Guarantees: like in Relay, the profiler id in a payload of another program may be any UUID; in profbridge's own
/// payloads it may not.
#[test]
fn ids_of_others() {
    for id in
        ["b6b5ee129b7a94de8f28c712e4dcccd7", "00000000-0000-0000-0000-000000000000", "3E11A5C9831F4E49939C0A81944EA2CB"]
    {
        let mut chunk = good();
        chunk["profiler_id"] = id.into();
        let payload = chunk.to_string();
        assert_eq!(validate(payload.as_bytes(), Strictness::Relay), Ok(()), "{id}");
        assert!(validate(payload.as_bytes(), Strictness::Own).is_err(), "{id}");
    }
    let mut chunk = good();
    chunk["profiler_id"] = "3e11".into();
    assert!(validate(chunk.to_string().as_bytes(), Strictness::Relay).is_err());
}
