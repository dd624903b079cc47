//! `convert` with spans, alone and beside profiles, and what it must preserve of its input.

use std::path::Path;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use profbridge_relay_rules::validate_transaction;
use profbridge_testkit::{RequestBuilder, T0, ms};
use profbridge_wire::otlp::{LikelySignal, delimited, signal};
use prost::Message;
use serde_json::Value;

use crate::backend::sentry::split_envelope;
use crate::process::{Finished, captured, run};

fn span(trace: u8, id: u8, parent: u8, kind: SpanKind) -> Span {
    let start = T0 + u64::from(id) * 1_000_000;
    Span {
        trace_id: vec![trace; 16],
        span_id: vec![id; 8],
        parent_span_id: if parent == 0 { Vec::new() } else { vec![parent; 8] },
        name: format!("span {id}"),
        kind: kind.into(),
        start_time_unix_nano: start,
        end_time_unix_nano: start + 5_000_000,
        ..Span::default()
    }
}

fn request(spans: Vec<Span>) -> ExportTraceServiceRequest {
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    ExportTraceServiceRequest { resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }] }
}

/// A job with two nested spans, and a request that it makes to another process.
fn traces() -> ExportTraceServiceRequest {
    request(vec![
        span(1, 3, 2, SpanKind::Client),
        span(1, 2, 1, SpanKind::Internal),
        span(1, 1, 0, SpanKind::Internal),
        span(1, 4, 3, SpanKind::Server),
    ])
}

fn profiles() -> Vec<u8> {
    RequestBuilder::new().process("p", 1).on_cpu(20).sample(&["go!hot", "go!main"], 1, &ms([0, 50])).encode()
}

/// Runs a conversion that must succeed.
fn convert(folder: &Path, arguments: &[&str]) -> Finished {
    let finished = run(folder, &[&["convert"], arguments].concat());
    assert!(finished.status.success(), "{arguments:?}: {}{}", finished.stdout, finished.stderr);
    finished
}

fn read(folder: &Path, name: &str) -> Vec<u8> {
    std::fs::read(folder.join(name)).unwrap()
}

/// The transactions in a folder of envelopes.
fn transactions(folder: &Path) -> Vec<Value> {
    let mut transactions = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let (_, items) = split_envelope(&std::fs::read(entry.unwrap().path()).unwrap());
        for (header, payload) in items.iter().filter(|(header, _)| header["type"] == "transaction") {
            assert_eq!(header["content_type"], "application/json");
            transactions.push(serde_json::from_slice(payload).unwrap());
        }
    }
    transactions.sort_by_key(|transaction: &Value| transaction["transaction"].to_string());
    transactions
}

/// Guarantees: OTLP spans are converted from protobuf to JSON, to lines and back without change; several files become
/// one message; and for Sentry spans are grouped by local root across all files.
/// rule: tracing-sdk#envelope
#[test]
fn spans_to_all_formats() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let all = traces();
    std::fs::write(folder.join("in"), all.encode_to_vec()).unwrap();
    let finished = convert(folder, &["in", "-o", "x.json"]);
    assert!(finished.stdout.starts_with("wrote 4 spans to x.json"), "{}", finished.stdout);
    assert!(finished.stderr.contains("read 4 spans from 1 of 1 files"), "{}", finished.stderr);
    let text = String::from_utf8(read(folder, "x.json")).unwrap();
    assert!(text.starts_with("{\"resourceSpans\":[{") && text.ends_with("}\n") && text.lines().count() == 1);
    convert(folder, &["x.json", "-o", "back.otlp"]);
    assert_eq!(ExportTraceServiceRequest::decode(&*read(folder, "back.otlp")).unwrap(), all);

    // One span in each of four files.
    let spans = &all.resource_spans[0].scope_spans[0].spans;
    let mut arguments = Vec::new();
    for (number, span) in spans.iter().enumerate() {
        let name = format!("part-{number}");
        std::fs::write(folder.join(&name), request(vec![span.clone()]).encode_to_vec()).unwrap();
        arguments.push(name);
    }
    let with =
        |more: &[&'static str]| arguments.iter().map(String::as_str).chain(more.iter().copied()).collect::<Vec<_>>();
    convert(folder, &with(&["-o", "all.otlp"]));
    let joined = ExportTraceServiceRequest::decode(&*read(folder, "all.otlp")).unwrap();
    let found = joined.resource_spans.iter().flat_map(|of| &of.scope_spans[0].spans);
    assert!(found.eq(spans));
    convert(folder, &with(&["-o", "lines.json"]));
    assert_eq!(String::from_utf8(read(folder, "lines.json")).unwrap().lines().count(), 4);
    for (input, out) in [("all.otlp", "one"), ("lines.json", "two")] {
        let finished = convert(folder, &[input, "-o", out]);
        let made = format!("wrote envelopes of 2 transactions with 4 spans to {out}\n");
        assert_eq!(finished.stdout, made, "{}", finished.stderr);
        let made = transactions(&folder.join(out));
        for transaction in &made {
            let text = serde_json::to_vec(transaction).unwrap();
            validate_transaction(&text).unwrap_or_else(|violations| panic!("{violations:?}"));
        }
        let names: Vec<_> = made.iter().map(|transaction| transaction["transaction"].as_str().unwrap()).collect();
        assert_eq!(names, ["span 1", "span 4"]);
        let below: Vec<_> = made[0]["spans"].as_array().unwrap().iter().map(|span| &span["span_id"]).collect();
        assert_eq!(below, ["0202020202020202", "0303030303030303"]);
        assert_eq!(made[1]["contexts"]["trace"]["parent_span_id"], "0303030303030303");
    }
    let finished = convert(folder, &["all.otlp", "-o", "early", "--set", "processors.transactions.max_spans=1"]);
    assert!(finished.stdout.starts_with("wrote envelopes of 4 transactions"), "{}", finished.stdout);
}

