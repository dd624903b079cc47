//! Tests of the server with real sockets.

mod drain;
mod slow;

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
use crate::testing::{CapturedLog, TestServer, exchange, read_to_end, start, text};
use crate::tls::HttpVersions;

/// Timeouts that are short, so that tests of them end soon, but long enough for a busy machine; other limits have their
/// defaults.
fn quick() -> ServerLimits {
    let short = Duration::from_millis(300);
    ServerLimits { header_timeout: short, close_timeout: short, handshake_timeout: short, ..ServerLimits::default() }
}

/// Answers with the peer's address and the received body.
async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let peer = *request.extensions().get::<Peer>().unwrap();
    let limits = BodyLimits { timeout: Duration::from_millis(300), ..BodyLimits::new(100) };
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

/// Waits until the counters satisfy a condition, because the peer sees a connection's end before it is counted.
async fn until(running: &TestServer, reached: impl Fn(StatsSnapshot) -> bool) {
    let wait = async {
        while !reached(running.stats.snapshot()) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), wait).await.expect("the counters change");
}

type ResponseFuture = std::pin::Pin<Box<dyn Future<Output = Result<Response<Full<Bytes>>, Infallible>> + Send>>;

/// A service that reports each call and answers when the test releases it.
#[derive(Clone)]
struct Gated {
    called: mpsc::UnboundedSender<()>,
    release: Arc<Notify>,
}

impl Service<Request<Incoming>> for Gated {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn call(&self, _: Request<Incoming>) -> ResponseFuture {
        let Gated { called, release } = self.clone();
        Box::pin(async move {
            called.send(()).unwrap();
            release.notified().await;
            Ok(text("drained"))
        })
    }
}

fn gated() -> (Gated, mpsc::UnboundedReceiver<()>, Arc<Notify>) {
    let (called, calls) = mpsc::unbounded_channel();
    let release = Arc::new(Notify::new());
    (Gated { called, release: Arc::clone(&release) }, calls, release)
}

/// Guarantees: both HTTP versions are served on one port, and a request knows its peer.
#[tokio::test]
async fn both_versions_share_a_port() {
    let running = start(service_fn(echo), None, ServerLimits::default()).await;
    assert!(exchange(running.addr, GET).await.ends_with("tls=false local=true body="));
    let response = http2(running.addr).await.send_request(post(b"data")).await.unwrap();
    assert_eq!(answer(response).await, "tls=false local=true body=data");
}

/// Guarantees: a listener for one HTTP version does not serve the other.
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

/// Guarantees: a connection beyond the limit is closed at once and counted; a place that becomes free is reused.
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

/// Guarantees: one peer cannot use up all connections: its connections beyond the limit are closed at once and counted,
/// and other peers are served.
#[tokio::test]
async fn connections_of_a_peer_are_bounded() {
    let limits = ServerLimits { max_connections: 3, max_connections_per_peer: 2, ..ServerLimits::default() };
    let (log, _guard) = CapturedLog::start();
    let running = start(service_fn(echo), None, limits).await;
    let from = async |ip: &str| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(format!("{ip}:0").parse().unwrap()).unwrap();
        socket.connect(running.addr).await.unwrap()
    };
    let mut held = vec![from("127.0.0.1").await, from("127.0.0.1").await];
    for _ in 0..3 {
        assert_eq!(read_to_end(&mut from("127.0.0.1").await).await, "");
    }
    let other = from("127.0.0.2").await;
    until(&running, |stats| stats.open == 3).await;
    assert_eq!(read_to_end(&mut from("127.0.0.3").await).await, "");
    assert_eq!(running.stats.snapshot().refused, 4);
    let text = log.text();
    assert_eq!(text.matches("a peer has 2 connections").count(), 1, "{text}");
    assert_eq!(text.matches("3 connections are open").count(), 1, "{text}");
    // A place that becomes free is reused.
    drop((held.remove(0), other));
    until(&running, |stats| stats.open == 1).await;
    assert!(exchange(running.addr, GET).await.contains("200 OK"));
}

/// Guarantees: with `replace_idle` the connection that has been idle for longest is closed, whatever its state, and
/// never one with a running request.
#[tokio::test]
async fn idle_connections_make_room() {
    let (called, mut calls) = mpsc::unbounded_channel();
    let gated = Gated { called, release: Arc::default() };
    let release = Arc::clone(&gated.release);
    let limits = ServerLimits { max_connections: 2, replace_idle: true, ..ServerLimits::default() };
    let running = start(gated, None, limits).await;
    let mut busy = TcpStream::connect(running.addr).await.unwrap();
    busy.write_all(GET).await.unwrap();
    calls.recv().await.unwrap();
    let mut silent = TcpStream::connect(running.addr).await.unwrap();
    until(&running, |stats| stats.open == 2).await;
    // An incomplete head.
    let mut half = TcpStream::connect(running.addr).await.unwrap();
    half.write_all(b"GET / HT").await.unwrap();
    assert_eq!(read_to_end(&mut silent).await, "");
    let mut last = TcpStream::connect(running.addr).await.unwrap();
    assert_eq!(read_to_end(&mut half).await, "");
    last.write_all(GET).await.unwrap();
    calls.recv().await.unwrap();
    // No connection is idle.
    assert_eq!(read_to_end(&mut TcpStream::connect(running.addr).await.unwrap()).await, "");
    assert_eq!((running.stats.snapshot().refused, running.stats.snapshot().timed_out), (1, 2));
    release.notify_waiters();
    assert!(read_to_end(&mut busy).await.contains("200 OK"));
    assert!(read_to_end(&mut last).await.contains("200 OK"));
}

