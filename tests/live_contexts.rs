//! Spans and a resource that a program exposes in its memory: they reach OTLP although no span is sent.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::SystemTime;

use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use serde_json::{Value, json};

use crate::backend::sentry::Sentry;
use crate::linking::send_spans;
use crate::process::{Profbridge, eventually};
use crate::targets::{self, TargetProgram};

/// What a thread exposes: trace, span and name.
pub(crate) type Said = (String, String, String);

/// The program's threads by id, once all have printed what they work on.
pub(crate) fn threads(program: &mut TargetProgram) -> BTreeMap<String, Said> {
    let mut threads = BTreeMap::new();
    loop {
        let line = program.line();
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["ready"] => return threads,
            ["thread", id, trace, span, name, _] => {
                threads.insert(id.to_owned(), (trace.to_owned(), span.to_owned(), name.to_owned()));
            }
            _ => {}
        }
    }
}

fn text<'a>(request: &'a Value, attributes: &'a Value, key: &str) -> Option<&'a Value> {
    let strings = &request["dictionary"]["stringTable"];
    let table = &request["dictionary"]["attributeTable"];
    let mut found = attributes.as_array()?.iter().map(|index| &table[index.as_u64().unwrap() as usize]);
    let attribute = found.find(|one| strings[one["keyStrindex"].as_u64().unwrap() as usize] == key)?;
    Some(&attribute["value"])
}

/// A sample: its thread, its trace and span, and the requested attribute.
type Sampled = (String, Option<(String, String)>, Option<String>);

fn samples(request: &Value) -> Vec<Sampled> {
    let mut samples = Vec::new();
    for profile in request["resourceProfiles"][0]["scopeProfiles"][0]["profiles"].as_array().unwrap() {
        for sample in profile["samples"].as_array().into_iter().flatten() {
            let attributes = &sample["attributeIndices"];
            let thread = text(request, attributes, "thread.id").unwrap()["intValue"].as_str().unwrap();
            let link = sample["linkIndex"].as_u64().filter(|index| *index != 0).map(|index| {
                let link = &request["dictionary"]["linkTable"][index as usize];
                let id = |key: &str| link[key].as_str().unwrap().to_owned();
                (id("traceId"), id("spanId"))
            });
            let key = text(request, attributes, "test.key").map(|value| value["stringValue"].as_str().unwrap());
            assert_eq!(text(request, attributes, "secret.key"), None, "nobody asked for it");
            samples.push((thread.to_owned(), link, key.map(str::to_owned)));
        }
    }
    samples
}

fn resource<'a>(request: &'a Value, key: &str) -> Option<&'a Value> {
    let attributes = request["resourceProfiles"][0]["resource"]["attributes"].as_array().unwrap();
    Some(&attributes.iter().find(|attribute| attribute["key"] == key)?["value"])
}

/// Guarantees: exported samples have the trace and the span that their thread exposed, only the requested attributes,
/// and the service that the program exposed; exposed data does not select the DSN; and the data read is counted.
/// rule: otlp-profiles#thread-context
#[test]
fn to_otlp() {
    let mut program = TargetProgram::start(&mut Command::new(targets::contexts()));
    let threads = threads(&mut program);
    assert_eq!(threads.len(), 3);
    let sentry = Sentry::start();
    let profbridge = Profbridge::start(&format!(
        "receivers:
  ptrace:
    targets: {{shown: {{pid: {}}}}}
    export_interval: 500ms
    thread_attributes: [test.key]
    control: {{enabled: false}}
processors: {{chunk: {{lateness: 1s}}}}
exporters:
  file: {{path: profiles.json, format: json}}
  sentry: {{dsn: '{}', routing: {{attribute_to_dsn: {{first: '{}'}}}}}}
service:
  identity: {{window: 1s}}
  pipelines:
    otlp: {{receivers: [ptrace], exporters: [file]}}
    sentry: {{receivers: [ptrace], processors: [chunk], exporters: [sentry]}}
",
        program.pid(),
        sentry.dsn(2),
        sentry.dsn(1)
    ));
    let path = profbridge.folder().join("profiles.json");
    let requests = || -> Vec<Value> {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        // The last line may be incomplete.
        text.lines().map_while(|line| serde_json::from_str(line).ok()).collect()
    };
    let requests = eventually("samples of all threads, with their spans", || {
        let requests = requests();
        let all: Vec<Sampled> = requests.iter().flat_map(samples).collect();
        let count = |id: &String| all.iter().filter(|(thread, link, _)| thread == id && link.is_some()).count();
        // A running thread only has its span if the kernel permits events.
        let seen = |(id, said): (&String, &Said)| said.2 == "spinner" || count(id) >= 3;
        threads.iter().all(seen).then_some(requests)
    });
    for request in &requests {
        for (thread, link, key) in samples(request) {
            let Some(link) = link else { continue };
            let (trace, span, name) = &threads[&thread];
            assert_eq!((&link, &key), (&(trace.clone(), span.clone()), &Some(name.clone())), "thread {thread}");
        }
        assert_eq!(resource(request, "service.name").unwrap()["stringValue"], "first");
        let claimed = &resource(request, "profbridge.claimed").unwrap()["arrayValue"]["values"];
        assert_eq!(
            (&claimed[0]["stringValue"], &claimed[1]["stringValue"]),
            (&"service.name".into(), &"test.key".into())
        );
        assert_ne!(resource(request, "host.name").unwrap()["stringValue"], "elsewhere");
    }
    sentry.wait_for_chunks_until(|chunks| chunks.len() >= 2);
    let paths: Vec<String> = sentry.received.all().into_iter().map(|received| received.path).collect();
    assert!(paths.iter().all(|path| path.starts_with("/api/2/")), "{paths:?}");
    assert!(profbridge.metric("profbridge_notes_total", "note=\"sampler_contexts\"") > 0.0);
    let (status, log) = profbridge.stop();
    assert!(status.success(), "{log}");
    assert!(program.is_alive());
    program.end();
}

