//! Spans that a program exposes in its memory: samples of its threads are linked with them.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::SystemTime;

use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use serde_json::{Value, json};

use crate::backend::sentry::SentryBackend;
use crate::linking::send_spans;
use crate::process::{Profbridge, eventually};
use crate::targets::{self, TargetProgram};

/// The context that a thread exposes: trace, span and name.
pub(crate) type ExposedContext = (String, String, String);

/// The program's threads by id, once all have printed what they work on.
pub(crate) fn threads(program: &mut TargetProgram) -> BTreeMap<String, ExposedContext> {
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

pub(crate) fn unix_nano() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64
}

fn bytes(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// A span of a thread, without any attribute of its process or thread.
pub(crate) fn span_of((trace, span, name): &ExposedContext, [start, end]: [u64; 2]) -> ResourceSpans {
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
/// the thread that worked on them. This works only by the links in the sampler's samples, and such spans are counted. A
/// span that no thread worked on gets no profiler.
#[test]
fn to_sentry() {
    let mut program = TargetProgram::start(&mut Command::new(targets::contexts()));
    let threads = threads(&mut program);
    let start = unix_nano();
    let sentry = SentryBackend::start();
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
    // The span of a running thread is only known if the kernel permits perf events.
    let waiting: Vec<(&String, &ExposedContext)> = threads.iter().filter(|(_, said)| said.2 != "spinner").collect();
    let note = |name: &str| profbridge.metric("profbridge_notes_total", &format!("note=\"{name}\""));
    // Once samples have links to spans, spans without a process wait for such a link. Links are only counted because a
    // file exporter writes them.
    eventually("samples name spans", || (note("observations_with_link") >= 20.0).then_some(()));
    let nobody = ("ab".repeat(16), "cd".repeat(8), "nobody".to_owned());
    let spans = waiting.iter().map(|(_, said)| *said).chain([&nobody]);
    send_spans(&profbridge, spans.map(|said| span_of(said, [start, unix_nano()])).collect());
    eventually("the spans are linked", || (note("spans_linked_by_live_context") == 2.0).then_some(()));
    // A span without a link from a sample waits until its limit or the end of the run.
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
