//! Tests which frames are the same function for Sentry.
//!
//! Sentry groups functions by their name and module, or package if there is no module (observed with `vroomrs` 0.1.24).
//! It does so in a whole project: over processes, languages and machines. The file has no effect.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use profbridge_model::builder::Any;
use profbridge_model::{
    Builder, Function, IdentityStrength, Line, Location, Mapping, ProcessWindow, Profile, ProfilerId, Profiles,
};
use profbridge_testkit::workload::{Host, SEED, Shape};
use profbridge_testkit::{ExportProfilesServiceRequest, fixture};
use profbridge_wire::otlp::{self, Limits};
use profbridge_wire::sentry::chunk::{Collected, Converter, Settings};
use prost::Message;
use serde_json::Value;

/// The start of all profiles in these tests, in nanoseconds since the Unix epoch.
const START: u64 = 1_760_000_000_000_000_000;

fn text<'a>(frame: &'a Value, key: &str) -> &'a str {
    frame[key].as_str().unwrap_or_default()
}

/// Sentry's identity of a frame's function: module (or package) and name.
fn key(frame: &Value) -> (String, String) {
    let package = text(frame, "package").rsplit('/').next().unwrap_or_default();
    let ends = [".so", ".dylib", ".a", ".dll", ".exe"];
    let package = ends.iter().find_map(|end| package.strip_suffix(end)).unwrap_or(package);
    let module = text(frame, "module");
    (if module.is_empty() { package } else { module }.to_owned(), text(frame, "function").to_owned())
}

/// The frames of a batch, which has one process and one window.
fn frames(mut batch: Profiles) -> Vec<Value> {
    let ranges = batch.profiles().map(|profile| (profile.time_unix_nano, profile.duration_nano));
    let (start, end) = ranges.fold((u64::MAX, 0), |(start, end), (at, long)| (start.min(at), end.max(at + long)));
    batch.window = Some(ProcessWindow {
        profiler_id: ProfilerId::from_hash(7),
        strength: IdentityStrength::Strong,
        start_unix_nano: start,
        end_unix_nano: end.min(start + 60_000_000_000),
    });
    let mut collected = Collected::default();
    Converter::new(Settings::default()).convert(&batch, &mut collected);
    let mut frames = Vec::new();
    for (json, _) in collected.chunks {
        let mut chunk: Value = serde_json::from_slice(&json).unwrap();
        let platform = chunk["platform"].clone();
        for frame in chunk["profile"]["frames"].as_array_mut().unwrap() {
            if frame.get("platform").is_none() {
                frame["platform"] = platform.clone();
            }
            frames.push(frame.take());
        }
    }
    frames
}

/// A function as a profiler describes it.
#[derive(Clone, Copy)]
struct ReportedFunction<'a> {
    kind: &'a str,
    function: &'a str,
    file: &'a str,
    line: i64,
}

/// The frames of these functions, in their order. Each function has its own stack, because a stack has at most 1000
/// frames.
fn converted(all: &[ReportedFunction<'_>]) -> Vec<Value> {
    let mut builder = Builder::new();
    builder.resource(&[("service.name", "shop".into())]);
    builder.scope("test", "1");
    builder.on_cpu(20);
    let open: &mut Profile = builder.open_profile().unwrap();
    (open.time_unix_nano, open.duration_nano) = (START, 50_000_000_000);
    for (number, said) in (0..).zip(all) {
        let ReportedFunction { kind, function, file, line } = *said;
        let (name, filename) = (builder.string(function), builder.string(file));
        let function = builder.function(Function { name, filename, ..Function::default() });
        // Addresses are numbered, so that equal functions are separate locations.
        let mapping = (kind == "native").then(|| builder.mapping(Mapping::default())).flatten();
        let attributes = builder.attributes(&[("profile.frame.type", Any::Str(kind))]);
        let location = Location { mapping, address: number + 1, attributes, ..Location::default() };
        let location = builder.location(location, &[Line { function, line, column: 0 }]);
        let stack = builder.stack(&[location]);
        let thread = builder.attributes(&[("thread.id", 7.into())]);
        builder.sample(stack, thread, None, &[START + number * 100_000_000], &[]);
    }
    let frames = frames(builder.finish().unwrap());
    assert_eq!(frames.len(), all.len());
    frames
}

/// The frames of a chunk that a Sentry SDK sent.
fn captured(name: &str) -> Vec<Value> {
    let path = format!("{}/testdata/sentry/{name}.envelope", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(path).unwrap();
    let lines = bytes.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let frames = lines.filter_map(|line| line["profile"]["frames"].as_array().cloned()).flatten();
    let frames: Vec<_> = frames.collect();
    assert!(!frames.is_empty());
    frames
}

/// Restores the path of a captured file. The captures were made in folders below `/tmp/research`, which was removed
/// from paths, but not from modules.
fn as_it_was<'a>(file: &'a str, module: &str) -> std::borrow::Cow<'a, str> {
    match module.strip_prefix("tmp.research.").and_then(|module| module.split_once(':')) {
        Some((folder, _)) => file.replacen("/app/", &format!("/tmp/research/{folder}/"), 1).into(),
        None => file.into(),
    }
}

