//! The receiver over real sockets, in front of a consumer that stands in for the pipelines.

mod answers;
mod auth;
mod bodies;
mod config;
mod framing;
mod limits;
mod onward;
mod raw;
mod room;
mod views;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, Method, Request};
use bytes::Bytes;
use http_body::Body;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use profbridge_engine::budget::Budget;
use profbridge_engine::config::Section;
use profbridge_engine::intake::Intake;
use profbridge_engine::peer_limits::{PeerLimits, RequestForwarder};
use profbridge_engine::receiver::{Receiver as _, ReceiverContext};
use profbridge_engine::telemetry::Metrics;
use profbridge_model::{Envelope, Telemetry};
use profbridge_net::{Shutdown, Trigger};
use profbridge_testkit::{Consumer, intake};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::{Sentry, Settings};

const KEY: &str = "0123456789abcdef0123456789abcdef";
const OTHER_KEY: &str = "fedcba9876543210fedcba9876543210";

/// A memory budget that no test uses up by accident.
const PLENTY: u64 = 1 << 30;

/// A free port, and everything else at its default.
const LOOPBACK: &str = "endpoint: '127.0.0.1:0'";

/// An envelope that is always accepted.
const SMALL: &str =
    "{\"event_id\":\"9ec79c33-ec99-42ab-8353-589fcb2e04dc\"}\n{\"type\":\"event\"}\n{\"message\":\"x\"}\n";

/// A continuous profile from Sentry's Python SDK.
const CHUNK: &[u8] = include_bytes!("../../../../pipeline/wire/testdata/sentry/python-2.75-profile_chunk.envelope");

fn settings(yaml: &str) -> Settings {
    Settings::read(&Section::from_yaml(yaml).unwrap()).unwrap()
}

/// A running receiver.
struct SentryRig {
    address: SocketAddr,
    intake: Intake,
    consumer: Consumer,
    metrics: Metrics,
    limits: PeerLimits,
    trigger: Trigger,
    stopped: JoinHandle<()>,
}

impl SentryRig {
    async fn start(yaml: &str) -> Self {
        Self::start_with(settings(yaml), PLENTY).await
    }

    async fn start_with(settings: Settings, memory: u64) -> Self {
        Self::start_beside(settings, memory, None).await
    }

    /// A receiver with an exporter that may forward requests.
    async fn start_beside(settings: Settings, memory: u64, forwarder: Option<Arc<dyn RequestForwarder>>) -> Self {
        let (intake, consumer) = intake(memory);
        let (metrics, limits) = (Metrics::new(Budget::new(memory)), PeerLimits::default());
        if let Some(forwarder) = forwarder {
            limits.offer_forwarder("test", forwarder);
        }
        let (trigger, shutdown) = Shutdown::pair();
        let context = ReceiverContext {
            allowed_hosts: std::sync::Arc::default(),
            id: "sentry".to_owned(),
            identity: profbridge_identity::Rules::default(),
            next: intake.clone(),
            shutdown,
            telemetry: metrics.receiver("sentry"),
            peer_limits: limits.clone(),
        };
        let running = Box::new(Sentry::new(settings)).start(context).await.unwrap();
        let address = running.addresses[0].1;
        Self { address, intake, consumer, metrics, limits, trigger, stopped: tokio::spawn(running.stopped) }
    }

    /// Sends a request that must be refused, and checks that nothing is left of it.
    async fn refused(&self, post: Post) -> ReadAnswer {
        let answer = post.send(self.address).await;
        assert!(answer.status >= 400, "{answer:?}");
        assert_eq!(self.consumer.memory_used(), 0);
        answer
    }

    /// Sends a request, returns what arrives, and checks that nothing else is left.
    async fn taken(&mut self, post: Post) -> (ReadAnswer, Envelope) {
        let (answer, taken) = tokio::join!(post.send(self.address), patiently(self.consumer.take()));
        assert_eq!(self.consumer.memory_used(), 0);
        (answer, envelope(taken))
    }

    /// How many requests ended as `success`, `refused` or `failure`.
    fn requests(&self, outcome: &str) -> u64 {
        let name = format!("otelcol_receiver_requests{{receiver=\"sentry\",transport=\"http\",outcome=\"{outcome}\"}}");
        let text = self.metrics.encode();
        let line = text.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap_or_else(|| panic!("no {name} in\n{text}")).trim().parse().unwrap()
    }
}

fn envelope(taken: Option<Telemetry>) -> Envelope {
    match taken {
        Some(Telemetry::Envelope(envelope)) => envelope,
        other => panic!("{other:?}"),
    }
}

/// A request as SDKs make it.
#[derive(Clone)]
struct Post {
    method: Method,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
    chunked: bool,
}

/// An envelope for project 42, with `X-Sentry-Auth`.
fn post(body: impl Into<Bytes>) -> Post {
    bare(body).header("x-sentry-auth", auth(KEY))
}

/// An envelope for project 42 without authentication.
fn bare(body: impl Into<Bytes>) -> Post {
    Post {
        method: Method::POST,
        path: "/api/42/envelope/".to_owned(),
        headers: Vec::new(),
        body: body.into(),
        chunked: false,
    }
}

fn auth(key: &str) -> String {
    format!("Sentry sentry_key={key}, sentry_version=7, sentry_client=sentry.python/2.75.0")
}

impl Post {
    fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    fn to(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// Sends the body without a length.
    fn chunked(mut self) -> Self {
        self.chunked = true;
        self
    }

    async fn send(self, address: SocketAddr) -> ReadAnswer {
        let answer = self.exchange(address).await;
        // Browsers may read every answer.
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
        answer
    }

    async fn exchange(self, address: SocketAddr) -> ReadAnswer {
        let mut request = Request::builder().method(self.method).uri(self.path).header("host", "localhost");
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        let body = Full::new(self.body);
        if self.chunked {
            // A mapped body has no size hint.
            exchange(address, request.body(body.map_frame(|frame| frame)).unwrap()).await
        } else {
            exchange(address, request.body(body).unwrap()).await
        }
    }
}

/// An answer, read to its end.
#[derive(Debug)]
struct ReadAnswer {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl ReadAnswer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"));
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Why the request was refused.
    fn detail(&self) -> String {
        self.json()["detail"].as_str().unwrap().to_owned()
    }
}

/// Sends a request in a connection of its own.
async fn exchange<B>(address: SocketAddr, request: Request<B>) -> ReadAnswer
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let (head, body) = patiently(sender.send_request(request)).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    ReadAnswer { status: head.status.as_u16(), headers: head.headers, body }
}

fn gzip(data: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(1));
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// Waits for something that must happen, and panics after a timeout instead of hanging.
async fn patiently<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(120), what).await.expect("it happens")
}

/// Polls until a condition holds, for conditions without a notification.
async fn until(mut reached: impl FnMut() -> bool) {
    patiently(async {
        while !reached() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
