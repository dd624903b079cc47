use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span as OtlpSpan;
use profbridge_model::spans::{ProfilerLink, Segment, SpanChanges};
use profbridge_model::{ProfilerId, SpanForm};
use proptest::prelude::*;
use prost::Message as _;
use serde_json::{Value, json};

use super::*;
use crate::otlp::Limits;
use crate::otlp::traces::read::{resource_attributes, scope_name};
use crate::otlp::traces::{self, Fields};
use crate::sentry::envelope::{self, ItemHeader};
use crate::sentry::span_reader::ReadSpans;
use crate::sentry::spans_from_otlp::{Returned, item};
use crate::sentry::timestamp::Timestamp;
use crate::sentry::{span_items, span_v2_reader};

const PYTHON: &[u8] = include_bytes!("../../../testdata/sentry/python-2.75-transaction.envelope");
const NODE: &[u8] = include_bytes!("../../../testdata/sentry/node-10.75-transaction.envelope");
const NODE_V1: &[u8] = include_bytes!("../../../testdata/sentry/node-10.75-v1-transaction+profile.envelope");
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

/// The payload of a view, as whoever parses it has it: the last digit of a number may differ from what was written.
fn parsed(spans: &Spans) -> Value {
    serde_json::from_slice(spans.bytes()).unwrap()
}

/// The spans as another program sends them on, put together as the processor `transactions` does it.
fn over_otlp(spans: &Spans) -> Spans {
    let decoded = traces::decode(request(spans).into(), &Limits::default()).unwrap();
    assert_eq!((decoded.refused_spans, decoded.spans.spans().len()), (0, spans.spans().len()), "{:?}", decoded.refused);
    as_segment(&decoded.spans)
}

/// One segment of all spans, whose root is the first without a local parent.
fn as_segment(spans: &Spans) -> Spans {
    let root = spans.spans().iter().position(Span::is_local_root);
    let of = |(at, span): (usize, &Span)| Span {
        segment: Some(Segment { number: 0, is_root: Some(at) == root }),
        ..span.clone()
    };
    let all = spans.spans().iter().enumerate().map(of).collect();
    let (resources, scopes) = (spans.resources().to_vec(), spans.scopes().to_vec());
    Spans::new(SpanForm::Otlp, spans.bytes().clone(), resources, scopes, all, false).unwrap()
}

fn back(spans: &Spans) -> Value {
    let Returned { item, .. } = item(spans, spans.spans()).unwrap();
    let payload = item.payload.plain().unwrap();
    let header = ItemHeader::read(&item.header).unwrap();
    assert_eq!(header.length, Some(payload.len() as u64));
    let json: Value = serde_json::from_slice(payload).unwrap();
    assert_eq!(header.item_count, json.get("items").map(|items| items.as_array().unwrap().len() as u64));
    json
}

/// Takes the times out of an object.
fn times(object: &mut Value) -> Vec<Value> {
    let keys = ["start_timestamp", "timestamp", "end_timestamp"];
    keys.iter().filter_map(|key| object.as_object_mut()?.remove(*key)).collect()
}

/// An item without times and with its spans in order, and the times of each object.
fn canonical(mut json: Value) -> (Value, Vec<Vec<Value>>) {
    let key = if json.get("items").is_some() { "items" } else { "spans" };
    let mut all = vec![times(&mut json)];
    if let Some(Value::Array(list)) = json.get_mut(key) {
        let mut parts: Vec<_> = list.drain(..).map(|mut span| (times(&mut span), span)).collect();
        parts.sort_by_key(|(_, span)| span.to_string());
        for (times, span) in parts {
            all.push(times);
            list.push(span);
        }
    }
    (json, all)
}

/// Compares two items: equal but for the order of their parts, and times within a microsecond.
fn assert_equal(one: Value, other: Value) {
    let ((one, times), (other, other_times)) = (canonical(one), canonical(other));
    assert_eq!(one, other);
    assert_eq!(times.len(), other_times.len());
    let parsed = |time: &Value| serde_json::from_value::<Timestamp>(time.clone()).ok().map(|time| time.0);
    for (one, other) in times.iter().flatten().zip(other_times.iter().flatten()) {
        match (parsed(one), parsed(other)) {
            (Some(one), Some(other)) => assert!(one.abs_diff(other) <= 1000, "{one} {other}"),
            _ => assert_eq!(one, other),
        }
    }
}

/// A request in words: resources, scopes and spans with their attributes, but for the rest.
fn shown(spans: &Spans) -> String {
    let mut out = String::new();
    let mut scope = None;
    for span in spans.spans() {
        if scope.replace(span.scope) != Some(span.scope) {
            for (key, value) in resource_attributes(spans, spans.resource_of(span)) {
                out += &format!("{key}={}\n", value::json(value));
            }
            out += &format!("{:?}\n", scope_name(spans, spans.scope_of(span)));
        }
        let fields = Fields::of(spans, span);
        let (name, code, message) = (fields.name, fields.status_code, fields.status_message);
        out += &format!("- {name:?} {:?} {:?} status {code} {message:?}\n", span.kind, span.parent_is_remote);
        for (key, value) in fields.attributes().filter(|(key, _)| *key != REST) {
            out += &format!("    {key}={}\n", value::json(value));
        }
    }
    out
}

