//! gRPC from a peer that breaks the protocol's rules.

use ::http::{HeaderMap, Method, Version};
use profbridge_net::body::BodyLimits;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::*;
use crate::grpc::PATH;

pub(super) fn call(path: &str, content_type: &str, encoding: Option<&str>, body: Feed) -> Request<Feed> {
    let mut request = Request::builder()
        .method(Method::POST)
        .version(Version::HTTP_2)
        .uri(format!("http://profbridge{path}"))
        .header("content-type", content_type)
        .header("te", "trailers");
    if let Some(encoding) = encoding {
        request = request.header("grpc-encoding", encoding);
    }
    request.body(body).unwrap()
}

pub(super) fn framed(flag: u8, length: usize, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(length).unwrap().to_be_bytes();
    [&[flag], &length[..], message].concat()
}

/// Makes one call, and reads the status from the headers or the trailers of the answer.
pub(super) async fn outcome(address: SocketAddr, request: Request<Feed>) -> (HeaderMap, Status) {
    let response = patiently(http2(address).await.send_request(request)).await.unwrap();
    let (head, body) = response.into_parts();
    assert_eq!(head.status, 200);
    assert_eq!(head.headers["content-type"], "application/grpc");
    if let Some(status) = Status::from_header_map(&head.headers) {
        return (head.headers, status);
    }
    let collected = patiently(body.collect()).await.unwrap();
    let status = Status::from_header_map(collected.trailers().unwrap()).unwrap();
    (head.headers, status)
}

async fn export(rig: &OtlpRig, encoding: Option<&str>, body: Feed) -> Status {
    outcome(rig.grpc(), call(PATH, "application/grpc", encoding, body)).await.1
}

/// Guarantees: bytes that are not protobuf, and a dictionary that breaks a rule, are INVALID_ARGUMENT with the place in
/// google.rpc.BadRequest.
/// rule: otlp#bad-data-grpc
#[tokio::test]
async fn undecodable_is_invalid_argument() {
    let rig = OtlpRig::start(LOOPBACK).await;
    for message in [&b"\x0a\x7f\x01"[..], b"\xff\xff\xff", &[0x12, 2, 0x2a, 0x7f]] {
        let status = export(&rig, None, whole(framed(0, message.len(), message))).await;
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        let violations = status.get_details_bad_request().unwrap().field_violations;
        assert!(!violations[0].field.is_empty() && !violations[0].description.is_empty(), "{violations:?}");
        assert!(status.get_details_retry_info().is_none());
    }
    assert_eq!(rig.requests("failure", "grpc"), 3);
}

/// Guarantees: every broken frame is INVALID_ARGUMENT, and none is INTERNAL.
#[tokio::test]
async fn broken_frames_are_invalid_argument() {
    let rig = OtlpRig::start(LOOPBACK).await;
    let message = small().encode_to_vec();
    for (encoding, body, says) in [
        (None, Vec::new(), "ended after 0 bytes"),
        (None, vec![0, 0, 0], "ended after 3 bytes"),
        (None, framed(0, message.len() + 1, &message), "announces"),
        (None, framed(0, message.len() - 1, &message), "something follows"),
        (None, [framed(0, 0, b""), framed(0, 0, b"")].concat(), "something follows"),
        (None, framed(2, message.len(), &message), "its flag is 2"),
        (None, framed(1, message.len(), &message), "names no compression"),
        (Some("identity"), framed(1, message.len(), &message), "names no compression"),
        (Some("gzip"), framed(1, message.len(), &message), "not valid gzip"),
        (Some("zstd"), framed(1, message.len(), &message), "not valid zstd"),
        (Some("gzip"), framed(1, 20, &gzip(&message)[..20]), "not valid gzip"),
    ] {
        let (sender, feed) = feed();
        sender.send(Ok(body.into())).unwrap();
        drop(sender);
        let status = export(&rig, encoding, feed).await;
        assert_eq!(status.code(), Code::InvalidArgument, "{says}: {status}");
        assert!(status.message().contains(says), "{says}: {status}");
    }
    assert_eq!(rig.consumer.memory_used(), 0);
}

