use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue as Any, ArrayValue, InstrumentationScope, KeyValue, KeyValueList, any_value::Value as Kind,
};
use opentelemetry_proto::tonic::resource::v1::Resource as OtlpResource;
use opentelemetry_proto::tonic::trace::v1::span::Link;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as OtlpSpan, Status};
use profbridge_model::ProfilerId;
use profbridge_model::spans::Segment;
use profbridge_relay_rules::validate_span_container;
use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::otlp::Limits;
use crate::otlp::traces;
use crate::sentry::envelope::ItemHeader;
use crate::sentry::span_v2_reader;
use crate::sentry::trace_header::TraceHeader;

fn decoded(spans: Vec<OtlpSpan>) -> Spans {
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    let resource_spans = vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }];
    let request = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
    traces::decode(request.into(), &Limits::default()).unwrap().spans
}

fn process(spans: &Spans) -> ProcessAttributes {
    let resource = &spans.resources()[0];
    ProcessAttributes::of(spans, resource, &TransactionResource::of(spans, resource, "production"))
}

/// The container of all spans. Asserts that its header matches and that it can be read again.
fn written(spans: &Spans) -> Value {
    let (Item { header, payload }, _) = item(spans, spans.spans(), &process(spans)).unwrap();
    let (header, payload) = (ItemHeader::read(&header).unwrap(), payload.plain().unwrap().clone());
    assert_eq!(header.length, Some(payload.len() as u64));
    let again = span_v2_reader::read(&payload, header.item_count, &TraceHeader::default()).unwrap().spans;
    let ids = |span: &Span| (span.trace_id, span.span_id, span.parent_span_id, span.is_local_root());
    assert_eq!(again.spans().iter().map(ids).collect::<Vec<_>>(), spans.spans().iter().map(ids).collect::<Vec<_>>());
    for (one, other) in spans.spans().iter().zip(again.spans()) {
        assert!(one.start_unix_nano.abs_diff(other.start_unix_nano) <= 1000 && other.is_streamed);
        assert!(one.end_unix_nano.abs_diff(other.end_unix_nano) <= 1000);
    }
    serde_json::from_slice(&payload).unwrap()
}

fn any(value: Kind) -> Option<Any> {
    Some(Any { value: Some(value) })
}

fn pair(key: &str, value: Kind) -> KeyValue {
    KeyValue { key: key.to_owned(), value: any(value), ..KeyValue::default() }
}