/// Guarantees: what SDKs send is OTLP that says who made it, what it is called, of which kind it is and how it ended.
#[test]
fn real_spans_as_otlp() {
    for (name, bytes) in [("python", PYTHON), ("node", NODE), ("node_spans", NODE_SPANS)] {
        insta::assert_snapshot!(name, shown(&over_otlp(&view(bytes))));
    }
}

/// Guarantees: what SDKs send comes back from OTLP as it was, with the id of its event.
#[test]
fn real_spans_come_back() {
    for bytes in [PYTHON, NODE, NODE_V1, NODE_SPANS] {
        let view = view(bytes);
        let came = parsed(&view);
        let otlp = over_otlp(&view);
        let event_id = item(&otlp, otlp.spans()).unwrap().event_id;
        assert_eq!(event_id.as_deref(), came.get("event_id").and_then(Value::as_str));
        assert_equal(back(&otlp), came);
    }
}

/// Guarantees: another reader of OTLP finds the ids, the times, the kind, the status, the links and whose parent is
/// elsewhere in their fields.
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
    assert_equal(back(&over_otlp(&spans)), event);
}

/// Guarantees: where a release or a service is named, in a transaction or a container, decides what the service is
/// called.
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

/// Guarantees: what was found out about spans before they left is said in OTLP and comes back; so is what others add on
/// the way: attributes, a profiler, a child.
#[test]
fn what_is_found_out_survives() {
    let link = |thread: &str| {
        let thread_name = Some("worker".into());
        Some(ProfilerLink { profiler_id: ProfilerId::from_hash(7), thread_id: Some(thread.into()), thread_name })
    };
    let id = ProfilerId::from_hash(7).to_string();
    let mut before = view(PYTHON);
    before.change(0, |changes| *changes = SpanChanges { profiler: link("12"), sample_rate: Some(0.25) });
    before.change(1, |changes| changes.profiler = link("13"));
    let otlp = over_otlp(&before);
    let text = shown(&otlp);
    for said in [&*format!("sentry.profiler_id=\"{id}\""), "thread.id=\"13\"", "sentry.sample_rate=0.25"] {
        assert!(text.contains(said), "{said} {text}");
    }
    let json = back(&otlp);
    let (trace, child) = (&json["contexts"]["trace"]["data"], &json["spans"][0]["data"]);
    assert_eq!([&json["contexts"]["profile"]["profiler_id"], &child["profiler_id"]], [&id, &id]);
    assert_eq!([&trace["thread.id"], &child["thread.id"], &child["thread.name"]], ["12", "13", "worker"]);
    assert!(trace.get("sentry.sample_rate").is_none() && trace.get("sentry.profiler_id").is_none());

    // Found out here, of spans that are OTLP.
    let mut after = over_otlp(&view(NODE));
    after.change(1, |changes| changes.profiler = link("14"));
    assert_eq!(back(&after)["spans"][0]["data"]["thread.id"], "14");

    // Found out by somebody else, whose thread is a number, and a span that came from somewhere else.
    let mut plain = read(&json!({"contexts": {"trace": {"trace_id": TRACE, "span_id": "00000000000000ff"}},
                                 "start_timestamp": 1, "timestamp": 2}));
    plain.spans.change(0, |_| {});
    let mut otlp = over_otlp(&plain.spans);
    otlp.change(0, |changes| changes.profiler = link("15"));
    let sent = traces::decode(traces::encode(&otlp).into(), &Limits::default()).unwrap().spans;
    let json = back(&as_segment(&sent));
    assert_eq!((&json["contexts"]["profile"]["profiler_id"], json.get("spans")), (&json!(id), None));
    assert_eq!(json["contexts"]["trace"]["data"]["thread.id"], "15");
}

/// Guarantees: spans that were never Sentry's, spans of a transaction without it, and what is broken are nobody's item.
#[test]
fn whose_they_are() {
    let mut rootless = over_otlp(&view(PYTHON));
    rootless.retain(|position, _| position == 1);
    assert_eq!(item(&rootless, rootless.spans()), None);
    assert_eq!(item(&view(PYTHON), view(PYTHON).spans()), None);
    assert_eq!(item(&rootless, &[]), None);
    let bytes = request(&view(PYTHON));
    for (old, new) in [("sentry.form", "sentry.from"), ("sentry.rest", "sentry.rust"), ("transaction", "transections")]
    {
        let at = bytes.windows(old.len()).position(|part| part == old.as_bytes()).unwrap();
        let mut other = bytes.clone();
        other.splice(at..at + old.len(), new.bytes().take(old.len()));
        let spans = as_segment(&traces::decode(other.into(), &Limits::default()).unwrap().spans);
        assert_eq!(item(&spans, spans.spans()), None, "{old}");
    }
}

