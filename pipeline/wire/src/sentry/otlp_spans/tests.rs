use std::collections::BTreeMap;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue as Any, KeyValue, any_value::Value as Kind};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as OtlpSpan};
use profbridge_model::ProfilerId;
use profbridge_model::envelope::RequestMeta;
use profbridge_model::spans::{ProfilerLink, SpanChanges};
use prost::Message as _;

use super::*;
use crate::otlp::{Limits, traces};

/// What the OTLP integration of Sentry's Python SDK 3.0.0b2 sends: four spans without thread, profiler and release.
const PYTHON: &[u8] = include_bytes!("../../../testdata/sentry/python-3.0b2-otlpintegration-traces.otlp.pb");

fn pair(key: &str, value: Kind) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(Any { value: Some(value) }), ..KeyValue::default() }
}

fn text(key: &str, text: &str) -> KeyValue {
    pair(key, Kind::StringValue(text.to_owned()))
}

/// A span with this number as its id, below a parent, if any.
fn span(id: u8, parent: Option<u8>, kind: i32, attributes: Vec<KeyValue>) -> OtlpSpan {
    let parent_span_id = parent.map(|parent| vec![parent; 8]).unwrap_or_default();
    let (trace_id, span_id) = (vec![1; 16], vec![id; 8]);
    OtlpSpan { trace_id, span_id, parent_span_id, kind, attributes, ..OtlpSpan::default() }
}

fn batch(resource: Vec<KeyValue>, spans: Vec<OtlpSpan>) -> Spans {
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    let resource = Some(Resource { attributes: resource, ..Resource::default() });
    let resource_spans = vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }];
    read(ExportTraceServiceRequest { resource_spans }.encode_to_vec())
}

fn read(request: Vec<u8>) -> Spans {
    traces::decode(request.into(), &Limits::default()).unwrap().spans
}

fn link(thread: Option<&str>) -> SpanChanges {
    let (thread_id, thread_name) = (thread.map(Arc::from), thread.map(|_| "main".into()));
    SpanChanges {
        profiler: Some(ProfilerLink { profiler_id: ProfilerId::from_hash(7), thread_id, thread_name }),
        sample_rate: None,
    }
}

/// The spans of the only request, as another implementation reads them.
fn written(spans: &Spans) -> Vec<OtlpSpan> {
    let [(request, count)] = &SentrySpans::new(spans, "production").requests()[..] else { panic!("one request") };
    let request = ExportTraceServiceRequest::decode(&request[..]).unwrap();
    let scopes = request.resource_spans.into_iter().flat_map(|of| of.scope_spans);
    let spans: Vec<_> = scopes.flat_map(|of| of.spans).collect();
    assert_eq!(spans.len(), *count);
    spans
}

/// The attributes whose keys Sentry reads, as text with its type. A duplicate key is an error.
fn read_by_sentry(span: &OtlpSpan) -> BTreeMap<&str, String> {
    let mut all = BTreeMap::new();
    for KeyValue { key, value, .. } in &span.attributes {
        if !key.starts_with("sentry.") && !key.starts_with("thread.") {
            continue;
        }
        let value = match value.as_ref().and_then(|value| value.value.clone()) {
            Some(Kind::StringValue(text)) => format!("text {text}"),
            Some(Kind::IntValue(number)) => format!("int {number}"),
            Some(Kind::DoubleValue(number)) => format!("double {number}"),
            other => panic!("{other:?}"),
        };
        assert_eq!(all.insert(&**key, value), None, "{key} is there twice");
    }
    all
}

fn keys<'a>(pairs: &[(&'a str, &str)]) -> BTreeMap<&'a str, String> {
    pairs.iter().map(|(key, value)| (*key, (*value).to_owned())).collect()
}

/// Whether Relay treats the span as the first of its process (facts of `relay-spans`: no parent, or both flags).
fn is_segment(span: &OtlpSpan) -> bool {
    span.parent_span_id.is_empty() || span.flags & 0x300 == 0x300
}

