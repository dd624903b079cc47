use std::collections::BTreeMap;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as OtlpSpan};
use profbridge_model::{Envelope, ItemView, Quantities};
use profbridge_net::compression::Compression;
use profbridge_wire::otlp::{Limits, traces};
use profbridge_wire::sentry::chunk::Settings;
use profbridge_wire::sentry::envelope::{self, ItemHeader};
use profbridge_wire::sentry::{Dsn, span_items};
use proptest::prelude::*;
use prost::Message as _;
use serde_json::{Map, Value, json};

use super::*;
use crate::message::Encoded;
use crate::otlp;
use crate::sentry::{EnvelopeEncoder, SpanEnvelope, SpanEnvelopeForm, TransactionTarget};

/// An SDK's envelope of one container with its spans read, as the receiver delivers it.
fn received(text: impl Into<Bytes>) -> Envelope {
    let mut envelope = envelope::read(text.into()).unwrap().envelope;
    let read = span_items::read_items(&envelope).map(|(item, read)| ItemView::spans(item, read.unwrap().spans));
    envelope.views = read.collect();
    envelope
}

fn container(spans: &[Value]) -> Envelope {
    let header =
        json!({"type": "span", "item_count": spans.len(), "content_type": "application/vnd.sentry.items.span.v2+json"});
    received(format!("{{}}\n{header}\n{}\n", json!({"version": 2, "items": spans})))
}

/// The spans of all containers as another program sends them: re-encoded in one request.
fn over_otlp(envelopes: Vec<Envelope>) -> Spans {
    let mut request = ExportTraceServiceRequest::default();
    for envelope in envelopes {
        let encoded = otlp::OtlpEncoder::new(otlp::EncoderOptions::plain(64 << 20)).encode(&envelope.into());
        for message in encoded.messages {
            request.resource_spans.extend(ExportTraceServiceRequest::decode(message.body).unwrap().resource_spans);
        }
    }
    let limits = Limits { max_request: 64 << 20, ..Limits::default() };
    let decoded = traces::decode(request.encode_to_vec().into(), &limits).unwrap();
    assert_eq!(decoded.refused_spans, 0);
    decoded.spans
}

const KEY: &str = "0123456789abcdef0123456789abcdef";

fn encoded(spans: &Spans) -> Encoded<SpanEnvelope> {
    let dsn: Dsn = format!("http://{KEY}@localhost/1").parse().unwrap();
    let target = TransactionTarget { number: 3, dsn: Some(&dsn), compression: Compression::None };
    EnvelopeEncoder::new(Settings::default()).spans(spans, |_| Some(target))
}

/// The header of an envelope, and the spans of its only item. Asserts that the item's header matches.
fn sent(body: &Bytes) -> (Value, Vec<Value>) {
    let envelope = envelope::read(body.clone()).unwrap().envelope;
    let [item] = &envelope.items[..] else { panic!("one item") };
    let Value::Object(mut container) = serde_json::from_slice(item.payload.plain().unwrap()).unwrap() else {
        panic!("an object")
    };
    assert_eq!((container["version"].as_u64(), container.len()), (Some(2), 2));
    let Some(Value::Array(spans)) = container.remove("items") else { panic!("a list") };
    let header = ItemHeader::read(&item.header).unwrap();
    assert_eq!((&*header.kind, header.item_count), ("span", Some(spans.len() as u64)));
    assert_eq!(header.content_type.as_deref(), Some("application/vnd.sentry.items.span.v2+json"));
    (serde_json::from_slice(&envelope.header).unwrap(), spans)
}

/// A span without its times, and the times, which are only exact to a microsecond.
fn timeless(span: &Value) -> (Value, [u64; 2]) {
    let mut span = span.clone();
    let times = ["start_timestamp", "end_timestamp"].map(|key| {
        let seconds = std::mem::take(&mut span[key]).as_f64().unwrap();
        (seconds * 1e5).round() as u64
    });
    (span, times)
}

/// Guarantees: a container of Node's SDK is unchanged after conversion to OTLP and back, in an envelope with its trace,
/// release and environment.
#[test]
fn a_real_container_comes_back() {
    const TEXT: &str = include_str!("../../../../wire/testdata/sentry/node-11.1-span.envelope");
    let came: Value = serde_json::from_str(TEXT.lines().nth(2).unwrap()).unwrap();
    let Encoded { messages, report } = encoded(&over_otlp(vec![received(TEXT)]));
    let [message] = &messages[..] else { panic!("{report:?}") };
    let SpanEnvelope { target, form, spans, .. } = message.meta;
    assert_eq!((target, form, spans), (3, SpanEnvelopeForm::Container, 2));
    assert_eq!((message.quantities, report.losses.is_none()), (Quantities::spans(2), true));
    let (header, spans) = sent(&message.body);
    let list = came["items"].as_array().unwrap();
    assert_eq!(
        spans.iter().map(timeless).collect::<Vec<_>>(),
        list.iter().map(timeless).collect::<Vec<_>>(),
        "times are the same to some microseconds"
    );
    let expected = json!({
        "trace_id": list[0]["trace_id"], "public_key": KEY, "sampled": "true",
        "sample_rate": "1", "release": "demo-node@1.2.3", "environment": "test",
    });
    assert_eq!(header["trace"], expected);
    assert_eq!((header["sdk"]["name"].as_str(), header.get("event_id")), (Some("profbridge.rust"), None));
}

