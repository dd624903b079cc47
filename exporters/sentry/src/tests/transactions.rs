//! Spans that are sent as transactions.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use profbridge_engine::component::{Exporter, Observer as _};
use profbridge_model::spans::Segment;
use profbridge_model::{Quantities, Reason, Spans, Telemetry};
use profbridge_relay_rules::validate_transaction;
use profbridge_testkit::{ManualClock, START_UNIX_NANO, check_prepare};
use profbridge_wire::otlp::{Limits, traces};
use prost::Message;
use serde_json::{Value, json};

use super::logs::logged;
use super::server::{Reply, Server};
use super::{KEY, batch, exporter, exporter_to, prepare};

fn attribute(key: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(Any::StringValue(value.to_owned())) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

/// A transaction of each of these services, with `spans` spans including the root.
pub(super) fn transactions(services: &[(&str, usize)]) -> Spans {
    let mut segments = Vec::new();
    let resource_spans = services.iter().enumerate().map(|(number, (service, count))| {
        let spans = (0..*count).map(|span| {
            segments.push(Some(Segment { number: number as u32, is_root: span == 0 }));
            Span {
                trace_id: vec![number as u8 + 1; 16],
                span_id: (span as u64 + 1).to_be_bytes().to_vec(),
                parent_span_id: if span == 0 { Vec::new() } else { 1_u64.to_be_bytes().to_vec() },
                name: format!("span {span}"),
                start_time_unix_nano: START_UNIX_NANO + span as u64,
                end_time_unix_nano: START_UNIX_NANO + 1_000_000,
                ..Span::default()
            }
        });
        let scope_spans = vec![ScopeSpans { spans: spans.collect(), ..ScopeSpans::default() }];
        let resource = Some(Resource { attributes: vec![attribute("service.name", service)], ..Resource::default() });
        ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }
    });
    let request = ExportTraceServiceRequest { resource_spans: resource_spans.collect() };
    let came = traces::decode(request.encode_to_vec().into(), &Limits::default()).unwrap().spans;
    let (resources, scopes) = (came.resources().to_vec(), came.scopes().to_vec());
    let spans =
        came.spans().iter().zip(segments).map(|(span, segment)| profbridge_model::Span { segment, ..span.clone() });
    Spans::new(came.form(), came.bytes().clone(), resources, scopes, spans.collect(), true).unwrap()
}

/// Guarantees: each transaction is a separate envelope that follows Sentry's schema and names the project that it is
/// sent to, with any compression.
/// rule: tracing-sdk#envelope
#[tokio::test]
async fn an_envelope_each() {
    let server = Server::always(Reply::status(200)).await;
    for compression in ["auto", "gzip", "none"] {
        let exporter = exporter_to(&server, &format!("environment: staging\ncompression: {compression}")).await;
        let prepared = prepare(&exporter, transactions(&[("shop", 3), ("stock", 1)]));
        assert_eq!(prepared.requests.iter().map(|request| request.quantities.spans).collect::<Vec<_>>(), [3, 1]);
        assert!(prepared.losses.is_none());
        for (request, release) in prepared.requests.iter().zip(["shop", "stock"]) {
            exporter.send(request).await.unwrap();
            let received = server.received().pop().unwrap();
            assert_eq!(received.line, "POST /api/42/envelope/ HTTP/1.1");
            let envelope = received.envelope();
            let [item] = &envelope.items[..] else { panic!("one item") };
            validate_transaction(item.payload.plain().unwrap()).unwrap();
            let event = received.item("transaction");
            assert_eq!((&event["release"], &event["environment"]), (&json!(release), &json!("staging")));
            let header: Value = serde_json::from_slice(&envelope.header).unwrap();
            assert_eq!((&header["event_id"], header.get("sent_at")), (&event["event_id"], None));
            assert_eq!(header["sdk"], event["sdk"]);
            assert_eq!((&header["trace"]["public_key"], &header["trace"]["release"]), (&json!(KEY), &json!(release)));
        }
    }
    assert!(!logged().contains("accepted for processing"), "that is said of profiles");
}

