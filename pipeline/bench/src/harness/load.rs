//! The load generator: encoded requests over gRPC, their times moved with each send, nothing encoded twice.

use std::{
    io::Write,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::{Buf, BufMut, Bytes};
use clap::Args;
use http::uri::PathAndQuery;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tonic::{
    Code, Status,
    client::Grpc,
    codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    transport::{Channel, Endpoint},
};

use super::{Error, patch::Template, statistics};

/// What to send, and how fast.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The target's address for OTLP over gRPC
    #[arg(long)]
    pub target: SocketAddr,
    /// For how long
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// Requests under way at the same time
    #[arg(long, default_value_t = 4)]
    pub concurrency: usize,
    /// Requests per second; as many as the target takes where it is not given
    #[arg(long)]
    pub rate: Option<f64>,
    /// End after so many requests
    #[arg(long)]
    pub count: Option<u64>,
    /// The time that one report covers, in nanoseconds: each send is that much later than the one before
    #[arg(long, default_value_t = 5_000_000_000)]
    pub window: u64,
    /// How much later the first send is than its body says, in nanoseconds
    #[arg(long, default_value_t = 0)]
    pub offset: u64,
    /// Encoded requests, successive reports of one host
    #[arg(required = true)]
    pub bodies: Vec<PathBuf>,
}

/// What became of the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// Taken by the target.
    pub acknowledged: u64,
    /// Refused for now: UNAVAILABLE or RESOURCE_EXHAUSTED.
    pub later: u64,
    /// Failed otherwise.
    pub failed: u64,
    /// Not sent in time, since too many were under way.
    pub skipped: u64,
    /// Milliseconds until the target took a request, in the median.
    pub p50_ms: f64,
    /// The same for the slowest hundredth.
    pub p99_ms: f64,
}

/// Hands bytes through as they are.
#[derive(Clone, Copy, Debug, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.reserve(item.len());
        out.put(item);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(64 << 10, 1 << 20)
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// The requests, one after the other, for ever.
struct Reports {
    templates: Vec<Template>,
    window: u64,
    offset: u64,
    next: AtomicU64,
}

impl Reports {
    fn next(&self) -> (u64, Bytes) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let rounds = self.templates.len() as u64;
        let template = &self.templates[(number % rounds) as usize];
        (number, template.later(self.offset + number / rounds * rounds * self.window).into())
    }
}

struct Generator {
    reports: Reports,
    channel: Channel,
    sent: Mutex<(Sent, Vec<f64>)>,
}

impl Generator {
    async fn send(&self, body: Bytes) {
        let start = Instant::now();
        let outcome = self.call(body).await;
        let took = start.elapsed().as_secs_f64() * 1e3;
        let (sent, times) = &mut *self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome.map_err(|status| status.code()) {
            Ok(_) => {
                sent.acknowledged += 1;
                times.push(took);
            }
            Err(Code::Unavailable | Code::ResourceExhausted) => sent.later += 1,
            Err(_) => sent.failed += 1,
        }
    }

    async fn call(&self, body: Bytes) -> Result<tonic::Response<Bytes>, Status> {
        let mut client = Grpc::new(self.channel.clone());
        client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";
        client.unary(tonic::Request::new(body), PathAndQuery::from_static(path), Raw).await
    }

    /// As fast as the target takes it, or `count` requests.
    async fn closed(self: &Arc<Self>, options: &Options, until: Instant) -> Result<(), Error> {
        let mut tasks = Vec::new();
        for _ in 0..options.concurrency.max(1) {
            let this = Arc::clone(self);
            let count = options.count.unwrap_or(u64::MAX);
            tasks.push(tokio::spawn(async move {
                while Instant::now() < until {
                    let (number, body) = this.reports.next();
                    if number >= count {
                        break;
                    }
                    this.send(body).await;
                }
            }));
        }
        for task in tasks {
            task.await?;
        }
        Ok(())
    }

    /// At a fixed rate, whatever the target does.
    async fn open(self: &Arc<Self>, options: &Options, rate: f64, until: Instant) -> Result<(), Error> {
        let mut ticks = interval(Duration::from_secs_f64(1.0 / rate.max(0.001)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let under_way = Arc::new(tokio::sync::Semaphore::new(options.concurrency.max(1)));
        let limit = u32::try_from(options.concurrency.max(1))?;
        while Instant::now() < until {
            ticks.tick().await;
            let Ok(permit) = Arc::clone(&under_way).try_acquire_owned() else {
                self.sent.lock().unwrap_or_else(PoisonError::into_inner).0.skipped += 1;
                continue;
            };
            let this = Arc::clone(self);
            tokio::spawn(async move {
                let (_, body) = this.reports.next();
                this.send(body).await;
                drop(permit);
            });
        }
        drop(under_way.acquire_many(limit).await?);
        Ok(())
    }
}

/// Sends, then prints [`Sent`] as JSON.
///
/// # Errors
/// The target cannot be reached, or a file cannot be read.
#[tokio::main(flavor = "current_thread")]
pub async fn run(options: Options) -> Result<(), Error> {
    let mut templates = Vec::new();
    for path in &options.bodies {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        templates.push(Template::new(bytes)?);
    }
    let channel = Endpoint::from_shared(format!("http://{}", options.target))?.connect().await?;
    let reports = Reports { templates, window: options.window, offset: options.offset, next: AtomicU64::new(0) };
    let generator = Arc::new(Generator { reports, channel, sent: Mutex::default() });
    let until = Instant::now() + Duration::from_secs_f64(options.seconds);
    match options.rate {
        Some(rate) => generator.open(&options, rate, until).await?,
        None => generator.closed(&options, until).await?,
    }
    let (mut sent, times) = generator.sent.lock().unwrap_or_else(PoisonError::into_inner).clone();
    sent.p50_ms = statistics::median(&times);
    sent.p99_ms = statistics::quantile(&times, 0.99);
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&sent)?)?;
    Ok(())
}