/// Guarantees: functions that Sentry's SDK for Python sent get the same module and name if the eBPF profiler, or a
/// sampler that reads perf maps, observes them. So they are the same functions for Sentry.
/// rule: profiles-sdk#frame-grouping, event-schema#frame-module
#[test]
fn python_sdk() {
    let sent = captured("python-2.75-profile_chunk");
    let files: Vec<_> = sent.iter().map(|frame| (text(frame, "function"), text(frame, "abs_path"))).collect();
    let names: Vec<_> = files.iter().map(|(function, file)| format!("py::{function}:{file}")).collect();
    let typed = files.iter().map(|&(function, file)| ReportedFunction { kind: "cpython", function, file, line: 7 });
    let mapped = names.iter().map(|function| ReportedFunction { kind: "native", function, file: "", line: 0 });
    let (typed, mapped): (Vec<_>, Vec<_>) = (typed.collect(), mapped.collect());
    for seen in [converted(&typed), converted(&mapped)] {
        for (sent, seen) in sent.iter().zip(seen) {
            assert_eq!(key(&seen), key(sent));
            assert_eq!(text(&seen, "platform"), "python");
        }
    }
}

/// Guarantees: functions that Sentry's profiler for Node sent, in each of its captured versions, get the same module
/// and name if another profiler observes them.
/// rule: profiles-sdk#frame-grouping, event-schema#frame-module
#[test]
fn node_sdk() {
    let names = ["node-10.75-profile_chunk", "node-11.1-profile_chunk", "node-10.75-v1-transaction+profile"];
    for name in names {
        // Omits V8's own frames `(root)`, `(idle)` and `(garbage collector)`, which other profilers do not send.
        let sent: Vec<_> =
            captured(name).into_iter().filter(|frame| !text(frame, "function").starts_with('(')).collect();
        let files: Vec<_> = sent
            .iter()
            .map(|frame| {
                let function = text(frame, "function");
                let file = as_it_was(text(frame, "abs_path"), text(frame, "module"));
                // The SDK sends an empty name for a function without a name.
                (if function.is_empty() { "<anonymous>" } else { function }, file)
            })
            .collect();
        let names: Vec<_> = files
            .iter()
            .map(|(function, file)| format!("JS:*{} {file}:3:4", function.replace("<anonymous>", "")))
            .collect();
        let typed = files.iter().map(|(function, file)| ReportedFunction { kind: "v8js", function, file, line: 3 });
        let mapped = names.iter().map(|function| ReportedFunction { kind: "native", function, file: "", line: 0 });
        let (typed, mapped): (Vec<_>, Vec<_>) = (typed.collect(), mapped.collect());
        for seen in [converted(&typed), converted(&mapped)] {
            for (sent, seen) in sent.iter().zip(seen) {
                assert_eq!(key(&seen), key(sent), "{name}");
                assert_eq!(text(&seen, "platform"), "node");
            }
        }
    }
}

/// A function of the source: its platform, its module and name, and its file. The file is empty if the language allows
/// only one function of a name in a program, because workloads combine names and files at random.
type SourceFunction = (String, String, String);

fn written(frame: &Value) -> SourceFunction {
    let word = |key| text(frame, key).to_owned();
    let is_unique = matches!(text(frame, "platform"), "go" | "java" | "csharp" | "elixir");
    let file = if is_unique { String::new() } else { word("filename") };
    (word("platform"), format!("{} {}", word("module"), word("function")), file)
}

/// The functions of a request that Sentry lists, by Sentry's identity. One observation of each sample is enough.
fn listed(mut request: ExportProfilesServiceRequest) -> BTreeMap<(String, String), BTreeSet<SourceFunction>> {
    let scopes = request.resource_profiles.iter_mut().flat_map(|resource| &mut resource.scope_profiles);
    for sample in scopes.flat_map(|scope| &mut scope.profiles).flat_map(|profile| &mut profile.samples) {
        sample.timestamps_unix_nano.truncate(1);
        sample.values.truncate(1);
    }
    let batch = otlp::decode(Bytes::from(request.encode_to_vec()), &Limits::default()).unwrap().profiles;
    let mut known: BTreeMap<_, BTreeSet<SourceFunction>> = BTreeMap::new();
    for resource in batch.resources() {
        for frame in frames(batch.with_resources(vec![resource.clone()]).unwrap()) {
            if frame["in_app"] == true {
                known.entry(key(&frame)).or_default().insert(written(&frame));
            }
        }
    }
    known
}

/// Guarantees: different functions in the processes of a workload are different functions for Sentry, whatever their
/// languages. So are those in the shapes of real producers.
/// rule: sample-format-v2#frame-grouping
#[test]
fn workloads() {
    let workloads = Shape::ALL.map(|shape| (shape.name(), Host::new(shape, SEED).report(0)));
    for (name, request) in workloads.into_iter().chain([("fixture", fixture::request())]) {
        let listed = listed(request);
        assert!(listed.len() > 10, "{name}: {} functions", listed.len());
        let merged: Vec<_> = listed.iter().filter(|(_, written)| written.len() > 1).collect();
        assert!(merged.is_empty(), "{name}: {merged:?}");
    }
}