/// Guarantees: each row of the table is applied; a span's own values take precedence, and unknown values are not added.
/// rule: transport#otlp-spans
#[test]
fn table() {
    let resource =
        vec![text("service.name", "shop"), text("service.version", "2"), text("deployment.environment", "qa")];
    let number = |key: &str, number: i64| pair(key, Kind::IntValue(number));
    let mut spans = batch(
        resource,
        vec![
            span(1, Some(9), 2, vec![number("thread.id", 7)]),
            span(
                2,
                Some(1),
                1,
                vec![text("thread.id", "x"), text("sentry.release", "r"), text("sentry.environment", "e")],
            ),
            OtlpSpan { trace_state: "a=1,ot=rv:0;th:c".into(), flags: 0x101, ..span(3, Some(1), 3, Vec::new()) },
            span(4, None, 1, vec![number("thread.id", 8), text("sentry.thread.id", "8"), text("a", "b")]),
            OtlpSpan { flags: 0x301, ..span(5, Some(9), 1, vec![pair("sentry.sample_rate", Kind::DoubleValue(0.5))]) },
            span(6, Some(1), 1, vec![pair("thread.id", Kind::DoubleValue(9.0))]),
            span(7, Some(1), 1, vec![pair("thread.id", Kind::DoubleValue(4.5))]),
        ],
    );
    spans.change(2, |changes| *changes = link(Some("4711")));
    spans.change(3, |changes| *changes = SpanChanges { sample_rate: Some(0.125), ..link(None) });
    let found = written(&spans);
    let id = format!("text {}", ProfilerId::from_hash(7));
    let about = [("sentry.release", "text shop@2"), ("sentry.environment", "text qa")];
    let with = |pairs: &[(&'static str, &str)]| keys(&[&about[..], pairs].concat());
    assert_eq!(read_by_sentry(&found[0]), with(&[("thread.id", "text 7"), ("sentry.thread.id", "text 7")]));
    let own = [("sentry.release", "text r"), ("sentry.environment", "text e")];
    assert_eq!(
        read_by_sentry(&found[1]),
        keys(&[&own[..], &[("thread.id", "text x"), ("sentry.thread.id", "text x")]].concat())
    );
    assert_eq!(
        read_by_sentry(&found[2]),
        with(&[
            ("sentry.profiler_id", &id),
            ("thread.id", "text 4711"),
            ("sentry.thread.id", "text 4711"),
            ("thread.name", "text main"),
            ("sentry.client_sample_rate", "double 0.25"),
        ])
    );
    assert_eq!(
        read_by_sentry(&found[3]),
        with(&[
            ("sentry.profiler_id", &id),
            ("thread.id", "text 8"),
            ("sentry.thread.id", "text 8"),
            ("sentry.client_sample_rate", "double 0.125"),
        ])
    );
    assert_eq!(found[3].attributes[1], text("a", "b"), "what is not replaced stays in its place");
    assert_eq!(
        read_by_sentry(&found[4]),
        with(&[("sentry.sample_rate", "double 0.5"), ("sentry.client_sample_rate", "double 0.5")])
    );
    assert_eq!(read_by_sentry(&found[5]), with(&[("thread.id", "text 9"), ("sentry.thread.id", "text 9")]));
    assert_eq!(read_by_sentry(&found[6]), with(&[("thread.id", "double 4.5")]));
    let segments: Vec<bool> = found.iter().map(is_segment).collect();
    assert_eq!(segments, spans.spans().iter().map(Span::is_local_root).collect::<Vec<_>>());
    assert_eq!(found.iter().map(|span| span.flags).collect::<Vec<_>>(), [0x300, 0, 0x101, 0, 0x301, 0, 0]);
}

/// Guarantees: a client's spans only get what the pipeline found, in the types that Sentry reads; a span without
/// changes keeps its bytes.
#[test]
fn of_clients() {
    let mut spans = read(PYTHON.to_vec());
    spans.client = Some(Arc::new(RequestMeta::default()));
    let before = written(&spans);
    assert_eq!(ExportTraceServiceRequest::decode(PYTHON).unwrap().resource_spans[0].scope_spans[0].spans, before);
    spans.change(2, |changes| *changes = SpanChanges { sample_rate: Some(0.5), ..link(Some("12")) });
    let mut after = written(&spans);
    let id = format!("text {}", ProfilerId::from_hash(7));
    assert_eq!(
        read_by_sentry(&after[2]),
        keys(&[
            ("sentry.profiler_id", &id),
            ("thread.id", "text 12"),
            ("sentry.thread.id", "text 12"),
            ("thread.name", "text main"),
            ("sentry.client_sample_rate", "double 0.5"),
        ])
    );
    after[2]
        .attributes
        .retain(|attribute| !attribute.key.starts_with("sentry.") && !attribute.key.starts_with("thread."));
    assert_eq!(after, before);
}

/// Guarantees: a batch above the limit is split, no request exceeds it, and no span is lost or repeated.
#[test]
fn large() {
    let filler = "x".repeat(1 << 20);
    let spans = (1..=25).map(|id| span(id, None, 2, vec![text("filler", &filler)])).collect();
    let spans = batch(vec![text("service.name", "shop")], spans);
    let requests = SentrySpans::new(&spans, "production").requests();
    assert!(requests.iter().all(|(request, _)| request.len() <= MAX_BYTES), "{}", requests.len());
    let ids = requests
        .into_iter()
        .flat_map(|(request, _)| read(request).spans().iter().map(|span| span.span_id).collect::<Vec<_>>());
    assert_eq!(ids.collect::<Vec<_>>(), spans.spans().iter().map(|span| span.span_id).collect::<Vec<_>>());
}

/// Guarantees: the threshold of OpenTelemetry's samplers becomes a rate; anything else becomes none.
#[test]
fn thresholds() {
    for (state, rate) in [
        ("ot=th:0", Some(1.0)),
        ("ot=th:8", Some(0.5)),
        ("vendor=x, ot=rv:abcdef;th:c000", Some(0.25)),
        ("ot=th:ffffffffffffff", Some(1.0 / (1_u64 << 56) as f64)),
        ("ot=th:fffffffffffffff", None),
        ("ot=th:", None),
        ("ot=th:+8", None),
        ("ot=th:x", None),
        ("ot=rv:8", None),
        ("xot=th:8", None),
        ("", None),
    ] {
        assert_eq!(threshold_rate(state), rate, "{state}");
    }
}
