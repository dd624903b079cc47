use std::collections::BTreeMap;

use bytes::Bytes;
use profbridge_model::{Attribute, Profiles, Value};
use serde_json::{Value as Json, json};

use super::{Companion, ProfileError, SampledProfile, read};
use crate::sentry::chunk::{Collected, Converter, Settings};
use crate::sentry::envelope;
use crate::sentry::profile_items::read_items;
use profbridge_relay_rules::{self as relay_rules, Strictness};

mod attacks;
mod rules;

const NODE: &[u8] = include_bytes!("../../../testdata/sentry/node-10.75-v1-transaction+profile.envelope");

const DEBUG_ID: &str = "b03e4a7f-5e88-4c8d-a04b-05fa32cc4cbd";

/// A profile of two threads that starts at 1,000 s.
fn profile() -> Json {
    json!({
        "event_id": "0123456789abcdef0123456789abcdef",
        "timestamp": "1970-01-01T00:16:40",
        "platform": "python",
        "version": "1",
        "release": "shop@1.2",
        "environment": "from the profile",
        "device": {"architecture": "x86_64", "model": "m1", "manufacturer": "m2", "is_emulator": false, "cores": 8,
                   "locale": null, "list": [1]},
        "os": {"name": "Linux", "version": "6.1", "build_number": "#1"},
        "runtime": {"name": "CPython", "version": "3.11.7"},
        "transactions": [null, {"id": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "name": "/checkout",
            "trace_id": "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", "active_thread_id": "7",
            "relative_start_ns": "0", "relative_end_ns": "0"}],
        "contexts": {"trace": {"span_id": "00000000000000ff"}},
        "measurements": {"cpu": {"unit": "percent", "values": [
            {"elapsed_since_start_ns": "1500000000", "value": "1e1"}, null, {"timestamp": 1002.25, "value": 2.50}]}},
        "debug_meta": {"images": [null, {"type": "sourcemap", "code_file": "app.js", "debug_id": DEBUG_ID}]},
        "profile": {
            "frames": [
                {"function": "leaf", "filename": "a.py", "in_app": true}, null, {"function": "root", "module": "m"},
            ],
            "stacks": [[0, 2], [1, 2, null], [], null],
            "samples": [
                {"stack_id": 2, "thread_id": 7, "elapsed_since_start_ns": 0},
                {"stack_id": 0, "thread_id": 7, "elapsed_since_start_ns": "1000000000"},
                null,
                {"stack_id": 0.0, "thread_id": "8", "elapsed_since_start_ns": 1100000000.0},
                {"stack_id": 3, "thread_id": "7", "elapsed_since_start_ns": 1500000000},
                {"stack_id": 1, "thread_id": 7.0, "elapsed_since_start_ns": 2000000000},
                {"stack_id": 1, "thread_id": 8, "elapsed_since_start_ns": 2100000000},
                {"stack_id": 0, "thread_id": 9, "elapsed_since_start_ns": 2100000000},
                {"stack_id": 3, "thread_id": 8, "elapsed_since_start_ns": 2200000000_u32},
            ],
            "thread_metadata": {"7": {"name": "main"}, "8": {"priority": 3}},
        },
    })
}

const TRANSACTION: &str = r#"{"sdk":{"name":"sentry.python","version":"2.75.0"},"environment":"prod","dist":"d1",
    "release":"not@this","transaction":"renamed"}"#;

fn enveloped(profile: &Json, transaction: Option<&'static str>) -> profbridge_model::Envelope {
    let mut envelope = profbridge_model::Envelope::default();
    envelope.items.push(envelope::item("profile", None, profile.to_string()));
    envelope.items.extend(transaction.map(|transaction| envelope::item("transaction", None, transaction)));
    envelope
}

fn read_json(profile: &Json) -> Result<SampledProfile, ProfileError> {
    let envelope = enveloped(profile, Some(TRANSACTION));
    read(profile.to_string().as_bytes(), &Companion::find(&envelope, None))
}

fn refused(profile: &Json) -> String {
    read_json(profile).unwrap_err().to_string()
}

