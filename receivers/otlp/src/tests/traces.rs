//! Traces that are accepted, rejected and forwarded.

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use profbridge_model::Spans;
use tonic::Code;

use super::*;

fn span(id: u8) -> Span {
    Span { trace_id: vec![1; 16], span_id: vec![id; 8], name: "GET /".to_owned(), ..Span::default() }
}

fn request(spans: Vec<Span>) -> ExportTraceServiceRequest {
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    ExportTraceServiceRequest { resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }] }
}

fn client(rig: &OtlpRig) -> TraceServiceClient<Channel> {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{}", rig.grpc())).unwrap();
    TraceServiceClient::new(endpoint.connect_lazy())
}

fn post(path: &str, encoding: Option<&str>, body: Vec<u8>) -> Request<Feed> {
    post_to(path, PROTOBUF, encoding, body)
}

fn spans(telemetry: Option<Telemetry>) -> Spans {
    match telemetry {
        Some(Telemetry::Spans(spans)) => spans,
        other => panic!("{other:?}"),
    }
}

/// Guarantees: traces arrive as exactly the sent bytes, over both protocols and in every encoding, with an empty
/// answer, and are counted as spans.
#[tokio::test]
async fn traces_arrive() {
    let mut rig = OtlpRig::start(LOOPBACK).await;
    let sent = request(vec![span(1), span(2)]);
    let mut client = client(&rig);
    let (answer, taken) = tokio::join!(client.export(sent.clone()), rig.consumer.take());
    assert_eq!(answer.unwrap().into_inner(), ExportTraceServiceResponse::default());
    let taken = spans(taken);
    assert_eq!((taken.received().unwrap(), taken.peer.as_deref()), (&sent.encode_to_vec().into(), Some("127.0.0.1")));

    let plain = sent.encode_to_vec();
    for (encoding, body) in [(None, plain.clone()), (Some("gzip"), gzip(&plain)), (Some("zstd"), zstandard(&plain))] {
        let (answer, taken) = tokio::join!(http1(rig.http(), post("/v1/traces", encoding, body)), rig.consumer.take());
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/x-protobuf")));
        assert_eq!(ExportTraceServiceResponse::decode(answer.body).unwrap(), ExportTraceServiceResponse::default());
        assert_eq!(spans(taken).received().unwrap(), &plain);
    }
    assert_eq!(
        (rig.spans("accepted", "grpc"), rig.spans("accepted", "http"), rig.samples("accepted", "http")),
        (2, 6, 0)
    );
    assert_eq!(rig.consumer.memory_used(), 0);
}

/// Guarantees: if some spans break a rule, the answer is a partial success that names the place, and the others arrive;
/// a request without an acceptable span is refused.
#[tokio::test]
async fn some_spans_refused_is_partial_success() {
    let mut rig = OtlpRig::start(LOOPBACK).await;
    let bad = Span { trace_id: vec![1; 3], ..span(2) };
    let mut client = client(&rig);
    let (answer, taken) =
        tokio::join!(client.export(request(vec![span(1), bad.clone(), bad.clone()])), rig.consumer.take());
    let partial = answer.unwrap().into_inner().partial_success.unwrap();
    assert_eq!(partial.rejected_spans, 2);
    let says = "resource_spans[0].scope_spans[0].spans[1].trace_id: has 3 bytes where an id has 16 (and 1 more)";
    assert_eq!(partial.error_message, says);
    assert_eq!(spans(taken).spans().len(), 1);
    assert_eq!((rig.spans("accepted", "grpc"), rig.spans("failed", "grpc")), (1, 2));

    let status = client.export(request(vec![bad])).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(rig.consumer.totals().dropped.get(profbridge_model::Reason::Malformed).spans, 3);
    let empty = client.export(request(Vec::new())).await.unwrap().into_inner();
    assert_eq!(empty, ExportTraceServiceResponse::default());
}

/// Guarantees: a resource that is from this machine but names no host gets this host's names after its own attributes;
/// a resource that names a host stays unchanged.
#[tokio::test]
async fn resources_get_what_they_lack() {
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
    let yaml = LOOPBACK.replace("{protocols", "{resource: {insert: {team: a}}, protocols");
    let mut rig = OtlpRig::start(&yaml).await;
    let text = |key: &str, value: &str| KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(Value::StringValue(value.to_owned())) }),
        key_strindex: 0,
    };
    let mut sent = request(vec![span(1)]);
    let resource = opentelemetry_proto::tonic::resource::v1::Resource {
        attributes: vec![text("service.name", "shop"), text("host.name", "other")],
        ..Default::default()
    };
    sent.resource_spans[0].resource = Some(resource);
    let mut client = client(&rig);
    let (answer, taken) = tokio::join!(client.export(sent.clone()), rig.consumer.take());
    answer.unwrap();
    let written = profbridge_wire::otlp::traces::encode(&spans(taken));
    sent.resource_spans[0].resource.as_mut().unwrap().attributes.push(text("team", "a"));
    assert_eq!(ExportTraceServiceRequest::decode(&*written).unwrap(), sent);
}

