//! Test helpers: spans and profiles, and reading the output.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as ProtoSpan};
use profbridge_engine::component::Outbox;
use profbridge_engine::config::Section;
use profbridge_identity::Rules;
use profbridge_model::{Reason, SampledOut, SampledOutOrigin, Spans, Telemetry};
use profbridge_processor_sample::{Config, SampleProcessor};
pub(crate) use profbridge_testkit::{
    SECOND as S, START_UNIX_NANO as T, advance, at, flush, note as noted, process, sent_profiles as profiles,
};
use profbridge_wire::otlp::Limits;
use profbridge_wire::otlp::traces::decode;
use profbridge_wire::otlp::traces::read::resource_attributes;
use prost::Message;

/// W3C's sampled flag, and OTLP's flags for a parent in another process.
pub(crate) const SAMPLED: u32 = 1;
pub(crate) const REMOTE: u32 = 0x300;

/// A processor configured in YAML.
pub(crate) fn sample(yaml: &str) -> SampleProcessor {
    sample_with(yaml, &Rules::default())
}

pub(crate) fn sample_with(yaml: &str, identity: &Rules) -> SampleProcessor {
    let section = Section::from_yaml(yaml).unwrap();
    SampleProcessor::new(&section.extract::<Config>().unwrap().check(&section).unwrap(), identity)
}

pub(crate) fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, any_value::Value::StringValue(value.to_owned()))
}

pub(crate) fn int(key: &str, value: i64) -> KeyValue {
    attribute(key, any_value::Value::IntValue(value))
}

pub(crate) fn bool(key: &str, value: bool) -> KeyValue {
    attribute(key, any_value::Value::BoolValue(value))
}

pub(crate) fn double(key: &str, value: f64) -> KeyValue {
    attribute(key, any_value::Value::DoubleValue(value))
}

fn attribute(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// The id of trace `number`.
pub(crate) fn trace_id(trace: u64) -> Vec<u8> {
    (u128::from(trace) + 1).to_be_bytes().to_vec()
}

/// A span of a trace, given by their numbers, with the number of its parent; 0 means none.
pub(crate) fn span(trace: u64, id: u64, parent: u64) -> ProtoSpan {
    let parent_span_id = if parent == 0 { Vec::new() } else { parent.to_be_bytes().to_vec() };
    ProtoSpan {
        trace_id: trace_id(trace),
        span_id: id.to_be_bytes().to_vec(),
        parent_span_id,
        name: format!("span {id}"),
        start_time_unix_nano: T,
        end_time_unix_nano: T + S,
        ..ProtoSpan::default()
    }
}

/// A request with these spans, of a resource with these attributes.
pub(crate) fn batch(spans: Vec<ProtoSpan>, resource: Vec<KeyValue>) -> Spans {
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    let resource = Some(Resource { attributes: resource, ..Resource::default() });
    let resource_spans = vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }];
    let request = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
    let decoded = decode(Bytes::from(request), &Limits::default()).unwrap();
    assert_eq!(decoded.refused_spans, 0);
    decoded.spans
}

/// A request of a process that can be identified.
pub(crate) fn of_process(spans: Vec<ProtoSpan>) -> Spans {
    batch(spans, vec![text("container.id", "c1"), int("process.pid", 7), text("service.name", "shop")])
}

/// All sent spans: last byte of the trace id minus one, span number, and rate.
pub(crate) fn left(out: &Outbox) -> Vec<(u64, u64, Option<f64>)> {
    let batches = out.telemetry.iter().filter_map(|telemetry| match telemetry {
        Telemetry::Spans(spans) => Some(spans),
        _ => None,
    });
    let mut left: Vec<_> = batches
        .flat_map(Spans::spans)
        .map(|span| {
            let trace = u128::from_be_bytes(*span.trace_id.bytes()) as u64 - 1;
            let rate = span.changes.as_ref().and_then(|changes| changes.sample_rate);
            (trace, u64::from_be_bytes(*span.span_id.bytes()), rate)
        })
        .collect();
    left.sort_by_key(|(trace, span, _)| (*trace, *span));
    left
}

/// The numbers of the sent spans.
pub(crate) fn ids(out: &Outbox) -> Vec<u64> {
    left(out).into_iter().map(|(_, span, _)| span).collect()
}

/// The number of dropped spans.
pub(crate) fn dropped(out: &Outbox) -> u64 {
    out.losses.get(Reason::SampleRate).spans
}

/// The reported counts: `service.name` of each process, with numbers of transactions and spans.
pub(crate) fn reported_counts(out: &Outbox) -> Vec<(String, u64, u64)> {
    let of = |said: &SampledOut| {
        let SampledOutOrigin::Process(spans) = &said.whose else { panic!("{said:?}") };
        let [resource] = spans.resources() else { panic!("{said:?}") };
        assert!(spans.is_empty());
        let name = resource_attributes(spans, resource)
            .find_map(|(key, value)| Some(value.text()?).filter(|_| key == "service.name"));
        assert_eq!((said.counts.profiles, said.counts.attachment_bytes), (0, 0));
        (name.unwrap_or_default().to_owned(), said.counts.transactions, said.counts.spans)
    };
    out.sampled_out.iter().map(of).collect()
}
