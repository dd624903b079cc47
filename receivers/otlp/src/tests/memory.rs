//! Requests while memory is short or an exporter's queue is full.

use profbridge_engine::component::{Rejected, Retry};
use profbridge_engine::delivery::Overflow;
use profbridge_model::Reason;
use tonic::Code;
use tonic_types::StatusExt as _;

use super::*;
use crate::http::PATH;

/// Guarantees: while the memory budget is used up, gRPC answers UNAVAILABLE with RetryInfo and HTTP 503 with
/// Retry-After, both counted as refused; once there is room again, the request is accepted.
/// rule: otlp#overload-grpc, otlp#overload-http
#[tokio::test]
async fn no_memory_means_later() {
    let mut rig = OtlpRig::start_with(settings(LOOPBACK), 8 << 20).await.unwrap();
    let held = rig.intake.admit(8 << 20).unwrap();
    let status = rig.client().export(small()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert_eq!(status.get_details_retry_info().unwrap().retry_delay, Some(Duration::from_secs(2)));

    let answer = http1(rig.http(), post(None, small().encode_to_vec())).await;
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("2")));
    let status = rpc_status(&answer);
    assert_eq!(status.code, Code::Unavailable as i32);
    assert_eq!(status.details[0].type_url, "type.googleapis.com/google.rpc.RetryInfo");
    assert_eq!((rig.requests("refused", "grpc"), rig.requests("refused", "http")), (1, 1));

    drop(held);
    rig.export(rig.client(), small()).await;
    assert_eq!(rig.consumer.memory_used(), 0);
}

/// Guarantees: while an exporter's queue is full, a request is refused before its body is read, in gRPC with
/// UNAVAILABLE and RetryInfo and over HTTP with 503 and Retry-After; nothing counts as lost, because the sender still
/// has the data; once there is room again, the request is accepted.
/// rule: otlp#overload-grpc, otlp#overload-http
#[tokio::test]
async fn a_full_queue_means_later() {
    let mut rig = OtlpRig::start(LOOPBACK).await;
    rig.consumer.set_full(Some(Overflow::Refuse));
    let status = rig.client().export(small()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("the queue of exporter test is full"), "{status}");
    assert_eq!(status.get_details_retry_info().unwrap().retry_delay, Some(Duration::from_secs(5)));

    // The body never arrives, so the answer must not wait for it.
    let (_open, body) = feed();
    let request = Request::post(PATH).header("host", "localhost").header("content-type", "application/x-protobuf");
    let answer = http1(rig.http(), request.header("expect", "100-continue").body(body).unwrap()).await;
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("5")));
    assert_eq!((rig.requests("refused", "grpc"), rig.requests("refused", "http")), (1, 1));
    assert!(rig.consumer.totals().dropped.is_none());

    rig.consumer.set_full(None);
    rig.export(rig.client(), small()).await;
    assert_eq!(rig.consumer.memory_used(), 0);
}

/// Guarantees: with `block_on_overflow` a request is not read until the queue has room.
#[tokio::test]
async fn request_can_wait_for_a_full_queue() {
    let mut rig = OtlpRig::start(LOOPBACK).await;
    rig.consumer.set_full(Some(Overflow::Wait));
    let mut client = rig.client();
    let sending = tokio::spawn(async move { client.export(small()).await });
    until(|| rig.consumer.waiting() == 1).await;
    assert!(!sending.is_finished());
    rig.consumer.set_full(None);
    assert!(rig.consumer.take().await.is_some());
    sending.await.unwrap().unwrap();
}

/// Guarantees: if memory runs out while a request is decompressed or decoded, the answer allows a retry.
#[tokio::test]
async fn memory_for_unpacking_is_asked_for() {
    let rig = OtlpRig::start_with(settings(LOOPBACK), 8 << 20).await.unwrap();
    let _held = rig.intake.admit(5 << 20).unwrap();
    let zipped = rig.client().send_compressed(tonic::codec::CompressionEncoding::Gzip);
    for mut client in [zipped, rig.client()] {
        let status = client.export(heavy(5 << 20)).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.get_details_retry_info().is_some());
    }
    assert_eq!(rig.consumer.memory_used(), 5 << 20);
}

/// Guarantees: a request that can never fit into the budget is refused permanently, so that it is not retried forever.
/// rule: otlp#overload-for-good
#[tokio::test]
async fn request_that_never_fits_is_refused_permanently() {
    let rig = OtlpRig::start_with(settings(LOOPBACK), 8 << 20).await.unwrap();
    for bytes in [9 << 20, 6 << 20] {
        let status = rig.client().export(heavy(bytes)).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{bytes}: {status}");
        assert!(status.get_details_retry_info().is_none());
        let answer = http1(rig.http(), post(None, heavy(bytes).encode_to_vec())).await;
        assert_eq!((answer.status, answer.header("retry-after")), (413, None), "{bytes}");
    }
    assert_eq!((rig.requests("refused", "grpc"), rig.consumer.memory_used()), (2, 0));
}

/// Guarantees: if a pipeline refuses a request and allows a retry, the answer is UNAVAILABLE or 503 with a delay, never
/// a status that clients do not retry; the samples count as refused.
#[tokio::test]
async fn pipelines_can_refuse() {
    let mut rig = OtlpRig::start(LOOPBACK).await;
    let why = |retry, reason| Rejected { component: "chunk".to_owned(), reason, retry, message: "no".to_owned() };
    for (retry, reason, code, http, retry_after) in [
        (Retry::Later, Reason::Shutdown, Code::Unavailable, 503, Some("1")),
        (Retry::After(Duration::from_millis(2500)), Reason::MemoryLimit, Code::Unavailable, 503, Some("3")),
        (Retry::Never, Reason::Malformed, Code::InvalidArgument, 400, None),
        (Retry::Never, Reason::TooLarge, Code::ResourceExhausted, 413, None),
        (Retry::Never, Reason::Unroutable, Code::Internal, 500, None),
    ] {
        let mut client = rig.client();
        let (result, _) = tokio::join!(client.export(small()), rig.consumer.reject(why(retry, reason)));
        let status = result.unwrap_err();
        assert_eq!(status.code(), code);
        assert_eq!(status.get_details_retry_info().is_some(), retry_after.is_some());
        let request = post(None, small().encode_to_vec());
        let (answer, _) = tokio::join!(http1(rig.http(), request), rig.consumer.reject(why(retry, reason)));
        assert_eq!((answer.status, answer.header("retry-after")), (http, retry_after));
        assert_eq!(rpc_status(&answer).code, code as i32);
    }
    assert_eq!((rig.samples("refused", "grpc"), rig.samples("refused", "http")), (10, 10));
}
