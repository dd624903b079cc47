//! The receiver over real sockets, in front of a consumer that stands in for the pipelines.

mod answers;
mod auth;
mod bodies;
mod config;
mod framing;
mod limits;
mod onward;
mod own_requests;
mod raw;
mod room;
mod traces;
mod views;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::http::{Method, Request};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use profbridge_engine::config::Section;
use profbridge_engine::peer_limits::{PeerLimits, RequestForwarder};
use profbridge_model::{Envelope, Telemetry};
use profbridge_testkit::{PLENTY, ReadAnswer, ReceiverRig, gzip, http1, intake, patiently, until, zlib};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::{SentryReceiver, Settings};

const KEY: &str = "0123456789abcdef0123456789abcdef";
const OTHER_KEY: &str = "fedcba9876543210fedcba9876543210";

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

struct SentryRig(ReceiverRig);

impl std::ops::Deref for SentryRig {
    type Target = ReceiverRig;

    fn deref(&self) -> &ReceiverRig {
        &self.0
    }
}

impl std::ops::DerefMut for SentryRig {
    fn deref_mut(&mut self) -> &mut ReceiverRig {
        &mut self.0
    }
}

impl SentryRig {
    async fn start(yaml: &str) -> Self {
        Self::start_with(settings(yaml), PLENTY).await
    }

    async fn start_with(settings: Settings, memory: u64) -> Self {
        Self(ReceiverRig::start("sentry", SentryReceiver::new(settings), memory).await.unwrap())
    }

    /// A receiver with an exporter that may forward requests.
    async fn start_beside(settings: Settings, memory: u64, forwarder: Arc<dyn RequestForwarder>) -> Self {
        let (pipeline, limits) = (intake(memory), PeerLimits::default());
        limits.offer_forwarder("test", forwarder);
        Self(
            ReceiverRig::start_before(pipeline, "sentry", SentryReceiver::new(settings), memory, limits).await.unwrap(),
        )
    }

    fn http(&self) -> SocketAddr {
        self.address("http")
    }

    /// Sends a request that must be refused, and checks that nothing is left of it.
    async fn refused(&self, post: Post) -> ReadAnswer {
        let answer = post.send(self.http()).await;
        assert!(answer.status >= 400, "{answer:?}");
        assert_eq!(self.consumer.memory_used(), 0);
        answer
    }

    /// Sends a request, returns what arrives, and checks that nothing else is left.
    async fn taken(&mut self, post: Post) -> (ReadAnswer, Envelope) {
        let (answer, taken) = tokio::join!(post.send(self.http()), patiently(self.consumer.take()));
        assert_eq!(self.consumer.memory_used(), 0);
        (answer, envelope(taken))
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
            http1(address, request.body(body.map_frame(|frame| frame)).unwrap()).await
        } else {
            http1(address, request.body(body).unwrap()).await
        }
    }
}

fn json(answer: &ReadAnswer) -> Value {
    assert_eq!(answer.header("content-type"), Some("application/json"));
    serde_json::from_slice(&answer.body).unwrap()
}

/// The reason for a refusal.
fn detail(answer: &ReadAnswer) -> String {
    json(answer)["detail"].as_str().unwrap().to_owned()
}
