//! Requests with many spans: of one trace, of as many open traces, and with the smallest possible spans.

use opentelemetry_proto::tonic::trace::v1::Span;
use prost::encoding::{WireType, encode_key, encode_varint, message};

use super::{Error, MemoryLoad, gzip};

/// The number of concurrent requests with many traces.
const TOGETHER: usize = 8;

/// The loads: one trace with `spans` spans; twice as many spans of the smallest possible size, which are half as large;
/// `traces` traces of one span each, whose parents do not come.
pub(super) fn loads(spans: u64, traces: u64) -> Result<Vec<MemoryLoad>, Error> {
    // A million of these spans are slightly smaller than the limit of 64 MiB per request.
    let one_trace = request((0..spans).map(|number| Span {
        name: "GET /".to_owned(),
        parent_span_id: if number == 0 { Vec::new() } else { 1_u64.to_be_bytes().to_vec() },
        ..span(1, number)
    }));
    let smallest = request((0..2 * spans).map(|number| Span {
        start_time_unix_nano: 0,
        end_time_unix_nano: 0,
        ..span(1, number)
    }));
    let many_traces = |first: u64| {
        // Spans below others that have not ended: these traces are open.
        let parent_span_id = u64::MAX.to_be_bytes().to_vec();
        let named = |number| {
            let (name, parent_span_id) = ("SELECT orders".to_owned(), parent_span_id.clone());
            Span { name, kind: 3, parent_span_id, ..span(first + number, number) }
        };
        request((0..traces).map(named))
    };
    let load = |name, requests: Vec<Vec<u8>>, gzipped| MemoryLoad {
        name,
        path: "/v1/traces",
        at_once: requests.len(),
        requests,
        gzipped,
        ..MemoryLoad::default()
    };
    let together = (0..TOGETHER as u64).map(|number| many_traces(1 + number * traces)).collect();
    Ok(vec![
        load("a million spans of one trace", vec![one_trace], false),
        load("two million of the smallest spans, gzipped", vec![gzip(&smallest)?], true),
        load("100,000 open traces", vec![many_traces(1)], false),
        load("8 requests of 100,000 open traces at once", together, false),
    ])
}

/// A span with only its ids and times.
fn span(trace: u64, number: u64) -> Span {
    Span {
        trace_id: u128::from(trace).to_be_bytes().to_vec(),
        span_id: (number + 1).to_be_bytes().to_vec(),
        start_time_unix_nano: 1_760_000_000_000_000_000 + number,
        end_time_unix_nano: 1_760_000_000_000_500_000 + number,
        ..Span::default()
    }
}

/// An `ExportTraceServiceRequest` of one resource and one scope, encoded without holding all spans at once.
fn request(spans: impl Iterator<Item = Span>) -> Vec<u8> {
    let mut scope_spans = Vec::new();
    for span in spans {
        message::encode(2, &span, &mut scope_spans);
    }
    let resource_spans = within(2, &scope_spans);
    drop(scope_spans);
    within(1, &resource_spans)
}

/// Encodes a message as a field of another one.
fn within(field: u32, inner: &[u8]) -> Vec<u8> {
    let mut outer = Vec::with_capacity(inner.len() + 16);
    encode_key(field, WireType::LengthDelimited, &mut outer);
    encode_varint(inner.len() as u64, &mut outer);
    outer.extend_from_slice(inner);
    outer
}
