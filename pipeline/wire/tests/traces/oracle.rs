//! Compares what is read from a request, and what is written again, with what prost reads.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{self as common, any_value::Value as Any};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as Message};
use profbridge_model::{Span, Spans};
use profbridge_wire::otlp::traces::read::{resource_attributes, scope_name};
use profbridge_wire::otlp::traces::{AnyValue, DecodedSpans, OtherSpanFields, decode, encode, encode_within, split};
use profbridge_wire::otlp::{LikelySignal, Limits, signal};
use proptest::prelude::*;
use prost::Message as _;

use crate::traces::arbitrary::requests;

pub(crate) fn read(request: &ExportTraceServiceRequest) -> Spans {
    let DecodedSpans { spans, refused, refused_spans } =
        decode(request.encode_to_vec().into(), &Limits::default()).unwrap();
    assert_eq!((refused.len(), refused_spans), (0, 0), "{refused:?}");
    spans
}

fn value(value: AnyValue<'_>) -> common::AnyValue {
    let value = match value {
        AnyValue::Empty => None,
        AnyValue::Text(text) => Some(Any::StringValue(text.to_owned())),
        AnyValue::Bool(flag) => Some(Any::BoolValue(flag)),
        AnyValue::Int(number) => Some(Any::IntValue(number)),
        AnyValue::Double(number) => Some(Any::DoubleValue(number)),
        AnyValue::Bytes(bytes) => Some(Any::BytesValue(bytes.to_vec())),
        AnyValue::Array(list) => Some(Any::ArrayValue(common::ArrayValue { values: list.map(self::value).collect() })),
        AnyValue::KeyValueList(list) => {
            Some(Any::KvlistValue(common::KeyValueList { values: attributes(list).collect() }))
        }
    };
    common::AnyValue { value }
}

/// The attributes as prost has them, where an empty value is absent.
fn attributes<'a>(all: impl Iterator<Item = (&'a str, AnyValue<'a>)>) -> impl Iterator<Item = common::KeyValue> {
    all.map(|(key, value)| common::KeyValue { key: key.to_owned(), value: Some(self::value(value)), key_strindex: 0 })
}

fn filled(all: &[common::KeyValue]) -> Vec<common::KeyValue> {
    let fill = |value: &common::AnyValue| match &value.value {
        Some(Any::KvlistValue(list)) => {
            let values = filled(&list.values);
            common::AnyValue { value: Some(Any::KvlistValue(common::KeyValueList { values })) }
        }
        Some(Any::ArrayValue(list)) => {
            let values = list.values.iter().map(filled_value).collect();
            common::AnyValue { value: Some(Any::ArrayValue(common::ArrayValue { values })) }
        }
        _ => value.clone(),
    };
    all.iter()
        .map(|pair| common::KeyValue { value: Some(pair.value.as_ref().map(fill).unwrap_or_default()), ..pair.clone() })
        .collect()
}

fn filled_value(value: &common::AnyValue) -> common::AnyValue {
    let pair = common::KeyValue { key: String::new(), value: Some(value.clone()), key_strindex: 0 };
    filled(&[pair]).remove(0).value.unwrap()
}

fn check(spans: &Spans, span: &Span, message: &Message) {
    assert_eq!(span.trace_id.bytes()[..], message.trace_id[..]);
    assert_eq!(span.span_id.bytes()[..], message.span_id[..]);
    let parent = span.parent_span_id.map(|id| id.bytes().to_vec()).unwrap_or_default();
    assert_eq!(parent, message.parent_span_id);
    assert_eq!((span.start_unix_nano, span.end_unix_nano), (message.start_time_unix_nano, message.end_time_unix_nano));
    let kind = if (0..=5).contains(&message.kind) { message.kind } else { 0 };
    assert_eq!(span.kind as i32, kind);
    assert_eq!(span.parent_is_remote, (message.flags & 0x100 != 0).then_some(message.flags & 0x200 != 0));
    assert_eq!(span.sampled, (message.flags & 1 != 0).then_some(true));

    let fields = OtherSpanFields::of(spans, span);
    let status = message.status.clone().unwrap_or_default();
    assert_eq!(fields.name, message.name);
    assert_eq!((fields.status_code as i32, fields.status_message), (status.code, &*status.message));
    assert_eq!(attributes(fields.attributes()).collect::<Vec<_>>(), filled(&message.attributes));
    let events: Vec<_> = fields.events().collect();
    assert_eq!(events.len(), message.events.len());
    for (event, of) in events.iter().zip(&message.events) {
        assert_eq!((event.time_unix_nano, event.name), (of.time_unix_nano, &*of.name));
        assert_eq!(attributes(event.attributes()).collect::<Vec<_>>(), filled(&of.attributes));
    }
    let links: Vec<_> = fields.links().collect();
    assert_eq!(links.len(), message.links.len());
    for (link, of) in links.into_iter().zip(&message.links) {
        assert_eq!((link.trace_id, link.span_id, link.flags), (&of.trace_id[..], &of.span_id[..], of.flags));
        assert_eq!(attributes(link.attributes).collect::<Vec<_>>(), filled(&of.attributes));
    }
}

