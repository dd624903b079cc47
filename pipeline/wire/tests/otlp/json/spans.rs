//! Spans as prost reads them (opentelemetry-proto `trace/v1/trace.proto`), and as JSON.

use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use super::text::{Style, key_value, resource, scope};

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Request {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
    #[prost(string, tag = "3")]
    schema_url: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
    #[prost(string, tag = "3")]
    schema_url: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "10")]
    dropped_attributes_count: u32,
    #[prost(message, repeated, tag = "11")]
    events: Vec<Event>,
    #[prost(uint32, tag = "12")]
    dropped_events_count: u32,
    #[prost(message, repeated, tag = "13")]
    links: Vec<Link>,
    #[prost(uint32, tag = "14")]
    dropped_links_count: u32,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Event {
    #[prost(fixed64, tag = "1")]
    time_unix_nano: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(message, repeated, tag = "3")]
    attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "4")]
    dropped_attributes_count: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Link {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    trace_state: String,
    #[prost(message, repeated, tag = "4")]
    attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "5")]
    dropped_attributes_count: u32,
    #[prost(fixed32, tag = "6")]
    flags: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

pub(super) fn requests() -> impl Strategy<Value = Request> {
    let spans = vec(span(), 0..4);
    let scope = option::of(("[a-z]{0,3}", attributes())).prop_map(|scope| {
        scope.map(|(name, attributes)| InstrumentationScope { name, attributes, ..InstrumentationScope::default() })
    });
    let scopes = (scope, spans, "[a-z]{0,2}");
    let scopes = scopes.prop_map(|(scope, spans, schema_url)| ScopeSpans { scope, spans, schema_url });
    let resource = option::of(attributes())
        .prop_map(|attributes| attributes.map(|attributes| Resource { attributes, ..Resource::default() }));
    let resources = (resource, vec(scopes, 0..3), "[a-z]{0,2}");
    let resources =
        resources.prop_map(|(resource, scope_spans, schema_url)| ResourceSpans { resource, scope_spans, schema_url });
    vec(resources, 0..3).prop_map(|resource_spans| Request { resource_spans })
}

fn attributes() -> impl Strategy<Value = Vec<KeyValue>> {
    let value = prop_oneof![
        "\\PC{0,5}".prop_map(any_value::Value::StringValue),
        any::<i64>().prop_map(any_value::Value::IntValue),
        any::<f64>().prop_filter("equal to itself", |value| !value.is_nan()).prop_map(any_value::Value::DoubleValue),
    ];
    let one = ("[a-z.]{0,5}", value).prop_map(|(key, value)| KeyValue {
        key,
        value: Some(AnyValue { value: Some(value) }),
        key_strindex: 0,
    });
    vec(one, 0..3)
}

fn id(len: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![Just(Vec::new()), vec(any::<u8>(), len)]
}

fn count() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), any::<u32>()]
}

fn span() -> impl Strategy<Value = Span> {
    let event = (any::<u64>(), "[a-z]{0,3}", attributes(), count()).prop_map(
        |(time_unix_nano, name, attributes, dropped_attributes_count)| Event {
            time_unix_nano,
            name,
            attributes,
            dropped_attributes_count,
        },
    );
    let link = (id(16), id(8), "[a-z]{0,3}", attributes(), count(), count()).prop_map(
        |(trace_id, span_id, trace_state, attributes, dropped_attributes_count, flags)| Link {
            trace_id,
            span_id,
            trace_state,
            attributes,
            dropped_attributes_count,
            flags,
        },
    );
    let status = ("[a-z]{0,3}", 0..3).prop_map(|(message, code)| Status { message, code });
    let ids = (id(16), id(8), id(8), "[a-z=]{0,5}", count());
    let times = (any::<u64>(), any::<u64>(), 0..6, "\\PC{0,5}");
    let lists = (attributes(), vec(event, 0..3), vec(link, 0..3), option::of(status), any::<[u32; 3]>());
    (ids, times, lists).prop_map(|(ids, times, lists)| Span {
        trace_id: ids.0,
        span_id: ids.1,
        trace_state: ids.3,
        parent_span_id: ids.2,
        flags: ids.4,
        name: times.3,
        kind: times.2,
        start_time_unix_nano: times.0,
        end_time_unix_nano: times.1,
        attributes: lists.0,
        dropped_attributes_count: lists.4[0],
        events: lists.1,
        dropped_events_count: lists.4[1],
        links: lists.2,
        dropped_links_count: lists.4[2],
        status: lists.3,
    })
}

