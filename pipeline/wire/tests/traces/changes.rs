//! What is found out about spans is written in OTLP's words.

use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value as Any};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, span::Event};
use profbridge_model::ProfilerId;
use profbridge_model::spans::{ProfilerLink, SpanChanges};
use profbridge_wire::otlp::traces::{encode, encode_within};
use proptest::prelude::*;
use prost::Message as _;

use crate::arbitrary::requests;
use crate::oracle::{flat, read};

const REPLACED: [&str; 4] = ["sentry.profiler_id", "thread.id", "thread.name", "sentry.sample_rate"];

fn link(thread_id: &str) -> ProfilerLink {
    let profiler_id = ProfilerId::from_uuid(uuid::Uuid::from_u128(0x0011_2233_4455_4677_8899_aabb_ccdd_eeff));
    ProfilerLink { profiler_id, thread_id: Some(thread_id.into()), thread_name: Some("worker".into()) }
}

fn pair(key: &str, value: Any) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), key_strindex: 0 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Guarantees: a span that was linked and thinned says so by attributes, in the place of those that it had under
    /// the same keys, and everything else of it and of all others stays as it was. A resource that was given attributes
    /// has them behind its own. How long that is, is known before it is written.
    #[test]
    fn changes_are_attributes(request in requests(), which in any::<u64>(), rate in 0.0..=1.0f64, numeric in any::<bool>()) {
        let mut spans = read(&request);
        let changed = |position: usize| which >> (position % 64) & 1 == 1;
        let thread = if numeric { "17" } else { "main" };
        for position in (0..spans.spans().len()).filter(|position| changed(*position)) {
            spans.change(position, |changes| {
                *changes = SpanChanges { profiler: Some(link(thread)), sample_rate: Some(rate) };
            });
        }
        for resource in 0..spans.resources().len() {
            spans.add_to_resource(resource, Arc::from("host.id"), Arc::from("7f"));
        }
        let written = encode(&spans);
        prop_assert_eq!(encode_within(&spans, written.len()), Some(written.clone()));
        prop_assert!(written.is_empty() || encode_within(&spans, written.len() - 1).is_none());
        let mut expected = flat(&request);
        for (position, (resource, _, span)) in expected.iter_mut().enumerate() {
            let resource = resource.resource.get_or_insert_default();
            resource.attributes.push(pair("host.id", Any::StringValue("7f".to_owned())));
            if changed(position) {
                span.attributes.retain(|attribute| !REPLACED.contains(&&*attribute.key));
                let id = if numeric { Any::IntValue(17) } else { Any::StringValue("main".to_owned()) };
                span.attributes.extend([
                    pair("sentry.profiler_id", Any::StringValue("00112233445546778899aabbccddeeff".to_owned())),
                    pair("thread.id", id),
                    pair("thread.name", Any::StringValue("worker".to_owned())),
                    pair("sentry.sample_rate", Any::DoubleValue(rate)),
                ]);
            }
        }
        prop_assert_eq!(flat(&ExportTraceServiceRequest::decode(&*written).unwrap()), expected);
    }
}

/// Guarantees: a span that was one of a container of Sentry's is known by its attribute, whoever writes it and in
/// whatever order; an attribute of another value, of another key or of an event's is none.
#[test]
fn streamed_spans_are_known() {
    let is_streamed = |attributes: Vec<KeyValue>| {
        let event = Event {
            attributes: vec![pair("sentry.form", Any::StringValue("span_v2".to_owned()))],
            ..Default::default()
        };
        let span =
            Span { trace_id: vec![7; 16], span_id: vec![8; 8], attributes, events: vec![event], ..Default::default() };
        let scope_spans = vec![ScopeSpans { spans: vec![span], ..Default::default() }];
        let resource_spans = vec![ResourceSpans { scope_spans, ..Default::default() }];
        read(&ExportTraceServiceRequest { resource_spans }).spans()[0].is_streamed
    };
    let text = |key: &str, value: &str| pair(key, Any::StringValue(value.to_owned()));
    assert!(is_streamed(vec![text("sentry.form", "span_v2")]));
    assert!(is_streamed(vec![text("a", "b"), text("sentry.form", "span_v2"), text("c", "d")]));
    for other in [
        text("sentry.form", "span"),
        text("sentry.form", "span_v3"),
        text("sentry.fork", "span_v2"),
        pair("sentry.form", Any::BytesValue(b"span_v2".to_vec())),
    ] {
        assert!(!is_streamed(vec![other]));
    }
    // The value before the key, as protobuf allows it.
    let mut request = vec![];
    for (key, part) in [(0x12_u8, &b"\x0a\x07span_v2"[..]), (0x0a, b"sentry.form")] {
        request.extend([key, part.len() as u8]);
        request.extend(part);
    }
    for key in [0x4a_u8, 0x12, 0x12, 0x0a] {
        let ids = [&[0x0a, 16][..], &[7; 16], &[0x12, 8], &[8; 8]].concat();
        let prefix = [key, request.len() as u8];
        request.splice(..0, prefix);
        if key == 0x4a {
            request.splice(..0, ids);
        }
    }
    let spans = profbridge_wire::otlp::traces::decode(request.into(), &Default::default()).unwrap();
    assert!(spans.refused_spans == 0 && spans.spans.spans()[0].is_streamed);
}
