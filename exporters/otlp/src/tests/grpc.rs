use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesPartialSuccess, ExportProfilesServiceResponse,
};
use profbridge_engine::component::Retry;
use profbridge_model::Reason;
use profbridge_net::compression::Compression;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::peer::{collector, grpc_response, pack, partial, raw, response};
use super::*;

const OK: fn() -> super::peer::ExportResult = || Ok(ExportProfilesServiceResponse::default());

fn to(address: std::net::SocketAddr, more: &str) -> OtlpExporter {
    exporter(Protocol::Grpc, &format!("{{endpoint: '{address}', tls: {{insecure: true}}, {more}}}"))
}

/// Guarantees: a real gRPC server receives the complete message with each compression, with our headers and a deadline.
/// rule: otlp#send-grpc, otlp#send-compression
#[tokio::test]
async fn a_server_gets_the_message() {
    for (compression, encoding) in [("none", None), ("gzip", Some("gzip")), ("zstd", Some("zstd"))] {
        let mut peer = collector(None, OK).await;
        let exporter = to(peer.address, &format!("compression: {compression}, headers: {{x-token: abc}}"));
        let profiles = with_ids(&batch(&[3]));
        assert_eq!(send(&exporter, &profiles).await, Ok(Accepted::default()));
        let (headers, message) = peer.seen.recv().await.unwrap();
        assert_eq!(prost::Message::encode_to_vec(&message), profiles.received.unwrap());
        let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(header("grpc-encoding").as_deref(), encoding);
        assert_eq!(header("x-token").as_deref(), Some("abc"));
        assert_eq!(header("grpc-timeout").as_deref(), Some("30000m"));
        assert!(header("user-agent").unwrap().starts_with("profbridge/"));
    }
}

/// Guarantees: each status is handled by the specification's table, and shown with the peer's message.
/// rule: otlp#retry-grpc, otlp#retry-grpc-others
#[tokio::test]
async fn the_retry_table() {
    let retryable =
        [Code::Cancelled, Code::DeadlineExceeded, Code::Aborted, Code::OutOfRange, Code::Unavailable, Code::DataLoss];
    for number in 1..=16 {
        let code = Code::from_i32(number);
        let peer = collector(None, move || Err(Status::new(code, "the\nreason"))).await;
        let error = send(&to(peer.address, ""), &batch(&[1])).await.unwrap_err();
        let (retry, reason) = match retryable.contains(&code) {
            true => (Retry::Later, Reason::RetriesExhausted),
            false => (Retry::Never, Reason::RejectedByPeer),
        };
        assert_eq!((error.retry, error.reason), (retry, reason), "{code:?}");
        let start = format!("{} answers ", peer.address);
        assert!(error.message.starts_with(&start) && error.message.contains(": the reason"), "{error}");
    }
}

/// Guarantees: RetryInfo sets the delay, and makes RESOURCE_EXHAUSTED retryable. For final statuses it changes nothing.
/// rule: otlp#retry-grpc-exhausted
#[tokio::test]
async fn retry_info() {
    let pause = Duration::from_millis(7500);
    for (code, delay, retry) in [
        (Code::Unavailable, Some(pause), Retry::After(pause)),
        (Code::Unavailable, Some(Duration::ZERO), Retry::Later),
        (Code::ResourceExhausted, Some(pause), Retry::After(pause)),
        (Code::ResourceExhausted, None, Retry::Later),
        (Code::InvalidArgument, Some(pause), Retry::Never),
    ] {
        let peer = collector(None, move || {
            Err(Status::with_error_details(code, "busy", ErrorDetails::with_retry_info(delay)))
        });
        let error = send(&to(peer.await.address, ""), &batch(&[1])).await.unwrap_err();
        assert_eq!(error.retry, retry, "{code:?} {delay:?}");
        if code == Code::ResourceExhausted {
            assert_eq!(error.reason, Reason::RateLimited);
        }
    }
}

/// Guarantees: rejected profiles are counted as average observations, a warning alone rejects nothing, and neither is
/// an error that would cause a retry.
/// rule: otlp#send-partial-success, otlp#send-warning
#[tokio::test]
async fn partial_success() {
    for (rejected, message, expected, says) in [
        (1, "no", 7, Some("1 profiles were rejected: no")),
        (2, "", 14, Some("2 profiles were rejected")),
        (9, "all", 20, Some("9 profiles were rejected: all")),
        (0, "old agent", 0, Some("old agent")),
        (0, "", 0, None),
        (-4, "", 0, None),
    ] {
        let peer = collector(None, move || {
            let partial = ExportProfilesPartialSuccess { rejected_profiles: rejected, error_message: message.into() };
            Ok(ExportProfilesServiceResponse { partial_success: Some(partial) })
        });
        let peer = peer.await;
        let accepted = send(&to(peer.address, ""), &batch(&[1, 2, 17])).await.unwrap();
        assert_eq!(accepted.lost().total(), expected);
        assert_eq!(accepted.message, says.map(|says| format!("{}: {says}", peer.address)));
    }
}

