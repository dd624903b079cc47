use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span as OtlpSpan;
use profbridge_model::ProfilerId;
use profbridge_model::spans::{ProfilerLink, SpanChanges};
use proptest::prelude::*;
use prost::Message as _;
use serde_json::{Value, json};

use super::*;
use crate::otlp::Limits;
use crate::otlp::traces::read::{resource_attributes, scope_name};
use crate::otlp::traces::{self, OtherSpanFields};
use crate::sentry::envelope;
use crate::sentry::span_reader::ReadSpans;
use crate::sentry::span_v2_writer::json as value_of;
use crate::sentry::trace_header::TraceHeader;
use crate::sentry::{span_items, span_v2_reader, transaction_reader};

const PYTHON: &[u8] = include_bytes!("../../../testdata/sentry/python-2.75-transaction.envelope");
const NODE: &[u8] = include_bytes!("../../../testdata/sentry/node-10.75-transaction.envelope");
const NODE_SPANS: &[u8] = include_bytes!("../../../testdata/sentry/node-11.1-span.envelope");

const TRACE: &str = "745e5a279d06439a81f3ebd9c4fdee8c";

fn view(bytes: &'static [u8]) -> Spans {
    let envelope = envelope::read(Bytes::from_static(bytes)).unwrap().envelope;
    let (_, read) = span_items::read_items(&envelope).next().unwrap();
    read.unwrap().spans
}

fn read(json: &Value) -> ReadSpans {
    let payload = Bytes::from(json.to_string());
    match json.get("items") {
        Some(items) => {
            span_v2_reader::read(&payload, Some(items.as_array().unwrap().len() as u64), &TraceHeader::default())
        }
        None => transaction_reader::read(&payload, &TraceHeader::default()),
    }
    .unwrap()
}

/// The spans as another program would receive them.
fn over_otlp(spans: &Spans) -> Spans {
    let decoded = traces::decode(request(spans).into(), &Limits::default()).unwrap();
    assert_eq!((decoded.refused_spans, decoded.spans.spans().len()), (0, spans.spans().len()), "{:?}", decoded.refused);
    decoded.spans
}

/// Formats a request: resources, scopes and spans with their attributes.
fn shown(spans: &Spans) -> String {
    let mut out = String::new();
    let mut scope = None;
    for span in spans.spans() {
        if scope.replace(span.scope) != Some(span.scope) {
            for (key, value) in resource_attributes(spans, spans.resource_of(span)) {
                out += &format!("{key}={}\n", value_of(value));
            }
            out += &format!("{:?}\n", scope_name(spans, spans.scope_of(span)));
        }
        let fields = OtherSpanFields::of(spans, span);
        let (name, code, message) = (fields.name, fields.status_code, fields.status_message);
        out += &format!("- {name:?} {:?} {:?} status {code} {message:?}\n", span.kind, span.parent_is_remote);
        for (key, value) in fields.attributes() {
            out += &format!("    {key}={}\n", value_of(value));
        }
    }
    out
}

/// Guarantees: spans of real SDKs become OTLP with service, name, kind and status.
#[test]
fn real_spans_as_otlp() {
    for (name, bytes) in [("python", PYTHON), ("node", NODE), ("node_spans", NODE_SPANS)] {
        insta::assert_snapshot!(name, shown(&over_otlp(&view(bytes))));
    }
}

/// Guarantees: another OTLP reader finds ids, times, kind, status, links and remote parents in their fields.
#[test]
fn another_reader() {
    let event = json!({
        "contexts": {"trace": {
            "trace_id": TRACE, "span_id": "00000000000000ff", "parent_span_id": "00000000000000fe", "sampled": true,
            "op": "http.server", "status": "not_found",
            "links": [
                {"trace_id": TRACE, "span_id": "00000000000000aa", "sampled": true},
                {"trace_id": "no id", "span_id": "00000000000000aa"},
                7,
            ],
        }},
        "transaction": "GET /", "start_timestamp": 1, "timestamp": 2.5,
        "tags": {"color": "red", "http.route": "x"},
        "spans": [{"trace_id": TRACE, "span_id": "00000000000000aa", "parent_span_id": "00000000000000ff", "op": "db",
                   "description": "SELECT 1", "start_timestamp": 1, "timestamp": 2, "data": {"http.route": "/"},
                   "tags": [["color", "blue"], ["http.route", "x"]]}],
    });
    let ReadSpans { spans, .. } = read(&event);
    let request = ExportTraceServiceRequest::decode(&*request(&spans)).unwrap();
    let [resource] = &request.resource_spans[..] else { panic!("one resource") };
    let [root, child] = &resource.scope_spans[0].spans[..] else { panic!("two spans") };
    assert_eq!((root.start_time_unix_nano, root.end_time_unix_nano), (1_000_000_000, 2_500_000_000));
    assert_eq!((root.trace_id.len(), &root.span_id[7], &root.parent_span_id[7]), (16, &0xff, &0xfe));
    assert_eq!((&*root.name, root.kind, root.flags), ("GET /", 2, 0x301));
    assert_eq!((&*child.name, child.kind, child.flags), ("SELECT 1", 3, 0x101));
    let status = root.status.as_ref().unwrap();
    assert_eq!((status.code, &*status.message, child.status.is_none()), (2, "not_found", true));
    assert_eq!(root.links.iter().map(|link| link.span_id[7]).collect::<Vec<_>>(), [0xaa]);
    let text = |span: &OtlpSpan, key: &str| {
        let found: Vec<_> = span.attributes.iter().filter(|attribute| attribute.key == key).collect();
        assert!(found.len() <= 1, "{key} stands there once");
        found.first().map(|attribute| format!("{:?}", attribute.value.as_ref().unwrap().value.as_ref().unwrap()))
    };
    assert_eq!(text(root, "color").as_deref(), Some("StringValue(\"red\")"));
    assert_eq!(text(child, "color").as_deref(), Some("StringValue(\"blue\")"));
    assert_eq!(text(child, "http.route").as_deref(), Some("StringValue(\"/\")"));
}

