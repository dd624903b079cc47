//! Tests of peers that are slow, silent, or stop in the middle.

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::*;
use crate::testing::Authority;

/// Timeouts long enough for peers that are in time even on a busy machine; a test waits for each of them once.
fn patient() -> ServerLimits {
    let long = Duration::from_secs(3);
    ServerLimits { header_timeout: long, idle_timeout: long, ..quick() }
}

/// Guarantees: a peer that sends nothing, or only part of a head or of the HTTP/2 preface, is disconnected and counted,
/// and does not keep others from being served.
#[tokio::test]
async fn silent_and_half_requests_end() {
    let limits = ServerLimits { idle_timeout: ServerLimits::default().idle_timeout, ..patient() };
    let running = start(service_fn(echo), None, limits).await;
    let mut all = Vec::new();
    for part in [&b""[..], b"P", b"PRI * HTTP/2.0\r\n\r\nSM", b"POST / HTTP/1.1\r\nhost: x\r\nx-long: "] {
        let mut slow = TcpStream::connect(running.addr).await.unwrap();
        slow.write_all(part).await.unwrap();
        assert!(exchange(running.addr, GET).await.contains("200 OK"));
        all.push(slow);
    }
    let count = all.len() as u64;
    for mut slow in all {
        let ended = read_to_end(&mut slow).await;
        assert!(!ended.contains("200 OK"), "{ended}");
    }
    until(&running, |stats| stats.timed_out == count && stats.open == 0).await;
}

/// Guarantees: a head that trickles in does not extend its own deadline.
#[tokio::test]
async fn a_trickling_head_ends() {
    let running = start(service_fn(echo), None, quick()).await;
    let mut slow = TcpStream::connect(running.addr).await.unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    let mut every = tokio::time::interval(Duration::from_millis(5));
    let trickle = async {
        while slow.write_all(b"x: y\r\n").await.is_ok() {
            every.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), trickle).await.expect("the server closes");
    until(&running, |stats| stats.timed_out == 1).await;
}

/// Opens a silent connection and waits until the server closes it: by then the header timeout of all earlier
/// connections has passed.
async fn header_timeout(running: &TestServer) {
    let mut silent = TcpStream::connect(running.addr).await.unwrap();
    assert_eq!(read_to_end(&mut silent).await, "");
}

/// Guarantees: a connection that is idle between requests outlives the header timeout, which only runs from a request's
/// first byte.
#[tokio::test]
async fn an_idle_connection_outlives_the_header_timeout() {
    // The test waits for this timeout twice.
    let limits = ServerLimits { header_timeout: Duration::from_millis(2500), ..quick() };
    let running = start(service_fn(echo), None, limits).await;
    let io = TokioIo::new(TcpStream::connect(running.addr).await.unwrap());
    let (mut http1, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let mut http2 = http2(running.addr).await;
    for round in 1..=2 {
        let response = http1.send_request(post(b"1")).await.unwrap();
        assert!(answer(response).await.ends_with("body=1"));
        let response = http2.send_request(post(b"2")).await.unwrap();
        assert!(answer(response).await.ends_with("body=2"));
        header_timeout(&running).await;
        until(&running, |stats| stats.open == 2).await;
        assert_eq!(running.stats.snapshot().timed_out, round);
    }
}

/// Guarantees: an idle connection is closed after the idle timeout, in both HTTP versions.
#[tokio::test]
async fn idle_connections_end() {
    let running = start(service_fn(echo), None, patient()).await;
    let mut kept = TcpStream::connect(running.addr).await.unwrap();
    kept.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut sender = http2(running.addr).await;
    assert!(sender.send_request(post(b"")).await.is_ok());
    assert!(read_to_end(&mut kept).await.contains("200 OK"));
    until(&running, |stats| stats.open == 0 && stats.timed_out == 2).await;
}

/// Guarantees: a peer that sends a request and does not read the response is disconnected.
#[tokio::test]
async fn a_peer_that_does_not_read_is_cut() {
    let large = |_| async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(vec![b'x'; 64 << 20])))) };
    let limits = ServerLimits { idle_timeout: Duration::from_millis(50), ..quick() };
    let running = start(service_fn(large), None, limits).await;
    let mut deaf = TcpStream::connect(running.addr).await.unwrap();
    deaf.write_all(GET).await.unwrap();
    until(&running, |stats| stats.timed_out == 1 && stats.open == 0).await;
}