/// Guarantees: bytes that are not UTF-8 in a string are replaced without refusing the request, the answer warns the
/// sender, and the strings are counted. The original bytes are not forwarded, because a peer would refuse them.
/// rule: otlp#warning
#[tokio::test]
async fn text_that_is_not_utf8_is_replaced() {
    let mut rig = OtlpRig::start(LOOPBACK).await;
    let mut message = small().encode_to_vec();
    // Adds a string at the end of the string table: protobuf allows a dictionary in several pieces.
    message.extend([0x12, 4, 0x2a, 2, b'a', 0xff]);
    let request = call(PATH, "application/grpc", None, whole(framed(0, message.len(), &message)));
    let address = rig.grpc();
    let answer =
        async { http2(address).await.send_request(request).await.unwrap().collect().await.unwrap().to_bytes() };
    let (answer, taken) = tokio::join!(answer, rig.consumer.take());
    let response = ExportProfilesServiceResponse::decode(&answer[5..]).unwrap();
    let partial = response.partial_success.unwrap();
    assert_eq!(partial.rejected_profiles, 0, "a warning");
    assert_eq!(partial.error_message, "1 strings are not UTF-8, what is not was replaced by U+FFFD");
    let profiles = profiles(taken);
    assert!(profiles.received.is_none());
    assert!(
        (0..profiles.dictionary().tables().strings.len() as u32)
            .any(|index| profiles.dictionary().string(profbridge_model::StringId::new(index)) == "a\u{fffd}")
    );
    assert_eq!(rig.consumer.totals().notes, [("otlp_strings_replaced", 1)]);
}

/// Guarantees: a message that arrives byte by byte is assembled, including its frame.
#[tokio::test]
async fn pieces_are_put_together() {
    let mut rig = OtlpRig::start(LOOPBACK).await;
    let message = small().encode_to_vec();
    let (sender, body) = feed();
    for byte in framed(0, message.len(), &message) {
        sender.send(Ok(Bytes::copy_from_slice(&[byte]))).unwrap();
    }
    drop(sender);
    let mut client = http2(rig.grpc()).await;
    let (response, taken) =
        tokio::join!(client.send_request(call(PATH, "application/grpc+proto", None, body)), rig.consumer.take());
    assert_eq!(response.unwrap().status(), 200);
    assert_eq!(profiles(taken).received.unwrap(), message);
}

/// Guarantees: a message in any supported encoding is accepted, and so is an uncompressed message although the header
/// names an encoding.
/// rule: otlp#compression
#[tokio::test]
async fn encodings_are_undone() {
    let mut rig = OtlpRig::start(LOOPBACK).await;
    let message = small().encode_to_vec();
    for (encoding, flag, data) in [
        ("gzip", 1, gzip(&message)),
        ("zstd", 1, zstandard(&message)),
        ("deflate", 1, zlib(&message)),
        ("gzip", 0, message.clone()),
    ] {
        let request = call(PATH, "application/grpc", Some(encoding), whole(framed(flag, data.len(), &data)));
        let ((_, status), taken) = tokio::join!(outcome(rig.grpc(), request), rig.consumer.take());
        assert_eq!(status.code(), Code::Ok, "{encoding}: {status}");
        assert_eq!(profiles(taken).received.unwrap(), message);
    }
}

/// Guarantees: an unsupported encoding is UNIMPLEMENTED, and the answer lists the supported ones.
/// rule: otlp#compression-unknown
#[tokio::test]
async fn an_unknown_encoding_is_unimplemented() {
    let rig = OtlpRig::start(LOOPBACK).await;
    let request = call(PATH, "application/grpc", Some("snappy"), whole(framed(1, 1, b"x")));
    let (headers, status) = outcome(rig.grpc(), request).await;
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("snappy"), "{status}");
    assert_eq!(headers["grpc-accept-encoding"], "zstd,gzip,deflate,identity");
}

/// Guarantees: an unknown service or method is UNIMPLEMENTED, and the answer names the supported one.
/// rule: otlp#grpc-service
#[tokio::test]
async fn unknown_services_are_unimplemented() {
    let rig = OtlpRig::start_for_profiles(LOOPBACK).await;
    let package = "opentelemetry.proto.collector";
    for (path, says) in [
        (
            format!("/{package}.profiles.v1.ProfilesService/Export"),
            "v1development.ProfilesService, and those of v1experimental",
        ),
        (
            format!("/{package}.trace.v1.TraceService/Export"),
            "set OTEL_EXPORTER_OTLP_TRACES_ENDPOINT to where traces go",
        ),
        (format!("/{package}.metrics.v1.MetricsService/Export"), "set OTEL_EXPORTER_OTLP_METRICS_ENDPOINT to where"),
        (format!("/{package}.logs.v1.LogsService/Export"), "set OTEL_EXPORTER_OTLP_LOGS_ENDPOINT to where logs go"),
        (format!("/{package}.profiles.v1development.ProfilesService/Import"), "unknown method Import"),
        ("/grpc.health.v1.Health/Check".to_owned(), "unknown service grpc.health.v1.Health"),
        ("/".to_owned(), "unknown service"),
    ] {
        let (_, status) = outcome(rig.grpc(), call(&path, "application/grpc", None, whole(framed(0, 0, b"")))).await;
        assert_eq!(status.code(), Code::Unimplemented, "{path}");
        assert!(status.message().contains(says), "{path}: {status}");
    }
}

