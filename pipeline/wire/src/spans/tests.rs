use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as ProtoSpan};
use profbridge_model::spans::{ProfilerLink, SpanResource, SpanScope};
use profbridge_model::{ByteRange, SpanId, SpanKind, TraceId};
use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::otlp::Limits;
use crate::otlp::traces::decode;

const PROFILER: &str = "00112233445546778899aabbccddeeff";

fn attribute(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, any_value::Value::StringValue(value.to_owned()))
}

fn otlp(attributes: Vec<KeyValue>, resource: Vec<KeyValue>, parent: &[u8], flags: u32) -> Spans {
    let span = ProtoSpan {
        trace_id: vec![1; 16],
        span_id: vec![2; 8],
        parent_span_id: parent.to_vec(),
        name: "GET /cart".to_owned(),
        flags,
        attributes,
        ..ProtoSpan::default()
    };
    let scope_spans = vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }];
    let resource = Some(Resource { attributes: resource, ..Resource::default() });
    let resource_spans = vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }];
    let request = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
    decode(request.into(), &Limits::default()).unwrap().spans
}

/// A Sentry batch: each of the texts is a span, and occurs in the JSON.
fn sentry(form: SpanForm, json: &str, spans: &[&str]) -> Spans {
    let places = spans.iter().map(|text| {
        let start = json.find(text).unwrap() as u32;
        ByteRange { start, len: text.len() as u32 }
    });
    let span = |at| Span {
        trace_id: TraceId::new(&[1; 16]).unwrap(),
        span_id: SpanId::new(&[2; 8]).unwrap(),
        parent_span_id: None,
        start_unix_nano: 1,
        end_unix_nano: 2,
        kind: SpanKind::Internal,
        parent_is_remote: None,
        sampled: None,
        scope: 0,
        at,
        is_streamed: false,
        segment: None,
        changes: None,
    };
    let (resources, scopes) = (vec![SpanResource::default()], vec![SpanScope::default()]);
    let json = Bytes::copy_from_slice(json.as_bytes());
    Spans::new(form, json, resources, scopes, places.map(span).collect(), true).unwrap()
}

fn first(spans: &Spans) -> SpanView<'_> {
    SpanView::of(spans, &spans.spans()[0])
}

/// Guarantees: name, op, service and attributes of an OTLP span are read as the conventions define; lists do not count
/// as values, and added resource attributes count if the resource does not have them.
#[test]
fn otlp_spans() {
    let list = any_value::Value::ArrayValue(ArrayValue { values: vec![] });
    let attributes = vec![
        text("sentry.op", "http.server"),
        attribute("http.response.status_code", any_value::Value::IntValue(200)),
        attribute("ratio", any_value::Value::DoubleValue(0.5)),
        attribute("cached", any_value::Value::BoolValue(true)),
        attribute("list", list),
    ];
    let mut spans = otlp(attributes, vec![text("service.name", "shop")], &[], 0);
    spans.add_to_resource(0, "host.name".into(), "web-1".into());
    spans.add_to_resource(0, "service.name".into(), "other".into());
    let view = first(&spans);
    assert_eq!((view.name().as_str(), view.op().as_deref()), ("GET /cart", Some("http.server")));
    assert_eq!(view.service_name().as_deref(), Some("shop"));
    let texts = ["http.response.status_code", "ratio", "cached", "sentry.op"]
        .map(|key| view.attribute(key).unwrap().to_text().into_owned());
    assert_eq!(texts, ["200", "0.5", "true", "http.server"]);
    assert_eq!((view.attribute("list"), view.attribute("service.name")), (None, None));
    assert_eq!(view.resource_attribute("host.name"), Some("web-1".into()));
    assert_eq!(first(&otlp(vec![], vec![], &[], 0)).op(), None);
}

