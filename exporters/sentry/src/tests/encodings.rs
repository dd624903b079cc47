use profbridge_engine::component::{Exporter, Retry};
use profbridge_model::Reason;

use super::server::{ReceivedRequest, Reply, Server};
use super::{exporter_to, request};

fn encodings(server: &Server) -> Vec<String> {
    let name = |request: &ReceivedRequest| request.header("content-encoding").unwrap_or("none").to_owned();
    server.received().iter().map(name).collect()
}

/// A server that answers zstd with a given status.
async fn without_zstd(status: u16) -> Server {
    Server::start(move |request| match request.header("content-encoding") {
        Some("zstd") => Reply::status(status),
        _ => Reply::status(200),
    })
    .await
}

/// Guarantees: each setting is used, and the sent body can be decompressed.
#[tokio::test]
async fn each_setting() {
    for (setting, encoding) in [("auto", "zstd"), ("zstd", "zstd"), ("gzip", "gzip"), ("none", "none")] {
        let server = Server::always(Reply::status(200)).await;
        let exporter = exporter_to(&server, &format!("compression: {setting}")).await;
        for _ in 0..3 {
            exporter.send(&request(&exporter)).await.unwrap();
        }
        assert_eq!(encodings(&server), [encoding; 3]);
        let received = server.received();
        assert_eq!(received[0].item("profile_chunk")["version"], "2");
        assert_eq!(received[0].plain(), received[2].plain(), "equal input, equal envelope");
    }
}

/// Guarantees: a server that answers zstd with 415 gets the same envelope as gzip at once, and only gzip afterwards,
/// including requests that were queued as zstd.
#[tokio::test]
async fn falls_back() {
    let server = without_zstd(415).await;
    let exporter = exporter_to(&server, "").await;
    let (first, waiting) = (request(&exporter), request(&exporter));
    exporter.send(&first).await.unwrap();
    exporter.send(&waiting).await.unwrap();
    exporter.send(&request(&exporter)).await.unwrap();
    assert_eq!(encodings(&server), ["zstd", "gzip", "gzip", "gzip"]);
    let received = server.received();
    assert!(received[1..].iter().all(|request| request.plain() == received[0].plain()));
}

/// Guarantees: a server that takes zstd for a malformed envelope is recognized as well. A 400 for gzip too, or one
/// after zstd was accepted, says nothing about zstd.
#[tokio::test]
async fn a_400_may_mean_zstd() {
    let server = without_zstd(400).await;
    let exporter = exporter_to(&server, "").await;
    exporter.send(&request(&exporter)).await.unwrap();
    exporter.send(&request(&exporter)).await.unwrap();
    assert_eq!(encodings(&server), ["zstd", "gzip", "gzip"]);

    let server = Server::always(Reply::status(400)).await;
    let exporter = exporter_to(&server, "").await;
    for _ in 0..2 {
        let error = exporter.send(&request(&exporter)).await.unwrap_err();
        assert_eq!((error.retry, error.reason), (Retry::Never, Reason::RejectedByPeer));
    }
    assert_eq!(encodings(&server), ["zstd", "gzip", "zstd", "gzip"]);

    let first = std::sync::atomic::AtomicBool::new(true);
    let server = Server::start(move |_| {
        let status = if first.swap(false, std::sync::atomic::Ordering::Relaxed) { 200 } else { 400 };
        Reply::status(status)
    })
    .await;
    let exporter = exporter_to(&server, "").await;
    exporter.send(&request(&exporter)).await.unwrap();
    exporter.send(&request(&exporter)).await.unwrap_err();
    assert_eq!(encodings(&server), ["zstd", "zstd"]);
}

/// Guarantees: if zstd is configured, only zstd is sent, and the message says so if the server refuses it.
#[tokio::test]
async fn zstd_means_zstd() {
    let server = without_zstd(415).await;
    let exporter = exporter_to(&server, "compression: zstd").await;
    let error = exporter.send(&request(&exporter)).await.unwrap_err();
    assert_eq!((error.retry, error.reason), (Retry::Never, Reason::RejectedByPeer));
    assert!(error.message.contains("does not take the compression"), "{error}");
    assert_eq!(encodings(&server), ["zstd"]);
}
