//! The receiver over real sockets, in front of a consumer that stands in for the pipelines.

mod config;
mod push;
mod scrape;

use std::net::SocketAddr;
use std::time::Duration;

use ::http::{HeaderMap, Method, Request};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use profbridge_engine::budget::Budget;
use profbridge_engine::clock::Clock;
use profbridge_engine::component::Now;
use profbridge_engine::config::Section;
use profbridge_engine::peer_limits::PeerLimits;
use profbridge_engine::receiver::{Receiver as _, ReceiverContext};
use profbridge_engine::telemetry::Metrics;
use profbridge_model::{Builder, Profile, Profiles, Telemetry, Value};
use profbridge_net::{Shutdown, Trigger};
use profbridge_testkit::{Consumer, intake};
use profbridge_wire::pprof::{encode, groups};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::{Pprof, Settings};

/// A memory budget that no test uses up by accident.
const PLENTY: u64 = 1 << 30;

/// When profiles were recorded, and when they arrive.
const TIME: u64 = 1_760_000_000_000_000_000;
const ARRIVAL: u64 = TIME + 60_000_000_000;

/// A free port, and everything else at its default.
const LOOPBACK: &str = "push: {endpoint: '127.0.0.1:0'}";

fn settings(yaml: &str) -> Settings {
    Settings::read(&Section::from_yaml(yaml).unwrap()).unwrap()
}

/// A running receiver.
struct PprofRig {
    address: Option<SocketAddr>,
    consumer: Consumer,
    metrics: Metrics,
    trigger: Trigger,
    stopped: JoinHandle<()>,
}

impl PprofRig {
    async fn start(yaml: &str) -> Self {
        Self::start_with(yaml, PLENTY).await
    }

    async fn start_with(yaml: &str, memory: u64) -> Self {
        let (intake, consumer) = intake(memory);
        let metrics = Metrics::new(Budget::new(memory));
        let (trigger, shutdown) = Shutdown::pair();
        let context = ReceiverContext {
            allowed_hosts: std::sync::Arc::default(),
            id: "pprof".to_owned(),
            identity: profbridge_identity::Rules::default(),
            next: intake,
            shutdown,
            telemetry: metrics.receiver("pprof"),
            peer_limits: PeerLimits::default(),
        };
        let clock = Clock::from_fn(|| Now { monotonic_nano: 0, unix_nano: ARRIVAL });
        let running = Box::new(Pprof::new(settings(yaml)).with_clock(clock)).start(context).await.unwrap();
        let address = running.addresses.first().map(|(_, address)| *address);
        Self { address, consumer, metrics, trigger, stopped: tokio::spawn(running.stopped) }
    }

    async fn send(&self, post: Post) -> ReadAnswer {
        post.send(self.address.unwrap()).await
    }

    /// Sends a request that must be refused, and checks that nothing is left of it.
    async fn refused(&self, post: Post) -> (u16, String) {
        let answer = self.send(post).await;
        assert!(answer.status >= 400, "{answer:?}");
        assert_eq!(self.consumer.memory_used(), 0);
        (answer.status, String::from_utf8(answer.body.to_vec()).unwrap())
    }

    /// Sends a request, returns what arrives, and checks that nothing else is left.
    async fn taken(&mut self, post: Post) -> Profiles {
        let sent = post.send(self.address.unwrap());
        let (answer, taken) = tokio::join!(sent, patiently(self.consumer.take()));
        assert_eq!((answer.status, self.consumer.memory_used()), (200, 0), "{answer:?}");
        profiles(taken)
    }

    /// How many profiles of a transport ended as `success`, `refused` or `failure`.
    fn requests(&self, transport: &str, outcome: &str) -> u64 {
        let name =
            format!("otelcol_receiver_requests{{receiver=\"pprof\",transport=\"{transport}\",outcome=\"{outcome}\"}}");
        let text = self.metrics.encode();
        let line = text.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap_or_else(|| panic!("no {name} in\n{text}")).trim().parse().unwrap()
    }

    async fn stop(self) {
        self.trigger.trigger();
        patiently(self.stopped).await.unwrap();
    }
}

fn profiles(taken: Option<Telemetry>) -> Profiles {
    match taken {
        Some(Telemetry::Profiles(profiles)) => profiles,
        other => panic!("{other:?}"),
    }
}

/// The attributes of the only resource.
fn attributes(batch: &Profiles) -> Vec<(&str, &str)> {
    let dictionary = batch.dictionary();
    let text = |value: &Value| match value {
        Value::String(id) => *id,
        other => panic!("{other:?}"),
    };
    let all = batch.resources()[0].resource.attributes.iter();
    all.map(|attribute| (dictionary.string(attribute.key), dictionary.string(text(&attribute.value)))).collect()
}

/// A CPU profile as Go writes it, but uncompressed: each sample has a count and a time.
fn cpu(time_unix_nano: u64) -> Bytes {
    let mut builder = Builder::new();
    builder.scope("", "");
    let leaf = builder.frame("main.work", "/app/main.go", 7);
    let root = builder.frame("main.main", "/app/main.go", 3);
    let stack = builder.stack(&[leaf, root]);
    let period_type = builder.value_type("cpu", "nanoseconds");
    for (kind, unit, value) in [("samples", "count", 3), ("cpu", "nanoseconds", 30_000_000)] {
        let sample_type = builder.value_type(kind, unit);
        builder.profile(Profile { sample_type, period_type, period: 10_000_000, time_unix_nano, ..Profile::default() });
        builder.sample(stack, None, None, &[], &[value]);
    }
    let batch = builder.finish().unwrap();
    let [group] = &groups(&batch)[..] else { panic!("one profile") };
    encode(&batch, group).bytes.into()
}

fn gzip(data: &[u8]) -> Bytes {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(1));
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap().into()
}

/// A request.
#[derive(Clone)]
struct Post {
    method: Method,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
}

fn post(path: &str, body: impl Into<Bytes>) -> Post {
    Post { method: Method::POST, path: path.to_owned(), headers: Vec::new(), body: body.into() }
}

impl Post {
    fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    async fn send(self, address: SocketAddr) -> ReadAnswer {
        let mut request = Request::builder().method(self.method).uri(self.path).header("host", "localhost");
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        let request = request.body(Full::new(self.body)).unwrap();
        let (head, body) = patiently(sender.send_request(request)).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        ReadAnswer { status: head.status.as_u16(), headers: head.headers, body }
    }
}

/// An answer, read to its end.
#[derive(Debug)]
struct ReadAnswer {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

/// Waits for something that must happen, and panics after a timeout instead of hanging.
async fn patiently<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(120), what).await.expect("it happens")
}