/// The spans of a request, each with its resource and scope: the whole content except for the grouping.
pub(crate) fn flat(request: &ExportTraceServiceRequest) -> Vec<(ResourceSpans, ScopeSpans, Message)> {
    let mut all = Vec::new();
    for resource in &request.resource_spans {
        let around = ResourceSpans { scope_spans: Vec::new(), ..resource.clone() };
        for scope in &resource.scope_spans {
            let inner = ScopeSpans { spans: Vec::new(), ..scope.clone() };
            all.extend(scope.spans.iter().map(|span| (around.clone(), inner.clone(), span.clone())));
        }
    }
    all
}

proptest! {
    /// Guarantees: a request with a span is recognized as a request of spans.
    /// rule: otep-0239#same-layout
    #[test]
    fn known_as_spans(request in requests()) {
        let spans = request.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
        let any = spans.flat_map(|scope| &scope.spans).next().is_some();
        let expected = if any { LikelySignal::Traces } else { LikelySignal::Profiles };
        prop_assert_eq!(signal(&request.encode_to_vec()), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Guarantees: everything in a request is read as prost reads it.
    #[test]
    fn reads_what_prost_reads(request in requests()) {
        let spans = read(&request);
        let messages = flat(&request);
        prop_assert_eq!(spans.spans().len(), messages.len());
        for (span, (resource, scope, message)) in spans.spans().iter().zip(&messages) {
            check(&spans, span, message);
            let own = resource_attributes(&spans, spans.resource_of(span));
            let theirs = resource.resource.as_ref().map(|resource| filled(&resource.attributes)).unwrap_or_default();
            prop_assert_eq!(attributes(own).collect::<Vec<_>>(), theirs);
            let theirs = scope.scope.clone().unwrap_or_default();
            prop_assert_eq!(scope_name(&spans, spans.scope_of(span)), (&*theirs.name, &*theirs.version));
        }
    }

    /// Guarantees: an unchanged batch is written as the received bytes; one that lost spans is a request in which the
    /// other spans are unchanged, and its length is known beforehand.
    #[test]
    fn writes_what_is_left(request in requests(), kept in any::<u64>()) {
        let spans = read(&request);
        prop_assert_eq!(encode(&spans), request.encode_to_vec());
        let keeps = |position: usize| kept >> (position % 64) & 1 == 1;
        let mut fewer = spans.clone();
        fewer.retain(|position, _| keeps(position));
        let written = encode(&fewer);
        prop_assert_eq!(encode_within(&fewer, written.len()), Some(written.clone()));
        prop_assert!(written.is_empty() || encode_within(&fewer, written.len() - 1).is_none());
        let left: Vec<_> = flat(&request).into_iter().enumerate().filter(|(at, _)| keeps(*at)).map(|(_, of)| of).collect();
        prop_assert_eq!(flat(&ExportTraceServiceRequest::decode(&*written).unwrap()), left);
    }

    /// Guarantees: the parts of a split are requests within the limit, unless a single span is larger, and together
    /// have the content of the whole.
    #[test]
    fn parts_are_the_whole(request in requests(), limit in 1usize..2000) {
        let spans = read(&request);
        let mut joined = Vec::new();
        for (part, count) in split(&spans, limit) {
            prop_assert!(part.len() <= limit || count == 1, "{} bytes", part.len());
            let part = flat(&ExportTraceServiceRequest::decode(&*part).unwrap());
            prop_assert_eq!(part.len(), count);
            joined.extend(part);
        }
        prop_assert_eq!(joined, flat(&request));
    }
}
