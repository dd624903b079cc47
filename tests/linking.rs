//! Spans and profiles of one process, through the real binary: linked as Sentry joins them.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value as Any};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use profbridge_testkit::{RequestBuilder, ms};
use prost::Message as _;
use serde_json::{Value, json};

use crate::backend::sentry::SentryBackend;
use crate::client::{export, post, shift, status};
use crate::process::{Profbridge, eventually};

pub(crate) fn pairs(attributes: &[(&str, Any)]) -> Vec<KeyValue> {
    let pair = |(key, value): &(&str, Any)| KeyValue {
        key: (*key).to_owned(),
        value: Some(AnyValue { value: Some(value.clone()) }),
        key_strindex: 0,
    };
    attributes.iter().map(pair).collect()
}

/// Sends spans over HTTP.
pub(crate) fn send_spans(profbridge: &Profbridge, resource_spans: Vec<ResourceSpans>) {
    post_spans(profbridge, &ExportTraceServiceRequest { resource_spans }.encode_to_vec());
}

fn post_spans(profbridge: &Profbridge, request: &[u8]) {
    let protobuf = ("Content-Type", "application/x-protobuf");
    assert_eq!(status(&post(profbridge.address("otlp/http"), "/v1/traces", &[protobuf], request)), 200);
}

/// A request served by thread 7 of a service, and a query that it made meanwhile.
fn traced(pid: i64) -> Vec<u8> {
    let text = |text: &str| Any::StringValue(text.to_owned());
    let span = |id: u8, parent: &[u8], [start, end]: [u64; 2], kind: i32, name: &str| Span {
        trace_id: vec![7; 16],
        span_id: vec![id; 8],
        parent_span_id: parent.to_vec(),
        start_time_unix_nano: start + shift(),
        end_time_unix_nano: end + shift(),
        kind,
        name: name.to_owned(),
        attributes: pairs(&[("thread.native_id", Any::IntValue(7))]),
        ..Span::default()
    };
    let spans = vec![span(2, &[1; 8], ms([200, 400]), 3, "SELECT"), span(1, &[], ms([100, 800]), 2, "GET /checkout")];
    let resource = pairs(&[
        ("service.name", text("checkout")),
        ("process.pid", Any::IntValue(pid)),
        ("telemetry.sdk.language", text("python")),
    ]);
    let resource_spans = ResourceSpans {
        resource: Some(Resource { attributes: resource, ..Resource::default() }),
        scope_spans: vec![ScopeSpans { spans, ..ScopeSpans::default() }],
        ..ResourceSpans::default()
    };
    ExportTraceServiceRequest { resource_spans: vec![resource_spans] }.encode_to_vec()
}

/// Guarantees: with the example's configuration, a process's OpenTelemetry spans and profiles arrive in Sentry as a
/// transaction and a chunk with the same profiler id, and the transaction and its span name the thread that has their
/// time in the chunk. The transaction of an unprofiled process has no profiler.
/// rule: profiles-sdk#linking-profiler, profiles-sdk#linking-thread
#[test]
fn transactions_name_the_profile_of_their_time() {
    let sentry = SentryBackend::start();
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/linking/config.yaml")).unwrap();
    let config = text.replace("127.0.0.1:4317", "127.0.0.1:0").replace("127.0.0.1:4318", "127.0.0.1:0");
    let profbridge = Profbridge::start_with(&config, &[("SENTRY_DSN", &sentry.dsn(1))]);
    let times: [u64; 20] = ms(std::array::from_fn(|tick| tick as u64 * 50));
    let seen = RequestBuilder::new().resource().attr("service.name", "checkout").attr("process.pid", 42);
    let seen = seen.on_cpu(20).sample(&["handle", "main"], 7, &times).sample(&["wait", "main"], 8, &times);
    for pid in [42, 43] {
        post_spans(&profbridge, &traced(pid));
    }
    export(profbridge.address("otlp/grpc"), seen.build()).unwrap();
    eventually("the spans are linked", || {
        (profbridge.metric("profbridge_notes_total", "note=\"spans_linked_by_native_id\"") == 2.0).then_some(())
    });
    let (exit, log) = profbridge.stop();
    assert!(exit.success(), "{log}");

    let received = sentry.received.all();
    let items = |kind: &str| -> Vec<Value> {
        let all = received.iter().flat_map(|request| request.items_of(kind));
        all.map(|item| serde_json::from_slice(&item).unwrap()).collect()
    };
    let (chunks, transactions) = (items("profile_chunk"), items("transaction"));
    let [chunk] = &chunks[..] else { panic!("{chunks:?}") };
    assert_eq!(transactions.len(), 2, "{transactions:?}");
    let of = |transaction: &&Value| transaction["contexts"].get("profile").is_some();
    let (linked, alone): (Vec<&Value>, Vec<&Value>) = transactions.iter().partition(of);
    let ([linked], [_]) = (&linked[..], &alone[..]) else { panic!("{transactions:?}") };
    assert_eq!(linked["contexts"]["profile"]["profiler_id"], chunk["profiler_id"]);
    let span = &linked["spans"][0];
    for data in [&linked["contexts"]["trace"]["data"], &span["data"]] {
        assert_eq!(data["thread.id"], json!("7"), "{data}");
    }
    // The chunk shows the function in which the thread spent the span's time.
    let profile = &chunk["profile"];
    let [from, to] = ["start_timestamp", "timestamp"].map(|key| span[key].as_f64().unwrap());
    let during: Vec<&Value> = profile["samples"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|sample| {
            let time = sample["timestamp"].as_f64().unwrap();
            sample["thread_id"] == "7" && (from..=to).contains(&time)
        })
        .collect();
    assert!(during.len() >= 3, "{profile}");
    for sample in during {
        let stack = &profile["stacks"][sample["stack_id"].as_u64().unwrap() as usize];
        let leaf = &profile["frames"][stack[0].as_u64().unwrap() as usize];
        assert_eq!(leaf["function"], "handle");
    }
}