/// Formats attributes for a snapshot.
fn attributes<'a>(profiles: &Profiles, attributes: impl Iterator<Item = &'a Attribute>) -> BTreeMap<String, String> {
    let dictionary = profiles.dictionary();
    let show = |value: &Value| match value {
        Value::String(id) => format!("{:?}", dictionary.string(*id)),
        Value::Int(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::Array(values) => format!("{} values", values.len()),
        other => format!("{other:?}"),
    };
    attributes.map(|found| (dictionary.string(found.key).to_owned(), show(&found.value))).collect()
}

fn list(attributes: &BTreeMap<String, String>) -> String {
    attributes.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join("\n")
}

/// Formats all samples as lines: attributes, functions, times with their values, link.
fn lines(profiles: &Profiles) -> Vec<String> {
    let dictionary = profiles.dictionary();
    let line = |sample: profbridge_model::Sample<'_>| {
        let function = |id: Option<_>| {
            let location = id.map(|id| dictionary.location(id));
            let line = location.and_then(|location| dictionary.lines(location).first());
            let function = line.and_then(|line| line.function).map(|id| dictionary.function(id));
            function.map_or("?", |function| dictionary.string(function.name))
        };
        let functions: Vec<_> = dictionary.stack(sample.stack).map(function).collect();
        let times: Vec<_> = sample.timestamps().zip(sample.values()).collect();
        let thread = list(&attributes(profiles, dictionary.attributes(sample.attributes))).replace('\n', " ");
        format!("{thread} {functions:?} {times:?} {:?}", sample.link.map(|link| dictionary.link(link).span_id[7]))
    };
    profiles.profiles().flat_map(|profile| profiles.samples(profile)).map(line).collect()
}

