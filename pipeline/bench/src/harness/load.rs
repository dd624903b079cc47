//! The load generator: encoded requests, the times of profiles moved with each send, nothing encoded twice.

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

use bytes::Bytes;
use clap::Args;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{
    Error,
    call::{Answer, Client, Compression, Form, Protocol, Signal},
    patch::Template,
    statistics,
};
use crate::naive;

/// What to send, and how fast.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The target's address for OTLP
    #[arg(long)]
    pub target: SocketAddr,
    /// How requests travel
    #[arg(long, default_value = "grpc")]
    pub protocol: Protocol,
    /// What the requests hold
    #[arg(long, default_value = "profiles")]
    pub signal: Signal,
    /// How requests are compressed, before the first is sent; traces only
    #[arg(long, default_value = "none")]
    pub compression: Compression,
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
    /// Refused for now: UNAVAILABLE, RESOURCE_EXHAUSTED, or 429, 502, 503 and 504 over HTTP.
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

/// What is sent, again and again.
enum Body {
    /// With its times moved.
    Moving(Template),
    /// As it is: nobody looks for resends among spans.
    Fixed(Bytes),
}

/// The requests, one after the other, for ever.
struct Reports {
    bodies: Vec<Body>,
    form: Form,
    window: u64,
    offset: u64,
    next: AtomicU64,
}

impl Reports {
    fn next(&self) -> (u64, Bytes) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let rounds = self.bodies.len() as u64;
        let body = match &self.bodies[(number % rounds) as usize] {
            Body::Moving(template) => {
                self.form.body(&template.later(self.offset + number / rounds * rounds * self.window))
            }
            Body::Fixed(body) => body.clone(),
        };
        (number, body)
    }
}

struct Generator {
    reports: Reports,
    client: Client,
    sent: Mutex<(Sent, Vec<f64>)>,
}

impl Generator {
    async fn send(&self, body: Bytes) {
        let start = Instant::now();
        let answer = self.client.call(body).await;
        let took = start.elapsed().as_secs_f64() * 1e3;
        let (sent, times) = &mut *self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Ok(Answer::Taken) => {
                sent.acknowledged += 1;
                times.push(took);
            }
            Ok(Answer::Later) => sent.later += 1,
            Ok(Answer::Failed) | Err(_) => sent.failed += 1,
        }
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
    let form = Form { protocol: options.protocol, signal: options.signal, compression: options.compression };
    let mut bodies = Vec::new();
    for path in &options.bodies {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        bodies.push(match (options.signal, options.compression) {
            (Signal::Profiles, Compression::None) => Body::Moving(Template::new(bytes)?),
            (Signal::Traces, Compression::None) => Body::Fixed(form.body(&bytes)),
            (Signal::Traces, Compression::Gzip) => Body::Fixed(form.body(&naive::gzip(&bytes)?)),
            (Signal::Profiles, Compression::Gzip) => return Err("the times of compressed profiles cannot move".into()),
        });
    }
    let client = Client::connect(options.target, form).await?;
    let reports = Reports { bodies, form, window: options.window, offset: options.offset, next: AtomicU64::new(0) };
    let generator = Arc::new(Generator { reports, client, sent: Mutex::default() });
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