/// Guarantees: decisions, rates and random numbers are read where Sentry's SDKs on OpenTelemetry write them; W3C's flag
/// is the parent's decision only if there is a parent, and an unset flag means unknown.
/// rule: tracing-sdk#propagation
#[test]
fn decisions_of_otlp_spans() {
    let bool = |key, value| attribute(key, any_value::Value::BoolValue(value));
    let double = |key, value| attribute(key, any_value::Value::DoubleValue(value));
    let attributes = vec![bool(SAMPLED, false), double(SAMPLE_RATE, 0.25), double(SAMPLE_RAND, 0.125)];
    let mut spans = otlp(attributes, vec![], &[], 1);
    let view = first(&spans);
    assert_eq!((view.decision(), view.parent_decision()), (Some(false), None));
    assert_eq!((view.sample_rate(), view.sample_rand()), (Some(0.25), Some(0.125)));
    spans.change(0, |changes| changes.sample_rate = Some(0.0625));
    assert_eq!(first(&spans).sample_rate(), Some(0.0625));
    let parent = [9; 8];
    assert_eq!(first(&otlp(vec![], vec![], &parent, 1)).parent_decision(), Some(true));
    assert_eq!(first(&otlp(vec![], vec![], &parent, 0)).parent_decision(), None);
    let says_no = vec![bool(PARENT_SAMPLED, false)];
    assert_eq!(first(&otlp(says_no, vec![], &parent, 1)).parent_decision(), Some(false));
    for rate in [0.0, -1.0, 1.5, f64::NAN] {
        assert_eq!(first(&otlp(vec![double(SAMPLE_RATE, rate)], vec![], &[], 0)).sample_rate(), None, "{rate}");
    }
    assert_eq!(first(&otlp(vec![double(SAMPLE_RAND, 1.0)], vec![], &[], 0)).sample_rand(), None);
}

/// Guarantees: for a transaction the same data is read from its contexts and tags, for its children from themselves;
/// tags may be an object or pairs.
#[test]
fn transactions() {
    let child = r#"{"op":"db","description":"SELECT 1","data":{"db.system":"mysql","profiler_id":"PROFILER"}}"#;
    let child = child.replace("PROFILER", PROFILER);
    let json = format!(
        r#"{{"type":"transaction","transaction":"/cart","server_name":"web-1","tags":[["a","1"],["b","2"],["a","3"]],
            "contexts":{{"trace":{{"op":"http.server","data":{{"sentry.sample_rate":0.5,"n":1e3,"a\"b":"q"}}}},
            "profile":{{"profiler_id":"{PROFILER}"}}}},"spans":[{child}]}}"#
    );
    let spans = sentry(SpanForm::SentryTransaction, &json, &[&json, &child]);
    let root = first(&spans);
    assert_eq!((root.name().as_str(), root.op().as_deref()), ("/cart", Some("http.server")));
    assert_eq!(root.attribute("a"), Some("3".into()));
    assert_eq!((root.attribute("n").unwrap().number(), root.attribute("a\"b")), (Some(1000.0), Some("q".into())));
    assert_eq!((root.sample_rate(), root.decision(), root.service_name()), (Some(0.5), None, None));
    assert_eq!(root.profiler_id().unwrap().to_string(), PROFILER);
    let child = SpanView::of(&spans, &spans.spans()[1]);
    assert_eq!((child.name().as_str(), child.op().as_deref()), ("SELECT 1", Some("db")));
    assert_eq!(child.attribute("db.system"), Some("mysql".into()));
    assert_eq!(child.profiler_id(), root.profiler_id());
    let json = r#"{"contexts":{},"tags":{"a":"1","b":null}}"#;
    let spans = sentry(SpanForm::SentryTransaction, json, &[json]);
    assert_eq!((first(&spans).attribute("a"), first(&spans).attribute("b")), (Some("1".into()), None));
}

