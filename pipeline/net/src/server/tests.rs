use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};

use super::*;
use crate::body::{self, BodyError, BodyLimits};
use crate::testing::{Authority, Running, exchange, read_to_end, start, text};
use crate::tls::HttpVersions;

/// Short deadlines, so that a test of one ends soon; what is not under test stays at its default.
fn quick() -> ServerLimits {
    let short = Duration::from_millis(40);
    ServerLimits { header_timeout: short, close_timeout: short, handshake_timeout: short, ..ServerLimits::default() }
}

/// Answers with the peer and what it sent.
async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let peer = *request.extensions().get::<Peer>().unwrap();
    let limits = BodyLimits { timeout: Duration::from_millis(60), ..BodyLimits::new(100) };
    let body = match body::read(request.into_body(), limits).await {
        Ok(body) => String::from_utf8(body.to_vec()).unwrap(),
        Err(BodyError::TooLarge { .. }) => "too large".to_owned(),
        Err(BodyError::TimedOut { .. }) => "timed out".to_owned(),
        Err(BodyError::Broken { .. }) => "broken".to_owned(),
    };
    Ok(text(format!("tls={} local={} body={body}", peer.tls, peer.addr.ip().is_loopback())))
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

type Http2 = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

async fn http2(addr: std::net::SocketAddr) -> Http2 {
    let io = TokioIo::new(TcpStream::connect(addr).await.unwrap());
    let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn post(data: &'static [u8]) -> Request<Full<Bytes>> {
    Request::post("http://x/").body(Full::new(Bytes::from_static(data))).unwrap()
}

async fn answer(response: Response<Incoming>) -> String {
    let body = body::read(response.into_body(), BodyLimits::new(1000)).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

/// Waits until the counters satisfy a condition, since a connection's end is seen by the peer first.
async fn until(running: &Running, reached: impl Fn(StatsSnapshot) -> bool) {
    let wait = async {
        while !reached(running.stats.snapshot()) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), wait).await.expect("the counters change");
}

/// Guarantees: both versions are served on one port, and a request knows its peer.
#[tokio::test]
async fn both_versions_share_a_port() {
    let running = start(service_fn(echo), None, ServerLimits::default()).await;
    assert!(exchange(running.addr, GET).await.ends_with("tls=false local=true body="));
    let response = http2(running.addr).await.send_request(post(b"data")).await.unwrap();
    assert_eq!(answer(response).await, "tls=false local=true body=data");
}

/// Guarantees: a listener for one version does not serve the other.
#[tokio::test]
async fn a_version_can_be_excluded() {
    let only = |versions| ServerLimits { versions, ..quick() };
    let running = start(service_fn(echo), None, only(HttpVersions::Http2)).await;
    assert!(!exchange(running.addr, GET).await.contains("200 OK"));
    let running = start(service_fn(echo), None, only(HttpVersions::Http1)).await;
    assert!(http2(running.addr).await.send_request(post(b"")).await.is_err());
}

/// Guarantees: accepted sockets send small writes at once.
#[tokio::test]
async fn accepted_sockets_have_nodelay() {
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let (client, accepted) = tokio::join!(TcpStream::connect(listener.local_addr()), listener.accept());
    assert!(accepted.unwrap().0.nodelay().unwrap());
    drop(client);
}

/// Guarantees: a peer that says nothing, or only a part of a head or of the HTTP/2 preface, is
/// closed and counted, and does not keep others from being served.
#[tokio::test]
async fn silent_and_half_requests_end() {
    let running = start(service_fn(echo), None, quick()).await;
    for (number, part) in
        [&b""[..], b"P", b"PRI * HTTP/2.0\r\n\r\nSM", b"POST / HTTP/1.1\r\nhost: x\r\nx-long: "].iter().enumerate()
    {
        let mut slow = TcpStream::connect(running.addr).await.unwrap();
        slow.write_all(part).await.unwrap();
        assert!(exchange(running.addr, GET).await.contains("200 OK"));
        let ended = read_to_end(&mut slow).await;
        assert!(!ended.contains("200 OK"), "{ended}");
        until(&running, |stats| stats.timed_out == number as u64 + 1 && stats.open == 0).await;
    }
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
    tokio::time::timeout(Duration::from_secs(10), trickle).await.expect("the server closes");
    until(&running, |stats| stats.timed_out == 1).await;
}

/// Guarantees: a connection that is kept open between requests outlives the header timeout, since
/// that one counts from a request's first byte.
#[tokio::test]
async fn an_idle_connection_outlives_the_header_timeout() {
    let running = start(service_fn(echo), None, quick()).await;
    let io = TokioIo::new(TcpStream::connect(running.addr).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let mut http2 = http2(running.addr).await;
    for _ in 0..3 {
        let response = sender.send_request(post(b"1")).await.unwrap();
        assert!(answer(response).await.ends_with("body=1"));
        let response = http2.send_request(post(b"2")).await.unwrap();
        assert!(answer(response).await.ends_with("body=2"));
        let pause = quick().header_timeout * 3;
        assert!(tokio::time::timeout(pause, std::future::pending::<()>()).await.is_err());
    }
    assert_eq!(running.stats.snapshot().timed_out, 0);
}

/// Guarantees: a connection without a request for the idle timeout is closed, in both versions.
#[tokio::test]
async fn idle_connections_end() {
    let limits = ServerLimits { idle_timeout: Duration::from_millis(30), ..quick() };
    let running = start(service_fn(echo), None, limits).await;
    let mut kept = TcpStream::connect(running.addr).await.unwrap();
    kept.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert!(read_to_end(&mut kept).await.contains("200 OK"));
    let mut sender = http2(running.addr).await;
    assert!(sender.send_request(post(b"")).await.is_ok());
    until(&running, |stats| stats.open == 0 && stats.timed_out == 2).await;
}

/// Guarantees: a peer that sends a request and takes no byte of the response is cut.
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
    let limits = ServerLimits { idle_timeout: Duration::from_millis(20), ..quick() };
    let slow = |_| async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        Ok::<_, Infallible>(text("done"))
    };
    let running = start(service_fn(slow), None, limits).await;
    assert!(exchange(running.addr, GET).await.ends_with("done"));
    assert_eq!(running.stats.snapshot().timed_out, 0);
}

