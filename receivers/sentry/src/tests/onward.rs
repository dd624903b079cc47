//! Requests that are forwarded unread to a server in this process.

use ::http::Response;
use ::http::request::Parts;
use hyper::body::Incoming;
use profbridge_engine::component::BoxFuture;
use profbridge_net::client::{ForwardingClient, HttpClientConfig, PartlyReadBody, Proxies};
use profbridge_testkit::RecordingServer;

use super::*;

/// A server that answers everything with 202, a header of its own and a body, and the forwarder to it.
#[derive(Debug)]
struct ForwardingServer {
    forwarding: ForwardingClient,
    peer: RecordingServer,
}

impl ForwardingServer {
    async fn start() -> Arc<Self> {
        let peer = RecordingServer::start(|_| {
            let answer = Response::builder().status(202).header("location", "/api/42/upload/7/");
            answer.body(Full::new(Bytes::from_static(b"theirs"))).unwrap()
        });
        let config = HttpClientConfig { tls: None, proxies: Proxies::none(), ..HttpClientConfig::default() };
        Arc::new(Self { forwarding: ForwardingClient::new(&config).unwrap(), peer: peer.await })
    }

    fn only(&self) -> (Parts, Bytes) {
        let seen = self.peer.seen.lock().unwrap();
        assert_eq!(seen.len(), 1);
        seen[0].clone()
    }
}

impl RequestForwarder for ForwardingServer {
    fn knows(&self, server: &str) -> bool {
        server == "o1.ingest.sentry.io"
    }

    fn pass<'a>(
        &'a self,
        server: Option<&'a str>,
        request: Request<PartlyReadBody>,
    ) -> BoxFuture<'a, Result<Response<Incoming>, String>> {
        assert!(server.is_none_or(|server| self.knows(server)));
        let url = format!("http://{}{}", self.peer.address, request.uri()).parse().unwrap();
        Box::pin(async move { self.forwarding.pass(url, request).await.map_err(|failure| failure.to_string()) })
    }
}

async fn rig(yaml: &str, memory: u64) -> (SentryRig, Arc<ForwardingServer>) {
    let forwarder = ForwardingServer::start().await;
    let rig =
        SentryRig::start_beside(settings(yaml), memory, Arc::clone(&forwarder) as Arc<dyn RequestForwarder>).await;
    (rig, forwarder)
}

/// Guarantees: requests to every other endpoint of a DSN reach the server with the same method, path, query, headers
/// and body, whatever prefix the DSN has, and the server's answer is returned unchanged. No header is added, and no
/// connection header is forwarded.
/// rule: transport#path-others
#[tokio::test]
async fn every_address() {
    for (method, path, arrives) in [
        (Method::POST, "/api/42/minidump/?sentry_key=K", "/api/42/minidump/?sentry_key=K"),
        (Method::POST, "/api/42/security/?sentry_key=K", "/api/42/security/?sentry_key=K"),
        (Method::POST, "/eu/relay/api/42/csp-report/?sentry_key=K", "/api/42/csp-report/?sentry_key=K"),
        (Method::POST, "/api/42/nel/", "/api/42/nel/"),
        (Method::POST, "/api/42/unreal/K/", "/api/42/unreal/K/"),
        (Method::GET, "/api/42/cron/nightly/K/?status=ok", "/api/42/cron/nightly/K/?status=ok"),
        (Method::POST, "/api/42/upload/", "/api/42/upload/"),
        (Method::PATCH, "/api/42/upload/7/", "/api/42/upload/7/"),
        (Method::HEAD, "/api/42/upload/7/", "/api/42/upload/7/"),
        (Method::POST, "/api/42/events/9/attachments/", "/api/42/events/9/attachments/"),
        (Method::POST, "/api/42/integration/otlp/v1/logs/", "/api/42/integration/otlp/v1/logs/"),
        (Method::POST, "/api/42/playstation/", "/api/42/playstation/"),
        (Method::GET, "/api/embed/error-page/?dsn=D&eventId=E", "/api/embed/error-page/?dsn=D&eventId=E"),
        (Method::OPTIONS, "/api/embed/error-page/", "/api/embed/error-page/"),
        (Method::GET, "/api/42/store/?sentry_data=D", "/api/42/store/?sentry_data=D"),
        (Method::POST, "/api/store/", "/api/store/"),
        (Method::GET, "/js-sdk-loader/K.min.js", "/js-sdk-loader/K.min.js"),
    ] {
        let (rig, forwarder) = rig(LOOPBACK, PLENTY).await;
        let body = if method == Method::POST || method == Method::PATCH { "{\"a\": 1}" } else { "" };
        let request = bare(body).method(method.clone()).to(path).header("x-own", "kept").header("te", "trailers");
        let answer = request.exchange(rig.http()).await;
        assert_eq!((answer.status, answer.header("location")), (202, Some("/api/42/upload/7/")), "{path}");
        assert_eq!(answer.body, if method == Method::HEAD { "" } else { "theirs" }, "{path}");
        let (head, received) = forwarder.only();
        assert_eq!((head.method, head.uri.to_string().as_str(), &received[..]), (method, arrives, body.as_bytes()));
        let mut names: Vec<&str> = head.headers.keys().map(|name| name.as_str()).collect();
        names.sort_unstable();
        let expected = if body.is_empty() { &["host", "x-own"][..] } else { &["content-length", "host", "x-own"] };
        assert_eq!(names, expected, "{path}");
        assert_eq!(head.headers["host"], forwarder.peer.address.to_string());
        assert_eq!(rig.requests("success", "http"), 1);
    }
}

