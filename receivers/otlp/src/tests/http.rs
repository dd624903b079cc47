//! HTTP as OTLP clients use it.

use ::http::Method;
use tonic::Code;

use super::*;
use crate::http::{EXPERIMENTAL, PATH};

/// Guarantees: a request in every encoding arrives completely, the answer has the request's content type, and full
/// success leaves `partial_success` unset.
/// rule: otlp#http-path, otlp#http-protobuf, otlp#http-answer-type, otlp#compression, otlp#success
#[tokio::test]
async fn exports() {
    let mut rig = OtlpRig::start(LOOPBACK).await;
    let message = small().encode_to_vec();
    for (encoding, body) in [
        (None, message.clone()),
        (Some("identity"), message.clone()),
        (Some("gzip"), gzip(&message)),
        (Some("zstd"), zstandard(&message)),
        (Some("deflate"), zlib(&message)),
    ] {
        let (answer, taken) = tokio::join!(http1(rig.http(), post(encoding, body)), rig.consumer.take());
        assert_eq!(response(&answer), ExportProfilesServiceResponse::default(), "{encoding:?}");
        let profiles = profiles(taken);
        assert_eq!(profiles.received.unwrap(), message);
        assert_eq!(profiles.peer.as_deref(), Some("127.0.0.1"));
    }
    assert_eq!((rig.samples("accepted", "http"), rig.requests("success", "http")), (10, 5));
    assert_eq!(rig.samples("accepted", "grpc"), 0);
}

/// Guarantees: HTTP/2 is served on the same port, and a content type with parameters is accepted.
#[tokio::test]
async fn http2_is_served_too() {
    let mut rig = OtlpRig::start(LOOPBACK).await;
    let request = Request::post(format!("http://localhost{PATH}"))
        .header("content-type", "Application/X-Protobuf; charset=utf-8");
    let request = request.body(whole(small().encode_to_vec())).unwrap();
    let mut client = http2(rig.http()).await;
    let (sent, taken) = tokio::join!(client.send_request(request), rig.consumer.take());
    assert_eq!(response(&ReadAnswer::of(sent.unwrap()).await), ExportProfilesServiceResponse::default());
    assert_eq!(profiles(taken).observations(), 3);
}

/// Guarantees: a body that cannot be decompressed or decoded is 400 with a google.rpc.Status that names the place, or
/// the possible layouts if the layout is ambiguous.
/// rule: otlp#bad-data-http, otlp#error-body
#[tokio::test]
async fn undecodable_is_400() {
    let rig = OtlpRig::start(LOOPBACK).await;
    for (encoding, body, says) in [
        (None, b"\x0a\x7f\x01".to_vec(), "request"),
        (None, unclear_layout(), "opentelemetry-proto 1.8, 1.9"),
        (Some("gzip"), b"no gzip".to_vec(), "not valid gzip"),
        (Some("zstd"), zstandard(b"xyz")[..6].to_vec(), "not valid zstd"),
    ] {
        let answer = http1(rig.http(), post(encoding, body)).await;
        assert_eq!(answer.status, 400, "{says}");
        let status = rpc_status(&answer);
        assert_eq!(status.code, Code::InvalidArgument as i32);
        assert!(status.message.contains(says), "{says}: {}", status.message);
        assert_eq!(status.details[0].type_url, "type.googleapis.com/google.rpc.BadRequest");
        assert_eq!(answer.header("retry-after"), None);
    }
    assert_eq!(rig.requests("failure", "http"), 4);
}

/// Guarantees: a body that exceeds the limit, compressed or decompressed, is 413, and a client that writes all of it
/// before it reads gets the answer instead of a connection reset.
/// rule: otlp#size-http
#[tokio::test]
async fn too_large_is_413() {
    let rig = OtlpRig::start(SMALL).await;
    let over = heavy(SMALL_LIMIT).encode_to_vec();
    let zeros = vec![0; 64 << 20];
    for (encoding, body) in [
        (None, over.clone()),
        (None, zeros.clone()),
        (Some("gzip"), gzip(&over)),
        (Some("zstd"), zstandard(&over)),
        (Some("deflate"), zlib(&over)),
        (Some("gzip"), gzip(&zeros)),
        (Some("zstd"), zstandard(&zeros)),
    ] {
        let answer = patiently(http1(rig.http(), post(encoding, body))).await;
        assert_eq!(answer.status, 413, "{encoding:?}");
        let status = rpc_status(&answer);
        assert_eq!(status.code, Code::ResourceExhausted as i32);
        assert!(status.message.contains("1048576"), "{}", status.message);
        assert_eq!(answer.header("retry-after"), None);
    }
    assert_eq!(rig.consumer.memory_used(), 0);
}

