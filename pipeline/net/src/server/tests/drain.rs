//! Tests of how a server and its connections end.

use tokio::net::TcpStream;

use super::*;

/// Guarantees: a shutdown frees the port, closes idle connections, and lets running requests finish.
#[tokio::test]
async fn shutdown_drains() {
    let (service, mut calls, release) = gated();
    let running = start(service, None, ServerLimits::default()).await;
    let mut idle = TcpStream::connect(running.addr).await.unwrap();
    let first = tokio::spawn(exchange(running.addr, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"));
    let mut sender = http2(running.addr).await;
    let second = tokio::spawn(async move { answer(sender.send_request(post(b"")).await.unwrap()).await });
    calls.recv().await.unwrap();
    calls.recv().await.unwrap();

    running.trigger.trigger();
    assert_eq!(read_to_end(&mut idle).await, "");
    let again = async {
        while Listener::bind(&running.addr.to_string()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), again).await.expect("the port is free");
    assert!(!running.done.is_finished());

    release.notify_one();
    release.notify_one();
    assert!(first.await.unwrap().ends_with("drained"));
    assert_eq!(second.await.unwrap(), "drained");
    assert_eq!(running.done.await.unwrap(), Drained { cut: 0 });
}

/// Guarantees: requests that do not finish before the deadline are cut and counted, and their futures are dropped,
/// including those of HTTP/2 streams.
#[tokio::test]
async fn the_drain_deadline_cuts() {
    let (service, mut calls, release) = gated();
    let limits = ServerLimits { drain_timeout: Duration::from_millis(20), ..ServerLimits::default() };
    let running = start(service, None, limits).await;
    let first = tokio::spawn(exchange(running.addr, GET));
    let mut sender = http2(running.addr).await;
    let second = tokio::spawn(async move { sender.send_request(post(b"")).await.is_err() });
    calls.recv().await.unwrap();
    calls.recv().await.unwrap();
    drop(running.trigger);
    assert_eq!(running.done.await.unwrap(), Drained { cut: 2 });
    assert_eq!(first.await.unwrap(), "");
    assert!(second.await.unwrap());
    // The last future drops the service, and with it the sender of `calls`.
    assert_eq!(calls.recv().await, None);
    assert_eq!(Arc::strong_count(&release), 1);
}

/// Guarantees: the call of an HTTP/2 stream is dropped when its peer disconnects.
#[tokio::test]
async fn streams_end_with_their_connection() {
    let (service, mut calls, release) = gated();
    let running = start(service, None, ServerLimits::default()).await;
    let before = Arc::strong_count(&release);
    let mut sender = http2(running.addr).await;
    let call = tokio::spawn(async move { sender.send_request(post(b"")).await.is_err() });
    calls.recv().await.unwrap();
    assert!(Arc::strong_count(&release) > before);
    call.abort();
    until(&running, |_| Arc::strong_count(&release) == before).await;
}
