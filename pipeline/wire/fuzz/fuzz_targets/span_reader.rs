//! Uses arbitrary bytes as the JSON of a transaction or, after the byte `2`, of a container of spans.
//!
//! Guarantees: no panic; error messages are short; memory in proportion to the bytes; accepted spans are objects of the
//! payload; as OTLP each span can be read again, and they become a container with the same spans.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use profbridge_model::{Span, Spans};
use profbridge_wire::otlp::{Limits, traces};
use profbridge_wire::sentry::envelope::ItemHeader;
use profbridge_wire::sentry::span_reader::ReadSpans;
use profbridge_wire::sentry::span_v2_writer::ProcessAttributes;
use profbridge_wire::sentry::trace_header::TraceHeader;
use profbridge_wire::sentry::transaction::TransactionResource;
use profbridge_wire::sentry::{span_v2_reader, span_v2_writer, spans_to_otlp, transaction_reader};

/// The longest message about a payload, in bytes, because it is logged in one line.
const MAX_MESSAGE: usize = 1 << 10;

/// The maximum rounding error of a time, in nanoseconds.
const NEAR: u64 = 1000;

fuzz_target!(|data: &[u8]| {
    let header = TraceHeader::read(data);
    let read = match data.strip_prefix(b"2") {
        Some(container) => read_container(&Bytes::copy_from_slice(container), &header),
        None => match transaction_reader::read(&Bytes::copy_from_slice(data), &header) {
            Ok(read) => Some(read),
            Err(error) => return assert!(error.to_string().len() <= MAX_MESSAGE, "{error}"),
        },
    };
    let Some(ReadSpans { spans, .. }) = read else { return };
    assert!(spans.size_bytes() <= 4 * data.len() as u64 + 1024);
    for span in spans.spans() {
        let object = spans.get(span.at);
        assert!(object.starts_with(b"{") && object.ends_with(b"}"));
        assert!(span.start_unix_nano <= span.end_unix_nano && span.parent_span_id != Some(span.span_id));
    }
    if spans.is_empty() {
        return;
    }
    let decoded = traces::decode(spans_to_otlp::request(&spans).into(), &Limits::default()).expect("it is OTLP");
    assert_eq!((decoded.refused_spans, decoded.spans.spans().len()), (0, spans.spans().len()));
    let resource = &decoded.spans.resources()[0];
    let about = TransactionResource::of(&decoded.spans, resource, "production");
    let process = ProcessAttributes::of(&decoded.spans, resource, &about);
    let Some((item, _)) = span_v2_writer::item(&decoded.spans, decoded.spans.spans(), &process) else {
        return assert!(data.len() > span_v2_reader::MAX_BYTES / 4, "it becomes a container");
    };
    let count = ItemHeader::read(&item.header).expect("it is a header").item_count;
    let payload = item.payload.plain().expect("it is here");
    let again = span_v2_reader::read(payload, count, &header).expect("it is read");
    let ids = |spans: &Spans| {
        let id = |span: &Span| (span.trace_id, span.span_id, span.parent_span_id);
        let mut ids: Vec<_> = spans.spans().iter().map(id).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(ids(&again.spans), ids(&spans));
    let near = |one: &Span, other: &Span| {
        one.start_unix_nano.abs_diff(other.start_unix_nano) <= NEAR
            && one.end_unix_nano.abs_diff(other.end_unix_nano) <= NEAR
    };
    let same = |one: &Span, other: &Span| one.span_id == other.span_id && near(one, other);
    let found = |span: &Span| again.spans.spans().iter().any(|other| same(span, other));
    assert!(spans.spans().iter().all(found), "times come back");
});

/// Reads a container. The header of a real one has the number of its spans; here every number is tried.
fn read_container(payload: &Bytes, header: &TraceHeader) -> Option<ReadSpans> {
    let commas = payload.iter().filter(|byte| **byte == b',').count() as u64;
    (0..commas.min(64) + 2).find_map(|count| span_v2_reader::read(payload, Some(count), header).ok())
}