/// Guarantees: a content type other than protobuf and JSON is 415. So is JSON on the path of an earlier layout, where
/// the answer is in JSON.
/// rule: otlp#http-type, otlp#error-body
#[tokio::test]
async fn other_formats_are_415() {
    let rig = OtlpRig::start(LOOPBACK).await;
    let answer = http1(rig.http(), post_to(EXPERIMENTAL, "application/json", None, "{}")).await;
    assert_eq!((answer.status, answer.header("content-type")), (415, Some("application/json")));
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    assert!(
        text.starts_with("{\"code\":3,\"message\":\"profiles of an earlier layout are not taken in JSON"),
        "{text}"
    );

    let answer = http1(rig.http(), post_to(PATH, "text/plain", None, "{}")).await;
    assert_eq!(answer.status, 415);
    assert!(rpc_status(&answer).message.contains("application/x-protobuf"));
    let answer = http1(rig.http(), Request::post(PATH).header("host", "localhost").body(whole("x")).unwrap()).await;
    assert_eq!(answer.status, 415);
}

/// Guarantees: an unsupported encoding is 415, and the answer lists the supported ones.
/// rule: otlp#compression-unknown
#[tokio::test]
async fn unknown_encodings_are_415() {
    let rig = OtlpRig::start(LOOPBACK).await;
    for encoding in ["compress", "gzip, gzip"] {
        let answer = http1(rig.http(), post(Some(encoding), "x")).await;
        assert_eq!((answer.status, answer.header("accept-encoding")), (415, Some("zstd, gzip, deflate, br, identity")));
        assert_eq!(rpc_status(&answer).code, Code::Unimplemented as i32);
    }
}

/// Guarantees: a method other than POST is 405, and the answer names the allowed one.
/// rule: otlp#http-method
#[tokio::test]
async fn other_methods_are_405() {
    let rig = OtlpRig::start(LOOPBACK).await;
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let request = Request::builder().method(&method).uri(PATH).header("host", "localhost").body(whole("")).unwrap();
        let answer = http1(rig.http(), request).await;
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")));
        assert!(rpc_status(&answer).message.contains(method.as_str()));
    }
}

/// Guarantees: an unknown path is 404, and the answer names this path and the path for profiles.
/// rule: otlp#http-path
#[tokio::test]
async fn other_paths_are_404() {
    let rig = OtlpRig::start_for_profiles(LOOPBACK).await;
    for (path, says) in [
        ("/v1/profiles", "profiles are sent to /v1development/profiles"),
        ("/v1/traces", "set OTEL_EXPORTER_OTLP_TRACES_ENDPOINT to where traces go"),
        ("/v1/metrics", "set OTEL_EXPORTER_OTLP_METRICS_ENDPOINT to where metrics go"),
        ("/v1/logs", "set OTEL_EXPORTER_OTLP_LOGS_ENDPOINT to where logs go"),
        ("/v1development/profiles/", "profiles are sent to /v1development/profiles"),
        ("/", "profiles are sent to /v1development/profiles"),
    ] {
        let answer = http1(rig.http(), post_to(path, PROTOBUF, None, "x")).await;
        assert_eq!(answer.status, 404, "{path}");
        let message = rpc_status(&answer).message;
        assert!(message.contains(&format!("on {path}")) && message.contains(says), "{message}");
    }
}

/// Guarantees: gRPC on the HTTP port is refused with advice, and counted.
#[tokio::test]
async fn grpc_on_the_port_for_http() {
    let rig = OtlpRig::start(LOOPBACK).await;
    let path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    let answer = http1(rig.http(), post_to(path, "application/grpc", None, "")).await;
    let text = String::from_utf8_lossy(&answer.body);
    assert!(answer.status == 404 && text.contains("OTEL_EXPORTER_OTLP_PROTOCOL"), "{}: {text}", answer.status);
    let counted = "outcome=\"wrong_protocol\"} 1";
    assert!(rig.metrics.encode().lines().any(|line| line.contains("connections") && line.ends_with(counted)));
}
