//! The sink: an HTTP server that counts what arrives, and can be slow or refuse.
//!
//! `GET /stats` answers with [`Stats`] as JSON; everything else is an envelope. A chunk's observations are counted
//! before it is acknowledged.

use std::{
    convert::Infallible,
    io::Write,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use clap::Args;
use http::{Method, Request, Response, StatusCode, header::CONTENT_ENCODING};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
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
    /// Envelopes.
    pub requests: u64,
    /// Bytes of their bodies, as they came.
    pub bytes: u64,
    /// Bytes of their bodies, decompressed.
    pub json_bytes: u64,
    /// Samples with a stack.
    pub observations: u64,
    /// Bodies that could not be read.
    pub broken: u64,
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

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if request.method() == Method::GET {
            let stats = serde_json::to_vec(&self.stats()).unwrap_or_default();
            return Response::new(Full::new(Bytes::from(stats)));
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
        let encoding = head.headers.get(CONTENT_ENCODING).and_then(|value| value.to_str().ok());
        let inside = if self.options.blind { Ok(Vec::new()) } else { count::decompress(encoding, &bytes) };
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
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(b"{}")));
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
        let builder = http1::Builder::new();
        tokio::spawn(async move { builder.serve_connection(TokioIo::new(stream), service).await.ok() });
    }
}
