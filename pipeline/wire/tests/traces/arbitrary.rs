//! Arbitrary valid requests with spans.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList, any_value,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// Requests whose spans all have ids and do not end before they start.
pub(crate) fn requests() -> impl Strategy<Value = ExportTraceServiceRequest> {
    vec(resource_spans(), 0..4).prop_map(|resource_spans| ExportTraceServiceRequest { resource_spans })
}

fn resource_spans() -> impl Strategy<Value = ResourceSpans> {
    let resource = (attributes(), any::<u32>()).prop_map(|(attributes, dropped_attributes_count)| Resource {
        attributes,
        dropped_attributes_count,
        entity_refs: Vec::new(),
    });
    (option::of(resource), vec(scope_spans(), 0..4), text())
        .prop_map(|(resource, scope_spans, schema_url)| ResourceSpans { resource, scope_spans, schema_url })
}

fn scope_spans() -> impl Strategy<Value = ScopeSpans> {
    let scope = (text(), text(), attributes(), any::<u32>()).prop_map(
        |(name, version, attributes, dropped_attributes_count)| InstrumentationScope {
            name,
            version,
            attributes,
            dropped_attributes_count,
        },
    );
    (option::of(scope), vec(span(), 0..5), text()).prop_map(|(scope, spans, schema_url)| ScopeSpans {
        scope,
        spans,
        schema_url,
    })
}

fn span() -> impl Strategy<Value = Span> {
    let ids = (vec(1u8..=255, 16), vec(1u8..=127, 8), option::of(vec(128u8..=255, 8)), text(), any::<u32>());
    let times = (any::<u64>(), any::<u64>()).prop_map(|(one, other)| (one.min(other), one.max(other)));
    let parts = (attributes(), vec(event(), 0..3), vec(link(), 0..3), option::of(status()));
    (ids, text(), -1..7i32, times, parts, any::<[u32; 3]>()).prop_map(
        |((trace_id, span_id, parent, trace_state, flags), name, kind, (start, end), parts, dropped)| {
            let (attributes, events, links, status) = parts;
            Span {
                trace_id,
                span_id,
                trace_state,
                parent_span_id: parent.unwrap_or_default(),
                flags,
                name,
                kind,
                start_time_unix_nano: start,
                end_time_unix_nano: end,
                attributes,
                dropped_attributes_count: dropped[0],
                events,
                dropped_events_count: dropped[1],
                links,
                dropped_links_count: dropped[2],
                status,
            }
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    (any::<u64>(), text(), attributes(), any::<u32>()).prop_map(
        |(time_unix_nano, name, attributes, dropped_attributes_count)| Event {
            time_unix_nano,
            name,
            attributes,
            dropped_attributes_count,
        },
    )
}

fn link() -> impl Strategy<Value = Link> {
    (vec(any::<u8>(), 0..20), vec(any::<u8>(), 0..9), text(), attributes(), any::<[u32; 2]>()).prop_map(
        |(trace_id, span_id, trace_state, attributes, [dropped_attributes_count, flags])| Link {
            trace_id,
            span_id,
            trace_state,
            attributes,
            dropped_attributes_count,
            flags,
        },
    )
}

fn status() -> impl Strategy<Value = Status> {
    (text(), 0..3i32).prop_map(|(message, code)| Status { message, code })
}

pub(crate) fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z]{1,6}", "\\PC{1,5}"]
}

fn attributes() -> impl Strategy<Value = Vec<KeyValue>> {
    let known = proptest::sample::select(&["thread.id", "sentry.profiler_id", "host.name"][..]).prop_map(str::to_owned);
    let one = (prop_oneof![3 => known, 1 => text()], option::of(any_values(false)));
    vec(one.prop_map(|(key, value)| KeyValue { key, value, key_strindex: 0 }), 0..5)
}

/// Attribute values; if `references`, some refer to a string table of any length.
pub(crate) fn any_values(references: bool) -> impl Strategy<Value = AnyValue> {
    use any_value::Value as Any;
    let leaf = prop_oneof![
        Just(None),
        text().prop_map(|text| Some(Any::StringValue(text))),
        any::<bool>().prop_map(|flag| Some(Any::BoolValue(flag))),
        any::<i64>().prop_map(|number| Some(Any::IntValue(number))),
        (-1e9..1e9f64).prop_map(|number| Some(Any::DoubleValue(number))),
        vec(any::<u8>(), 0..4).prop_map(|bytes| Some(Any::BytesValue(bytes))),
        (0..1000).prop_map(move |index| references.then_some(Any::StringValueStrindex(index))),
    ];
    leaf.prop_map(|value| AnyValue { value }).prop_recursive(4, 12, 3, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(|values| Some(Any::ArrayValue(ArrayValue { values }))),
            vec(key_value(inner, references), 0..3).prop_map(|values| Some(Any::KvlistValue(KeyValueList { values }))),
        ]
        .prop_map(|value| AnyValue { value })
    })
}

/// An attribute; if `references`, some keys refer to a string table of any length.
pub(crate) fn key_value(value: impl Strategy<Value = AnyValue>, references: bool) -> impl Strategy<Value = KeyValue> {
    let index = (0..1000).prop_map(move |index| if references { index } else { 0 });
    let key = prop_oneof![text().prop_map(|key| (key, 0)), index.prop_map(|index| (String::new(), index))];
    (key, option::of(value)).prop_map(|((key, key_strindex), value)| KeyValue { key, value, key_strindex })
}