/// Guarantees: a partial success is parsed from an answer compressed like the request, as grpc-go's servers send it.
/// The request announces the accepted encodings.
/// rule: otlp#send-partial-success
#[tokio::test]
async fn compressed_answers() {
    for coding in [Compression::GZIP, Compression::ZSTD] {
        let name = coding.content_encoding().unwrap();
        let mut peer = raw(None, move || compressed(name, &pack(coding, &partial(2, "no room")))).await;
        let accepted = send(&to(peer.address, ""), &batch(&[4, 5, 6])).await.unwrap();
        assert_eq!(accepted.lost().total(), 10, "two of three profiles, of five observations on average");
        assert_eq!(accepted.message, Some(format!("{}: 2 profiles were rejected: no room", peer.address)));
        assert_eq!(accepted.notes, []);
        let (head, _) = peer.seen.recv().await.unwrap();
        assert_eq!(head.headers["grpc-accept-encoding"], "zstd,gzip,deflate,identity");
    }
}

/// Guarantees: if an answer has an encoding that was not requested, is damaged, or expands beyond the limit, the
/// request counts as accepted, since the status says so, and the answer is logged and counted.
/// rule: otlp#send-answer-size
#[tokio::test]
async fn unreadable_answers_are_counted() {
    let bomb = pack(Compression::GZIP, &vec![0; 5 << 20]);
    assert!(bomb.len() < 16 << 10);
    for (encoding, body, says) in [
        ("snappy", b"x".to_vec(), "snappy"),
        ("gzip", b"no gzip".to_vec(), "not valid gzip"),
        ("gzip", bomb, "larger than 4194304 bytes"),
        ("zstd", pack(Compression::ZSTD, b"\xff\xff"), "no response of the export service"),
    ] {
        let peer = raw(None, move || compressed(encoding, &body)).await;
        let accepted = send(&to(peer.address, ""), &batch(&[1])).await.unwrap();
        assert_eq!((accepted.lost().total(), accepted.notes), (0, vec![("otlp_answers_unreadable", 1)]));
        let message = accepted.message.unwrap();
        assert!(message.contains(says) && message.contains("unknown whether a part was rejected"), "{message}");
    }
}

/// A gRPC answer of one compressed message.
fn compressed(encoding: &str, message: &[u8]) -> ::http::Response<super::peer::ResponseBody> {
    let mut body = vec![1];
    body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend(message);
    let mut response = grpc_response(body, &[("grpc-status", "0")]);
    response.headers_mut().insert("grpc-encoding", encoding.parse().unwrap());
    response
}

/// Guarantees: all wrong answers of a peer or a proxy lead to a result and no panic: details that are not base64, an
/// unknown status, an answer that is not gRPC, a success without a message, an answer without a status.
#[tokio::test]
async fn strange_answers() {
    let grpc = ("content-type", "application/grpc");
    let later = Err(Retry::Later);
    let never = Err(Retry::Never);
    type Make = Box<dyn Fn() -> ::http::Response<super::peer::ResponseBody> + Send + Sync>;
    let strange: [(Make, Result<&str, Retry>); 15] = [
        (Box::new(move || response(200, &[grpc, ("grpc-status", "14"), ("grpc-status-details-bin", "!!")], "")), later),
        (
            Box::new(move || response(200, &[grpc, ("grpc-status", "8"), ("grpc-status-details-bin", "AAAA")], "")),
            never,
        ),
        (Box::new(move || response(200, &[grpc, ("grpc-status", "99")], "")), never),
        (Box::new(move || response(200, &[grpc, ("grpc-status", "14"), ("grpc-message", "%ff%")], "")), later),
        (Box::new(|| response(200, &[("content-type", "text/html")], "<html>")), never),
        (Box::new(|| response(503, &[], "overloaded")), later),
        (Box::new(|| response(404, &[], "")), never),
        (Box::new(|| grpc_response(b"\0\0\0\0\0", &[("grpc-status", "0")])), Ok("")),
        (Box::new(|| grpc_response(b"\0\0\0\0\x02\xff\xff", &[("grpc-status", "0")])), Ok("no response of the export")),
        (Box::new(|| grpc_response(b"\x01\0\0\0\x01x", &[("grpc-status", "0")])), Ok("does not say how")),
        (Box::new(|| grpc_response(b"\x07\0\0\0\x01x", &[("grpc-status", "0")])), Ok("the flag 7")),
        (Box::new(|| grpc_response(b"\0\0\0\0\x02x", &[("grpc-status", "0")])), Ok("not one whole message")),
        (Box::new(|| grpc_response(b"\0\0", &[("grpc-status", "0")])), Ok("cut off")),
        (Box::new(|| grpc_response(b"", &[("grpc-status", "0")])), Ok("no message")),
        (Box::new(|| grpc_response(b"\0\0\0\0\0", &[])), later),
    ];
    for (number, (answer, expected)) in strange.into_iter().enumerate() {
        let peer = raw(None, answer).await;
        match (send(&to(peer.address, ""), &batch(&[1])).await, expected) {
            (Ok(accepted), Ok(says)) => {
                assert_eq!(accepted.lost().total(), 0);
                assert!(accepted.message.unwrap_or_default().contains(says), "{number}");
            }
            (Err(error), Err(retry)) => assert_eq!(error.retry, retry, "{number}: {error}"),
            other => panic!("{number}: {other:?}"),
        }
    }
}

