//! What is found out about spans is written in OTLP's words.

use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value as Any};
use profbridge_model::ProfilerId;
use profbridge_model::spans::{ProfilerLink, SpanChanges};
use profbridge_wire::otlp::traces::{encode, encoded_len};
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

    /// Guarantees: a span that was linked and thinned says so by attributes, in the place of those that it had under the
    /// same keys, and everything else of it and of all others stays as it was. A resource that was given attributes has
    /// them behind its own.
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
        prop_assert!(written.len() <= encoded_len(&spans));
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
