//! Requests that break rules.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use profbridge_wire::otlp::traces::{DecodedSpans, OtherSpanFields, decode, encode};
use profbridge_wire::otlp::{DecodeError, Limits};
use proptest::prelude::*;
use prost::Message as _;

use crate::scramble::field;
use crate::traces::arbitrary::requests;

fn good(id: u8) -> Span {
    Span {
        trace_id: vec![1; 16],
        span_id: vec![id; 8],
        start_time_unix_nano: 5,
        end_time_unix_nano: 9,
        name: "work".to_owned(),
        ..Span::default()
    }
}

fn request(spans: Vec<Span>) -> ExportTraceServiceRequest {
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    ExportTraceServiceRequest { resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }] }
}

fn read(bytes: impl Into<Bytes>) -> Result<DecodedSpans, DecodeError> {
    decode(bytes.into(), &Limits::default())
}

/// Guarantees: spans that break a rule are left out of the request and reported with their place and the rule; the
/// other spans are taken. The rest is encoded anew, not passed on as the received bytes.
#[test]
fn one_span_is_refused_not_its_trace() {
    let wrong = [
        (Span { trace_id: Vec::new(), ..good(2) }, "trace_id: is missing"),
        (Span { trace_id: vec![1; 8], ..good(2) }, "trace_id: has 8 bytes where an id has 16"),
        (Span { trace_id: vec![0; 16], ..good(2) }, "trace_id: is all zero"),
        (Span { span_id: vec![1; 9], ..good(2) }, "span_id: has 9 bytes where an id has 8"),
        (Span { span_id: vec![0; 8], ..good(2) }, "span_id: is all zero"),
        (Span { parent_span_id: vec![3; 7], ..good(2) }, "parent_span_id: has 7 bytes where an id has 8"),
        (Span { parent_span_id: vec![2; 8], ..good(2) }, "parent_span_id: is the span itself"),
        (Span { end_time_unix_nano: 4, ..good(2) }, "end_time_unix_nano: 4 is before the start at 5"),
    ];
    for (span, why) in wrong {
        let read = read(request(vec![good(1), span, good(3)]).encode_to_vec()).unwrap();
        let ids: Vec<u8> = read.spans.spans().iter().map(|span| span.span_id.bytes()[0]).collect();
        assert_eq!((ids, read.refused_spans), (vec![1, 3], 1));
        let [refused] = &read.refused[..] else { panic!("{:?}", read.refused) };
        let said = format!("{}: {}", refused.place, refused.rule);
        assert_eq!(said, format!("resource_spans[0].scope_spans[0].spans[1].{why}"));
        assert!(read.spans.received().is_none());
        let left = ExportTraceServiceRequest::decode(&*encode(&read.spans)).unwrap();
        assert_eq!(left, request(vec![good(1), good(3)]));
    }
}

/// Guarantees: a parent id of zeros, which some producers write, means no parent.
#[test]
fn zeros_are_no_parent() {
    let read = read(request(vec![Span { parent_span_id: vec![0; 8], ..good(2) }]).encode_to_vec()).unwrap();
    assert_eq!((read.spans.spans()[0].parent_span_id, read.refused_spans), (None, 0));
    assert!(read.spans.received().is_some());
}

/// Guarantees: invalid UTF-8 inside a span costs this span, outside of spans the whole request.
#[test]
fn invalid_text() {
    let mut bytes = request(vec![good(1), good(2)]).encode_to_vec();
    let name = bytes.windows(4).rposition(|window| window == b"work").unwrap();
    bytes[name] = 0xff;
    let taken = read(bytes).unwrap();
    assert_eq!((taken.spans.spans().len(), taken.refused_spans), (1, 1));
    assert!(taken.refused[0].rule.contains("not UTF-8"), "{:?}", taken.refused);
    // `ResourceSpans.schema_url` with an invalid byte.
    assert!(matches!(read(&b"\x0a\x03\x1a\x01\xff"[..]), Err(DecodeError::Malformed { .. })));
}

/// Guarantees: values that are nested too deeply cost the span that contains them.
#[test]
fn deep_values() {
    let value = (0..40).fold(field(1, b"x"), |value, _| field(5, &field(1, &value)));
    let key_value = [field(1, b"k"), field(2, &value)].concat();
    let deep = [good(1).encode_to_vec(), field(9, &key_value)].concat();
    let spans = [field(2, &deep), field(2, &good(2).encode_to_vec())].concat();
    let taken = read(field(1, &field(2, &spans))).unwrap();
    assert_eq!((taken.spans.spans().len(), taken.refused_spans), (1, 1));
    assert_eq!(taken.refused[0].rule, "values nest deeper than 16");
}

/// Guarantees: requests with too many values, or that need more memory than allowed, are refused with an error of
/// limits.
#[test]
fn limits() {
    let few = Limits { max_values: 3, ..Limits::default() };
    let attributes = field(9, &[field(1, b"k"), field(2, &[])].concat()).repeat(4);
    let span = [good(1).encode_to_vec(), attributes].concat();
    let bytes = field(1, &field(2, &field(2, &span)));
    assert!(matches!(decode(bytes.into(), &few), Err(DecodeError::LimitExceeded { .. })));

    // A million empty scopes of two bytes each.
    let empty = field(1, &[0x12, 0].repeat(1 << 20));
    assert!(matches!(read(empty), Err(DecodeError::LimitExceeded { .. })));
    let small = Limits { max_request: 8, ..Limits::default() };
    assert!(matches!(decode(Bytes::from(vec![0; 9]), &small), Err(DecodeError::LimitExceeded { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Guarantees: arbitrary bytes make the reader fail only with an error, and what it accepts can be written and
    /// read.
    #[test]
    fn mutations(request in requests(), changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..6), cut in any::<u16>()) {
        let mut bytes = request.encode_to_vec();
        for (at, to) in changes {
            let len = bytes.len().max(1);
            if let Some(byte) = bytes.get_mut(at as usize % len) {
                *byte = to;
            }
        }
        if cut % 4 == 0 {
            bytes.truncate(cut as usize);
        }
        if let Ok(DecodedSpans { mut spans, .. }) = read(bytes) {
            for span in spans.spans() {
                let fields = OtherSpanFields::of(&spans, span);
                let _ = (fields.attributes().count(), fields.events().count(), fields.links().count());
            }
            let all = spans.spans().len();
            spans.retain(|position, _| position > 0);
            let again = read(encode(&spans)).unwrap();
            prop_assert_eq!(again.spans.spans().len(), all.saturating_sub(1));
        }
    }
}
