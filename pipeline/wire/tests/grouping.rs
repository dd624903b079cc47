//! What Sentry takes for one function, and whether it is one.
//!
//! Sentry groups functions by their module, else by their package, and by their name (observed with `vroomrs` 0.1.24),
//! in a whole project: over processes, languages and machines. The file plays no part.

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

/// When all profiles of these tests begin.
const START: u64 = 1_760_000_000_000_000_000;

fn text<'a>(frame: &'a Value, key: &str) -> &'a str {
    frame[key].as_str().unwrap_or_default()
}

/// What Sentry takes for the identity of a frame's function.
fn key(frame: &Value) -> (String, String) {
    let package = text(frame, "package").rsplit('/').next().unwrap_or_default();
    let ends = [".so", ".dylib", ".a", ".dll", ".exe"];
    let package = ends.iter().find_map(|end| package.strip_suffix(end)).unwrap_or(package);
    let module = text(frame, "module");
    (if module.is_empty() { package } else { module }.to_owned(), text(frame, "function").to_owned())
}

/// The frames of a batch that is cut for one process and window.
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

/// A function as a profiler says it.
#[derive(Clone, Copy)]
struct Said<'a> {
    kind: &'a str,
    function: &'a str,
    file: &'a str,
    line: i64,
}

/// The frames of these functions, in their order. Each is a stack of its own: a stack has at most 1000 frames.
fn converted(all: &[Said<'_>]) -> Vec<Value> {
    let mut builder = Builder::new();
    builder.resource(&[("service.name", "shop".into())]);
    builder.scope("test", "1");
    builder.on_cpu(20);
    let open: &mut Profile = builder.open_profile().unwrap();
    (open.time_unix_nano, open.duration_nano) = (START, 50_000_000_000);
    for (number, said) in (0..).zip(all) {
        let Said { kind, function, file, line } = *said;
        let (name, filename) = (builder.string(function), builder.string(file));
        let function = builder.function(Function { name, filename, ..Function::default() });
        // Numbered, so that equal functions stay apart.
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

/// The captures were made in folders below `/tmp/research`, which their paths no longer show: those of modules do.
fn as_it_was<'a>(file: &'a str, module: &str) -> std::borrow::Cow<'a, str> {
    match module.strip_prefix("tmp.research.").and_then(|module| module.split_once(':')) {
        Some((folder, _)) => file.replacen("/app/", &format!("/tmp/research/{folder}/"), 1).into(),
        None => file.into(),
    }
}

/// Guarantees: what Sentry's SDK for Python sent has the same module and function where the eBPF profiler, or a sampler
/// that reads perf maps, saw the same functions: Sentry takes them for the same.
/// rule: profiles-sdk#frame-grouping, event-schema#frame-module
#[test]
fn python_sdk() {
    let sent = captured("python-2.75-profile_chunk");
    let files: Vec<_> = sent.iter().map(|frame| (text(frame, "function"), text(frame, "abs_path"))).collect();
    let names: Vec<_> = files.iter().map(|(function, file)| format!("py::{function}:{file}")).collect();
    let typed = files.iter().map(|&(function, file)| Said { kind: "cpython", function, file, line: 7 });
    let mapped = names.iter().map(|function| Said { kind: "native", function, file: "", line: 0 });
    let (typed, mapped): (Vec<_>, Vec<_>) = (typed.collect(), mapped.collect());
    for seen in [converted(&typed), converted(&mapped)] {
        for (sent, seen) in sent.iter().zip(seen) {
            assert_eq!(key(&seen), key(sent));
            assert_eq!(text(&seen, "platform"), "python");
        }
    }
}

/// Guarantees: the same of what Sentry's profiler for Node sent, in each of its captured versions.
/// rule: profiles-sdk#frame-grouping, event-schema#frame-module
#[test]
fn node_sdk() {
    let names = ["node-10.75-profile_chunk", "node-11.1-profile_chunk", "node-10.75-v1-transaction+profile"];
    for name in names {
        // What V8 says of itself: `(root)`, `(idle)`, `(garbage collector)`. Other profilers have no such frames.
        let sent: Vec<_> =
            captured(name).into_iter().filter(|frame| !text(frame, "function").starts_with('(')).collect();
        let files: Vec<_> = sent
            .iter()
            .map(|frame| {
                let function = text(frame, "function");
                let file = as_it_was(text(frame, "abs_path"), text(frame, "module"));
                // A function without a name has none in the SDK's words.
                (if function.is_empty() { "<anonymous>" } else { function }, file)
            })
            .collect();
        let names: Vec<_> = files
            .iter()
            .map(|(function, file)| format!("JS:*{} {file}:3:4", function.replace("<anonymous>", "")))
            .collect();
        let typed = files.iter().map(|(function, file)| Said { kind: "v8js", function, file, line: 3 });
        let mapped = names.iter().map(|function| Said { kind: "native", function, file: "", line: 0 });
        let (typed, mapped): (Vec<_>, Vec<_>) = (typed.collect(), mapped.collect());
        for seen in [converted(&typed), converted(&mapped)] {
            for (sent, seen) in sent.iter().zip(seen) {
                assert_eq!(key(&seen), key(sent), "{name}");
                assert_eq!(text(&seen, "platform"), "node");
            }
        }
    }
}

/// A function of the source: its platform, its name with its module, and its file. Where the language lets a program
/// have only one of a name, the file is left out: workloads draw names and files by chance.
type Written = (String, String, String);

fn written(frame: &Value) -> Written {
    let word = |key| text(frame, key).to_owned();
    let is_unique = matches!(text(frame, "platform"), "go" | "java" | "csharp" | "elixir");
    let file = if is_unique { String::new() } else { word("filename") };
    (word("platform"), format!("{} {}", word("module"), word("function")), file)
}

/// The functions of a request that are listed by Sentry, by what it takes for one. One observation of each sample is
/// enough.
fn listed(mut request: ExportProfilesServiceRequest) -> BTreeMap<(String, String), BTreeSet<Written>> {
    let scopes = request.resource_profiles.iter_mut().flat_map(|resource| &mut resource.scope_profiles);
    for sample in scopes.flat_map(|scope| &mut scope.profiles).flat_map(|profile| &mut profile.samples) {
        sample.timestamps_unix_nano.truncate(1);
        sample.values.truncate(1);
    }
    let batch = otlp::decode(Bytes::from(request.encode_to_vec()), &Limits::default()).unwrap().profiles;
    let mut known: BTreeMap<_, BTreeSet<Written>> = BTreeMap::new();
    for resource in batch.resources() {
        for frame in frames(batch.with_resources(vec![resource.clone()]).unwrap()) {
            if frame["in_app"] == true {
                known.entry(key(&frame)).or_default().insert(written(&frame));
            }
        }
    }
    known
}

/// Guarantees: no two functions of all processes of a workload are one for Sentry, whatever languages they are written
/// in; nor are those of the shapes of real producers.
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