/// Guarantees: the service's name depends on where a release or a service is named, in a transaction or a container.
#[test]
fn services() {
    let of = |more: Value| {
        let mut event = json!({"contexts": {"trace": {"trace_id": TRACE, "span_id": "00000000000000ff"}},
                               "start_timestamp": 1, "timestamp": 2});
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        shown(&over_otlp(&read(&event).spans)).split("(\"").next().unwrap().replace('\n', " ").trim().to_owned()
    };
    assert_eq!(of(json!({})), r#"service.name="unknown_service""#);
    assert_eq!(
        of(json!({"sdk": {"name": "sentry.go"}, "platform": "go"})),
        r#"service.name="unknown_service:sentry.go" sentry.platform="go" telemetry.sdk.name="sentry.go" telemetry.sdk.language="go""#
    );
    assert_eq!(of(json!({"release": "a@b@1"})), r#"service.name="a@b" service.version="1""#);
    assert_eq!(
        of(json!({"release": "4f2a"})),
        r#"service.name="unknown_service" service.version="4f2a" sentry.release="4f2a""#
    );
    assert_eq!(of(json!({"release": 7, "sdk": null})), r#"service.name="unknown_service""#);
    let mut otel = json!({"contexts": {"trace": {"trace_id": TRACE, "span_id": "00000000000000ff"},
        "otel": {"resource": {"service.name": "shop"}}}, "release": "a@1", "server_name": "h"});
    assert_eq!(of(otel.clone()), r#"service.name="shop" service.version="1" host.name="h""#);
    otel["contexts"]["otel"]["resource"]["service.namespace"] = "sentry".into();
    assert_eq!(of(otel), r#"service.name="a" service.version="1" host.name="h""#);
}

/// Guarantees: changes of spans are in the OTLP output and replace the original values.
#[test]
fn what_is_found_out_is_said() {
    let link = |thread: &str| {
        let thread_name = Some("worker".into());
        Some(ProfilerLink { profiler_id: ProfilerId::from_hash(7), thread_id: Some(thread.into()), thread_name })
    };
    let id = ProfilerId::from_hash(7).to_string();
    let mut spans = view(PYTHON);
    spans.change(0, |changes| *changes = SpanChanges { profiler: link("12"), sample_rate: Some(0.25) });
    spans.change(1, |changes| changes.profiler = link("13"));
    let text = shown(&over_otlp(&spans));
    let count = |said: &str| text.matches(said).count();
    let said = [&format!("sentry.profiler_id=\"{id}\""), "thread.id=12", "thread.id=13", "sentry.sample_rate="];
    assert_eq!(said.map(count), [2, 1, 1, 1], "{text}");
    assert!(text.contains("sentry.sample_rate=0.25"), "{text}");
}

/// Attack: our own key, duplicate keys, deeply nested or invalid values, 10,000 attributes, invalid text.
/// Guarantees: everything is converted as far as possible; no transaction's span can pose as a streamed one.
#[test]
fn attacks() {
    let nested = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let many: String = (0..10_000).map(|number| format!("\"k{number}\":{number},")).collect();
    for (data, count) in [
        ("{\"sentry.form\":\"span_v2\",\"\":1}", 0),
        ("{\"a\":1,\"a\":2}", 1),
        ("null", 0),
        ("[1]", 0),
        ("{\"n\":null,\"big\":18446744073709551615,\"list\":[1,\"a\",null,{\"b\":[true,-0.5]}]}", 2),
        (&format!("{{{many}\"z\":1}}"), 10_001),
        (&format!("{{\"deep\":{nested}}}"), 1),
        (&format!("{{\"deeper\":{}{}}}", "[".repeat(5000), "]".repeat(5000)), 0),
        ("{\"huge\":1e999}", 0),
        ("{\"half\":\"\\ud800\"}", 0),
        ("{\"\\ud800\":1}", 0),
    ] {
        let json = format!(
            "{{\"contexts\":{{\"trace\":{{\"trace_id\":\"{TRACE}\",\"span_id\":\"00000000000000ff\",\"data\":{data}}}}},\
             \"start_timestamp\":1,\"timestamp\":2}}"
        );
        let view = transaction_reader::read(&Bytes::from(json), &TraceHeader::default()).unwrap().spans;
        let otlp = over_otlp(&view);
        let span = &otlp.spans()[0];
        assert_eq!(
            (OtherSpanFields::of(&otlp, span).attributes().count(), span.is_streamed),
            (count, false),
            "{data:.100}"
        );
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a\"\\\\\né]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[abé.]{0,2}", inner, 0..4).prop_map(|object| json!(object)),
        ]
    })
}

/// An object with some of the keys, with valid values or values of any other type.
fn with_keys(keys: &'static [&'static str]) -> impl Strategy<Value = serde_json::Map<String, Value>> {
    let entry = (prop::sample::select(keys), prop_oneof![2 => "[a-z.]{0,4}".prop_map(Value::from), 1 => value()]);
    prop::collection::vec(entry, 0..5)
        .prop_map(|entries| entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

const KEYS: &[&str] = &[
    "op",
    "origin",
    "status",
    "description",
    "transaction",
    "name",
    "data",
    "attributes",
    "tags",
    "links",
    "release",
    "sdk",
    "event_id",
    "exclusive_time",
    "measurements",
    "is_segment",
    "environment",
];

fn span(v2: bool) -> impl Strategy<Value = Value> {
    let keys: &[&str] = &["sentry.op", "thread.id", "a", "otel.kind", "profiler_id", "sentry.sample_rate"];
    let attributes = prop::collection::btree_map(prop::sample::select(keys), value(), 0..5);
    let time = 1_700_000_000_000_000_u64..1_800_000_000_000_000;
    let id = prop_oneof![9 => Just(String::new()), 1 => Just("no id".to_owned())];
    (with_keys(KEYS), attributes, any::<bool>(), time, 0..10_000_000_u64, id, any::<bool>(), any::<bool>()).prop_map(
        move |(mut span, attributes, has_data, start, length, id, as_text, typed)| {
            if has_data {
                let all: serde_json::Map<_, _> = attributes
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), if v2 && typed { json!({"value": value}) } else { value }))
                    .collect();
                span.insert(if v2 { "attributes" } else { "data" }.to_owned(), all.into());
            }
            let trace = if as_text { TRACE.to_uppercase() } else { TRACE.to_owned() };
            span.insert("trace_id".to_owned(), trace.into());
            span.insert("span_id".to_owned(), id.into());
            span.insert("start_timestamp".to_owned(), json!(start as f64 / 1e6));
            let end = if v2 { "end_timestamp" } else { "timestamp" };
            span.insert(end.to_owned(), json!((start + length) as f64 / 1e6));
            Value::Object(span)
        },
    )
}

