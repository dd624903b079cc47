use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use profbridge_model::{Envelope, ItemView, Quantities, Reason};
use profbridge_net::compression::{Coding, decompress};
use profbridge_testkit as testing;
use profbridge_wire::otlp::traces;
use prost::Message as _;

use super::*;

/// Guarantees: `in = requests + losses` for any telemetry, whatever the compression, and no request is empty.
#[test]
fn conserves() {
    for compression in ["none", "gzip", "zstd"] {
        for limit in ["1KiB", "64MiB"] {
            let yaml = format!("{{endpoint: 'c:1', compression: {compression}, max_request_bytes: {limit}}}");
            let exporter = exporter(Protocol::Grpc, &yaml);
            testing::check_prepare(&exporter, 5, |random, now| testing::telemetry(random, 80, now));
        }
    }
}

/// Guarantees: each configuration key for requests has an effect. The codec's tests check the details.
#[test]
fn every_key() {
    let came = decoded(otlp::encode(&batch(&[2000]), &EncodeOptions::default()));
    let prepared = |more: &str| {
        let exporter = exporter(Protocol::Grpc, &format!("{{endpoint: 'c:1', {more}}}"));
        exporter.prepare(&came.clone().into(), ManualClock::default().now())
    };
    let unchanged = prepared("compression: none, fill_profile_id: false");
    assert_eq!(Some(&unchanged.requests[0].body), came.received.as_ref());
    assert_eq!(unchanged.notes, [("otlp_batches_forwarded_unchanged", 1)]);
    let filled = prepared("compression: zstd");
    let message = decompress(Coding::Zstd, filled.requests[0].body.clone(), 1 << 20).unwrap();
    let message = ExportProfilesServiceRequest::decode(message).unwrap();
    assert_eq!(message.resource_profiles[0].scope_profiles[0].profiles[0].profile_id.len(), 16);
    assert_eq!((filled.requests[0].meta.batch.counted, filled.notes.len()), (1, 0));
    let split = prepared("compression: none, max_request_bytes: 4KiB");
    assert!(split.requests.len() > 1 && split.requests.iter().all(|request| request.body.len() <= 4096));
    assert_eq!(split.notes, [("otlp_batches_split", 1)]);

    let references = EncodeOptions { references: true, ..EncodeOptions::default() };
    let whole = otlp::split(&with_ids(&batch(&[200])), 1024, &EncodeOptions::default()).next().unwrap();
    let by_reference = decoded(otlp::encode(&whole, &references));
    let body = |more: &str| {
        let exporter = exporter(Protocol::Grpc, &format!("{{endpoint: 'c:1', compression: none, {more}}}"));
        requests(&exporter, &by_reference.clone().into()).remove(0).body
    };
    assert_eq!(Some(&body("attribute_references: keep")), by_reference.received.as_ref());
    assert_ne!(Some(&body("attribute_references: resolve")), by_reference.received.as_ref());
}

/// Guarantees: only the signals that `signals` names are sent, also of an envelope's; the others are counted as such,
/// and an empty list is refused.
#[test]
fn signals() {
    let spans = traces::decode(spans_request().encode_to_vec().into(), &Limits::default()).unwrap().spans;
    let views = vec![ItemView::profiles(0, batch(&[2])), ItemView::spans(1, spans.clone())];
    let envelope = Envelope { views, ..Envelope::default() };
    let (of_profile, of_span) = (Quantities::observations(2), Quantities::spans(1));
    for (signals, sent, lost) in [("profiles", of_profile, of_span), ("traces", of_span, of_profile)] {
        let exporter = exporter(Protocol::Grpc, &format!("{{endpoint: 'c:1', signals: [{signals}]}}"));
        let parts: [Telemetry; 2] = [batch(&[2]).into(), spans.clone().into()];
        for telemetry in [vec![envelope.clone().into()], parts.to_vec()] {
            let prepared: Vec<_> =
                telemetry.iter().map(|telemetry| exporter.prepare(telemetry, ManualClock::default().now())).collect();
            let requests = prepared.iter().flat_map(|prepared| &prepared.requests);
            assert_eq!(requests.map(|request| request.quantities).collect::<Vec<_>>(), [sent], "{signals}");
            let losses: Quantities = prepared.iter().map(|prepared| prepared.losses.get(Reason::OtherSignal)).sum();
            assert_eq!(losses, lost, "{signals}");
        }
    }
    let section = Section::from_yaml("{endpoint: 'c:1', signals: []}").unwrap();
    let problems = (crate::FACTORY.create)(&section).err().unwrap().to_string();
    assert!(problems.contains("without a signal"), "{problems}");
}

fn spans_request() -> ExportTraceServiceRequest {
    let span = Span { trace_id: vec![1; 16], span_id: vec![2; 8], ..Span::default() };
    let scope_spans = vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }];
    ExportTraceServiceRequest { resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }] }
}