/// Guarantees: if no pipeline accepts traces, they are refused permanently over both protocols, with advice; metrics
/// and logs are always refused.
#[tokio::test]
async fn unaccepted_signals_are_refused() {
    let rig = OtlpRig::start_for_profiles(LOOPBACK).await;
    let status = client(&rig).export(request(vec![span(1)])).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    for says in ["takes profiles and no other", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "pipeline called `traces`"] {
        assert!(status.message().contains(says), "{status}");
    }
    for path in ["/v1/traces", "/v1/metrics", "/v1/logs"] {
        assert_eq!(http1(rig.http(), post(path, None, Vec::new())).await.status, 404, "{path}");
    }
    let rig = OtlpRig::start(LOOPBACK).await;
    let answer = http1(rig.http(), post("/v1/logs", None, Vec::new())).await;
    let message = rpc_status(&answer).message;
    assert!(message.contains("takes profiles and traces and no other"), "{message}");
    assert_eq!((answer.status, rig.spans("accepted", "http")), (404, 0));
}

/// Guarantees: signals that no pipeline accepts are forwarded unchanged to the configured server, and its answers are
/// returned, including refusals; accepted signals are not forwarded.
#[tokio::test]
async fn unsupported_signals_are_forwarded() {
    let mut server = OtlpRig::start(LOOPBACK).await;
    let yaml = format!(
        "{{protocols: {{grpc: {{endpoint: '127.0.0.1:0', forward_unsupported: 'http://{}'}}, \
         http: {{endpoint: '127.0.0.1:0', forward_unsupported: 'http://{}/'}}}}}}",
        server.grpc(),
        server.http()
    );
    let mut rig = OtlpRig::start_for_profiles(&yaml).await;
    let sent = request(vec![span(1)]);
    let mut to_rig = client(&rig);
    let (answer, taken) = tokio::join!(to_rig.export(sent.clone()), server.consumer.take());
    assert_eq!(answer.unwrap().into_inner(), ExportTraceServiceResponse::default());
    assert_eq!(spans(taken).received().unwrap(), &sent.encode_to_vec());
    let packed = gzip(&sent.encode_to_vec());
    let (answer, taken) =
        tokio::join!(http1(rig.http(), post("/v1/traces", Some("gzip"), packed)), server.consumer.take());
    assert_eq!((answer.status, spans(taken).spans().len()), (200, 1));
    // The refusal comes from the other server, in its words.
    let status = to_rig.export(request(vec![Span::default()])).await.unwrap_err();
    assert_eq!((status.code(), status.message().contains("trace_id: is missing")), (Code::InvalidArgument, true));
    let answer = http1(rig.http(), post("/v1/metrics", None, Vec::new())).await;
    let message = rpc_status(&answer).message;
    assert!(message.contains("takes profiles and traces and no other"), "{message}");
    let (_, profiles) = rig.export(rig.client(), small()).await;
    assert_eq!(profiles.observations(), 3);
    assert_eq!(rig.consumer.totals().notes.iter().find(|(name, _)| *name == "otlp_requests_handed_on").unwrap().1, 4);
    assert_eq!(rig.consumer.memory_used(), 0);
}

/// Guarantees: if a server sends a forwarded request back to profbridge, it is refused instead of forwarded again.
#[tokio::test]
async fn forwarding_in_a_circle() {
    let [grpc, http] = [0; 2].map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let yaml = format!(
        "{{protocols: {{grpc: {{endpoint: '{grpc}', forward_unsupported: 'http://{grpc}'}}, \
         http: {{endpoint: '{http}', forward_unsupported: 'http://{http}'}}}}}}"
    );
    let rig = OtlpRig::start_for_profiles(&yaml).await;
    let status = client(&rig).export(request(vec![span(1)])).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    assert_eq!(http1(rig.http(), post("/v1/metrics", None, Vec::new())).await.status, 508);
    let notes = rig.consumer.totals().notes;
    assert_eq!(notes.iter().find(|(name, _)| *name == "otlp_requests_handed_on").unwrap().1, 2);
}

/// Guarantees: while the server for other signals is unreachable, the answer asks senders to retry.
#[tokio::test]
async fn forwarding_to_an_unreachable_server() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let yaml = format!(
        "{{protocols: {{grpc: {{endpoint: '127.0.0.1:0', forward_unsupported: 'http://{closed}'}}, \
         http: {{endpoint: '127.0.0.1:0', forward_unsupported: 'http://{closed}'}}}}}}"
    );
    let rig = OtlpRig::start_for_profiles(&yaml).await;
    let status = client(&rig).export(request(vec![span(1)])).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains(&closed.to_string()), "{status}");
    let answer = http1(rig.http(), post("/v1/logs", None, Vec::new())).await;
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
}