/// Guarantees: for a span of version 2 the same data is read from its attributes.
#[test]
fn spans_of_version_2() {
    let span = r#"{"name":"work","attributes":{"sentry.op":{"value":"task","type":"string"},
        "service.name":{"value":"shop","type":"string"},"n":{"value":7,"type":"integer"},"bad":7,
        "sentry.profiler_id":{"value":"PROFILER","type":"string"}}}"#
        .replace("PROFILER", PROFILER);
    let spans = sentry(SpanForm::SentrySpans, &format!(r#"{{"items":[{span}]}}"#), &[&span]);
    let view = first(&spans);
    assert_eq!((view.name().as_str(), view.op().as_deref()), ("work", Some("task")));
    assert_eq!(view.service_name().as_deref(), Some("shop"));
    assert_eq!((view.attribute("n"), view.attribute("bad")), (Some(SpanValue::Int(7)), None));
    assert_eq!(view.profiler_id().unwrap().to_string(), PROFILER);
}

/// Guarantees: the process of a span is described like that of profiles: by the whole OTLP resource, or by the host of
/// Sentry's spans; if neither names a host, by the one that it was sent from. A profiler linked to a span is listed
/// separately.
#[test]
fn processes() {
    let said = |spans: &Spans| {
        let SpanProcess { dictionary, attributes } = process(&first(spans), Some("sender")).unwrap();
        let text = |value: &profbridge_model::Value| match value {
            profbridge_model::Value::String(text) => dictionary.string(*text).to_owned(),
            value => format!("{value:?}"),
        };
        let said = attributes.iter().map(|of| (dictionary.string(of.key).to_owned(), text(&of.value)));
        said.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>()
    };
    let pid = attribute("process.pid", any_value::Value::IntValue(7));
    let mut spans = otlp(vec![], vec![text("host.name", "web-1"), pid], &[], 0);
    assert_eq!(said(&spans), ["host.name=web-1", "process.pid=Int(7)"]);
    spans.add_to_resource(0, "host.id".into(), "1f".into());
    let profiler_id = ProfilerId::from_hash(7);
    spans.change(0, |changes| {
        changes.profiler = Some(ProfilerLink { profiler_id, thread_id: None, thread_name: None });
    });
    assert_eq!(said(&spans), ["host.name=web-1", "process.pid=Int(7)", "host.id=1f"]);
    assert_eq!(first(&spans).profiler_id(), Some(profiler_id));
    let json = r#"{"contexts":{},"server_name":"web-1"}"#;
    assert_eq!(said(&sentry(SpanForm::SentryTransaction, json, &[json])), ["host.name=web-1"]);
    assert_eq!(said(&sentry(SpanForm::SentrySpans, "{}", &["{}"])), ["host.name=sender"]);
}

/// Guarantees: the language of a span's program has OpenTelemetry's name in every format; a child of a transaction has
/// none.
#[test]
fn languages() {
    let said = |spans: &Spans| first(spans).language();
    assert_eq!(said(&otlp(vec![], vec![text("telemetry.sdk.language", "nodejs")], &[], 0)).as_deref(), Some("nodejs"));
    assert_eq!(said(&otlp(vec![text("telemetry.sdk.language", "go")], vec![], &[], 0)), None);
    for (platform, language) in [("python", "python"), ("node", "nodejs"), ("csharp", "dotnet"), ("ruby", "ruby")] {
        let json = format!(r#"{{"contexts":{{}},"platform":"{platform}"}}"#);
        assert_eq!(said(&sentry(SpanForm::SentryTransaction, &json, &[&json])).as_deref(), Some(language));
    }
    let child = r#"{"platform":"python","data":{}}"#;
    assert_eq!(said(&sentry(SpanForm::SentryTransaction, child, &[child])), None);
    for (attribute, value, language) in [
        ("sentry.platform", "node", Some("nodejs")),
        ("sentry.sdk.name", "sentry.python.django", Some("python")),
        ("sentry.sdk.name", "sentry.javascript.node", Some("nodejs")),
        ("sentry.sdk.name", "sentry.javascript.react", Some("webjs")),
        ("sentry.sdk.name", "own", None),
        ("sentry.sdk", "sentry.python", None),
    ] {
        let json = format!(r#"{{"attributes":{{"{attribute}":{{"value":"{value}","type":"string"}}}}}}"#);
        let spans = sentry(SpanForm::SentrySpans, &json, &[&json]);
        assert_eq!(said(&spans).as_deref(), language, "{attribute} {value}");
    }
}

/// Guarantees: of spans that SDKs streamed, those of a call over HTTP do not name the web server as their host, while
/// all others of Python's name theirs; Node names none.
#[test]
fn hosts_of_streamed_spans() {
    let python = include_bytes!("../../testdata/sentry/python-3.0b2-span-stream.envelope");
    let node = include_bytes!("../../testdata/sentry/node-11.12-span-stream.envelope");
    for (text, expected) in
        [(&python[..], vec![Some("web-1"), Some("web-1"), Some("web-1"), None]), (node, vec![None; 7])]
    {
        let envelope = crate::sentry::envelope::read(Bytes::copy_from_slice(text)).unwrap().envelope;
        let (_, read) = crate::sentry::span_items::read_items(&envelope).next().unwrap();
        let spans = read.unwrap().spans;
        let hosts: Vec<_> = spans.spans().iter().map(|span| SpanView::of(&spans, span).host_name()).collect();
        assert_eq!(hosts.iter().map(Option::as_deref).collect::<Vec<_>>(), expected);
    }
}

/// Reads all properties.
fn read_all(spans: &Spans) {
    for span in spans.spans() {
        let view = SpanView::of(spans, span);
        let said = (view.name(), view.op(), view.service_name(), view.decision(), view.parent_decision());
        let more = (view.sample_rate(), view.sample_rand(), view.profiler_id(), view.attribute("a"));
        assert_eq!(said.0, view.name());
        drop((said, more, process(&view, Some("web")), view.language()));
    }
}

/// Guarantees: deep nesting, many keys or malformed JSON read as absent, without a panic.
#[test]
fn attacks() {
    let deep = format!(r#"{{"contexts":{}{}}}"#, "[".repeat(200_000), "]".repeat(200_000));
    let deep_object = format!(r#"{{"contexts":{}1{}}}"#, r#"{"trace":"#.repeat(50_000), "}".repeat(50_000));
    let keys: String = (0..100_000).map(|n| format!(r#""k{n}":1,"#)).collect();
    let many = format!(r#"{{{keys}"contexts":{{"trace":{{"op":"x"}}}}}}"#);
    let types = r#"{"contexts":7,"transaction":[],"tags":[["a"],7],"data":null,"attributes":"x","op":{}}"#;
    for json in [deep.as_str(), &deep_object, &many, types, "", "\u{feff}{}", "{\"contexts\":", "[1]"] {
        for form in [SpanForm::SentryTransaction, SpanForm::SentrySpans] {
            let spans = sentry(form, json, &[json]);
            read_all(&spans);
            assert_eq!((first(&spans).op(), first(&spans).name().as_str()), (None, ""));
        }
    }
}

proptest! {
    /// Guarantees: no bytes cause a panic, in any format.
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), json in "[\\[\\]{}:,\"a0-]{0,60}") {
        for bytes in [bytes, json.into_bytes()] {
            let at = ByteRange { start: 0, len: bytes.len() as u32 };
            for form in [SpanForm::Otlp, SpanForm::SentryTransaction, SpanForm::SentrySpans] {
                let mut spans = sentry(SpanForm::SentrySpans, "{}", &["{}"]).spans().to_vec();
                spans[0].at = at;
                let resource = SpanResource { parts: vec![at], added: Vec::new() };
                let scopes = vec![SpanScope::default()];
                let batch = Spans::new(form, Bytes::from(bytes.clone()), vec![resource], scopes, spans, true);
                read_all(&batch.unwrap());
            }
        }
    }
}
