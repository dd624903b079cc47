//! Sampled-out data is reported to the project that it would have been sent to.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::ResourceSpans;
use profbridge_engine::component::{Exporter, Observer as _};
use profbridge_model::envelope::{PublicKey, RequestMeta};
use profbridge_model::{Envelope, Reason, SampledOut, SampledOutCounts, SampledOutOrigin};
use profbridge_testkit::ManualClock;
use profbridge_wire::otlp::{Limits, traces};
use prost::Message;
use serde_json::{Value, json};

use super::server::{Reply, Server};
use super::{KEY, batch, exporter, exporter_to, prepare, request};

fn of_client(project: u64, counts: SampledOutCounts) -> SampledOut {
    let public_key = Some(PublicKey(KEY.into()));
    let meta = Box::new(RequestMeta { project_id: Some(project), public_key, ..RequestMeta::default() });
    SampledOut { whose: SampledOutOrigin::Client { meta, profiles: None }, counts }
}

/// Counts of sampled-out spans of a service.
fn of_service(service: &str, spans: u64) -> SampledOut {
    let value = Some(AnyValue { value: Some(Any::StringValue(service.to_owned())) });
    let attributes = vec![KeyValue { key: "service.name".to_owned(), value, ..KeyValue::default() }];
    let resource = Some(Resource { attributes, ..Resource::default() });
    let resource_spans = vec![ResourceSpans::default(), ResourceSpans { resource, ..ResourceSpans::default() }];
    let request = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
    let spans_of = traces::decode(request.into(), &Limits::default()).unwrap().spans;
    let counts = SampledOutCounts { transactions: 1, spans, ..SampledOutCounts::default() };
    SampledOut { whose: SampledOutOrigin::Process(spans_of.resource_alone(1)), counts }
}

fn entry(reason: &str, category: &str, quantity: u64) -> Value {
    json!({"reason": reason, "category": category, "quantity": quantity})
}

/// Guarantees: counts of sampled-out data from a client's envelopes make no request. They add up and are sent to that
/// client's project before its next envelope, per category.
/// rule: transport#client-reports-sample-rate
#[tokio::test]
async fn clients() {
    let server = Server::always(Reply::status(200)).await;
    let yaml = format!("upstream: http://{}", server.dsn(1).rsplit_once('@').unwrap().1.trim_end_matches("/1"));
    let exporter = exporter(&yaml, &ManualClock::default()).await;
    let counts = SampledOutCounts { transactions: 1, spans: 3, profiles: 1, attachment_bytes: 700 };
    exporter.sampled_out(&of_client(7, counts));
    exporter.sampled_out(&of_client(8, counts));
    exporter.sampled_out(&of_client(7, SampledOutCounts { spans: 5, ..SampledOutCounts::default() }));
    let of = of_client(7, counts);
    let SampledOutOrigin::Client { meta, .. } = of.whose else { panic!("a client's") };
    let item = profbridge_wire::sentry::envelope::item("session", None, &b"{}"[..]);
    let prepared = prepare(&exporter, Envelope { meta: *meta, items: vec![item], ..Envelope::default() });
    assert_eq!(prepared.requests.len(), 2);
    for request in &prepared.requests {
        exporter.send(request).await.unwrap();
    }
    exporter.close().await;
    let received = server.received();
    let lines: Vec<&str> = received.iter().map(|one| &*one.line).collect();
    assert_eq!(lines, [7, 7, 8].map(|project| format!("POST /api/{project}/envelope/ HTTP/1.1")));
    let discarded = |at: usize| received[at].item("client_report")["discarded_events"].clone();
    let expected = |spans| {
        json!([
            entry("sample_rate", "transaction", 1),
            entry("sample_rate", "span", spans),
            entry("sample_rate", "profile", 1),
            entry("sample_rate", "attachment", 700),
        ])
    };
    assert_eq!((discarded(0), discarded(2)), (expected(8), expected(3)));
}

/// Guarantees: counts of a process's sampled-out spans are sent to the project of its resource, or to none. For an
/// unknown client, they are sent to the configured DSN. They are added to the exporter's own losses.
/// rule: transport#client-reports-sample-rate
#[tokio::test]
async fn processes() {
    let server = Server::always(Reply::status(200)).await;
    let yaml = format!("routing: {{attribute_to_dsn: {{shop: '{}', stock: '{}'}}}}", server.dsn(1), server.dsn(2));
    let routed = exporter(&yaml, &ManualClock::default()).await;
    for (service, spans) in [("stock", 4), ("other", 100), ("shop", 2), ("stock", 1)] {
        routed.sampled_out(&of_service(service, spans));
    }
    routed.sampled_out(&of_client(7, SampledOutCounts { transactions: 9, ..SampledOutCounts::default() }));
    let counts = SampledOutCounts { transactions: 1, spans: 1, profiles: 1, ..SampledOutCounts::default() };
    let whose = SampledOutOrigin::Client { meta: Box::default(), profiles: Some(batch("shop")) };
    routed.sampled_out(&SampledOut { whose, counts });
    routed.close().await;
    let transactions_and_spans =
        |transactions, spans| [entry("sample_rate", "transaction", transactions), entry("sample_rate", "span", spans)];
    let received = server.received();
    let mut reports: Vec<(String, Value)> =
        received.iter().map(|one| (one.line.clone(), one.item("client_report")["discarded_events"].clone())).collect();
    reports.sort_by(|one, other| one.0.cmp(&other.0));
    let line = |project| format!("POST /api/{project}/envelope/ HTTP/1.1");
    let mut of_shop = transactions_and_spans(2, 3).to_vec();
    of_shop.push(entry("sample_rate", "profile", 1));
    assert_eq!(reports, [(line(1), of_shop.into()), (line(2), transactions_and_spans(2, 5).to_vec().into())]);

    let server = Server::always(Reply::status(200)).await;
    let alone = exporter_to(&server, "").await;
    alone.lost(&request(&alone), Reason::QueueFull);
    alone.sampled_out(&of_client(7, SampledOutCounts { transactions: 2, ..SampledOutCounts::default() }));
    alone.close().await;
    let report = server.received()[0].item("client_report");
    let expected = json!([entry("queue_overflow", "profile_chunk", 1), entry("sample_rate", "transaction", 2)]);
    assert_eq!(report["discarded_events"], expected);
}

/// Guarantees: if spans are sent as spans (from a client of the OTLP endpoint, or by configuration), sampled-out spans
/// are not reported as transactions.
#[tokio::test]
async fn spans_that_stay_spans() {
    let server = Server::always(Reply::status(200)).await;
    for (yaml, of_client) in [("spans: otlp", false), ("spans: streamed", false), ("", true)] {
        let exporter = exporter_to(&server, yaml).await;
        let mut out = of_service("shop", 3);
        if let (SampledOutOrigin::Process(spans), true) = (&mut out.whose, of_client) {
            spans.client = Some(std::sync::Arc::new(RequestMeta::default()));
        }
        exporter.sampled_out(&out);
        exporter.close().await;
        let report = server.received().pop().unwrap().item("client_report");
        assert_eq!(report["discarded_events"], json!([entry("sample_rate", "span", 3)]), "{yaml}");
    }
}