/// Guarantees: transactions of one batch are sent to the project of their resource, with the key of that project. Those
/// without a destination are counted.
#[tokio::test]
async fn routing() {
    let server = Server::always(Reply::status(200)).await;
    let yaml = format!("routing: {{attribute_to_dsn: {{shop: '{}', stock: '{}'}}}}", server.dsn(1), server.dsn(2));
    let exporter = exporter(&yaml, &ManualClock::default()).await;
    let prepared = prepare(&exporter, transactions(&[("stock", 2), ("other", 5), ("shop", 1), ("stock", 1)]));
    assert_eq!(prepared.losses.get(Reason::Unroutable), Quantities::spans(5));
    for request in &prepared.requests {
        exporter.send(request).await.unwrap();
    }
    let lines: Vec<_> = server.received().iter().map(|received| received.line.clone()).collect();
    assert_eq!(lines, [2, 1, 2].map(|project| format!("POST /api/{project}/envelope/ HTTP/1.1")));
    assert!(!logged().contains("put together"));
}

/// Guarantees: a rate limit on transactions blocks those and no profiles, one on profiles or spans blocks no
/// transactions, and it is logged once.
/// rule: tracing-sdk#rate-limits
#[tokio::test]
async fn limits() {
    for (limit, stops_transactions, stops_profiles) in
        [("transaction", true, false), ("span;profile_chunk", false, true), ("", true, true)]
    {
        let header = format!("60:{limit}:organization");
        let server = Server::always(Reply::status(200).with("x-sentry-rate-limits", header)).await;
        let exporter = exporter_to(&server, "").await;
        let transaction = prepare(&exporter, transactions(&[("shop", 1)])).requests.remove(0);
        let profiles = prepare(&exporter, batch("shop")).requests.remove(0);
        exporter.send(&transaction).await.unwrap();
        exporter.send(&transaction).await.unwrap();
        let refused = |stops: bool| stops.then_some(Reason::RateLimited);
        assert_eq!(exporter.refuses(&transaction), refused(stops_transactions), "{limit}");
        assert_eq!(exporter.refuses(&profiles), refused(stops_profiles), "{limit}");
    }
    assert_eq!(logged().matches("sentry limits transactions").count(), 2, "{}", logged());
}

/// Guarantees: a lost transaction is reported as one transaction and as its spans, in an envelope before the next one.
#[tokio::test]
async fn client_reports() {
    let server = Server::always(Reply::status(200)).await;
    let exporter = exporter_to(&server, "").await;
    let lost = prepare(&exporter, transactions(&[("shop", 4)])).requests.remove(0);
    exporter.lost(&lost, Reason::QueueFull);
    let prepared = prepare(&exporter, transactions(&[("shop", 2), ("stock", 2)]));
    assert_eq!(prepared.requests.iter().map(|request| request.quantities.spans).collect::<Vec<_>>(), [0, 2, 2]);
    exporter.send(&prepared.requests[0]).await.unwrap();
    assert_eq!(
        server.received()[0].item("client_report")["discarded_events"],
        json!([
            {"reason": "queue_overflow", "category": "transaction", "quantity": 1},
            {"reason": "queue_overflow", "category": "span", "quantity": 4},
        ])
    );
}

/// Spans that an SDK of a service streamed, received as OTLP.
fn streamed(service: &str, count: u64) -> Spans {
    let spans = (0..count).map(|span| Span {
        trace_id: vec![7; 16],
        span_id: (span + 1).to_be_bytes().to_vec(),
        name: format!("span {span}"),
        start_time_unix_nano: START_UNIX_NANO,
        end_time_unix_nano: START_UNIX_NANO + 1_000_000,
        attributes: vec![attribute("sentry.form", "span_v2")],
        ..Span::default()
    });
    let scope_spans = vec![ScopeSpans { spans: spans.collect(), ..ScopeSpans::default() }];
    let resource = Some(Resource { attributes: vec![attribute("service.name", service)], ..Resource::default() });
    let resource_spans = vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }];
    let request = ExportTraceServiceRequest { resource_spans };
    traces::decode(request.encode_to_vec().into(), &Limits::default()).unwrap().spans
}

