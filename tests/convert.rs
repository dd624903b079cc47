//! `convert` with spans, alone and beside profiles, and what it must preserve of its input.

use std::path::{Path, PathBuf};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use profbridge_relay_rules::validate_transaction;
use profbridge_testkit::{RequestBuilder, T0, ms};
use profbridge_wire::otlp::{Signal, delimited, signal};
use proptest::prelude::*;
use prost::Message;
use serde_json::Value;

use crate::backend::sentry::split_envelope;
use crate::client::{post, status};
use crate::process::{Finished, Profbridge, command, finished, run};

#[path = "../pipeline/wire/tests/pprof/arbitrary.rs"]
mod any_pprof;
#[path = "../pipeline/wire/tests/traces/arbitrary.rs"]
mod any_spans;
#[expect(dead_code, reason = "shared with the tests of the reader, which write profiles by hand")]
#[path = "../pipeline/wire/tests/pprof/proto.rs"]
mod proto;

/// A captured envelope of a real SDK.
fn captured(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../wire/testdata/sentry").join(name);
    path.to_str().unwrap().to_owned()
}

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
    let mut signals: Vec<Signal> = frames.iter().map(|frame| signal(frame)).collect();
    signals.sort_by_key(|signal| *signal == Signal::Traces);
    assert_eq!(signals, [Signal::Profiles, Signal::Traces]);
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
        assert_eq!(said(&after), said(&before), "{name}");
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
fn said(transaction: &Value) -> Vec<Value> {
    let keys = ["trace_id", "span_id", "parent_span_id", "op", "description"];
    let spans = transaction["spans"].as_array().unwrap().iter();
    let of_spans = std::iter::once(&transaction["contexts"]["trace"]).chain(spans).flat_map(|span| {
        let status = span["status"].as_str().unwrap_or("ok").into();
        keys.iter().map(|key| span[key].clone()).chain([status])
    });
    std::iter::once(transaction["transaction"].clone()).chain(of_spans).collect()
}

/// Guarantees: input that could be profiles or spans is refused with both names; one such line does not affect the
/// other lines of its file; an invalid span is reported with its place and counted.
#[test]
fn refused_alone() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("unclear"), b"\x0a\x08\x12\x06\x12\x04\x2a\x02ab").unwrap();
    let finished = run(folder, &["convert", "unclear", "-o", "out.json"]);
    assert_eq!(finished.status.code(), Some(1));
    assert!(finished.stderr.contains("unclear: could be OTLP profiles or OTLP traces: "), "{}", finished.stderr);
    std::fs::write(folder.join("in"), traces().encode_to_vec()).unwrap();
    convert(folder, &["in", "-o", "good.json"]);
    let good = String::from_utf8(read(folder, "good.json")).unwrap();
    let broken = good.replacen("\"spanId\":\"0202020202020202\"", "\"spanId\":\"02\"", 1);
    assert_ne!(good, broken);
    let lines = format!("{good}{{\"resourceSpans\":[],\"dictionary\":{{}}}}\n{{\"resourceMetrics\":[]}}\n{broken}");
    std::fs::write(folder.join("lines"), lines).unwrap();
    let finished = convert(folder, &["lines", "-o", "out.otlp"]);
    for part in [
        "lines: line 2: could be OTLP profiles or OTLP traces: it has the fields of each",
        "lines: line 3: is OTLP metrics as JSON, which is not supported",
        "lines: line 4: resource_spans[0].scope_spans[0].spans[1].span_id: has 1 bytes where an id has 8",
        "read 8 spans from 1 of 1 files",
        "1 span dropped as malformed",
    ] {
        assert!(finished.stderr.contains(part), "no `{part}`:\n{}", finished.stderr);
    }
    assert!(finished.stdout.starts_with("wrote 7 spans to out.otlp"), "{}", finished.stdout);
}