/// Guarantees: an answer of more than 4 MiB is not stored, even if it is valid, and the request counts as accepted; one
/// just below the limit is parsed.
/// rule: otlp#send-answer-size
#[tokio::test]
async fn an_endless_answer_is_bounded() {
    for (length, says) in [((4 << 20) - 64, "1 profiles were rejected"), (9 << 20, "larger than")] {
        let partial = ExportProfilesPartialSuccess { rejected_profiles: 1, error_message: "x".repeat(length) };
        let message = ExportProfilesServiceResponse { partial_success: Some(partial) };
        let message = prost::Message::encode_to_vec(&message);
        let framed = [&[0][..], &(message.len() as u32).to_be_bytes(), &message].concat();
        let peer = raw(None, move || grpc_response(&framed, &[("grpc-status", "0")])).await;
        let message = send(&to(peer.address, ""), &batch(&[1])).await.unwrap().message.unwrap();
        assert!(message.contains(says), "{}", &message[..message.len().min(200)]);
    }
}

/// Guarantees: requests to a peer that is unreachable or closes the connection are retried, and the peer is named once.
/// rule: otlp#no-answer
#[tokio::test]
async fn nobody_answers() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let closes = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        drop(stream);
        drop(listener);
    });
    let exporter = to(address, "");
    let error = send(&exporter, &batch(&[1])).await.unwrap_err();
    assert_eq!((error.retry, error.reason), (Retry::Later, Reason::RetriesExhausted), "{error}");
    assert_eq!(error.message.matches(&address.to_string()).count(), 1, "{error}");
    closes.await.unwrap();
    let error = send(&exporter, &batch(&[1])).await.unwrap_err();
    assert_eq!(error.retry, Retry::Later);
    assert!(error.message.starts_with(&format!("cannot connect to {address}")), "{error}");
}

/// Guarantees: an attempt may be dropped at any time; the next one uses the same channel.
#[tokio::test]
async fn attempts_may_be_dropped() {
    let calls = AtomicUsize::new(0);
    let (started, mut waiting) = tokio::sync::mpsc::unbounded_channel();
    let hang = raw(None, move || {
        started.send(()).unwrap_or_default();
        match calls.fetch_add(1, Ordering::Relaxed) {
            // A body that never ends.
            0 => ::http::Response::new(http_body_util::BodyExt::boxed_unsync(Endless)),
            _ => grpc_response(b"\0\0\0\0\0", &[("grpc-status", "0")]),
        }
    });
    let hang = hang.await;
    let exporter = to(hang.address, "");
    exporter.start(&profbridge_testkit::exporter_context("otlp")).await.unwrap();
    let requests = requests(&exporter, &batch(&[1]).into());
    tokio::select! {
        outcome = exporter.send(&requests[0]) => panic!("{outcome:?}"),
        Some(()) = waiting.recv() => {}
    }
    assert_eq!(exporter.send(&requests[0]).await, Ok(Accepted::default()));
}

struct Endless;

impl http_body::Body for Endless {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, std::convert::Infallible>>> {
        std::task::Poll::Pending
    }
}

/// Guarantees: a peer that echoes our secrets does not get them into a message, and messages have a limited length.
#[tokio::test]
async fn messages_hold_no_secrets() {
    let long = "x".repeat(10_000);
    let peer = collector(None, move || Err(Status::unauthenticated(format!("bad token hush-hush {long}")))).await;
    let exporter = to(peer.address, "headers: {authorization: Bearer hush-hush}");
    let error = send(&exporter, &batch(&[1])).await.unwrap_err();
    assert!(error.message.contains("bad token [redacted] xxx"), "{error}");
    assert!(!error.message.contains("hush") && error.message.len() < 500, "{error}");
}
