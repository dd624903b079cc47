//! Tests of preserved chunks. `tests/sentry/round_trip.rs` checks the round trip.

use profbridge_model::whole_chunk::{CHUNK_SAMPLES, PROFILER_ID};
use profbridge_model::{Builder, Profile, Profiles, Quantities, Reason};
use serde_json::{Value, json};

use super::support::{Converted, MS, START, convert_as, window};
use crate::sentry::chunk::{ConversionReport, Settings};
use crate::sentry::chunk_reader;
use profbridge_relay_rules::Strictness;

fn chunk() -> Value {
    json!({
        "version": "2", "platform": "python",
        "chunk_id": "0123456789abcdef0123456789abcdef", "profiler_id": "11111111222243338444555555555555",
        "client_sdk": {"name": "sdk", "version": "1"},
        "measurements": {"cpu": {"unit": "percent", "values": [{"timestamp": 1.5, "value": 2}]}},
        "debug_meta": {"images": [
            {"type": "symbolic", "image_addr": "0x1000", "image_size": 4096},
            {"type": "sourcemap", "debug_id": "b03e4a7f-5e88-4c8d-a04b-05fa32cc4cbd"},
        ]},
        "profile": {
            "frames": [{"function": "f", "instruction_addr": "0x1010"}],
            "stacks": [[0], []],
            "samples": [
                {"timestamp": 1000.0, "thread_id": "1", "stack_id": 0},
                {"timestamp": 1001.0, "thread_id": "1", "stack_id": 0},
                {"timestamp": 1002.0, "thread_id": "2", "stack_id": 0},
                {"timestamp": 1003.0, "thread_id": "1", "stack_id": 1},
            ],
            "thread_metadata": {},
        },
    })
}

fn convert(batch: &Profiles) -> (ConversionReport, Vec<Value>) {
    let Converted { report, chunks, .. } = convert_as(batch, Settings::default(), Strictness::Relay);
    (report, chunks)
}

fn with(pointer: &str, value: Value) -> (ConversionReport, Vec<Value>) {
    let mut chunk = chunk();
    *chunk.pointer_mut(pointer).unwrap() = value;
    convert(&chunk_reader::read(chunk.to_string().as_bytes()).unwrap())
}

/// Guarantees: images and measurements for which Relay would reject the chunk are omitted and counted, and all other
/// data is unchanged.
/// rule: round-trip#refused-parts
#[test]
fn what_sentry_refuses_is_left_out() {
    for (pointer, value, images) in [
        ("/debug_meta/images/0/type", json!("elf"), 1),
        ("/debug_meta/images/1/type", json!("elf"), 1),
        ("/debug_meta/images/1/debug_id", json!("x"), 1),
        ("/debug_meta/images/1/debug_id", Value::Null, 1),
        ("/measurements/cpu/unit", json!("bytes"), 2),
        ("/measurements/cpu/values", json!({"value": 1}), 2),
        ("/measurements", json!([1]), 2),
    ] {
        let (report, chunks) = with(pointer, value);
        assert_eq!((report.notes.left_out, report.samples, report.synthesized), (1, 4, 0), "{pointer}");
        assert_eq!(chunks[0]["debug_meta"]["images"].as_array().unwrap().len(), images, "{pointer}");
        assert_eq!(chunks[0].get("measurements").is_some(), images == 1, "{pointer}");
        assert_eq!(chunks[0]["chunk_id"], chunk()["chunk_id"]);
    }
}

/// Guarantees: a chunk that Relay would reject (too long, or no thread with two samples with frames) is converted like
/// any other profile. A chunk exactly at the limit is preserved.
/// rule: round-trip#not-whole
#[test]
fn what_is_no_whole_chunk() {
    let is_same = |chunks: &[Value]| chunks.len() == 1 && chunks[0]["chunk_id"] == chunk()["chunk_id"];
    // In this conversion, idle time is not an observation.
    let idle = |report: &ConversionReport| report.losses.get(Reason::NoFrames) == Quantities::observations(1);
    let (report, chunks) = with("/profile/samples/1/timestamp", json!(1067.0));
    assert!(idle(&report) && !chunks.is_empty() && !is_same(&chunks), "{report:?}");
    assert!(is_same(&with("/profile/samples/1/timestamp", json!(1066.0)).1));
    // The time of a thread that Relay drops has no limit.
    assert!(is_same(&with("/profile/samples/2/timestamp", json!(1500.0)).1));
    let (report, chunks) = with("/profile/samples/1/stack_id", json!(1));
    assert!(report.synthesized > 0 && !chunks.is_empty() && !is_same(&chunks), "{report:?}");
    let nil = with("/chunk_id", json!("00000000000000000000000000000000")).1;
    assert_eq!(nil.len(), 1);
    assert_ne!(nil[0]["chunk_id"], "00000000000000000000000000000000");
}

/// Attack: a batch that claims to be a chunk, whose frames share a name and attributes of a megabyte.
/// Guarantees: the chunk does not grow beyond Sentry's limit, and attributes with malformed JSON are not written.
#[test]
fn attack_claims() {
    let forged = |frames: usize, name: &str| {
        let mut builder = Builder::new();
        builder.resource(&[(PROFILER_ID, "11111111222243338444555555555555".into()), ("sentry.platform", "x".into())]);
        builder.scope("", "");
        let measurements = "{},\"chunk_id\":\"\"}\n{\"type\":\"event\"}";
        let attributes = builder.attributes(&[
            (CHUNK_SAMPLES, 2.into()),
            ("sentry.measurements", measurements.into()),
            ("sentry.images", profbridge_model::builder::Any::Array(&["\"}]".into(), 7.into()])),
        ]);
        builder.profile(Profile { attributes, ..Profile::default() });
        let locations: Vec<_> = (0..frames).map(|line| builder.frame(name, "", line as i64 + 1)).collect();
        let stack = builder.stack(&locations);
        let thread = builder.attributes(&[("thread.id", "\"".into())]);
        builder.sample(stack, thread, None, &[START, START + MS], &[]);
        let mut batch = builder.finish().unwrap();
        batch.window = Some(window(60_000));
        batch
    };
    let (report, chunks) = convert(&forged(3, "f"));
    assert_eq!((report.notes.left_out, chunks[0].get("measurements"), chunks[0].get("debug_meta")), (3, None, None));
    assert_eq!(chunks[0]["client_sdk"]["name"], "profbridge.rust");
    let (report, _) = convert(&forged(1000, &"x".repeat(1 << 20)));
    assert!(report.json_bytes < 50 << 20, "{report:?}");
}