/// Guarantees: the exporter `file` writes OTLP spans in each of its formats, and `convert` reads them back unchanged;
/// for Sentry's format `validate` asks for the processor that assembles transactions.
#[test]
fn files_of_the_exporter() {
    let out = tempfile::tempdir().unwrap();
    let path = |name: &str| out.path().join(name).to_str().unwrap().to_owned();
    let config = |processors: &str| {
        format!(
            "receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '127.0.0.1:0'}}, http: {{endpoint: '127.0.0.1:0'}}}}, \
             resource: {{local_host: false}}}}}}\n\
             processors: {{transactions: }}\n\
             exporters:\n  file: {{path: '{}'}}\n  file/otlp: {{path: '{}', format: otlp}}\n  \
             file/json: {{path: '{}', format: json}}\n\
             service:\n  pipelines:\n    \
             traces/sentry: {{receivers: [otlp], processors: [{processors}], exporters: [file]}}\n    \
             traces/otlp: {{receivers: [otlp], exporters: [file/otlp, file/json]}}\n",
            path("envelopes"),
            path("traces.otlp"),
            path("traces.json")
        )
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.yaml"), config("")).unwrap();
    let refused = run(folder.path(), &["validate"]);
    assert!(!refused.status.success());
    assert!(
        refused.stderr.contains("`file` takes spans only behind the processor `transactions`"),
        "{}",
        refused.stderr
    );

    let profbridge = Profbridge::start(&config("transactions"));
    let headers = [("Content-Type", "application/x-protobuf")];
    let answer = post(profbridge.address("otlp/http"), "/v1/traces", &headers, &traces().encode_to_vec());
    assert_eq!(status(&answer), 200);
    let (exit, log) = profbridge.stop();
    assert!(exit.success(), "{log}");

    let made = transactions(&out.path().join("envelopes"));
    let names: Vec<_> = made.iter().map(|transaction| transaction["transaction"].as_str().unwrap()).collect();
    assert_eq!(names, ["span 1", "span 4"]);
    for name in ["traces.otlp", "traces.json"] {
        convert(folder.path(), &[&path(name), "-o", "back.otlp"]);
        assert_eq!(ExportTraceServiceRequest::decode(&*read(folder.path(), "back.otlp")).unwrap(), traces(), "{name}");
    }
    let envelopes = std::fs::read_dir(out.path().join("envelopes")).unwrap();
    let envelopes: Vec<String> = envelopes.map(|entry| entry.unwrap().path().to_str().unwrap().to_owned()).collect();
    let arguments: Vec<&str> = envelopes.iter().map(String::as_str).chain(["-o", "again.otlp"]).collect();
    let finished = convert(folder.path(), &arguments);
    assert!(finished.stdout.starts_with("wrote 4 spans to again.otlp"), "{}", finished.stdout);
    let again = ExportTraceServiceRequest::decode(&*read(folder.path(), "again.otlp")).unwrap();
    let mut ids: Vec<_> = again
        .resource_spans
        .iter()
        .flat_map(|of| &of.scope_spans)
        .flat_map(|of| &of.spans)
        .map(|span| (span.trace_id.clone(), span.span_id.clone(), span.parent_span_id.clone()))
        .collect();
    ids.sort();
    let mut sent: Vec<_> = traces().resource_spans[0].scope_spans[0]
        .spans
        .iter()
        .map(|span| (span.trace_id.clone(), span.span_id.clone(), span.parent_span_id.clone()))
        .collect();
    sent.sort();
    assert_eq!(ids, sent);
}

proptest! {
    // Each case runs the binary several times.
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Guarantees: any spans converted from OTLP protobuf to JSON and back are unchanged, and so are spans that stay
    /// protobuf.
    #[test]
    fn spans_come_out_as_they_went_in(request in any_spans::requests()) {
        let count = request.resource_spans.iter().flat_map(|of| &of.scope_spans).map(|of| of.spans.len()).sum::<usize>();
        prop_assume!(count > 0);
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let sent = request.encode_to_vec();
        std::fs::write(folder.join("in"), &sent).unwrap();
        for arguments in [["in", "same.otlp"], ["in", "x.json"], ["x.json", "back.otlp"]] {
            convert(folder, &[arguments[0], "-o", arguments[1]]);
        }
        prop_assert_eq!(&read(folder, "same.otlp"), &sent);
        // Compared as bytes, because a NaN is not equal to itself.
        let back = ExportTraceServiceRequest::decode(&*read(folder, "back.otlp")).unwrap();
        prop_assert_eq!(back.encode_to_vec(), sent);
    }

    /// Guarantees: any pprof profile converted to OTLP, in either encoding, and back is unchanged, including
    /// unreferenced mappings, locations and functions.
    /// rule: otep-0239#pprof
    #[test]
    fn pprof_comes_back(profile in any_pprof::profile()) {
        // A profile without any named value type is not recognised as pprof.
        let is_typed = profile.sample_type.iter().any(|of| of.r#type != 0 || of.unit != 0);
        prop_assume!(!profile.sample.is_empty() && is_typed);
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        std::fs::write(folder.join("in"), profile.encode_to_vec()).unwrap();
        // Random profiles may break OTLP rules that nothing enforces, so the rules are not checked.
        for arguments in
            [["in", "x.otlp"], ["x.otlp", "back.pprof"], ["in", "x.json"], ["x.json", "json.pprof"], ["in", "same.pprof"]]
        {
            let finished = finished(&mut command(folder, &["convert", arguments[0], "-o", arguments[1]]));
            prop_assert!(finished.status.success(), "{:?}: {}", arguments, finished.stderr);
        }
        for name in ["back.pprof", "json.pprof", "same.pprof"] {
            let mut plain = Vec::new();
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&read(folder, name)[..]), &mut plain).unwrap();
            prop_assert_eq!(proto::Profile::decode(&plain[..]).unwrap().says(), profile.says(), "{}", name);
        }
    }
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

/// Guarantees: a weight that does not fit a format is counted and affects nothing else; if there is nothing else, no
/// file is written; weights of zero are reported as such.
#[test]
fn weights_at_the_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("huge.folded"), "a;b 9223372036854775807\n").unwrap();
    let finished = run(folder.path(), &["convert", "huge.folded", "-o", "huge.firefox.json"]);
    assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
    assert!(finished.stderr.contains("1 observation dropped as limit_exceeded"), "{}", finished.stderr);
    assert!(!path("huge.firefox.json").exists());
    std::fs::write(path("huge.folded"), "a;b 9223372036854775800\na;c 5\n").unwrap();
    let finished = convert(folder.path(), &["huge.folded", "-o", "huge.firefox.json"]);
    assert!(finished.stderr.contains("1 observation dropped as limit_exceeded"), "{}", finished.stderr);
    let file: Value = serde_json::from_slice(&read(folder.path(), "huge.firefox.json")).unwrap();
    assert_eq!(file["threads"][0]["samples"]["weight"], Value::from(vec![5]));
    // A line whose number is no 64-bit integer is refused, but the file is still recognised.
    std::fs::write(path("huge.folded"), "a;b 99999999999999999999\na;c 5\n").unwrap();
    let finished = convert(folder.path(), &["huge.folded", "-o", "huge.speedscope.json"]);
    assert!(finished.stderr.contains("huge.folded: line 1: its number is too large"), "{}", finished.stderr);
    std::fs::write(path("zero.folded"), "a;b 0\na;c 0\n").unwrap();
    for out in ["zero.svg", "zero.folded.folded", "zero.speedscope.json", "zero.firefox.json"] {
        let finished = run(folder.path(), &["convert", "zero.folded", "-o", out]);
        assert_eq!(finished.status.code(), Some(1), "{out}: {}", finished.stderr);
        assert!(finished.stderr.contains("the weights of all that was read are zero"), "{out}: {}", finished.stderr);
        assert!(!path(out).exists());
    }
}
