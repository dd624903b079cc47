//! Measures the cost of grouping spans: first the memory of a hundred thousand open traces, then the time per span. The
//! control puts spans decoded by prost into a map by trace, without processes or local roots.

// A benchmark prints, and may panic if its input is broken.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::collections::HashMap;

use bytes::Bytes;
use divan::Bencher;
use divan::counter::ItemsCount;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use profbridge_engine::component::{Now, Outbox, Processor, process_all};
use profbridge_engine::config::Section;
use profbridge_model::Spans;
use profbridge_processor_transactions::{Config, Transactions};
use profbridge_wire::otlp::{Limits, traces};
use prost::Message;

const SECOND: u64 = 1_000_000_000;

/// The number of spans per request, which the batch processor of an SDK sends at once.
const SPANS: u64 = 512;

/// The number of spans per trace.
const OF_TRACE: u64 = 8;

fn main() {
    open_traces();
    divan::main();
}

fn text(key: &str, value: String) -> KeyValue {
    let value = Some(AnyValue { value: Some(Value::StringValue(value)) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

/// A span of a server. The root of each trace comes last.
fn span(number: u64) -> Span {
    let (trace, at) = (number / OF_TRACE + 1, number % OF_TRACE);
    let id = |at: u64| (trace * OF_TRACE + at).to_be_bytes().to_vec();
    let is_root = at == OF_TRACE - 1;
    // There are two levels: spans below the root, and one span below each of them.
    let parent = if is_root { Vec::new() } else { id(if at % 2 == 0 { at + 1 } else { OF_TRACE - 1 }) };
    Span {
        trace_id: [trace.to_be_bytes(), [1; 8]].concat(),
        span_id: id(at),
        parent_span_id: parent,
        name: "GET /cart/{id}".to_owned(),
        kind: if is_root { 2 } else { 3 },
        start_time_unix_nano: number * 1000 + 1,
        end_time_unix_nano: number * 1000 + 2,
        attributes: vec![
            text("http.request.method", "GET".to_owned()),
            text("url.full", format!("https://shop.example/cart/{number}")),
            text("server.address", "shop.example".to_owned()),
            text("http.response.status_code", "200".to_owned()),
            text("user_agent.original", "Mozilla/5.0 (X11; Linux x86_64)".to_owned()),
        ],
        ..Span::default()
    }
}

/// A request from one of four services.
fn request(number: u64) -> Vec<u8> {
    let attributes = vec![
        text("service.name", format!("shop-{}", number % 4)),
        text("service.version", "1.2.3".to_owned()),
        text("telemetry.sdk.language", "python".to_owned()),
        text("host.name", "ip-10-0-0-1".to_owned()),
    ];
    let scope = InstrumentationScope { name: "http".to_owned(), ..InstrumentationScope::default() };
    let spans = (number * SPANS..(number + 1) * SPANS).map(span).collect();
    let resource = Some(Resource { attributes, ..Resource::default() });
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }];
    let resource_spans = vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }];
    ExportTraceServiceRequest { resource_spans }.encode_to_vec()
}

fn requests() -> Vec<Bytes> {
    (0..64).map(|number| request(number).into()).collect()
}

fn decode(request: &Bytes) -> Spans {
    traces::decode(request.clone(), &Limits::default()).unwrap().spans
}

fn processor(yaml: &str) -> Transactions {
    let section = Section::from_yaml(yaml).unwrap();
    Transactions::new(section.extract::<Config>().unwrap().check(&section).unwrap())
}

fn at(nanos: u64) -> Now {
    Now { monotonic_nano: SECOND + nanos, unix_nano: nanos }
}

fn open_traces() {
    let mut processor = processor("max_bytes: 4GiB");
    let mut message_bytes = 0;
    let mut number = 0;
    while number * SPANS < 100_000 * OF_TRACE {
        let spans = decode(&request(number).into());
        message_bytes += spans.spans().iter().map(|span| u64::from(span.at.len)).sum::<u64>();
        process_all(&mut processor, spans.into(), at(0), &mut Outbox::default());
        number += 1;
    }
    let held = processor.held();
    let spans = held.quantities.spans;
    println!(
        "100,000 open traces of {OF_TRACE} spans: {:.1} MiB held; {} bytes for each span, of which its message is {}",
        held.bytes as f64 / f64::from(1 << 20),
        held.bytes / spans,
        message_bytes / spans,
    );
}

/// Buffers all requests, and sends them when they are due.
fn group(batches: impl Iterator<Item = Spans>) -> Outbox {
    let mut processor = processor("");
    let mut out = Outbox::default();
    for spans in batches {
        process_all(&mut processor, spans.into(), at(0), &mut out);
    }
    while processor.due().is_some() {
        processor.advance(at(10 * SECOND), &mut out);
    }
    out
}

/// Puts the spans of all requests into a map, and removes one trace after the other.
fn group_by_trace(requests: impl Iterator<Item = ExportTraceServiceRequest>) -> Vec<Vec<Span>> {
    let mut traces: HashMap<Vec<u8>, Vec<Span>> = HashMap::new();
    for resource in requests.flat_map(|request| request.resource_spans) {
        for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            traces.entry(span.trace_id.clone()).or_default().push(span);
        }
    }
    traces.drain().map(|(_, spans)| spans).collect()
}

#[divan::bench]
fn decode_alone(bencher: Bencher<'_, '_>) {
    let requests = requests();
    let count = ItemsCount::new(requests.len() as u64 * SPANS);
    bencher.counter(count).bench_local(|| requests.iter().map(decode).map(|spans| spans.spans().len()).sum::<usize>());
}

#[divan::bench]
fn decode_and_group(bencher: Bencher<'_, '_>) {
    let requests = requests();
    let count = ItemsCount::new(requests.len() as u64 * SPANS);
    bencher.counter(count).bench_local(|| group(requests.iter().map(decode)));
}

#[divan::bench]
fn group_alone(bencher: Bencher<'_, '_>) {
    let batches: Vec<Spans> = requests().iter().map(decode).collect();
    let count = ItemsCount::new(batches.len() as u64 * SPANS);
    bencher.counter(count).with_inputs(|| batches.clone()).bench_local_values(|batches| group(batches.into_iter()));
}

#[divan::bench]
fn control_decode_and_group(bencher: Bencher<'_, '_>) {
    let requests = requests();
    let count = ItemsCount::new(requests.len() as u64 * SPANS);
    let decode = |request: &Bytes| ExportTraceServiceRequest::decode(request.clone()).unwrap();
    bencher.counter(count).bench_local(|| group_by_trace(requests.iter().map(decode)));
}

#[divan::bench]
fn control_group_alone(bencher: Bencher<'_, '_>) {
    let decode = |request: &Bytes| ExportTraceServiceRequest::decode(request.clone()).unwrap();
    let requests: Vec<_> = requests().iter().map(decode).collect();
    let count = ItemsCount::new(requests.len() as u64 * SPANS);
    bencher
        .counter(count)
        .with_inputs(|| requests.clone())
        .bench_local_values(|requests| group_by_trace(requests.into_iter()));
}
