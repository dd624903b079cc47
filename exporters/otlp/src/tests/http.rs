use std::time::Duration;

use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesPartialSuccess, ExportProfilesServiceResponse,
};
use profbridge_engine::component::Retry;
use profbridge_model::Reason;
use profbridge_net::compression::{Coding, Compression, decompress};
use prost::Message as _;

use super::peer::{pack, partial, raw, response};
use super::*;

const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");

fn to(address: std::net::SocketAddr, more: &str) -> OtlpExporter {
    exporter(Protocol::Http, &format!("{{endpoint: 'http://{address}', {more}}}"))
}

/// Guarantees: the complete message arrives with each compression, at the specification's path, with its media type and
/// our headers.
/// rule: otlp#send-http-path
#[tokio::test]
async fn a_server_gets_the_message() {
    for (compression, encoding) in [("none", None), ("gzip", Some("gzip")), ("zstd", Some("zstd"))] {
        let mut peer = raw(None, || response(200, &[PROTOBUF], "")).await;
        let exporter = to(peer.address, &format!("compression: {compression}, headers: {{x-token: abc}}"));
        let profiles = with_ids(&batch(&[3]));
        assert_eq!(send(&exporter, &profiles).await, Ok(Accepted::default()));
        let (head, body) = peer.seen.recv().await.unwrap();
        assert_eq!((head.method.as_str(), head.uri.path()), ("POST", "/v1development/profiles"));
        let header = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap());
        assert_eq!(header("content-type"), Some(PROTOBUF.1));
        assert_eq!(header("content-encoding"), encoding);
        assert_eq!(header("x-token"), Some("abc"));
        let message = decompress(Coding::parse(encoding).unwrap(), body, 1 << 20).unwrap();
        assert_eq!(&message[..], &profiles.received.unwrap()[..]);
    }
}

/// Guarantees: each status is handled by the specification's table.
/// rule: otlp#retry-http
#[tokio::test]
async fn the_retry_table() {
    for status in [400, 401, 403, 404, 405, 408, 413, 415, 418, 429, 500, 501, 502, 503, 504, 505, 599] {
        let peer = raw(None, move || response(status, &[], "")).await;
        let error = send(&to(peer.address, ""), &batch(&[1])).await.unwrap_err();
        let (retry, reason) = match status {
            429 => (Retry::Later, Reason::RateLimited),
            502..=504 => (Retry::Later, Reason::RetriesExhausted),
            _ => (Retry::Never, Reason::RejectedByPeer),
        };
        assert_eq!((error.retry, error.reason), (retry, reason), "{status}");
        assert!(error.message.starts_with(&format!("{} answers {status}", peer.address)), "{error}");
    }
}

/// Guarantees: Retry-After is used for retryable statuses, and only for those, even if the answer's body is unreadable.
/// rule: otlp#retry-after
#[tokio::test]
async fn retry_after() {
    let after = Retry::After(Duration::from_secs(17));
    for (status, retry) in
        [(429, after), (502, after), (503, after), (504, after), (500, Retry::Never), (413, Retry::Never)]
    {
        for length in [0, crate::settings::MAX_RESPONSE_BYTES + 1] {
            let peer = raw(None, move || response(status, &[("retry-after", "17")], "x".repeat(length))).await;
            let error = send(&to(peer.address, ""), &batch(&[1])).await.unwrap_err();
            assert_eq!(error.retry, retry, "{status} {length}");
        }
    }
    let peer = raw(None, || response(503, &[("retry-after", "Fri, 31 Dec 2100 23:59:59 GMT")], "")).await;
    let error = send(&to(peer.address, ""), &batch(&[1])).await.unwrap_err();
    assert!(matches!(error.retry, Retry::After(pause) if pause > Duration::from_secs(86_400)), "{error:?}");
}