/// Fails like a process without free file descriptors, and later accepts connections.
struct Exhausted {
    listener: Listener,
    failures: std::sync::atomic::AtomicUsize,
}

impl Accept for Exhausted {
    async fn accept(&self) -> std::io::Result<(TcpStream, std::net::SocketAddr)> {
        use std::sync::atomic::Ordering::Relaxed;
        if self.failures.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            const EMFILE: i32 = 24;
            return Err(std::io::Error::from_raw_os_error(EMFILE));
        }
        self.listener.accept().await
    }

    fn endpoint(&self) -> &str {
        self.listener.endpoint()
    }
}

/// Guarantees: accept errors are counted and followed by a pause, and do not end the server; a shutdown ends the pause.
#[tokio::test]
async fn accept_errors_do_not_end_the_server() {
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr();
    let stats = Arc::new(ServerStats::default());
    let (trigger, shutdown) = Shutdown::pair();
    let source = Exhausted { listener, failures: 3.into() };
    let serving = serve(source, None, service_fn(echo), ServerLimits::default(), Arc::clone(&stats), shutdown);
    let serving = tokio::spawn(serving);
    assert!(exchange(addr, GET).await.contains("200 OK"));
    assert_eq!(stats.snapshot().accepts_failed, 3);
    trigger.trigger();
    assert_eq!(serving.await.unwrap(), Drained { cut: 0 });

    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let (trigger, shutdown) = Shutdown::pair();
    let source = Exhausted { listener, failures: usize::MAX.into() };
    let serving = tokio::spawn(serve(source, None, service_fn(echo), ServerLimits::default(), stats, shutdown));
    trigger.trigger();
    assert_eq!(serving.await.unwrap(), Drained { cut: 0 });
}

/// Guarantees: a panic in a service ends its connection and not the server.
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

/// Guarantees: an endpoint that cannot be bound gives an error with the rule or with advice.
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

/// Guarantees: a peer that uses the wrong protocol (TLS or no TLS, or HTTP/1 on a gRPC port) is counted for each
/// connection and logged once, with advice.
#[tokio::test]
async fn wrong_protocols_are_logged() {
    let (log, _guard) = CapturedLog::start();
    let only = |versions| ServerLimits { versions, ..ServerLimits::default() };
    // The beginning of a TLS 1.3 client hello, padded to a full record.
    let hello = [&[0x16, 0x03, 0x01, 0x00, 0x40, 0x01][..], &[0; 63]].concat();
    for (versions, request, said) in [
        (HttpVersions::Both, &hello[..], "a peer speaks TLS to a port without it"),
        (HttpVersions::Http2, &hello[..], "a peer speaks TLS to a port without it"),
        (HttpVersions::Http2, GET, "a peer speaks HTTP/1 to a port for gRPC"),
    ] {
        let running = start(service_fn(echo), None, only(versions)).await;
        let before = log.text().matches(said).count();
        for _ in 0..3 {
            exchange(running.addr, request).await;
        }
        until(&running, |stats| stats.open == 0 && stats.wrong_protocol == 3).await;
        assert_eq!(log.text().matches(said).count() - before, 1, "{}", log.text());
    }
    let authority = crate::testing::Authority::new();
    let tls = authority.server("localhost").load(HttpVersions::Http1).unwrap();
    let running = start(service_fn(echo), Some(tls), only(HttpVersions::Http1)).await;
    for request in [GET, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        exchange(running.addr, request).await;
    }
    until(&running, |stats| stats.wrong_protocol == 2).await;
    assert_eq!(log.text().matches("a peer speaks without TLS to a port that has it").count(), 1, "{}", log.text());
    let tls = authority.server("localhost").load(HttpVersions::Http2).unwrap();
    let running = start(service_fn(echo), Some(tls), only(HttpVersions::Http2)).await;
    let client = authority.client().load(HttpVersions::Http1).unwrap();
    let socket = TcpStream::connect(running.addr).await.unwrap();
    let name = crate::tls::server_name("localhost").unwrap();
    assert!(tokio_rustls::TlsConnector::from(client.config).connect(name, socket).await.is_err());
    until(&running, |stats| stats.wrong_protocol == 1 && stats.handshakes_failed == 1).await;
    let running = start(service_fn(echo), None, ServerLimits::default()).await;
    assert!(exchange(running.addr, GET).await.contains("200 OK"));
    assert_eq!(running.stats.snapshot().wrong_protocol, 0);
}

/// Guarantees: a client that closed its side of the connection after its request gets its answer.
#[tokio::test]
async fn half_closed() {
    let (service, mut calls, release) = gated();
    let running = start(service, None, ServerLimits::default()).await;
    let mut stream = TcpStream::connect(running.addr).await.unwrap();
    stream.write_all(GET).await.unwrap();
    stream.shutdown().await.unwrap();
    calls.recv().await.unwrap();
    release.notify_one();
    assert!(read_to_end(&mut stream).await.ends_with("drained"));
}