/// Guarantees: every key is in the batch, in any of the SDKs' forms; times are absolute; idle samples at the ends and
/// threads with one sample are left out and counted.
/// rule: differences#v1-lenient, round-trip#v1-samples, profiles-sdk#v1-event-id, profiles-sdk#v1-platform
/// rule: profiles-sdk#v1-release, profiles-sdk#v1-device, profiles-sdk#v1-os, profiles-sdk#v1-profile
/// rule: profiles-sdk#v1-transaction, profiles-sdk#v1-environment, profiles-sdk#v1-debug-meta
/// rule: profiles-sdk#v1-measurements, profiles-sdk#v1-runtime, profiles-sdk#v1-device-fields, profiles-sdk#v1-samples
/// rule: profiles-sdk#measurements, profiles-sdk#v1-validate
#[test]
fn every_key_has_its_place() {
    let SampledProfile { profiles, left_out, unused } = read_json(&profile()).unwrap();
    // The idle stack at the start of a thread.
    assert_eq!(unused, 1);
    // One before the first, one after the last, one single sample, and the null.
    assert_eq!((profiles.observations(), left_out), (5, 4));
    let resource = &profiles.resources()[0];
    insta::assert_snapshot!(list(&attributes(&profiles, resource.resource.attributes.iter())), @r##"
    deployment.environment.name="prod"
    device.manufacturer="m2"
    device.model.identifier="m1"
    host.arch="amd64"
    os.build_id="#1"
    os.name="Linux"
    os.version="6.1"
    process.runtime.name="CPython"
    process.runtime.version="3.11.7"
    sentry.device.architecture="x86_64"
    sentry.device.cores=8
    sentry.device.is_emulator=false
    sentry.dist="d1"
    sentry.platform="python"
    sentry.profiler_id="0123456789abcdef0123456789abcdef"
    service.name="shop"
    service.version="1.2"
    "##);
    let dictionary = profiles.dictionary();
    let scope = &resource.scopes[0].scope;
    assert_eq!((dictionary.string(scope.name), dictionary.string(scope.version)), ("sentry.python", "2.75.0"));
    let profile = profiles.profiles().next().unwrap();
    assert_eq!((profile.time_unix_nano, profile.duration_nano), (1_001_000_000_000, 1_100_000_001));
    assert_eq!(profile.profile_id.map(u128::from_be_bytes), Some(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef));
    insta::assert_snapshot!(list(&attributes(&profiles, dictionary.attributes(profile.attributes))), @r#"
    sentry.active_thread_id=7
    sentry.chunk_samples=5
    sentry.images=1 values
    sentry.measurements="{\"cpu\":{\"unit\":\"percent\",\"values\":[{\"timestamp\":1001.500000,\"value\":\"1e1\"},{\"timestamp\":1002.250000,\"value\":2.5}]}}"
    sentry.trace_id="bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
    sentry.transaction.id="aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    sentry.transaction.name="renamed"
    "#);
    insta::assert_snapshot!(lines(&profiles).join("\n"), @r#"
    thread.id=7 thread.name="main" ["leaf", "root"] [(1001000000000, 500000000)] Some(255)
    sentry.thread.priority=3 thread.id=8 ["leaf", "root"] [(1001100000000, 1000000000)] None
    thread.id=7 thread.name="main" [] [(1001500000000, 0)] Some(255)
    thread.id=7 thread.name="main" ["?", "root"] [(1002000000000, 0)] Some(255)
    sentry.thread.priority=3 thread.id=8 ["?", "root"] [(1002100000000, 0)] None
    "#);
    let window = profiles.window.unwrap();
    assert_eq!(window.profiler_id.to_string(), "0123456789abcdef0123456789abcdef");
}

/// Guarantees: a profile becomes one chunk that Sentry accepts, with the same id, unchanged samples, and all other data
/// for which a chunk has keys.
#[test]
fn becomes_a_chunk() {
    let SampledProfile { profiles, .. } = read_json(&profile()).unwrap();
    let mut collected = Collected::default();
    let report = Converter::new(Settings::default()).convert(&profiles, &mut collected);
    assert!(report.balanced() && report.losses.is_none() && report.synthesized == 0, "{report:?}");
    let (payload, _) = collected.chunks.remove(0);
    relay_rules::validate(&payload, Strictness::Relay).unwrap();
    let mut chunk: Json = serde_json::from_slice(&payload).unwrap();
    let samples = chunk["profile"].as_object_mut().unwrap().remove("samples").unwrap();
    let times: Vec<_> =
        samples.as_array().unwrap().iter().map(|sample| sample["timestamp"].as_f64().unwrap()).collect();
    assert_eq!(times, [1001.0, 1001.5, 1002.0, 1001.1, 1002.1]);
    assert_eq!(
        chunk,
        json!({
            "version": "2",
            "platform": "python",
            "chunk_id": "0123456789abcdef0123456789abcdef",
            "profiler_id": "0123456789abcdef0123456789abcdef",
            "client_sdk": {"name": "sentry.python", "version": "2.75.0"},
            "release": "shop@1.2",
            "environment": "prod",
            "measurements": {"cpu": {"unit": "percent", "values": [
                {"timestamp": 1001.5, "value": "1e1"}, {"timestamp": 1002.25, "value": 2.5}]}},
            "debug_meta": {"images": [{"type": "sourcemap", "code_file": "app.js", "debug_id": DEBUG_ID}]},
            "profile": {
                "stacks": [[], [0, 1], [2, 1]],
                "frames": [
                    {"function": "leaf", "filename": "a.py", "in_app": true}, {"function": "root", "module": "m"}, {},
                ],
                "thread_metadata": {"7": {"name": "main"}, "8": {"priority": 3}},
            },
        })
    );
}

/// Guarantees: a profile of Node's SDK is read with every sample at its absolute time, and with the transaction's
/// names.
/// rule: profiles-sdk#v1-profile, profiles-sdk#v1-transaction, profiles-sdk#v1-timestamp, profiles-sdk#v1-samples
#[test]
fn a_real_profile() {
    let mut envelope = envelope::read(Bytes::from_static(NODE)).unwrap().envelope;
    for _ in ["the transaction first", "the profile first"] {
        let mut items = read_items(&envelope);
        let profiles = items.by_ref().next().unwrap().1.unwrap();
        assert_eq!((profiles.observations(), items.next().is_none(), items.left_out()), (89, true, 0));
        let resource = &profiles.resources()[0];
        let dictionary = profiles.dictionary();
        assert_eq!(dictionary.string(resource.scopes[0].scope.name), "sentry.javascript.node");
        let profile = profiles.profiles().next().unwrap();
        // 2026-11-21T02:38:40.136Z and the offsets of the first and the last sample.
        let start = 1_795_228_720_136_000_000;
        assert_eq!(profile.time_unix_nano, start + 494_000);
        assert_eq!(profile.duration_nano, 984_114_000 - 494_000 + 1);
        let found = attributes(&profiles, dictionary.attributes(profile.attributes));
        assert_eq!(found["sentry.transaction.id"], "\"cdcacf53d80a4317bcfa983417f20dd6\"");
        assert_eq!(found["sentry.active_thread_id"], "0");
        let link = profiles.samples(profile).next().unwrap().link.unwrap();
        assert_eq!(u64::from_be_bytes(dictionary.link(link).span_id), 0xa16a_fdbb_3230_9731);
        envelope.items.reverse();
    }
}
