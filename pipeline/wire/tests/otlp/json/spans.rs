//! Spans as JSON (opentelemetry-proto `trace/v1/trace.proto`).

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use serde_json::Value;

use super::text::{Style, key_value, resource, scope};

pub(super) fn request(style: &mut Style, of: &ExportTraceServiceRequest) -> Value {
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
        ("spans", style.each(&of.spans, span)),
        ("schema_url", style.text(&of.schema_url)),
    ];
    style.object(fields)
}

/// A number of an enumeration, in some cases as its name.
fn named(style: &mut Style, names: &[&'static str], number: i32) -> Option<Value> {
    let name = usize::try_from(number).ok().and_then(|number| names.get(number));
    name.filter(|_| style.way(4) == 3).map_or_else(|| style.small(number), |&name| Some(name.into()))
}

fn span(style: &mut Style, of: &Span) -> Value {
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