/// Gives an id to each span without one.
fn with_ids(spans: &mut [Value], parent: Option<&str>) {
    for (at, span) in spans.iter_mut().enumerate() {
        if span["span_id"] == "" {
            span["span_id"] = format!("{:016x}", at + 1).into();
        }
        if let Some(parent) = parent.filter(|_| at % 3 > 0) {
            span["parent_span_id"] = parent.into();
        }
    }
}

/// Asserts that the OTLP form has the same spans, with their ids and, to a microsecond, their times.
fn assert_same(spans: &Spans) {
    let otlp = over_otlp(spans);
    for (one, other) in spans.spans().iter().zip(otlp.spans()) {
        let ids = |span: &Span| (span.trace_id, span.span_id, span.parent_span_id, span.is_streamed);
        assert_eq!(ids(one), ids(other));
        let near = |one: u64, other: u64| one.abs_diff(other) <= 1000;
        assert!(near(one.start_unix_nano, other.start_unix_nano) && near(one.end_unix_nano, other.end_unix_nano));
    }
}

proptest! {
    /// Guarantees: the spans of any transaction are converted.
    #[test]
    fn any_transaction(
        mut root in span(false),
        mut event in with_keys(KEYS),
        mut contexts in with_keys(&["profile", "otel", "app"]),
        mut spans in prop::collection::vec(span(false), 0..5),
    ) {
        let id = "00000000000000ff";
        root["span_id"] = id.into();
        with_ids(&mut spans, Some(id));
        for key in ["start_timestamp", "timestamp"] {
            event.insert(key.to_owned(), root[key].clone());
        }
        contexts.insert("trace".to_owned(), root);
        event.insert("contexts".to_owned(), contexts.into());
        event.insert("spans".to_owned(), spans.into());
        assert_same(&read(&Value::Object(event)).spans);
    }

    /// Guarantees: the spans of any container are converted.
    #[test]
    fn any_container(mut spans in prop::collection::vec(span(true), 1..5)) {
        with_ids(&mut spans, None);
        assert_same(&read(&json!({"version": 2, "items": spans})).spans);
    }
}
