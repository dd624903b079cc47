//! The sink: an HTTP server that counts what arrives, and can be slow or refuse.
//!
//! `GET /stats` answers with [`Stats`] as JSON. A call over gRPC is one of spans, whatever its service, and everything
//! else is an envelope. A chunk's observations, and a call's spans, are counted before it is acknowledged.

use std::{
    convert::Infallible,
    io::Write,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use clap::Args;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
    request,
};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use serde::{Deserialize, Serialize};
use tokio::{
    net::TcpListener,
    time::{Instant, sleep_until},
};

use super::{Error, count};

/// How the sink behaves.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Read no faster than this, in bytes per second over all connections
    #[arg(long)]
    rate: Option<f64>,
    /// Answer every envelope with this status
    #[arg(long, default_value_t = 200)]
    status: u16,
    /// Count bytes only
    #[arg(long)]
    blind: bool,
}

/// What arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Envelopes, or calls over gRPC.
    pub requests: u64,
    /// Bytes of their bodies, as they came.
    pub bytes: u64,
    /// Bytes of the envelopes, decompressed.
    pub json_bytes: u64,
    /// Samples with a stack.
    pub observations: u64,
    /// Spans.
    pub spans: u64,
    /// Bodies that could not be read.
    pub broken: u64,
}

impl Stats {
    /// What arrived after what had arrived before.
    pub fn since(self, before: Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            bytes: self.bytes - before.bytes,
            json_bytes: self.json_bytes - before.json_bytes,
            observations: self.observations - before.observations,
            spans: self.spans - before.spans,
            broken: self.broken - before.broken,
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    options: Options,
    stats: Mutex<Stats>,
    /// The time until which what was read so far may take at the given rate.
    paid_until: Mutex<Option<Instant>>,
}

impl Shared {
    fn stats(&self) -> Stats {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, add: impl FnOnce(&mut Stats)) {
        add(&mut self.stats.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits as long as `bytes` may take.
    async fn pay(&self, bytes: usize) {
        let Some(rate) = self.options.rate else { return };
        let until = {
            let mut paid = self.paid_until.lock().unwrap_or_else(PoisonError::into_inner);
            let from = paid.map_or_else(Instant::now, |until| until.max(Instant::now()));
            let until = from + Duration::from_secs_f64(bytes as f64 / rate.max(1.0));
            *paid = Some(until);
            until
        };
        sleep_until(until).await;
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        if request.method() == Method::GET {
            let stats = serde_json::to_vec(&self.stats()).unwrap_or_default();
            return Response::new(Full::new(Bytes::from(stats)).boxed_unsync());
        }
        let (head, mut body) = request.into_parts();
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            match frame.map(http_body::Frame::into_data) {
                Ok(Ok(data)) => {
                    self.pay(data.len()).await;
                    bytes.extend_from_slice(&data);
                }
                Ok(Err(_)) => {}
                Err(_) => {
                    self.add(|stats| stats.broken += 1);
                    return status(StatusCode::BAD_REQUEST);
                }
            }
        }
        if head.headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc")) {
            self.call(&head, &bytes)
        } else {
            self.envelope(&head, &bytes)
        }
    }

    fn envelope(&self, head: &request::Parts, bytes: &[u8]) -> Answer {
        let encoding = text(head, CONTENT_ENCODING);
        let inside = if self.options.blind { Ok(Vec::new()) } else { count::decompress(encoding, bytes) };
        let answer = StatusCode::from_u16(self.options.status).unwrap_or(StatusCode::OK);
        self.add(|stats| {
            stats.requests += 1;
            stats.bytes += bytes.len() as u64;
            match &inside {
                Ok(json) if answer.is_success() => {
                    stats.json_bytes += json.len() as u64;
                    stats.observations += count::active_samples(json);
                }
                Ok(_) => {}
                Err(_) => stats.broken += 1,
            }
        });
        status(answer)
    }

    /// A call over gRPC, which is always taken (gRPC `doc/PROTOCOL-HTTP2.md`).
    fn call(&self, head: &request::Parts, bytes: &[u8]) -> Answer {
        let encoding = text(head, HeaderName::from_static("grpc-encoding"));
        let spans = if self.options.blind { Some(0) } else { count::spans_of_call(encoding, bytes) };
        self.add(|stats| {
            stats.requests += 1;
            stats.bytes += bytes.len() as u64;
            match spans {
                Some(spans) => stats.spans += spans,
                None => stats.broken += 1,
            }
        });
        let trailers = HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
        // A message without fields: full success.
        let message = Full::new(Bytes::from_static(&[0; 5]));
        let body = message.with_trailers(std::future::ready(Some(Ok(trailers)))).boxed_unsync();
        let mut response = Response::new(body);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        response
    }
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

fn text(head: &request::Parts, name: HeaderName) -> Option<&str> {
    head.headers.get(name).and_then(|value| value.to_str().ok())
}

fn status(status: StatusCode) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from_static(b"{}")).boxed_unsync());
    *response.status_mut() = status;
    response
}

/// Serves until the process ends. Prints `listening on ADDRESS` once it does.
///
/// # Errors
/// The port cannot be bound.
#[tokio::main(flavor = "current_thread")]
pub async fn run(options: Options) -> Result<(), Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    writeln!(std::io::stdout(), "listening on {}", listener.local_addr()?)?;
    let shared = Arc::new(Shared { options, ..Shared::default() });
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let shared = Arc::clone(&shared);
        let service = service_fn(move |request| {
            let shared = Arc::clone(&shared);
            async move { Ok::<_, Infallible>(shared.answer(request).await) }
        });
        // Senders may idle for as long as the other side is measured; one that goes away is none of the sink's
        // business.
        tokio::spawn(async move {
            let builder = auto::Builder::new(TokioExecutor::new());
            builder.serve_connection(TokioIo::new(stream), service).await.ok();
        });
    }
}