/// Guarantees: without an exporter that can forward, other endpoints are refused by name; if keys are configured,
/// requests without an allowed key, wherever it could stand, are refused too.
/// rule: transport#path-others
#[tokio::test]
async fn unforwardable_requests_are_refused() {
    let rig = SentryRig::start(LOOPBACK).await;
    let answer = rig.refused(bare("x").to("/api/42/minidump/")).await;
    assert_eq!((answer.status, detail(&answer).contains("an `upstream`")), (404, true), "{answer:?}");
    let (rig, forwarder) = self::rig(&format!("{{{LOOPBACK}, public_keys: [{KEY}]}}"), PLENTY).await;
    assert_eq!(rig.refused(bare("x").to(format!("/api/42/unreal/{OTHER_KEY}/"))).await.status, 403);
    assert!(forwarder.peer.seen.lock().unwrap().is_empty());
    assert_eq!(bare("x").to(format!("/api/42/unreal/{KEY}/")).exchange(rig.http()).await.status, 202);
    assert_eq!(bare("x").to("/api/42/nel/").header("x-sentry-auth", auth(KEY)).exchange(rig.http()).await.status, 202);
}

/// An envelope with one attachment.
fn attachment(size: usize) -> Bytes {
    let head = format!(
        "{{\"event_id\":\"9ec79c33ec9942ab8353589fcb2e04dc\"}}\n{{\"type\":\"attachment\",\"length\":{size}}}\n"
    );
    [head.as_bytes(), &vec![b'a'; size], b"\n"].concat().into()
}

/// Guarantees: a large envelope without profiles and spans is forwarded as a stream, in any coding and with or without
/// a length, in a fraction of its size in memory; a small one, and a large one with a profile, is decoded.
#[tokio::test]
async fn large_envelopes() {
    let large = attachment(6 << 20);
    let noise: Vec<u8> = std::iter::repeat_with({
        let mut state = 1_u64;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        }
    })
    .take(5 << 20)
    .collect();
    let packed = {
        let head = format!("{{}}\n{{\"type\":\"attachment\",\"length\":{}}}\n", noise.len());
        Bytes::from(gzip(&[head.as_bytes(), &noise, b"\n"].concat()))
    };
    for request in [
        post(large.clone()),
        post(large.clone()).chunked(),
        post(packed.clone()).header("content-encoding", "gzip"),
        post(packed).header("content-encoding", "gzip").chunked(),
    ] {
        let (rig, forwarder) = rig(LOOPBACK, 8 << 20).await;
        let body = request.body.clone();
        assert_eq!(request.exchange(rig.http()).await.status, 202);
        let (head, received) = forwarder.only();
        assert!(head.method == "POST" && head.uri == "/api/42/envelope/" && received == body);
        assert!(head.headers["x-sentry-auth"].to_str().unwrap().contains(KEY));
        assert_eq!(rig.consumer.memory_used(), 0);
    }
    let (mut rig, forwarder) = rig(LOOPBACK, PLENTY).await;
    assert_eq!(rig.taken(post(attachment(1 << 20))).await.0.status, 200);
    let mut chunk = CHUNK.to_vec();
    chunk.extend_from_slice(&attachment(3 << 20)[b"{\"event_id\":\"9ec79c33ec9942ab8353589fcb2e04dc\"}\n".len()..]);
    let (answer, taken) = rig.taken(post(chunk)).await;
    assert_eq!((answer.status, taken.items.len(), taken.views.len()), (200, 2, 1));
    assert!(forwarder.peer.seen.lock().unwrap().is_empty());
}

/// Guarantees: a large envelope with a wrong key or without one is refused before it is forwarded.
#[tokio::test]
async fn large_and_not_allowed() {
    let (rig, forwarder) = rig(&format!("{{{LOOPBACK}, public_keys: [{OTHER_KEY}]}}"), PLENTY).await;
    assert_eq!(rig.refused(post(attachment(3 << 20))).await.status, 403);
    assert_eq!(rig.refused(bare(attachment(3 << 20))).await.status, 401);
    assert!(forwarder.peer.seen.lock().unwrap().is_empty());
}

/// Guarantees: the DSN in an envelope's header selects the server; if it names this receiver, under any of its names,
/// the default server is used; any other is refused by name.
#[tokio::test]
async fn servers() {
    let (mut rig, _way) = rig(LOOPBACK, PLENTY).await;
    let of = |host: &str| SMALL.replacen('{', &format!("{{\"dsn\":\"https://{KEY}@{host}/42\","), 1);
    for (host, server) in
        [("o1.ingest.sentry.io", Some("o1.ingest.sentry.io")), ("localhost:9000", None), ("127.0.0.1", None)]
    {
        let (answer, taken) = rig.taken(post(of(host))).await;
        assert_eq!((answer.status, taken.meta.server.as_deref()), (200, server), "{host}");
    }
    let named = post(of("relay.example")).header("x-forwarded-host", "relay.example");
    assert_eq!(rig.taken(named).await.1.meta.server, None);
    let answer = rig.refused(post(of("o2.ingest.sentry.io"))).await;
    assert_eq!((answer.status, detail(&answer).contains("names o2.ingest.sentry.io")), (403, true), "{answer:?}");
}