/// Guarantees: the message of a `google.rpc.Status` in either encoding is shown, and plain text, but nothing else.
/// rule: otlp#error-message
#[tokio::test]
async fn error_bodies() {
    let status = tonic_types::pb::Status { code: 3, message: "bad index".into(), details: Vec::new() };
    let encoded = status.encode_to_vec();
    for (media_type, body, shown) in [
        ("application/x-protobuf", encoded, ": bad index"),
        ("application/json; charset=utf-8", br#"{"code":3,"message":"bad index"}"#.to_vec(), ": bad index"),
        ("application/json", b"{".to_vec(), ""),
        ("application/x-protobuf", b"\xff\xff".to_vec(), ""),
        ("text/plain", b"bad\r\n\x1b[31mindex".to_vec(), ": bad [31mindex"),
        ("text/html", b"<html>".to_vec(), ""),
    ] {
        let peer = raw(None, move || response(400, &[("content-type", media_type)], body.clone())).await;
        let error = send(&to(peer.address, ""), &batch(&[1])).await.unwrap_err();
        assert_eq!(error.message, format!("{} answers 400 Bad Request{shown}", peer.address));
    }
}

/// Guarantees: a partial success is counted; a success that is unreadable is a success with a warning.
/// rule: otlp#send-answer-size, otlp#send-partial-success
#[tokio::test]
async fn successes() {
    let partial = ExportProfilesPartialSuccess { rejected_profiles: 1, error_message: "no".into() };
    let partial = ExportProfilesServiceResponse { partial_success: Some(partial) }.encode_to_vec();
    let html = ("content-type", "text/html");
    for (status, media_type, body, rejected, says) in [
        (200, PROTOBUF, partial, 5, Some("1 profiles were rejected: no")),
        (200, PROTOBUF, Vec::new(), 0, None),
        (204, html, Vec::new(), 0, None),
        (200, PROTOBUF, b"\xff".to_vec(), 0, Some("no response of the export service")),
        (200, html, b"<html>".to_vec(), 0, Some("neither protobuf nor JSON")),
        (200, PROTOBUF, vec![0; (4 << 20) + 1], 0, Some("cannot be read")),
    ] {
        let peer = raw(None, move || response(status, &[media_type], body.clone())).await;
        let accepted = send(&to(peer.address, ""), &batch(&[5, 5])).await.unwrap();
        assert_eq!(accepted.lost().total(), rejected);
        match (says, accepted.message) {
            (Some(says), Some(message)) => assert!(message.contains(says), "{message}"),
            (says, message) => assert_eq!((says, message.as_deref()), (None, None)),
        }
    }
}

/// Guarantees: with `encoding: json` the body is JSON with the right media type, compressed or not. An answer in JSON
/// is parsed, with numbers as strings or as numbers, and one in protobuf as well.
/// rule: otlp#send-http-type
#[tokio::test]
async fn json() {
    const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");
    let said = r#"{"partialSuccess":{"rejectedProfiles":"1","errorMessage":"no"}}"#;
    for (compression, answer, rejected, message) in [
        ("none", response(200, &[JSON], "{}"), 0, None),
        ("gzip", response(200, &[JSON], said), 5, Some("1 profiles were rejected: no")),
        ("zstd", response(200, &[JSON], said.replace("\"1\"", "1")), 5, Some("1 profiles were rejected: no")),
        ("none", response(200, &[PROTOBUF], partial(1, "no")), 5, Some("1 profiles were rejected: no")),
        ("none", response(200, &[JSON], ""), 0, None),
        ("none", response(200, &[JSON], "[]"), 0, Some("no response of the export service")),
    ] {
        let answer = std::sync::Mutex::new(Some(answer));
        let mut peer = raw(None, move || answer.lock().unwrap().take().unwrap()).await;
        let exporter = to(peer.address, &format!("encoding: json, compression: {compression}"));
        let accepted = send(&exporter, &batch(&[5, 5])).await.unwrap();
        assert_eq!(accepted.lost().total(), rejected);
        match (message, &accepted.message) {
            (Some(says), Some(message)) => assert!(message.contains(says), "{message}"),
            (says, message) => assert_eq!((says, message.as_deref()), (None, None)),
        }
        let (head, body) = peer.seen.recv().await.unwrap();
        assert_eq!(head.uri.path(), "/v1development/profiles");
        assert_eq!(head.headers["content-type"], "application/json");
        let encoding = head.headers.get("content-encoding").map(|value| value.to_str().unwrap());
        let text = decompress(Coding::parse(encoding).unwrap(), body, 1 << 20).unwrap();
        assert_eq!(otlp::json::decode(&text, &Limits::default()).unwrap().profiles.observations(), 10);
    }
    let peer = raw(None, || response(400, &[JSON], r#"{"code":3,"message":"bad index"}"#)).await;
    let error = send(&to(peer.address, "encoding: json"), &batch(&[1])).await.unwrap_err();
    assert_eq!(error.message, format!("{} answers 400 Bad Request: bad index", peer.address));
}

/// Guarantees: compressed answers are decoded, of successes and of errors, and requests announce the supported
/// encodings. A success that cannot be decoded is logged and counted.
/// rule: otlp#send-partial-success
#[tokio::test]
async fn compressed_answers() {
    for coding in [Compression::GZIP, Compression::ZSTD] {
        let name = coding.content_encoding().unwrap();
        let headers = [PROTOBUF, ("content-encoding", name)];
        let mut peer = raw(None, move || response(200, &headers, pack(coding, &partial(1, "no")))).await;
        let accepted = send(&to(peer.address, ""), &batch(&[5, 5])).await.unwrap();
        assert_eq!((accepted.lost().total(), accepted.notes), (5, vec![]));
        assert_eq!(accepted.message, Some(format!("{}: 1 profiles were rejected: no", peer.address)));
        let (head, _) = peer.seen.recv().await.unwrap();
        assert_eq!(head.headers["accept-encoding"], "zstd, gzip, deflate, br, identity");

        let headers = [("content-type", "text/plain"), ("content-encoding", name)];
        let peer = raw(None, move || response(400, &headers, pack(coding, b"bad index"))).await;
        let error = send(&to(peer.address, ""), &batch(&[1])).await.unwrap_err();
        assert_eq!(error.message, format!("{} answers 400 Bad Request: bad index", peer.address));
    }
    let bomb = pack(Compression::GZIP, &vec![0; 5 << 20]);
    for (encoding, body, says) in [
        ("compress", b"x".to_vec(), "\"compress\""),
        ("gzip", b"x".to_vec(), "not valid gzip"),
        ("gzip", bomb, "larger than 4194304"),
    ] {
        let peer = raw(None, move || response(200, &[PROTOBUF, ("content-encoding", encoding)], body.clone())).await;
        let accepted = send(&to(peer.address, ""), &batch(&[1])).await.unwrap();
        assert_eq!((accepted.lost().total(), accepted.notes), (0, vec![("otlp_answers_unreadable", 1)]));
        assert!(accepted.message.unwrap().contains(says), "{says}");
    }
}

/// Guarantees: a redirect is final and its target is shown; it is not followed.
/// rule: otlp#redirects
#[tokio::test]
async fn redirects_are_not_followed() {
    let peer = raw(None, || response(307, &[("location", "http://other.invalid:1/secret")], "")).await;
    let error = send(&to(peer.address, ""), &batch(&[1])).await.unwrap_err();
    assert_eq!((error.retry, error.reason), (Retry::Never, Reason::RejectedByPeer));
    assert!(error.message.contains("other.invalid:1") && !error.message.contains("secret"), "{error}");
}

/// Guarantees: requests to a peer that is unreachable, closes the connection or is silent are retried, and the message
/// names the peer without the path.
/// rule: otlp#no-answer
#[tokio::test]
async fn nobody_answers() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let silent = tokio::spawn(async move {
        let (hung_up, _) = listener.accept().await.unwrap();
        drop(hung_up);
        listener.accept().await.unwrap()
    });
    let exporter =
        exporter(Protocol::Http, &format!("{{profiles_endpoint: 'http://{address}/secret', timeout: 300ms}}"));
    for _ in 0..2 {
        let error = send(&exporter, &batch(&[1])).await.unwrap_err();
        assert_eq!((error.retry, error.reason), (Retry::Later, Reason::RetriesExhausted), "{error}");
        assert!(error.message.contains(&address.to_string()) && !error.message.contains("secret"), "{error}");
    }
    drop(silent.await.unwrap());
    let error = send(&exporter, &batch(&[1])).await.unwrap_err();
    assert_eq!(error.retry, Retry::Later);
    assert!(error.message.starts_with(&format!("cannot connect to {address}")), "{error}");
}
