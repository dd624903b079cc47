//! Helpers for tests of receivers with real sockets: a receiver with a consumer instead of pipelines, and peers.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "it is for tests")]

use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use profbridge_engine::budget::Budget;
use profbridge_engine::component::StartError;
use profbridge_engine::intake::Intake;
use profbridge_engine::peer_limits::PeerLimits;
use profbridge_engine::receiver::{Receiver, ReceiverContext};
use profbridge_engine::telemetry::Metrics;
use profbridge_net::{BoxError, Shutdown, Trigger};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::{Consumer, intake};

/// A memory budget, in bytes, that no test uses up by accident.
pub const PLENTY: u64 = 1 << 30;

/// A running receiver.
#[derive(Debug)]
pub struct ReceiverRig {
    /// The addresses that the receiver listens on, by protocol.
    pub addresses: Vec<(&'static str, SocketAddr)>,
    /// The receiver's entrance to the pipelines.
    pub intake: Intake,
    /// The consumer that replaces the pipelines.
    pub consumer: Consumer,
    /// The counters.
    pub metrics: Metrics,
    /// The limits that the receiver shares with exporters.
    pub limits: PeerLimits,
    /// Stops the receiver.
    pub trigger: Trigger,
    /// Completes when the receiver has ended.
    pub stopped: JoinHandle<()>,
    id: &'static str,
}

impl ReceiverRig {
    /// Starts a receiver with this memory budget, in bytes.
    pub async fn start(id: &'static str, receiver: impl Receiver + 'static, memory: u64) -> Result<Self, StartError> {
        Self::start_before(intake(memory), id, receiver, memory, PeerLimits::default()).await
    }

    /// Starts a receiver with this consumer, and beside exporters with these limits.
    pub async fn start_before(
        (intake, consumer): (Intake, Consumer),
        id: &'static str,
        receiver: impl Receiver + 'static,
        memory: u64,
        limits: PeerLimits,
    ) -> Result<Self, StartError> {
        let metrics = Metrics::new(Budget::new(memory));
        let (trigger, shutdown) = Shutdown::pair();
        let context = ReceiverContext {
            allowed_hosts: Arc::default(),
            id: id.to_owned(),
            identity: profbridge_identity::Rules::default(),
            next: intake.clone(),
            shutdown,
            telemetry: metrics.receiver(id),
            peer_limits: limits.clone(),
        };
        let running = Box::new(receiver).start(context).await?;
        let (addresses, stopped) = (running.addresses, tokio::spawn(running.stopped));
        Ok(Self { addresses, intake, consumer, metrics, limits, trigger, stopped, id })
    }

    /// The address that the receiver listens on for a protocol.
    pub fn address(&self, protocol: &str) -> SocketAddr {
        self.addresses.iter().find(|(name, _)| *name == protocol).unwrap().1
    }

    /// The number of requests that ended as `success`, `refused` or `failure`.
    pub fn requests(&self, outcome: &str, transport: &str) -> u64 {
        self.counter("otelcol_receiver_requests", transport, &format!(",outcome=\"{outcome}\""))
    }

    /// A counter with the labels of the receiver, of a transport, and `labels`.
    pub fn counter(&self, name: &str, transport: &str, labels: &str) -> u64 {
        let name = format!("{name}{{receiver=\"{}\",transport=\"{transport}\"{labels}}}", self.id);
        let text = self.metrics.encode();
        let line = text.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap_or_else(|| panic!("no {name} in\n{text}")).trim().parse().unwrap()
    }

    /// Stops the receiver and waits until it has ended.
    pub async fn stop(self) {
        self.trigger.trigger();
        patiently(self.stopped).await.unwrap();
    }
}

/// An answer that was read to its end.
#[derive(Debug)]
pub struct ReadAnswer {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl ReadAnswer {
    /// Reads an answer to its end.
    pub async fn of<B: Body<Error: std::fmt::Debug>>(response: Response<B>) -> Self {
        let (head, body) = response.into_parts();
        Self { status: head.status.as_u16(), headers: head.headers, body: body.collect().await.unwrap().to_bytes() }
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// Sends a request over a new HTTP/1 connection.
pub async fn http1<B>(address: SocketAddr, request: Request<B>) -> ReadAnswer
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    ReadAnswer::of(patiently(sender.send_request(request)).await.unwrap()).await
}

/// A server in this process that answers as the test defines and stores the requests that it receives.
#[derive(Debug)]
pub struct RecordingServer {
    /// The address that the server listens on.
    pub address: SocketAddr,
    /// The received requests.
    pub seen: Arc<Mutex<Vec<(Parts, Bytes)>>>,
}

impl RecordingServer {
    /// Starts a server for HTTP/1. `answer` gets the number of the request.
    pub async fn start(answer: impl Fn(usize) -> Response<Full<Bytes>> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<_>>> = Arc::default();
        let (kept, answer) = (Arc::clone(&seen), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (kept, answer) = (Arc::clone(&kept), Arc::clone(&answer));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (kept, answer) = (Arc::clone(&kept), Arc::clone(&answer));
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await?.to_bytes();
                        let mut kept = kept.lock().unwrap();
                        kept.push((head, body));
                        Ok::<_, hyper::Error>(answer(kept.len()))
                    }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, seen }
    }
}

/// Compresses bytes with gzip.
pub fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(1));
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// Compresses bytes with zlib, which HTTP calls `deflate`.
pub fn zlib(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(1));
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// Waits for an event that must happen, and panics after a timeout instead of hanging.
pub async fn patiently<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(120), what).await.unwrap()
}

/// Polls until a condition holds, for conditions without a notification.
pub async fn until(mut reached: impl FnMut() -> bool) {
    patiently(async {
        while !reached() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