/// Guarantees: each row of the documented table is applied.
#[test]
fn table() {
    let list = |values: Vec<Kind>| {
        let values = values.into_iter().map(|value| Any { value: Some(value) }).collect();
        Kind::ArrayValue(ArrayValue { values })
    };
    let text = |text: &str| Kind::StringValue(text.to_owned());
    let span = OtlpSpan {
        trace_id: vec![1; 16],
        span_id: vec![2; 8],
        parent_span_id: vec![3; 8],
        start_time_unix_nano: 1_790_000_000_250_000_000,
        end_time_unix_nano: 1_790_000_000_500_001_000,
        status: Some(Status { code: 2, message: "not_found".to_owned() }),
        attributes: vec![
            pair("s", text("a\n")),
            pair("s", text("second")),
            pair("b", Kind::BoolValue(true)),
            pair("i", Kind::IntValue(-7)),
            pair("d", Kind::DoubleValue(0.5)),
            pair("list", list(vec![Kind::IntValue(1), Kind::IntValue(2)])),
            pair("mixed", list(vec![Kind::IntValue(1), text("x")])),
            pair("map", Kind::KvlistValue(KeyValueList { values: vec![pair("k", Kind::IntValue(1))] })),
            pair("bytes", Kind::BytesValue(vec![1, 2])),
            pair("raw", Kind::BytesValue(vec![0xff])),
            pair("nan", Kind::DoubleValue(f64::NAN)),
            pair("thread.id", Kind::DoubleValue(12.0)),
            pair("sentry.form", text("span_v2")),
        ],
        links: vec![
            Link {
                trace_id: vec![4; 16],
                span_id: vec![5; 8],
                attributes: vec![pair("k", text("v")), pair("infinite", Kind::DoubleValue(f64::INFINITY))],
                ..Link::default()
            },
            Link::default(),
        ],
        ..OtlpSpan::default()
    };
    let mut spans = decoded(vec![span]);
    let string = |text: &str| json!({"value": text, "type": "string"});
    let mut expected = json!({
        "trace_id": "01".repeat(16), "span_id": "02".repeat(8), "parent_span_id": "03".repeat(8),
        "name": "unknown", "status": "error", "is_segment": false,
        "start_timestamp": 1_790_000_000.25, "end_timestamp": 1_790_000_000.500_001,
        "attributes": {
            "s": string("a\n"), "b": {"value": true, "type": "boolean"}, "i": {"value": -7, "type": "integer"},
            "d": {"value": 0.5, "type": "double"}, "list": {"value": [1, 2], "type": "array"},
            "mixed": string("[1,\"x\"]"), "map": string("{\"k\":1}"), "bytes": string("\u{1}\u{2}"),
            "raw": string("/w=="), "thread.id": string("12"), "sentry.status.message": string("not_found"),
        },
        "links": [{"trace_id": "04".repeat(16), "span_id": "05".repeat(8), "attributes": {"k": string("v")}}],
    });
    assert_eq!(written(&spans), json!({"version": 2, "items": [expected]}));
    assert_eq!(item(&spans, spans.spans(), &process(&spans)).unwrap().1, 2, "the two numbers that are none");

    spans.change(0, |changes| {
        let thread_id = Some("13".into());
        changes.profiler = Some(ProfilerLink { profiler_id: ProfilerId::from_hash(7), thread_id, thread_name: None });
    });
    expected["attributes"]["thread.id"] = string("13");
    expected["attributes"]["sentry.profiler_id"] = string(&ProfilerId::from_hash(7).to_string());
    assert_eq!(written(&spans)["items"][0], expected);
}