/// Guarantees: lines and frames with both profiles and spans are read; as OTLP each signal has its own messages, in
/// frames or lines; Sentry gets chunks and transactions; stacks contain only the profiles, and the spans are counted.
#[test]
fn profiles_and_spans() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("spans"), traces().encode_to_vec()).unwrap();
    std::fs::write(folder.join("profiles"), profiles()).unwrap();
    convert(folder, &["spans", "profiles", "-o", "both.otlp"]);
    let frames: Vec<_> = delimited::frames(read(folder, "both.otlp").into()).map(Result::unwrap).collect();
    let mut signals: Vec<LikelySignal> = frames.iter().map(|frame| signal(frame)).collect();
    signals.sort_by_key(|signal| *signal == LikelySignal::Traces);
    assert_eq!(signals, [LikelySignal::Profiles, LikelySignal::Traces]);
    convert(folder, &["both.otlp", "-o", "both.json"]);
    let lines = String::from_utf8(read(folder, "both.json")).unwrap();
    for field in ["{\"resourceProfiles\":[", "{\"resourceSpans\":["] {
        assert_eq!(lines.lines().filter(|line| line.starts_with(field)).count(), 1, "{field}");
    }
    for (input, out) in [("both.otlp", "from-frames"), ("both.json", "from-lines")] {
        let finished = convert(folder, &[input, "-o", out]);
        let made = "wrote 1 envelope with 3 samples (1 of them synthesized) and 2 transactions with 4 spans to";
        assert!(finished.stdout.starts_with(made), "{}", finished.stdout);
        assert_eq!(transactions(&folder.join(out)).len(), 2);
        let stacks = format!("{out}.folded");
        let finished = convert(folder, &[input, "-o", &stacks]);
        assert!(
            finished.stderr.contains("left out 4 spans: stacks are made of profiles alone\nhint: "),
            "{}",
            finished.stderr
        );
        assert!(String::from_utf8(read(folder, &stacks)).unwrap().contains("main;hot"));
    }
}

