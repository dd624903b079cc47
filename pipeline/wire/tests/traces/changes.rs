//! Changes to spans are written as OTLP attributes.

use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value as Any};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, span::Event};
use profbridge_model::ProfilerId;
use profbridge_model::spans::{ProfilerLink, SpanChanges};
use profbridge_wire::otlp::traces::{encode, encode_within};
use proptest::prelude::*;
use prost::Message as _;

use crate::attributes::{int, pair, text, texts, value_of};
use crate::scramble::field;
use crate::traces::arbitrary::requests;
use crate::traces::oracle::{flat, read};

const REPLACED: [&str; 4] = ["sentry.profiler_id", "thread.id", "thread.name", "sentry.sample_rate"];

fn link(thread_id: &str) -> ProfilerLink {
    let profiler_id = ProfilerId::from_uuid(uuid::Uuid::from_u128(0x0011_2233_4455_4677_8899_aabb_ccdd_eeff));
    ProfilerLink { profiler_id, thread_id: Some(thread_id.into()), thread_name: Some("worker".into()) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Guarantees: attributes of a linked and sampled span replace attributes with the same keys; everything else in
    /// this span and in others is unchanged. Attributes added to a resource follow its own. The length is known before
    /// writing.
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
            resource.attributes.push(pair("host.id", text("7f")));
            if changed(position) {
                span.attributes.retain(|attribute| !REPLACED.contains(&&*attribute.key));
                let id = if numeric { int(17) } else { text("main") };
                span.attributes.extend([
                    pair("sentry.profiler_id", text("00112233445546778899aabbccddeeff")),
                    pair("thread.id", id),
                    pair("thread.name", text("worker")),
                    pair("sentry.sample_rate", value_of(Any::DoubleValue(rate))),
                ]);
            }
        }
        prop_assert_eq!(flat(&ExportTraceServiceRequest::decode(&*written).unwrap()), expected);
    }
}

/// Guarantees: a span from a span container of Sentry is recognized by its attribute, whatever the order of the encoded
/// fields; an attribute with another value or key, or an attribute of an event, does not count.
#[test]
fn streamed_spans_are_known() {
    let is_streamed = |attributes: Vec<KeyValue>| {
        let event = Event { attributes: texts(&[("sentry.form", "span_v2")]), ..Default::default() };
        let span =
            Span { trace_id: vec![7; 16], span_id: vec![8; 8], attributes, events: vec![event], ..Default::default() };
        let scope_spans = vec![ScopeSpans { spans: vec![span], ..Default::default() }];
        let resource_spans = vec![ResourceSpans { scope_spans, ..Default::default() }];
        read(&ExportTraceServiceRequest { resource_spans }).spans()[0].is_streamed
    };
    assert!(is_streamed(texts(&[("sentry.form", "span_v2")])));
    assert!(is_streamed(texts(&[("a", "b"), ("sentry.form", "span_v2"), ("c", "d")])));
    for other in [("sentry.form", "span"), ("sentry.form", "span_v3"), ("sentry.fork", "span_v2")] {
        assert!(!is_streamed(texts(&[other])));
    }
    assert!(!is_streamed(vec![pair("sentry.form", value_of(Any::BytesValue(b"span_v2".to_vec())))]));
    // The value before the key, which protobuf allows.
    let turned = [field(2, &field(1, b"span_v2")), field(1, b"sentry.form")].concat();
    let span = [field(1, &[7; 16]), field(2, &[8; 8]), field(9, &turned)].concat();
    let request = field(1, &field(2, &field(2, &span)));
    let spans = profbridge_wire::otlp::traces::decode(request.into(), &Default::default()).unwrap();
    assert!(spans.refused_spans == 0 && spans.spans.spans()[0].is_streamed);
}