/// Guarantees: each row of the second table is applied to spans that were never in a container. The span's own
/// attributes take precedence, a thread id that is no whole number is left out and counted, like NaN in the resource and
/// the scope, and a segment outside of the batch is not named.
#[test]
fn spans_of_other_sdks() {
    let text = |text: &str| Kind::StringValue(text.to_owned());
    let span = |id: u8, parent: u8, kind: i32, flags: u32, attributes: Vec<KeyValue>| OtlpSpan {
        trace_id: vec![1; 16],
        span_id: vec![id; 8],
        parent_span_id: vec![parent; 8],
        kind,
        flags,
        attributes,
        start_time_unix_nano: 1_790_000_000_000_000_000,
        end_time_unix_nano: 1_790_000_001_000_000_000,
        ..OtlpSpan::default()
    };
    let method = || pair("http.request.method", text("GET"));
    let mut root = span(1, 9, 2, 0x301, vec![method(), pair("server.address", text("own"))]);
    root.links = vec![Link { trace_id: vec![4; 16], span_id: vec![5; 8], flags: 0x101, ..Link::default() }];
    let child =
        span(2, 1, 3, 0x101, vec![pair("db.system.name", text("x")), pair("thread.id", Kind::DoubleValue(4.5))]);
    let orphan = span(3, 8, 0, 0, vec![pair("thread.id", Kind::IntValue(7)), pair("sentry.release", text("own"))]);
    let resource = vec![
        pair("service.name", text("shop")),
        pair("service.version", text("2")),
        pair("host.name", text("web-1")),
        pair("telemetry.sdk.language", text("nodejs")),
        pair("n", Kind::IntValue(1)),
        pair("nan", Kind::DoubleValue(f64::NAN)),
    ];
    let scope = InstrumentationScope {
        name: "lib".to_owned(),
        version: "3".to_owned(),
        attributes: vec![pair("k", text("v")), pair("nan", Kind::DoubleValue(f64::NAN))],
        ..InstrumentationScope::default()
    };
    let scope_spans =
        vec![ScopeSpans { spans: vec![root, child, orphan], scope: Some(scope), ..ScopeSpans::default() }];
    let resource = Some(OtlpResource { attributes: resource, ..OtlpResource::default() });
    let resource_spans = vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }];
    let request = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
    let spans = traces::decode(request.into(), &Limits::default()).unwrap().spans;
    let in_segment = |(at, span): (usize, &Span)| {
        let number = [0, 0, 2][at];
        Span { segment: Some(Segment { number, is_root: at == 0 }), is_streamed: true, ..span.clone() }
    };
    let spans = spans.rearranged(spans.spans().iter().enumerate().map(in_segment).collect());
    let container = written(&spans);
    assert_eq!(validate_span_container(container.to_string().as_bytes(), 3), Ok(()));
    let invalid = item(&spans, spans.spans(), &process(&spans)).unwrap().1;
    assert_eq!(invalid, 5, "one of a span, one of the resource, and that of the scope for each span");
    let string = |text: &str| json!({"value": text, "type": "string"});
    let shared = json!({
        "sentry.environment": string("production"), "sentry.platform": string("node"),
        "sentry.origin": string("auto.otlp.spans"), "sentry.sdk.name": string("profbridge.rust"),
        "sentry.sdk.version": string(env!("CARGO_PKG_VERSION")),
        "resource.service.name": string("shop"), "resource.service.version": string("2"),
        "resource.host.name": string("web-1"), "resource.telemetry.sdk.language": string("nodejs"),
        "resource.n": {"value": 1, "type": "integer"},
        "instrumentation.name": string("lib"), "instrumentation.version": string("3"),
        "instrumentation.k": string("v"),
    });
    let boolean = |is_true: bool| json!({"value": is_true, "type": "boolean"});
    let segment = json!({"sentry.segment.id": string(&"01".repeat(8)), "sentry.segment.name": string("http.server")});
    let root = json!({
        "http.request.method": string("GET"), "server.address": string("own"), "sentry.kind": string("server"),
        "sentry.is_remote": boolean(true), "sentry.release": string("shop@2"),
    });
    let child = json!({
        "db.system.name": string("x"), "sentry.kind": string("client"), "sentry.is_remote": boolean(false),
        "server.address": string("web-1"), "sentry.release": string("shop@2"),
    });
    let orphan = json!({
        "thread.id": string("7"), "sentry.thread.id": string("7"), "sentry.release": string("own"),
        "server.address": string("web-1"),
    });
    let expected =
        [(vec![root, segment.clone()], "http.server"), (vec![child, segment], "db"), (vec![orphan], "unknown")];
    for (element, (parts, name)) in container["items"].as_array().unwrap().iter().zip(expected) {
        let mut all = shared.as_object().unwrap().clone();
        parts.into_iter().for_each(|part| all.extend(part.as_object().unwrap().clone()));
        assert_eq!((&element["attributes"], &element["name"]), (&Value::Object(all), &json!(name)));
    }
    assert_eq!(
        container["items"][0]["links"],
        json!([{"trace_id": "04".repeat(16), "span_id": "05".repeat(8), "sampled": true}])
    );
}

proptest! {
    /// Guarantees: any OTLP spans give a container that can be read again, with the same ids and times; a server's span
    /// and one without a parent are segments.
    #[test]
    fn any_spans(spans in prop::collection::vec((1_u64.., 0..4_u64, 0..6_i32, 0..2_000_000_000_000_000_000_u64, 0..9_000_000_000_u64, ".{0,5}"), 1..5)) {
        let spans = spans.into_iter().map(|(id, parent, kind, start, length, text)| OtlpSpan {
            trace_id: vec![1; 16],
            span_id: id.to_be_bytes().to_vec(),
            parent_span_id: if parent == 0 || parent == id { Vec::new() } else { parent.to_be_bytes().to_vec() },
            kind,
            start_time_unix_nano: start,
            end_time_unix_nano: start + length,
            attributes: vec![pair(&text, Kind::StringValue(text.clone()))],
            name: text,
            ..OtlpSpan::default()
        });
        let spans = decoded(spans.collect());
        let container = written(&spans);
        prop_assert_eq!(validate_span_container(container.to_string().as_bytes(), spans.spans().len()), Ok(()));
        for (span, element) in spans.spans().iter().zip(container["items"].as_array().unwrap()) {
            prop_assert_eq!(element["is_segment"].as_bool(), Some(span.is_local_root()));
        }
    }
}