pub(crate) fn unix_nano() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64
}

fn bytes(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// A span of a thread, without any attribute of its process or thread.
pub(crate) fn span_of((trace, span, name): &Said, [start, end]: [u64; 2]) -> ResourceSpans {
    let span = Span {
        trace_id: bytes(trace),
        span_id: bytes(span),
        name: name.clone(),
        start_time_unix_nano: start,
        end_time_unix_nano: end,
        ..Span::default()
    };
    let scope_spans = vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }];
    ResourceSpans { scope_spans, ..ResourceSpans::default() }
}

/// Guarantees: spans without process and thread arrive in Sentry as transactions with the profiler of the chunks and
/// the thread that worked on them, only by the links of the sampler's samples, and are counted as such. A span that no
/// thread worked on has no profiler.
#[test]
fn to_sentry() {
    let mut program = TargetProgram::start(&mut Command::new(targets::contexts()));
    let threads = threads(&mut program);
    let start = unix_nano();
    let sentry = Sentry::start();
    let profbridge = Profbridge::start(&format!(
        "receivers:
  otlp: {{protocols: {{http: {{endpoint: 127.0.0.1:0}}}}}}
  ptrace:
    targets: {{shown: {{pid: {}}}}}
    export_interval: 500ms
    control: {{enabled: false}}
processors: {{link_spans: {{span_wait: 1m}}, chunk: {{lateness: 1s}}, transactions: {{wait: 1s}}}}
exporters: {{sentry: {{dsn: '{}'}}, file: {{path: all.json, format: json}}}}
service:
  pipelines: {{all: {{receivers: [otlp, ptrace], processors: [link_spans, chunk, transactions], exporters: [sentry, file]}}}}
",
        program.pid(),
        sentry.dsn(1)
    ));
    // The running thread only has its span if the kernel permits events.
    let waiting: Vec<(&String, &Said)> = threads.iter().filter(|(_, said)| said.2 != "spinner").collect();
    let note = |name: &str| profbridge.metric("profbridge_notes_total", &format!("note=\"{name}\""));
    // Once samples name spans, spans without a process are waited for. Links are counted because a file exporter writes
    // them.
    eventually("samples name spans", || (note("observations_with_link") >= 20.0).then_some(()));
    let nobody = ("ab".repeat(16), "cd".repeat(8), "nobody".to_owned());
    let spans = waiting.iter().map(|(_, said)| *said).chain([&nobody]);
    send_spans(&profbridge, spans.map(|said| span_of(said, [start, unix_nano()])).collect());
    eventually("the spans are linked", || (note("spans_linked_by_live_context") == 2.0).then_some(()));
    // A span that no sample names waits until its limit or the end.
    let (exit, log) = profbridge.stop();
    assert!(exit.success(), "{log}");
    program.end();
    assert!(log.contains("spans_unlinked_unnamed_process") && !log.contains("spans_linked_without_thread"), "{log}");

    let chunks: Vec<Value> = sentry.received.all().iter().flat_map(|request| request.chunks()).collect();
    let transactions = sentry.transactions();
    assert_eq!(transactions.len(), 3, "{transactions:?}");
    assert!(transactions["nobody"]["contexts"].get("profile").is_none());
    for (id, (trace, span, name)) in waiting {
        let contexts = &transactions[name]["contexts"];
        assert_eq!((&contexts["trace"]["trace_id"], &contexts["trace"]["span_id"]), (&json!(trace), &json!(span)));
        assert_eq!(contexts["trace"]["data"]["thread.id"], json!(id), "{contexts}");
        let of = |chunk: &&Value| chunk["profiler_id"] == contexts["profile"]["profiler_id"];
        let has_thread = |chunk: &Value| chunk["profile"]["thread_metadata"].get(id).is_some();
        assert!(chunks.iter().filter(of).any(has_thread), "{contexts}: no chunk of its profiler has the thread");
    }
}
