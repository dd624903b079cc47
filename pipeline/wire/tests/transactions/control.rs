//! Compares the conversion with an independent one on prost and serde structs
//! (`profbridge_testkit::naive::transaction`).

use bytes::Bytes;
use profbridge_model::spans::Segment;
use profbridge_model::{Span, Spans};
use profbridge_testkit::naive::transaction::transactions;
use profbridge_testkit::workload::{SEED, traces};
use profbridge_wire::otlp::{self, Limits};
use prost::Message;
use serde_json::Value;

use crate::transactions::support::write;

/// Guarantees: for typical traces of a service each transaction equals the independent one, except for the sender and
/// the event's id.
#[test]
fn as_the_control() {
    let request = traces::request(50, SEED).encode_to_vec();
    let expected: Vec<Value> =
        transactions(&request).unwrap().iter().map(|json| serde_json::from_slice(json).unwrap()).collect();
    let spans = otlp::traces::decode(Bytes::from(request), &Limits::default()).unwrap().spans;
    assert_eq!((expected.len(), spans.spans().len()), (50, 50 * traces::SPANS));
    for expected in expected {
        let trace = expected["contexts"]["trace"]["trace_id"].as_str().unwrap();
        let of_trace = spans.spans().iter().filter(|span| span.trace_id.to_string() == trace);
        let segment: Vec<Span> = of_trace
            .map(|span| Span {
                segment: Some(Segment { number: 0, is_root: span.parent_span_id.is_none() }),
                ..span.clone()
            })
            .collect();
        let (resources, scopes) = (spans.resources().to_vec(), spans.scopes().to_vec());
        let batch = Spans::new(spans.form(), spans.bytes().clone(), resources, scopes, segment, true).unwrap();
        let mut event = write(&batch).event;
        for ours in ["event_id", "sdk"] {
            event.as_object_mut().unwrap().remove(ours).unwrap();
        }
        assert_eq!(event, expected);
    }
}