pub(super) fn request(style: &mut Style, of: &Request) -> Value {
    let fields = [("resource_spans", style.each(&of.resource_spans, resource_spans))];
    style.object(fields)
}

fn resource_spans(style: &mut Style, of: &ResourceSpans) -> Value {
    let fields = [
        ("resource", of.resource.as_ref().map(|of| resource(style, of))),
        ("scope_spans", style.each(&of.scope_spans, scope_spans)),
        ("schema_url", style.text(&of.schema_url)),
    ];
    style.object(fields)
}

fn scope_spans(style: &mut Style, of: &ScopeSpans) -> Value {
    let fields = [
        ("scope", of.scope.as_ref().map(|of| scope(style, of))),
        ("spans", style.each(&of.spans, as_json)),
        ("schema_url", style.text(&of.schema_url)),
    ];
    style.object(fields)
}

/// The name of a number, by chance.
fn named(style: &mut Style, names: &[&'static str], number: i32) -> Option<Value> {
    if style.way(4) == 3 { Some(names[number as usize].into()) } else { style.small(number) }
}

fn as_json(style: &mut Style, of: &Span) -> Value {
    const KINDS: [&str; 6] = [
        "SPAN_KIND_UNSPECIFIED",
        "SPAN_KIND_INTERNAL",
        "SPAN_KIND_SERVER",
        "SPAN_KIND_CLIENT",
        "SPAN_KIND_PRODUCER",
        "SPAN_KIND_CONSUMER",
    ];
    let fields = [
        ("trace_id", style.id(&of.trace_id)),
        ("span_id", style.id(&of.span_id)),
        ("trace_state", style.text(&of.trace_state)),
        ("parent_span_id", style.id(&of.parent_span_id)),
        ("flags", style.small(of.flags)),
        ("name", style.text(&of.name)),
        ("kind", named(style, &KINDS, of.kind)),
        ("start_time_unix_nano", style.large(of.start_time_unix_nano)),
        ("end_time_unix_nano", style.large(of.end_time_unix_nano)),
        ("attributes", style.each(&of.attributes, key_value)),
        ("dropped_attributes_count", style.small(of.dropped_attributes_count)),
        ("events", style.each(&of.events, event)),
        ("dropped_events_count", style.small(of.dropped_events_count)),
        ("links", style.each(&of.links, link)),
        ("dropped_links_count", style.small(of.dropped_links_count)),
        ("status", of.status.as_ref().map(|of| status(style, of))),
    ];
    style.object(fields)
}

fn event(style: &mut Style, of: &Event) -> Value {
    let fields = [
        ("time_unix_nano", style.large(of.time_unix_nano)),
        ("name", style.text(&of.name)),
        ("attributes", style.each(&of.attributes, key_value)),
        ("dropped_attributes_count", style.small(of.dropped_attributes_count)),
    ];
    style.object(fields)
}

fn link(style: &mut Style, of: &Link) -> Value {
    let fields = [
        ("trace_id", style.id(&of.trace_id)),
        ("span_id", style.id(&of.span_id)),
        ("trace_state", style.text(&of.trace_state)),
        ("attributes", style.each(&of.attributes, key_value)),
        ("dropped_attributes_count", style.small(of.dropped_attributes_count)),
        ("flags", style.small(of.flags)),
    ];
    style.object(fields)
}

fn status(style: &mut Style, of: &Status) -> Value {
    const CODES: [&str; 3] = ["STATUS_CODE_UNSET", "STATUS_CODE_OK", "STATUS_CODE_ERROR"];
    let fields = [("message", style.text(&of.message)), ("code", named(style, &CODES, of.code))];
    style.object(fields)
}