/// Guarantees: half a body and an announced excess end as the body's own errors, through real
/// sockets and in both versions.
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

/// Guarantees: a connection too many is closed at once and counted; a place that is freed is used.
#[tokio::test]
async fn connections_are_bounded() {
    let limits = ServerLimits { max_connections: 2, ..ServerLimits::default() };
    let running = start(service_fn(echo), None, limits).await;
    let first = TcpStream::connect(running.addr).await.unwrap();
    let second = TcpStream::connect(running.addr).await.unwrap();
    until(&running, |stats| stats.open == 2).await;
    assert_eq!(read_to_end(&mut TcpStream::connect(running.addr).await.unwrap()).await, "");
    assert_eq!(running.stats.snapshot().refused, 1);
    drop(first);
    until(&running, |stats| stats.open == 1).await;
    assert!(exchange(running.addr, GET).await.contains("200 OK"));
    drop(second);
}

/// A service that reports when it is called and answers when it is released.
fn gated() -> (
    impl Service<Request<Incoming>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send> + Clone,
    mpsc::UnboundedReceiver<()>,
    Arc<Notify>,
) {
    let (called, calls) = mpsc::unbounded_channel();
    let release = Arc::new(Notify::new());
    let gate = Arc::clone(&release);
    let service = service_fn(move |_| {
        let (called, gate) = (called.clone(), Arc::clone(&gate));
        async move {
            called.send(()).unwrap();
            gate.notified().await;
            Ok(text("drained"))
        }
    });
    (service, calls, release)
}

/// Guarantees: shutdown frees the port, closes idle connections, and lets requests in flight end.
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
    tokio::time::timeout(Duration::from_secs(10), again).await.expect("the port is free");
    assert!(!running.done.is_finished());

    release.notify_one();
    release.notify_one();
    assert!(first.await.unwrap().ends_with("drained"));
    assert_eq!(second.await.unwrap(), "drained");
    assert_eq!(running.done.await.unwrap(), Drained { cut: 0 });
}

/// Guarantees: requests that do not end before the deadline are cut and counted, and their futures
/// are dropped, those of HTTP/2 streams included.
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
    // The service and with it the sending side of `calls` goes with the last future.
    assert_eq!(calls.recv().await, None);
    assert_eq!(Arc::strong_count(&release), 1);
}

/// Guarantees: an HTTP/2 stream's call ends when its peer is gone.
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

/// Guarantees: a panic in a service costs its connection and not the server.
#[tokio::test]
async fn a_panic_costs_one_connection() {
    let service = service_fn(|request: Request<Incoming>| async move {
        assert_ne!(request.uri().path(), "/panic");
        Ok::<_, Infallible>(text("fine"))
    });
    let running = start(service, None, ServerLimits::default()).await;
    assert_eq!(exchange(running.addr, b"GET /panic HTTP/1.1\r\nhost: x\r\n\r\n").await, "");
    assert!(exchange(running.addr, GET).await.ends_with("fine"));
    until(&running, |stats| stats.open == 0 && stats.opened == 2).await;
}

/// Guarantees: a peer that does not speak TLS, or says nothing, ends by itself and is counted.
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

/// Guarantees: what cannot be listened on is named with the rule or with what helps.
#[tokio::test]
async fn bind_errors_say_what_to_do() {
    let taken = Listener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = taken.local_addr().to_string();
    for (endpoint, says) in [
        (endpoint.as_str(), "in use (os error 98); stop the process that listens there or choose another port"),
        ("203.0.113.1:0", "; no interface of this host has that address"),
        ("localhost", "the port is missing"),
        ("localhost:grpc", "the port is not a number"),
        ("::1:4317", "an IPv6 address stands in brackets"),
        ("http://localhost:4318", "leave the scheme out"),
        ("unix:/run/x.sock", "unix sockets are not supported"),
    ] {
        let error = Listener::bind(endpoint).await.unwrap_err().to_string();
        assert!(error.contains(says) && error.contains(endpoint), "{error}");
    }
    assert!(listener::hint(std::io::ErrorKind::PermissionDenied).contains("CAP_NET_BIND_SERVICE"));
}

/// Guarantees: an endpoint without a host listens on every address.
#[tokio::test]
async fn an_empty_host_is_every_address() {
    let listener = Listener::bind(":0").await.unwrap();
    assert!(listener.local_addr().ip().is_unspecified());
    let port = listener.local_addr().port();
    let (client, accepted) = tokio::join!(TcpStream::connect(("127.0.0.1", port)), listener.accept());
    assert!(client.is_ok() && accepted.is_ok());
}
