//! The receiver over real sockets, with a consumer in place of the pipelines.

mod config;
mod push;
mod scrape;

use std::net::SocketAddr;

use ::http::{Method, Request};
use bytes::Bytes;
use http_body_util::Full;
use profbridge_engine::clock::Clock;
use profbridge_engine::component::Now;
use profbridge_engine::config::Section;
use profbridge_model::{Builder, Profile, Profiles, Telemetry, Value};
use profbridge_testkit::{PLENTY, ReadAnswer, ReceiverRig, gzip, http1, patiently};
use profbridge_wire::pprof::{encode, groups};

use crate::{Pprof, Settings};

/// The time at which profiles were recorded, and the time at which they arrive.
const TIME: u64 = 1_760_000_000_000_000_000;
const ARRIVAL: u64 = TIME + 60_000_000_000;

/// A configuration with a free port, and default values for all other keys.
const LOOPBACK: &str = "push: {endpoint: '127.0.0.1:0'}";

fn settings(yaml: &str) -> Settings {
    Settings::read(&Section::from_yaml(yaml).unwrap()).unwrap()
}

struct PprofRig(ReceiverRig);

impl std::ops::Deref for PprofRig {
    type Target = ReceiverRig;

    fn deref(&self) -> &ReceiverRig {
        &self.0
    }
}

impl std::ops::DerefMut for PprofRig {
    fn deref_mut(&mut self) -> &mut ReceiverRig {
        &mut self.0
    }
}

impl PprofRig {
    async fn start(yaml: &str) -> Self {
        Self::start_with(yaml, PLENTY).await
    }

    async fn start_with(yaml: &str, memory: u64) -> Self {
        let clock = Clock::from_fn(|| Now { monotonic_nano: 0, unix_nano: ARRIVAL });
        let pprof = Pprof::new(settings(yaml)).with_clock(clock);
        Self(ReceiverRig::start("pprof", pprof, memory).await.unwrap())
    }

    async fn send(&self, post: Post) -> ReadAnswer {
        post.send(self.address("http")).await
    }

    /// Sends a request that must be refused, and checks that no data or memory of it is left.
    async fn refused(&self, post: Post) -> (u16, String) {
        let answer = self.send(post).await;
        assert!(answer.status >= 400, "{answer:?}");
        assert_eq!(self.consumer.memory_used(), 0);
        (answer.status, String::from_utf8(answer.body.to_vec()).unwrap())
    }

    /// Sends a request, returns the data that arrives, and checks that no other data or memory is left.
    async fn taken(&mut self, post: Post) -> Profiles {
        let sent = post.send(self.address("http"));
        let (answer, taken) = tokio::join!(sent, patiently(self.consumer.take()));
        assert_eq!((answer.status, self.consumer.memory_used()), (200, 0), "{answer:?}");
        profiles(taken)
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
        http1(address, request.body(Full::new(self.body)).unwrap()).await
    }
}
