use std::collections::BTreeMap;

use bytes::Bytes;
use profbridge_model::{Profiles, Value};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::{MAX_BYTES, MAX_ENTRIES, MAX_FRAMES, ProfileError, SampledProfile, read, read_items, read_of};
use crate::sentry::chunk::Settings;
use crate::sentry::chunk::tests::support::{attributed, convert};
use crate::sentry::envelope;

const PYTHON: &[u8] = include_bytes!("../../../testdata/sentry/python-2.75-profile_chunk.envelope");
const NODE: &[u8] = include_bytes!("../../../testdata/sentry/node-11.1-profile_chunk.envelope");
const NODE_V1: &[u8] = include_bytes!("../../../testdata/sentry/node-10.75-v1-transaction+profile.envelope");

fn chunk() -> Json {
    json!({
        "chunk_id": "0123456789abcdef0123456789abcdef",
        "profiler_id": "11111111-2222-4333-8444-555555555555",
        "platform": "python",
        "version": "2",
        "client_sdk": {"name": "sentry.python", "version": "2.0"},
        "release": "shop@1.2@3",
        "environment": "staging",
        "measurements": {"cpu": {"unit": "percent", "values": []}},
        "debug_meta": {"images": [
            {"type": "symbolic", "code_file": "/lib/libc.so", "debug_id": "d", "image_addr": "0x1000", "image_size": "4096",
             "image_vmaddr": "0x400"},
            {"type": "sourcemap", "code_file": "app.js", "debug_id": "e"},
        ]},
        "profile": {
            "frames": [
                {"function": "leaf", "abs_path": "/a/b.py", "filename": "b.py", "module": "b", "lineno": 7, "colno": 3,
                 "in_app": true},
                {"name": "root", "file": "c.py", "line": 1},
                {"instruction_addr": "0x1010", "platform": "native", "package": "/lib/libc.so"},
                {"function": "decimal", "instruction_addr": "8192"},
            ],
            "stacks": [[0, 1], [], [2, 3, 1]],
            "samples": [
                {"timestamp": 1000.5, "thread_id": "7", "stack_id": 0},
                {"timestamp": 1000.1, "thread_id": "7", "stack_id": 0},
                {"timestamp": 1000.2, "thread_id": "0x7", "stack_id": 2},
                {"timestamp": 1000.3, "thread_id": "7", "stack_id": 1},
                {"timestamp": 1000.7, "thread_id": "0x7", "stack_id": 2},
            ],
            "thread_metadata": {"7": {"name": "main", "priority": 4}, "9": {"name": "no samples"}},
        },
    })
}

fn read_json(chunk: &Json) -> Result<Profiles, ProfileError> {
    read(chunk.to_string().as_bytes())
}

fn refused(chunk: &Json) -> String {
    read_json(chunk).unwrap_err().to_string()
}

/// Formats a value for a snapshot.
fn show(profiles: &Profiles, value: &Value) -> String {
    match value {
        Value::String(id) => format!("{:?}", profiles.dictionary().string(*id)),
        Value::Int(number) => number.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Array(values) => format!("{:?}", values.iter().map(|value| show(profiles, value)).collect::<Vec<_>>()),
        other => format!("{other:?}"),
    }
}

fn attributes<'a>(
    profiles: &Profiles,
    attributes: impl Iterator<Item = &'a profbridge_model::Attribute>,
) -> BTreeMap<String, String> {
    let name = |attribute: &profbridge_model::Attribute| profiles.dictionary().string(attribute.key).to_owned();
    attributes.map(|attribute| (name(attribute), show(profiles, &attribute.value))).collect()
}

fn list(attributes: &BTreeMap<String, String>) -> String {
    attributes.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

/// Formats all samples as lines: thread, frames, times and values.
fn lines(profiles: &Profiles) -> Vec<String> {
    let dictionary = profiles.dictionary();
    let profile = profiles.profiles().next().unwrap();
    let line = |sample: profbridge_model::Sample<'_>| {
        let frames: Vec<_> = dictionary
            .stack(sample.stack)
            .flatten()
            .map(|id| {
                let location = dictionary.location(id);
                let lines = dictionary.lines(location).iter().map(|line| {
                    let function = dictionary.function(line.function.unwrap());
                    let (name, file) = (dictionary.string(function.name), dictionary.string(function.filename));
                    format!("{name}@{file}:{}:{}", line.line, line.column)
                });
                let mapping = location.mapping.map(|id| dictionary.string(dictionary.mapping(id).filename));
                format!(
                    "\n    {} {:#x} in {} {}",
                    lines.collect::<String>(),
                    location.address,
                    mapping.unwrap_or("nothing"),
                    list(&attributes(profiles, dictionary.attributes(location.attributes))),
                )
            })
            .collect();
        let times: Vec<_> = sample.timestamps().zip(sample.values()).collect();
        let thread = list(&attributes(profiles, dictionary.attributes(sample.attributes)));
        format!("{thread} {times:?}{}", frames.concat())
    };
    profiles.samples(profile).map(line).collect()
}