/// Attack: keys that are ours, keys that stand there twice, values that nest deep or are no numbers, 10,000 attributes,
/// text that is none.
/// Guarantees: all of it comes back, and what an attribute cannot hold is in none.
#[test]
fn attacks() {
    let nested = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let many: String = (0..10_000).map(|number| format!("\"k{number}\":{number},")).collect();
    let of = |data: &str| {
        format!(
            "{{\"contexts\":{{\"trace\":{{\"trace_id\":\"{TRACE}\",\"span_id\":\"00000000000000ff\",\"data\":{data}}}}},\
             \"start_timestamp\":1,\"timestamp\":2}}"
        )
    };
    for data in [
        "{\"sentry.rest\":\"{}\",\"sentry.form\":\"x\",\"sentry.copies\":[],\"sentry.unnamed\":true,\"\":1}",
        "{\"a\":1,\"a\":2}",
        "null",
        "[1]",
        "{\"n\":null,\"big\":18446744073709551615,\"list\":[1,\"a\",null,{\"b\":[true,-0.5]}]}",
        &format!("{{{many}\"z\":1}}"),
        &format!("{{\"deep\":{nested}}}"),
        "{\"huge\":1e999}",
        "{\"half\":\"\\ud800\"}",
        "{\"\\ud800\":1}",
    ] {
        let json = of(data);
        let view = transaction_reader::read(&Bytes::from(json.clone()), &TraceHeader::default()).unwrap().spans;
        let otlp = over_otlp(&view);
        let returned = item(&otlp, otlp.spans()).unwrap().item;
        let returned = std::str::from_utf8(returned.payload.plain().unwrap()).unwrap();
        match serde_json::from_str::<Value>(&json) {
            Ok(json) => assert_equal(serde_json::from_str(returned).unwrap(), json),
            // What serde_json cannot read comes back as text.
            Err(_) => assert!(returned.contains(data.trim_matches(['{', '}'])), "{returned:.200}"),
        }
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

/// An object of some of the keys, with values as they should be or of any other type.
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
                    .map(|(key, value)| (key.to_owned(), if v2 && typed { value::typed(&value) } else { value }))
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

/// Gives each span that has none an id of its own.
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

proptest! {
    /// Guarantees: whatever a transaction says, it comes back from OTLP as it was, spans that cannot be read included.
    #[test]
    fn transactions_come_back(
        root in span(false),
        mut event in with_keys(KEYS),
        contexts in with_keys(&["profile", "otel", "app"]),
        mut spans in prop::collection::vec(span(false), 0..5),
        has_spans in any::<bool>(),
    ) {
        let mut root = root;
        let id = "00000000000000ff";
        root["span_id"] = id.into();
        with_ids(&mut spans, Some(id));
        let times = times(&mut root);
        event.insert("start_timestamp".to_owned(), times[0].clone());
        event.insert("timestamp".to_owned(), times[1].clone());
        let mut contexts = contexts;
        contexts.insert("trace".to_owned(), root);
        event.insert("contexts".to_owned(), contexts.into());
        if has_spans {
            event.insert("spans".to_owned(), spans.into());
        }
        let event = Value::Object(event);
        let ReadSpans { spans, .. } = read(&event);
        assert_equal(back(&over_otlp(&spans)), parsed(&spans));
    }

    /// Guarantees: whatever the spans of a container say, they come back from OTLP as they were.
    #[test]
    fn containers_come_back(mut spans in prop::collection::vec(span(true), 1..5)) {
        with_ids(&mut spans, None);
        let ReadSpans { spans, .. } = read(&json!({"version": 2, "items": spans}));
        let mut expected = parsed(&spans);
        let is_read = |span: &Value| span["span_id"] != "no id";
        expected["items"].as_array_mut().unwrap().retain(is_read);
        if !spans.is_empty() {
            assert_equal(back(&over_otlp(&spans)), expected);
        }
    }

    /// Guarantees: a number of JSON becomes an attribute only where the same number comes back.
    #[test]
    fn numbers(text in "-?[1-9][0-9]{0,20}(\\.[0-9]{1,18})?(e-?[0-9]{1,2})?") {
        let Ok(number) = serde_json::from_str::<Value>(&text) else { return Ok(()) };
        let event = json!({"contexts": {"trace": {"trace_id": TRACE, "span_id": "00000000000000ff",
            "data": {"n": number}}}, "start_timestamp": 1, "timestamp": 2});
        let ReadSpans { spans, .. } = read(&event);
        assert_equal(back(&over_otlp(&spans)), parsed(&spans));
    }
}
