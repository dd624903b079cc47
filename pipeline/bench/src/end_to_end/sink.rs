//! The sink: an HTTP server that counts what arrives.
//!
//! Every gRPC call of any service, and every other body of protobuf, is counted as spans, everything else as an
//! envelope with a chunk, a transaction or a container. What it holds is counted before the sink acknowledges it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, request};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use super::count;
use crate::Error;

/// The amounts received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Stats {
    /// Envelopes, or gRPC calls.
    pub(crate) requests: u64,
    /// The size of the received bodies in bytes, as sent.
    pub(crate) bytes: u64,
    /// Samples with a stack.
    pub(crate) observations: u64,
    pub(crate) spans: u64,
    /// Bodies that could not be read.
    pub(crate) broken: u64,
}

impl Stats {
    /// The difference to an earlier state.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            bytes: self.bytes - before.bytes,
            observations: self.observations - before.observations,
            spans: self.spans - before.spans,
            broken: self.broken - before.broken,
        }
    }
}

/// A sink that listens on its own thread until it is dropped.
pub(crate) struct Sink {
    pub(crate) runtime: Runtime,
    /// The sink's address.
    pub(crate) address: SocketAddr,
    shared: Arc<SinkState>,
}

#[derive(Debug, Default)]
struct SinkState {
    /// Whether to count only bytes.
    blind: bool,
    /// How long an answer takes.
    delay: Duration,
    stats: Mutex<Stats>,
}

impl Sink {
    /// Starts the sink. If `blind`, it only counts bytes.
    pub(crate) fn start(blind: bool) -> Result<Self, Error> {
        Self::start_distant(blind, Duration::ZERO)
    }

    /// Starts a sink whose answers take this time, as over a long way.
    pub(crate) fn start_distant(blind: bool, delay: Duration) -> Result<Self, Error> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(SinkState { blind, delay, ..SinkState::default() });
        runtime.spawn(serve(listener, Arc::clone(&shared)));
        Ok(Self { runtime, address, shared })
    }

    /// The amounts received so far.
    pub(crate) fn stats(&self) -> Stats {
        *self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nothing has arrived for `quiet`. Fails if data still arrives after `most`.
    pub(crate) fn settle(&self, quiet: Duration, most: Duration) -> Result<Stats, Error> {
        let end = Instant::now() + most;
        let (mut stats, mut since) = (self.stats(), Instant::now());
        while since.elapsed() < quiet {
            thread::sleep(Duration::from_millis(50));
            let now = self.stats();
            if now != stats {
                (stats, since) = (now, Instant::now());
            }
            if Instant::now() > end {
                return Err("the sink does not come to rest".into());
            }
        }
        Ok(stats)
    }
}

async fn serve(listener: TcpListener, shared: Arc<SinkState>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        let service = service_fn(move |request| {
            let shared = Arc::clone(&shared);
            async move { Ok::<_, Infallible>(shared.answer(request).await) }
        });
        // Senders may be idle while the other program is measured, and may close their connections: neither is an
        // error.
        tokio::spawn(async move {
            stream.set_nodelay(true).ok();
            let builder = auto::Builder::new(TokioExecutor::new());
            builder.serve_connection(TokioIo::new(stream), service).await.ok();
        });
    }
}

type SinkResponse = Response<UnsyncBoxBody<Bytes, Infallible>>;

impl SinkState {
    async fn answer(&self, request: Request<Incoming>) -> SinkResponse {
        let (head, body) = request.into_parts();
        // An incomplete body counts as unreadable.
        let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let is_of = |kind: &str| text(&head, CONTENT_TYPE).is_some_and(|of| of.starts_with(kind));
        let (is_call, is_protobuf) = (is_of("application/grpc"), is_of("application/x-protobuf"));
        let found = match (self.blind, is_call) {
            (true, _) => Some((0, 0)),
            (false, true) => {
                let encoding = text(&head, HeaderName::from_static("grpc-encoding"));
                count::spans_of_call(encoding, &bytes).map(|spans| (0, spans))
            }
            (false, false) => {
                let plain = count::decompress(text(&head, CONTENT_ENCODING), &bytes).ok();
                plain.and_then(|plain| match is_protobuf {
                    true => Some((0, count::spans_of_request(&plain)?)),
                    false => Some((count::active_samples(&plain), count::spans_of_envelope(&plain))),
                })
            }
        };
        self.count(bytes.len(), found);
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        if is_call { taken() } else { Response::new(Full::new(Bytes::from_static(b"{}")).boxed_unsync()) }
    }

    /// Counts a request with its observations and spans; `None` if it could not be read.
    fn count(&self, bytes: usize, found: Option<(u64, u64)>) {
        let mut stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        stats.requests += 1;
        stats.bytes += bytes as u64;
        match found {
            Some((observations, spans)) => {
                stats.observations += observations;
                stats.spans += spans;
            }
            None => stats.broken += 1,
        }
    }
}

fn text(head: &request::Parts, name: HeaderName) -> Option<&str> {
    head.headers.get(name).and_then(|value| value.to_str().ok())
}

/// The answer to an accepted gRPC call (gRPC `doc/PROTOCOL-HTTP2.md`).
fn taken() -> SinkResponse {
    let trailers = HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
    // A message without fields means full success.
    let message = Full::new(Bytes::from_static(&[0; 5]));
    let mut response = Response::new(message.with_trailers(std::future::ready(Some(Ok(trailers)))).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}