/// Guarantees: every key that Sentry keeps is in the batch, addresses are assigned to their images, and a value is the
/// time until the next sample of its thread.
/// rule: sample-format-v2#measurements, sample-format-v2#measurement-value, round-trip#unused
#[test]
fn every_key_has_its_place() {
    let SampledProfile { profiles, left_out, unused } = read_of(chunk().to_string().as_bytes(), None).unwrap();
    // A thread without samples.
    assert_eq!((left_out, unused), (0, 1));
    let resource = &profiles.resources()[0];
    insta::assert_snapshot!(list(&attributes(&profiles, resource.resource.attributes.iter())), @r#"deployment.environment.name="staging" sentry.platform="python" sentry.profiler_id="11111111222243338444555555555555" service.name="shop@1.2" service.version="3""#);
    let scope = &resource.scopes[0].scope;
    let dictionary = profiles.dictionary();
    assert_eq!((dictionary.string(scope.name), dictionary.string(scope.version)), ("sentry.python", "2.0"));
    let profile = profiles.profiles().next().unwrap();
    assert_eq!(profile.profile_id.map(u128::from_be_bytes), Some(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef));
    assert_eq!((profile.time_unix_nano, profile.duration_nano), (1_000_100_000_000, 600_000_001));
    let found = attributes(&profiles, dictionary.attributes(profile.attributes));
    let cpu: Json =
        serde_json::from_str(&serde_json::from_str::<String>(&found["sentry.measurements"]).unwrap()).unwrap();
    assert_eq!(cpu, chunk()["measurements"]);
    assert!(found["sentry.images"].contains("sourcemap"));
    assert!(!found["sentry.images"].contains("libc"));
    let window = profiles.window.as_ref().unwrap();
    assert_eq!(window.profiler_id.to_string(), "11111111222243338444555555555555");
    assert_eq!((window.start_unix_nano, window.end_unix_nano), (1_000_100_000_000, 1_000_700_000_000));
    assert_eq!(profiles.observations(), 5);
    insta::assert_snapshot!(lines(&profiles).join("\n"), @r#"
    sentry.thread.priority=4 thread.id=7 thread.name="main" [(1000100000000, 200000000), (1000500000000, 0)]
        leaf@/a/b.py:7:3 0x0 in nothing profile.frame.type="cpython" sentry.frame.filename="b.py" sentry.frame.in_app=true sentry.frame.module="b"
        root@c.py:1:0 0x0 in nothing profile.frame.type="cpython" sentry.frame.abs_path=""
    thread.id="0x7" [(1000200000000, 500000000), (1000700000000, 0)]
         0x1010 in /lib/libc.so profile.frame.type="native" sentry.frame.package="/lib/libc.so" sentry.frame.platform="native"
        decimal@:0:0 0x2000 in nothing profile.frame.type="cpython"
        root@c.py:1:0 0x0 in nothing profile.frame.type="cpython" sentry.frame.abs_path=""
    sentry.thread.priority=4 thread.id=7 thread.name="main" [(1000300000000, 0)]
    "#);
    let mapping = dictionary.tables().mappings.last().unwrap();
    assert_eq!((mapping.memory_start, mapping.memory_limit), (0x1000, 0x2000));
    let found = attributes(&profiles, dictionary.attributes(mapping.attributes));
    assert_eq!(found["sentry.debug_id"], "\"d\"");
    assert_eq!(found["sentry.image_vmaddr"], "\"0x400\"");
}

/// Guarantees: a release that is not a name with a version is kept unmodified, and a missing one stays missing.
#[test]
fn releases() {
    for (release, key, value) in
        [("4f2a", "sentry.release", "\"4f2a\""), ("@1", "sentry.release", "\"@1\""), ("a@", "sentry.release", "\"a@\"")]
    {
        let mut chunk = chunk();
        chunk["release"] = release.into();
        let profiles = read_json(&chunk).unwrap();
        let found = attributes(&profiles, profiles.resources()[0].resource.attributes.iter());
        assert_eq!(found[key], value);
        assert!(!found.contains_key("service.name"));
    }
    let mut chunk = chunk();
    for key in ["release", "environment", "client_sdk"] {
        chunk[key] = Json::Null;
    }
    let profiles = read_json(&chunk).unwrap();
    let found = attributes(&profiles, profiles.resources()[0].resource.attributes.iter());
    assert_eq!(found.keys().collect::<Vec<_>>(), ["sentry.platform", "sentry.profiler_id"]);
}

/// Guarantees: a chunk that was read, and whose marks as a chunk were lost, is converted to a chunk that Relay accepts,
/// with the same profiler, every thread, and the time that Sentry attributed to each function.
#[test]
fn there_and_back() {
    for fixture in [PYTHON, NODE] {
        let envelope = envelope::read(Bytes::from_static(fixture)).unwrap().envelope;
        let before: Json = serde_json::from_slice(envelope.items[0].payload.plain().unwrap()).unwrap();
        let profiles = read_items(&envelope).next().unwrap().1.unwrap();
        let mut resources = profiles.resources().to_vec();
        resources[0].scopes[0].profiles[0].attributes = None;
        let converted = convert(&profiles.with_resources(resources).unwrap(), Settings::default());
        assert!(converted.report.losses.is_none(), "{:?}", converted.report);
        let after = converted.chunk();
        for pointer in ["/profiler_id", "/platform", "/release", "/environment", "/profile/thread_metadata"] {
            assert_eq!(before.pointer(pointer), after.pointer(pointer), "{pointer}");
        }
        let of_functions = |chunk: &Json| {
            let mut owned = attributed(std::slice::from_ref(chunk));
            owned.retain(|_, micros| *micros > 0);
            owned
        };
        let (before, after) = (of_functions(&before), of_functions(after));
        assert!(before.keys().eq(after.keys()));
        assert!(before.iter().all(|(function, micros)| micros.abs_diff(after[function]) < 100), "{before:?} {after:?}");
    }
}

/// Guarantees: other items are ignored, profiles in other formats are ignored and counted, and a profile whose header
/// names another platform is rejected, as by Relay.
/// rule: differences#item-platform
#[test]
fn items() {
    let mut mixed = envelope::read(Bytes::from_static(PYTHON)).unwrap().envelope;
    mixed.items.insert(0, envelope::item("event", None, &b"{}"[..]));
    mixed.items[1].header = Bytes::from_static(br#"{"type":"profile_chunk","platform":"node"}"#);
    mixed.items.push(envelope::item("profile_chunk", Some("application/x-perfetto-trace"), &b"\0"[..]));
    for other in [
        &br#"{"version":"2.android-trace","platform":"android","profile":{"methods":[]}}"#[..],
        br#"{"version":"2","platform":"android","sampled_profile":"c2FtcGxlZA=="}"#,
        br#"{"version":"3","profile":{"threads":[]}}"#,
    ] {
        mixed.items.push(envelope::item("profile_chunk", None, other));
    }
    mixed.items.push(envelope::item("profile", None, &br#"{"platform":"android","sampled_profile":""}"#[..]));
    mixed.items.push(envelope::item("profile_chunk", None, &b"{"[..]));
    let mut items = read_items(&mixed);
    let errors: Vec<_> = items.by_ref().map(|(at, read)| (at, read.unwrap_err().to_string())).collect();
    assert_eq!(items.passed_over(), 5);
    assert_eq!(errors[0], (1, "platform: differs from the platform in the item's header".to_owned()));
    assert_eq!(errors.len(), 2);
    assert!(errors[1].1.starts_with("the profile cannot be read: EOF"), "{errors:?}");
}

/// Guarantees: each broken rule is reported with its place.
/// rule: sample-format-v2#version
#[test]
fn refusals() {
    let with = |pointer: &str, value: Json| {
        let mut chunk = chunk();
        *chunk.pointer_mut(pointer).unwrap() = value;
        refused(&chunk)
    };
    assert_eq!(with("/version", "3".into()), "version: is not \"2\"");
    assert_eq!(with("/version", "2.android-trace".into()), "version: an Android trace is not supported, only \"2\"");
    assert_eq!(with("/chunk_id", "x".into()), "chunk_id: is not a UUID");
    assert_eq!(
        with("/profile/stacks/2/1", 4.into()),
        "profile.stacks[2][1]: index 4 is out of range, there are 4 frames"
    );
    assert_eq!(
        with("/profile/samples/3/stack_id", 3.into()),
        "profile.samples[3].stack_id: index 3 is out of range, there are 3 stacks"
    );
    for time in [json!(-1), json!(1e11), json!(1e300)] {
        let place = "profile.samples[0].timestamp: is not a time between 1970 and 2262 in seconds";
        assert_eq!(with("/profile/samples/0/timestamp", time), place);
    }
    for (pointer, value) in [
        ("/profile/samples/0/thread_id", json!(7)),
        ("/profile/samples/0/timestamp", json!("1")),
        ("/profile/frames/0/lineno", json!(-1)),
        ("/profile/frames/2/instruction_addr", json!("0xg")),
        ("/profile/frames/2/instruction_addr", json!(5)),
        ("/profile/thread_metadata/7/priority", json!(-5)),
        ("/profile/thread_metadata", Json::Null),
        ("/debug_meta", Json::Null),
        ("/debug_meta/images/0/image_size", json!("x")),
        ("/profile", json!({})),
        ("/version", json!(2)),
    ] {
        let error = with(pointer, value);
        assert!(error.starts_with("the profile cannot be read: "), "{pointer}: {error}");
    }
    let mut long = chunk();
    long["profile"]["samples"] = json!("x".repeat(10_000));
    assert!(refused(&long).len() < 300);
}

/// Attack: three bytes of JSON for each frame, and as few for each element of the other lists.
/// Guarantees: the lists are rejected at their limit, before they take more memory.
#[test]
fn attack_many_small_elements() {
    let mut bomb = chunk();
    bomb["profile"]["frames"] = Json::Array(vec![json!({}); MAX_FRAMES + 1]);
    assert!(refused(&bomb).contains("more than 262144 elements"));
    let mut bomb = chunk();
    bomb["debug_meta"]["images"] = Json::Array(vec![json!({}); MAX_ENTRIES + 1]);
    assert!(refused(&bomb).contains("more than 65536 elements"));
    let mut bomb = chunk();
    let threads = (0..=MAX_ENTRIES).map(|i| (i.to_string(), json!({}))).collect();
    bomb["profile"]["thread_metadata"] = Json::Object(threads);
    assert!(refused(&bomb).contains("more than 65536 elements"));
    assert_eq!(read(&vec![b' '; MAX_BYTES + 1]).unwrap_err(), ProfileError::TooLarge { bytes: MAX_BYTES + 1 });
}

/// Attack: lists nested half a million levels deep in place of a number or an unknown key.
/// Guarantees: an error or an ignored value, but no stack overflow.
#[test]
fn attack_depth() {
    let deep = format!("{}{}", "[".repeat(500_000), "]".repeat(500_000));
    let text = chunk().to_string();
    let known = text.replace("[[0,1],[],[2,3,1]]", &deep);
    assert_ne!(known, text);
    assert!(read(known.as_bytes()).is_err());
    let unknown = text.replacen('{', &format!("{{\"k\":{deep},"), 1);
    assert_eq!(read(unknown.as_bytes()).unwrap().observations(), 5);
    let raw = text.replacen("{\"cpu\"", &format!("{{\"k\":{deep},\"cpu\""), 1);
    assert_ne!(raw, text);
    assert!(read(raw.as_bytes()).is_ok(), "kept as it is");
}

proptest! {
    /// Guarantees: replacing a value of a chunk never causes a panic, and an accepted chunk loses no sample.
    #[test]
    fn damaged_chunks(position in 0usize..1200, junk in "[0-9\\[\\]{}\",:a-z.-]{0,6}") {
        let mut text = chunk().to_string();
        let at = position % text.len();
        if text.is_char_boundary(at) && text.is_char_boundary(at + 1) {
            text.replace_range(at..at + 1, &junk);
            if let Ok(profiles) = read(text.as_bytes()) {
                prop_assert!(profiles.observations() <= 5);
            }
        }
    }

    /// Guarantees: damage to a real envelope never causes a panic, and the parts that are still readable are written
    /// again unchanged.
    #[test]
    fn damaged_envelopes(
        which in 0usize..3,
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>(), 0usize..40), 1..8),
    ) {
        let mut bytes = [PYTHON, NODE, NODE_V1][which].to_vec();
        for (index, byte, cut) in damage {
            let at = index.index(bytes.len());
            bytes[at] = byte;
            if cut < 8 {
                bytes.drain(at..(at + cut).min(bytes.len()));
            }
        }
        if let Ok(parsed) = envelope::read(bytes.clone().into()) {
            prop_assert!(envelope::write(&parsed.envelope, parsed.ending).unwrap() == bytes);
            let observations: u64 = read_items(&parsed.envelope).filter_map(|(_, read)| read.ok()).map(|profiles| profiles.observations()).sum();
            prop_assert!(observations <= 298);
        }
    }
}