/// Guarantees: a request that is not gRPC gets an HTTP status, as gRPC's PROTOCOL-HTTP2.md requires.
#[tokio::test]
async fn what_is_no_grpc_is_415() {
    let rig = OtlpRig::start(LOOPBACK).await;
    for content_type in ["application/x-protobuf", "application/grpc-web", "application/grpc+json", ""] {
        let request = call(PATH, content_type, None, whole("x"));
        let response = http2(rig.grpc()).await.send_request(request).await.unwrap();
        let answer = ReadAnswer::of(response).await;
        assert_eq!(answer.status, 415, "{content_type}");
        assert!(String::from_utf8(answer.body.to_vec()).unwrap().contains("4318"));
    }
    let mut request = call(PATH, "application/grpc", None, whole("x"));
    *request.method_mut() = Method::PUT;
    let answer = ReadAnswer::of(http2(rig.grpc()).await.send_request(request).await.unwrap()).await;
    assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")));
}

/// Guarantees: a frame that claims 2 GiB, or a length just above the limit, is refused before its content arrives; one
/// that claims exactly the limit and sends nothing occupies no memory.
/// rule: otlp#size-grpc
#[tokio::test]
async fn lying_lengths_cost_nothing() {
    let rig = OtlpRig::start(LOOPBACK).await;
    for length in [1 << 31, (64 << 20) + 1] {
        let status = export(&rig, None, whole(framed(0, length, b""))).await;
        assert_eq!(status.code(), Code::ResourceExhausted, "{length}: {status}");
    }
    let (sender, body) = feed();
    sender.send(Ok(framed(0, 64 << 20, b"x").into())).unwrap();
    let mut client = http2(rig.grpc()).await;
    let pending = tokio::spawn(async move { client.send_request(call(PATH, "application/grpc", None, body)).await });
    until(|| rig.consumer.memory_used() > 0).await;
    assert_eq!(rig.consumer.memory_used(), 64 * 1024);
    drop(sender);
    let response = patiently(pending).await.unwrap().unwrap();
    assert_eq!(Status::from_header_map(response.headers()).unwrap().code(), Code::InvalidArgument);
    assert_eq!(rig.consumer.memory_used(), 0);
}

/// Guarantees: a client that stalls in the middle of a message gets DEADLINE_EXCEEDED after the timeout, which OTLP
/// clients retry, and its memory is released.
#[tokio::test]
async fn a_slow_client_is_cut() {
    let mut settings = settings(LOOPBACK);
    let grpc = settings.grpc.as_mut().unwrap();
    grpc.body = BodyLimits { timeout: Duration::from_millis(200), ..grpc.body };
    let rig = OtlpRig::start_with(settings, PLENTY).await.unwrap();
    let (sender, body) = feed();
    sender.send(Ok(framed(0, 100_000, b"half").into())).unwrap();
    let status = export(&rig, None, body).await;
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert_eq!((rig.consumer.memory_used(), rig.requests("failure", "grpc")), (0, 1));
    drop(sender);
}

/// Guarantees: a client that disconnects in the middle of a message leaves nothing but a counted failure.
#[tokio::test]
async fn a_client_that_goes_away_is_counted() {
    let rig = OtlpRig::start(LOOPBACK).await;
    let (sender, body) = feed();
    sender.send(Ok(framed(0, 100_000, b"half").into())).unwrap();
    let mut client = http2(rig.grpc()).await;
    let pending = tokio::spawn(async move { client.send_request(call(PATH, "application/grpc", None, body)).await });
    until(|| rig.consumer.memory_used() > 0).await;
    sender.send(Err(std::io::Error::other("gone"))).unwrap();
    assert!(patiently(pending).await.unwrap().is_err());
    until(|| rig.requests("failure", "grpc") == 1).await;
    until(|| rig.consumer.memory_used() == 0).await;
}