/// Guarantees: a service call may take longer than every timeout of the connection.
#[tokio::test]
async fn a_long_call_is_not_idle() {
    let (service, mut calls, release) = gated();
    let running = start(service, None, ServerLimits { idle_timeout: Duration::from_secs(2), ..patient() }).await;
    let call = tokio::spawn(exchange(running.addr, GET));
    calls.recv().await.unwrap();
    header_timeout(&running).await;
    release.notify_one();
    assert!(call.await.unwrap().ends_with("drained"));
    assert_eq!(running.stats.snapshot().timed_out, 1);
}

/// Guarantees: an incomplete body and a too large announced length result in the errors of the body guard, over real
/// sockets and in both HTTP versions.
#[tokio::test]
async fn bodies_are_guarded() {
    let running = start(service_fn(echo), None, ServerLimits::default()).await;
    let head = |length: &str| {
        format!("POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\nabc")
    };
    assert!(exchange(running.addr, head("101").as_bytes()).await.ends_with("body=too large"));
    assert!(exchange(running.addr, head("10").as_bytes()).await.ends_with("body=timed out"));
    let chunked = "POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    let excess = format!("{chunked}65\r\n{}\r\n0\r\n\r\n", "x".repeat(101));
    assert!(exchange(running.addr, excess.as_bytes()).await.ends_with("body=too large"));
    assert!(exchange(running.addr, format!("{chunked}zz\r\n").as_bytes()).await.ends_with("body=broken"));
    let response = http2(running.addr).await.send_request(post(&[b'x'; 101])).await.unwrap();
    assert!(answer(response).await.ends_with("body=too large"));
}

/// Guarantees: a request head beyond the limit is refused with the right status.
#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let running = start(service_fn(echo), None, ServerLimits::default()).await;
    let head = format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(70_000));
    assert!(exchange(running.addr, head.as_bytes()).await.starts_with("HTTP/1.1 431 "));
}

/// Guarantees: a peer that sends no TLS, or nothing, is disconnected and counted.
#[tokio::test]
async fn handshakes_are_bounded() {
    let authority = Authority::new();
    let tls = authority.server("localhost").load(HttpVersions::Both).unwrap();
    let running = start(service_fn(echo), Some(tls), quick()).await;
    let mut silent = TcpStream::connect(running.addr).await.unwrap();
    assert_eq!(read_to_end(&mut silent).await, "");
    let mut plain = TcpStream::connect(running.addr).await.unwrap();
    plain.write_all(GET).await.unwrap();
    until(&running, |stats| stats.handshakes_failed == 2 && stats.open == 0).await;
}

/// Guarantees: a connection ends at its maximum age, even if it is not idle; a request in progress is still answered
/// unless it exceeds the grace period.
#[tokio::test]
async fn old_connections_end() {
    let idle_timeout = ServerLimits::default().idle_timeout;
    let age = ServerLimits { max_connection_age: Some(Duration::from_millis(100)), idle_timeout, ..patient() };
    let (service, mut calls, release) = gated();
    let running = start(service, None, age.clone()).await;
    let mut sender = http2(running.addr).await;
    let under_way = tokio::spawn(sender.send_request(post(b"")));
    calls.recv().await.unwrap();
    // Two other connections reach their age one after the other. By then this one has reached its age too, as the age
    // varies by a tenth.
    for opened in 2..=3 {
        let _idle = http2(running.addr).await;
        until(&running, |stats| stats.opened == opened && stats.open == 1).await;
    }
    release.notify_one();
    assert_eq!(answer(under_way.await.unwrap().unwrap()).await, "drained");
    until(&running, |stats| stats.open == 0).await;

    let (service, mut calls, _never) = gated();
    let grace = ServerLimits { max_connection_age_grace: Some(Duration::from_millis(50)), ..age };
    let running = start(service, None, grace).await;
    let mut sender = http2(running.addr).await;
    let cut = tokio::spawn(sender.send_request(post(b"")));
    calls.recv().await.unwrap();
    assert!(cut.await.unwrap().is_err());
    until(&running, |stats| stats.open == 0).await;
}
