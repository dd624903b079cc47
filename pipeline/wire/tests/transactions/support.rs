//! Spans as their producers write them, and the resulting transactions.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource as ProtoResource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use profbridge_model::spans::Segment;
use profbridge_model::{Losses, Spans};
use profbridge_relay_rules::validate_transaction;
use profbridge_wire::otlp::{Limits, traces};
use profbridge_wire::sentry::transaction::{Notes, Summary, TransactionResource, TransactionWriter};
use prost::Message;
use serde_json::Value;

pub(crate) use crate::attributes::{int, list, map, pair, text, texts, value_of};

/// The start of spans in these tests, in nanoseconds since the Unix epoch.
pub(crate) const START: u64 = 1_790_000_000_123_456_789;

/// A millisecond in nanoseconds.
pub(crate) const MS: u64 = 1_000_000;

/// A span that starts `id` milliseconds after [`START`] and takes as long.
pub(crate) fn span(id: u8, parent: u8, name: &str, kind: SpanKind, attributes: Vec<KeyValue>) -> Span {
    Span {
        trace_id: vec![0xab; 16],
        span_id: vec![id; 8],
        parent_span_id: if parent == 0 { Vec::new() } else { vec![parent; 8] },
        name: name.to_owned(),
        kind: kind as i32,
        start_time_unix_nano: START + u64::from(id) * MS,
        end_time_unix_nano: START + 2 * u64::from(id) * MS,
        attributes,
        ..Span::default()
    }
}

pub(crate) fn status(code: i32, message: &str) -> Option<Status> {
    Some(Status { code, message: message.to_owned() })
}

pub(crate) fn event(name: &str, attributes: Vec<KeyValue>) -> Event {
    Event { time_unix_nano: START + MS, name: name.to_owned(), attributes, ..Event::default() }
}

/// A batch with a single segment, whose root is the first span.
pub(crate) fn batch(resource: Vec<KeyValue>, spans: Vec<Span>) -> Spans {
    let scope =
        InstrumentationScope { name: "instrumentation".to_owned(), version: "1.2".to_owned(), ..Default::default() };
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }];
    let resource = Some(ProtoResource { attributes: resource, ..ProtoResource::default() });
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans { resource, scope_spans, ..Default::default() }],
    };
    let decoded = traces::decode(request.encode_to_vec().into(), &Limits::default()).unwrap();
    assert!(decoded.refused.is_empty(), "{:?}", decoded.refused);
    segmented(&decoded.spans, |position| position == 0)
}

/// The same batch as one segment.
pub(crate) fn segmented(spans: &Spans, is_root: impl Fn(usize) -> bool) -> Spans {
    let marked = spans.spans().iter().enumerate().map(|(position, span)| {
        let segment = Some(Segment { number: 1, is_root: is_root(position) });
        profbridge_model::Span { segment, ..span.clone() }
    });
    let marked = marked.collect();
    let (resources, scopes) = (spans.resources().to_vec(), spans.scopes().to_vec());
    Spans::new(spans.form(), spans.bytes().clone(), resources, scopes, marked, true).unwrap()
}

pub(crate) struct WrittenTransaction {
    pub(crate) json: Vec<u8>,
    pub(crate) event: Value,
    pub(crate) summary: Summary,
    pub(crate) losses: Losses,
    pub(crate) notes: Notes,
}

/// Converts a batch into one transaction, and checks that it follows all rules of Sentry.
pub(crate) fn write(spans: &Spans) -> WrittenTransaction {
    let resource = TransactionResource::of(spans, &spans.resources()[0], "production");
    let mut writer = TransactionWriter::default();
    let transaction = writer.write(spans, spans.spans(), &resource).unwrap();
    if let Err(violations) = validate_transaction(transaction.json) {
        let shown = String::from_utf8_lossy(&transaction.json[..transaction.json.len().min(4000)]);
        panic!("{violations:#?}\n{shown}");
    }
    WrittenTransaction {
        json: transaction.json.to_vec(),
        event: serde_json::from_slice(transaction.json).unwrap(),
        summary: transaction.summary,
        losses: transaction.losses,
        notes: transaction.notes,
    }
}

pub(crate) fn written(span: Span) -> WrittenTransaction {
    write(&batch(Vec::new(), vec![span]))
}