/// Guarantees: streamed spans are sent as containers to their project, without grouping and without a log line about
/// it. A rate limit on spans blocks them, one on transactions does not, and lost ones count only as spans.
#[tokio::test]
async fn containers() {
    let server = Server::always(Reply::status(200).with("x-sentry-rate-limits", "60:transaction:organization")).await;
    let yaml = format!("routing: {{attribute_to_dsn: {{shop: '{}'}}}}", server.dsn(9));
    let exporter = exporter(&yaml, &ManualClock::default()).await;
    let prepared = prepare(&exporter, streamed("shop", 1002));
    let spans: Vec<u64> = prepared.requests.iter().map(|request| request.quantities.spans).collect();
    assert_eq!((spans, prepared.losses.is_none()), (vec![1000, 2], true));
    exporter.send(&prepared.requests[1]).await.unwrap();
    let received = server.received().remove(0);
    assert_eq!(received.line, "POST /api/9/envelope/ HTTP/1.1");
    let container = received.item("span");
    assert_eq!((&container["version"], container["items"].as_array().unwrap().len()), (&json!(2), 2));
    assert_eq!((&container["items"][1]["status"], &container["items"][1]["name"]), (&json!("ok"), &json!("span 1001")));
    assert_eq!(exporter.refuses(&prepared.requests[0]), None);
    assert_eq!(prepare(&exporter, streamed("other", 3)).losses.get(Reason::Unroutable), Quantities::spans(3));
    exporter.lost(&prepared.requests[0], Reason::QueueFull);
    exporter.close().await;
    assert_eq!(
        server.received()[1].item("client_report")["discarded_events"],
        json!([{"reason": "queue_overflow", "category": "span", "quantity": 1000}])
    );
    assert!(!logged().contains("add the processor"), "{}", logged());

    let limited = Server::always(Reply::status(200).with("x-sentry-rate-limits", "60:span:organization")).await;
    let exporter = exporter_to(&limited, "").await;
    let request = prepare(&exporter, streamed("shop", 1)).requests.remove(0);
    exporter.send(&request).await.unwrap();
    assert_eq!(exporter.refuses(&request), Some(Reason::RateLimited));
}

/// Guarantees: for grouped, streamed and other spans, in = out + lost, and no request is empty.
#[tokio::test]
async fn conservation() {
    let server = Server::always(Reply::status(200)).await;
    let exporter = exporter(
        &format!("routing: {{attribute_to_dsn: {{a: '{}', b: '{}'}}}}", server.dsn(1), server.dsn(2)),
        &ManualClock::default(),
    )
    .await;
    for seed in 0..20 {
        check_prepare(&exporter, seed, |random, _| {
            let services = (0..random.usize(0..6)).map(|_| (["a", "b", "c"][random.usize(0..3)], random.usize(1..20)));
            let mut services: Vec<_> = services.collect();
            if random.u8(0..10) == 0 {
                services.push(("a", 1100));
            }
            if random.u8(0..4) == 0 {
                return Telemetry::Spans(streamed(["a", "b", "c"][random.usize(0..3)], random.u64(1..2500)));
            }
            Telemetry::Spans(transactions(&services))
        });
    }
}

/// Guarantees: spans above Sentry's limit per transaction are counted as lost, and removed data is a note.
#[tokio::test]
async fn too_many() {
    let server = Server::always(Reply::status(200)).await;
    let exporter = exporter_to(&server, "").await;
    let prepared = prepare(&exporter, transactions(&[("shop", 1101), ("a/b", 1)]));
    assert_eq!(prepared.losses.get(Reason::LimitExceeded), Quantities::spans(100));
    assert_eq!(prepared.requests[0].quantities, Quantities::spans(1001));
    assert_eq!(prepared.notes, [("invalid_span_values", 1)], "a release that Sentry would refuse");
}
