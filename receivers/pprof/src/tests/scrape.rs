//! Scraped profiles.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hyper::Response;
use hyper::body::Incoming;
use hyper::service::service_fn;
use tokio::net::TcpListener;

use super::*;

/// The answer of a program: a status and a body.
type Answers = Arc<Mutex<(u16, Bytes)>>;

/// A program that serves profiles.
struct Program {
    address: SocketAddr,
    answers: Answers,
    /// The requested paths.
    asked: Arc<Mutex<Vec<String>>>,
    count: Arc<AtomicU64>,
}

impl Program {
    async fn start(status: u16, body: Bytes) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answers: Answers = Arc::new(Mutex::new((status, body)));
        let (asked, count) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<AtomicU64>::default());
        let program = Self { address, answers: answers.clone(), asked: asked.clone(), count: count.clone() };
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (answers, asked, count) = (answers.clone(), asked.clone(), count.clone());
                let service = service_fn(move |request: Request<Incoming>| {
                    let token = request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
                    asked.lock().unwrap().push(format!("{} {}", request.uri(), token.unwrap_or_default()));
                    count.fetch_add(1, Ordering::Relaxed);
                    let (status, body) = answers.lock().unwrap().clone();
                    let response = Response::builder().status(status).body(Full::new(body)).unwrap();
                    async move { Ok::<_, Infallible>(response) }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        program
    }

    fn answers(&self, status: u16, body: Bytes) {
        *self.answers.lock().unwrap() = (status, body);
    }

    /// A receiver that scrapes the program as often as possible.
    fn scraped(&self) -> String {
        format!(
            "{{resource: {{insert: {{zone: a}}}}, scrape: {{interval: 1s, duration: 1s, targets: {{shop: \
             {{endpoint: 'http://{}', attributes: {{env: test}}, headers: {{authorization: token}}}}}}}}}}",
            self.address
        )
    }
}

/// Guarantees: a program is repeatedly asked for a profile of the configured seconds, with the configured headers; its
/// profiles arrive with its attributes, and with the time of the request if they contain no time.
#[tokio::test]
async fn fetches() {
    let program = Program::start(200, gzip(&cpu(0))).await;
    let mut rig = PprofRig::start(&program.scraped()).await;
    assert!(rig.address.is_none());
    let instance = program.address.to_string();
    for _ in 0..2 {
        let batch = profiles(patiently(rig.consumer.take()).await);
        let expected =
            [("env", "test"), ("service.name", "shop"), ("service.instance.id", instance.as_str()), ("zone", "a")];
        assert_eq!(attributes(&batch), expected);
        assert_eq!(batch.peer.as_deref(), Some(&*instance));
        let first = batch.profiles().next().unwrap();
        assert_eq!(first.time_unix_nano, ARRIVAL);
        assert_eq!(first.duration_nano, 1_000_000_000);
    }
    assert_eq!(program.asked.lock().unwrap()[0], "/debug/pprof/profile?seconds=1 token");
    assert!(rig.requests("scrape", "success") >= 1);
    rig.stop().await;
}

/// Guarantees: an answer that is no profile counts as a failure each time, and scraping continues.
#[tokio::test]
async fn failures() {
    let program = Program::start(500, Bytes::from_static(b"Could not enable CPU profiling\n")).await;
    let mut rig = PprofRig::start(&program.scraped()).await;
    let reached = async |count: u64| {
        patiently(async {
            while program.count.load(Ordering::Relaxed) < count {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    reached(1).await;
    program.answers(200, Bytes::from_static(b"no profile"));
    reached(2).await;
    program.answers(200, cpu(5));
    assert_eq!(profiles(patiently(rig.consumer.take()).await).observations(), 2);
    assert!(rig.requests("scrape", "failure") >= 1);
    rig.stop().await;
}

/// Guarantees: a shutdown does not wait for a profile that is being recorded.
#[tokio::test]
async fn shutdown() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    let yaml = format!("scrape: {{interval: 1h, duration: 1s, targets: {{a: {{endpoint: 'http://{target}'}}}}}}");
    let rig = PprofRig::start(&yaml).await;
    rig.stop().await;
    let rig = PprofRig::start(&yaml.replace("1h", "1s")).await;
    // The program accepts the connection and never answers.
    let connected = patiently(listener.accept()).await.unwrap();
    rig.stop().await;
    drop(connected);
}