fn span(trace: u8, id: u64, release: &str, more: &Map<String, Value>) -> Value {
    let mut attributes = more.clone();
    attributes.insert("sentry.release".to_owned(), json!({"value": release, "type": "string"}));
    let mut span = json!({
        "trace_id": format!("{trace:032x}"), "span_id": format!("{id:016x}"), "name": format!("span {id}"),
        "start_timestamp": 1_790_000_000.25, "end_timestamp": 1_790_000_000.5 + id as f64,
        "is_segment": id.is_multiple_of(3), "status": "ok", "attributes": attributes,
    });
    if !id.is_multiple_of(3) {
        span["parent_span_id"] = "ffffffffffffffff".into();
    }
    span
}

proptest! {
    /// Guarantees: spans of containers that another program merged into one request, mixed with other spans, return
    /// unchanged, each once, in containers of one trace and process each; only the other spans are unroutable.
    /// rule: transport#span-containers
    #[test]
    fn any_containers_come_back(
        containers in prop::collection::vec((1u8..4, 0usize..2, 1usize..6, "[a-z\"\\\\é]{0,4}"), 0..6),
        others in 0usize..3,
        turn in any::<usize>(),
    ) {
        let mut expected = BTreeMap::new();
        let mut id = 0;
        let envelopes = containers.iter().map(|(trace, release, count, text)| {
            let more = json!({"a": {"value": text, "type": "string"}, "n": {"value": count, "type": "integer"}});
            let spans = (0..*count).map(|_| {
                id += 1;
                span(*trace, id, ["shop@1", "stock@2"][*release], more.as_object().unwrap())
            });
            let spans: Vec<Value> = spans.collect();
            expected.extend(spans.iter().map(|span| (span["span_id"].as_str().unwrap().to_owned(), timeless(span))));
            container(&spans)
        });
        let envelopes: Vec<Envelope> = envelopes.collect();
        let read = over_otlp(envelopes);
        prop_assert!(read.spans().iter().all(|span| span.is_streamed));
        let mut spans = read.spans().to_vec();
        let turn = turn % spans.len().max(1);
        spans.rotate_left(turn);
        let strangers = spans.iter().take(others).map(|span| Span { is_streamed: false, ..span.clone() });
        let strangers: Vec<Span> = strangers.collect();
        let lost = strangers.len() as u64;
        let at = spans.len() / 2;
        spans.splice(at..at, strangers);
        let (resources, scopes) = (read.resources().to_vec(), read.scopes().to_vec());
        let spans = Spans::new(read.form(), read.bytes().clone(), resources, scopes, spans, false).unwrap();
        let Encoded { messages, report } = encoded(&spans);
        prop_assert_eq!(report.losses.get(Reason::Unroutable), Quantities::spans(lost));
        let mut found = BTreeMap::new();
        for message in &messages {
            let (header, spans) = sent(&message.body);
            prop_assert_eq!(message.quantities, Quantities::spans(spans.len() as u64));
            for span in spans {
                prop_assert_eq!(&span["trace_id"], &header["trace"]["trace_id"]);
                prop_assert_eq!(&span["attributes"]["sentry.release"]["value"], &header["trace"]["release"]);
                let before = found.insert(span["span_id"].as_str().unwrap().to_owned(), timeless(&span));
                prop_assert!(before.is_none());
            }
        }
        prop_assert_eq!(found, expected);
    }
}

/// Guarantees: values that Sentry cannot represent are left out of containers and counted.
#[test]
fn values_left_out() {
    let value = Some(AnyValue { value: Some(any_value::Value::DoubleValue(f64::NAN)) });
    let attributes = vec![KeyValue { key: "nan".to_owned(), value, ..KeyValue::default() }];
    let span = |id| OtlpSpan {
        trace_id: vec![1; 16],
        span_id: vec![id; 8],
        attributes: attributes.clone(),
        ..OtlpSpan::default()
    };
    let scope_spans = vec![ScopeSpans { spans: vec![span(1), span(2)], ..ScopeSpans::default() }];
    let resource_spans = vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }];
    let request = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
    let spans = traces::decode(request.into(), &Limits::default()).unwrap().spans;
    let target = TransactionTarget { number: 0, dsn: None, compression: Compression::None };
    let encoded = EnvelopeEncoder::new(Settings::default()).streamed_spans(&spans, |_| Some(target));
    assert_eq!((encoded.messages.len(), encoded.report.notes), (1, vec![("invalid_span_values", 2)]));
    let (_, spans) = sent(&encoded.messages[0].body);
    assert!(spans.iter().all(|span| span["attributes"].get("nan").is_none()), "{spans:?}");
}

/// Attack: more spans of a trace than fit into a container, and spans of which two exceed the size limit.
/// Guarantees: containers have at most 1000 spans and 10 MiB, and no span is lost.
/// rule: transport#span-containers
#[test]
fn limits() {
    let none = Map::new();
    let many: Vec<Value> = (1..=2500).map(|id| span(1, id, "shop@1", &none)).collect();
    let counts = |spans: &Spans| encoded(spans).messages.iter().map(|message| message.meta.spans).collect::<Vec<_>>();
    assert_eq!(counts(&over_otlp(vec![container(&many)])), [1000, 1000, 500]);

    let text = |bytes: usize| json!({"a": {"value": "x".repeat(bytes), "type": "string"}});
    let large = |id, mib: usize| span(1, id, "shop@1", text(mib << 20).as_object().unwrap());
    let read = over_otlp((1..=3).map(|id| container(&[large(id, 4)])).collect());
    let of_one_process = read.spans().iter().map(|span| Span { scope: 0, ..span.clone() }).collect();
    let (resources, scopes) = (read.resources().to_vec(), read.scopes().to_vec());
    let read = Spans::new(read.form(), read.bytes().clone(), resources, scopes, of_one_process, false).unwrap();
    assert_eq!(counts(&read), [1, 2]);
}