/// Guarantees: transactions and span containers of Sentry's SDKs become OTLP spans, and these become a transaction with
/// the same name and spans, or a container; converting to Sentry's form leaves an envelope unchanged.
#[test]
fn sentry_there_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (name, file) in [("python", "python-2.75-transaction"), ("node", "node-10.75-transaction")] {
        let envelope = captured(&format!("{file}.envelope"));
        let sent = std::fs::read(&envelope).unwrap();
        convert(folder, &[&envelope, "-o", &format!("{name}.json")]);
        convert(folder, &[&format!("{name}.json"), "-o", &format!("{name}-back")]);
        let before: Value = serde_json::from_slice(&split_envelope(&sent).1[0].1).unwrap();
        let after = transactions(&folder.join(format!("{name}-back"))).remove(0);
        assert_eq!(transaction_fields(&after), transaction_fields(&before), "{name}");
        let same = format!("{name}-same.envelope");
        let finished = convert(folder, &[&envelope, "-o", &same]);
        assert!(finished.stdout.starts_with("wrote 1 envelope, as it came in, to"), "{}", finished.stdout);
        assert_eq!(read(folder, &same).trim_ascii_end(), sent.trim_ascii_end());
    }
    convert(folder, &[&captured("node-11.1-span.envelope"), "-o", "container.otlp"]);
    let request = ExportTraceServiceRequest::decode(&*read(folder, "container.otlp")).unwrap();
    assert_eq!(request.resource_spans.iter().flat_map(|of| &of.scope_spans).flat_map(|of| &of.spans).count(), 2);
    let finished = convert(folder, &["container.otlp", "-o", "container-back.envelope"]);
    assert!(finished.stdout.starts_with("wrote envelopes of 1 container with 2 spans to"), "{}", finished.stdout);
    let (_, items) = split_envelope(&read(folder, "container-back.envelope"));
    assert_eq!((items.len(), items[0].0["type"].as_str()), (1, Some("span")));
}

/// The name of a transaction, its trace context and its spans. A missing status is `ok` in OTLP.
fn transaction_fields(transaction: &Value) -> Vec<Value> {
    let keys = ["trace_id", "span_id", "parent_span_id", "op", "description"];
    let spans = transaction["spans"].as_array().unwrap().iter();
    let of_spans = std::iter::once(&transaction["contexts"]["trace"]).chain(spans).flat_map(|span| {
        let status = span["status"].as_str().unwrap_or("ok").into();
        keys.iter().map(|key| span[key].clone()).chain([status])
    });
    std::iter::once(transaction["transaction"].clone()).chain(of_spans).collect()
}

/// Guarantees: additional files beside the named output never replace an input, and if one of several files cannot be
/// written, none is.
#[test]
fn parts_spare_inputs_and_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["a", "a-2", "b"] {
        std::fs::write(path(&format!("{name}.folded")), format!("main;{name} 1000000\n")).unwrap();
        let made = run(folder.path(), &["convert", &format!("{name}.folded"), "-o", &format!("{name}.pprof")]);
        assert!(made.status.success(), "{}", made.stderr);
    }
    let before = ["a.pprof", "a-2.pprof"].map(|name| std::fs::read(path(name)).unwrap());
    // A separate unit prevents merging them into one profile.
    let inputs = ["convert", "a-2.pprof", "b.pprof", "a.folded", "--folded-unit", "bytes", "-o", "a.pprof"];
    let finished = run(folder.path(), &inputs);
    assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
    assert!(finished.stderr.contains("a-2.pprof: it is one of the inputs"), "{}", finished.stderr);
    assert_eq!(before, ["a.pprof", "a-2.pprof"].map(|name| std::fs::read(path(name)).unwrap()));
}

/// Guarantees: a picture of profiles without a process has the name of their file, its options are refused where they
/// have no meaning, and a page takes spans.
#[test]
fn pictures() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("work.folded", b"main;parse 4\nmain 2\n");
    convert(folder.path(), &["work.folded", "-o", "a.svg"]);
    assert!(String::from_utf8(read(folder.path(), "a.svg")).unwrap().contains(">work.folded</text>"));
    write("spans.otlp", &traces().encode_to_vec());
    write("profiles.otlp", &profiles());
    for (output, left_out) in [("a.html", false), ("a.speedscope.json", true)] {
        let finished = convert(folder.path(), &["profiles.otlp", "spans.otlp", "-o", output]);
        assert_eq!(finished.stderr.contains("left out 4 spans"), left_out, "{}", finished.stderr);
    }
    convert(folder.path(), &["profiles.otlp", "-o", "a.html", "--graph", "flame"]);
    assert!(String::from_utf8(read(folder.path(), "a.html")).unwrap().contains("\"is_flame\":true"));
    for (option, output) in [("--graph=flame", "a.pprof"), ("--lines", "a.otlp")] {
        let refused = run(folder.path(), &["convert", "profiles.otlp", "-o", output, option]);
        assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains("has no meaning for what is written"), "{}", refused.stderr);
    }
}
