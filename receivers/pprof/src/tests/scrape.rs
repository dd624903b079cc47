//! Scraped profiles.

use ::http::Response;
use profbridge_testkit::RecordingServer;
use tokio::net::TcpListener;

use super::*;

/// A program that serves profiles. It sends the answers in order, and then repeats the last one.
async fn program(answers: Vec<(u16, Bytes)>) -> RecordingServer {
    RecordingServer::start(move |asked| {
        let (status, body) = answers[asked.min(answers.len()) - 1].clone();
        Response::builder().status(status).body(Full::new(body)).unwrap()
    })
    .await
}

/// A receiver that scrapes the program as often as possible.
async fn scraping(program: &RecordingServer) -> PprofRig {
    let yaml = "{resource: {insert: {zone: a}}, scrape: {interval: 1s, duration: 1s, targets: {shop: {endpoint: \
                'http://ADDRESS', attributes: {env: test}, headers: {authorization: token}}}}}";
    PprofRig::start(&yaml.replace("ADDRESS", &program.address.to_string())).await
}

/// Guarantees: a program is repeatedly asked for a profile of the configured duration, with the configured headers; its
/// profiles arrive with its attributes, and with the time of the request if they contain no time.
#[tokio::test]
async fn fetches() {
    let program = program(vec![(200, gzip(&cpu(0)).into())]).await;
    let mut rig = scraping(&program).await;
    assert!(rig.addresses.is_empty());
    let instance = program.address.to_string();
    for _ in 0..2 {
        let batch = profiles(patiently(rig.consumer.take()).await);
        let expected =
            [("env", "test"), ("service.name", "shop"), ("service.instance.id", instance.as_str()), ("zone", "a")];
        assert_eq!(attributes(&batch), expected);
        assert_eq!(batch.peer.as_deref(), Some(&*instance));
        let first = batch.profiles().next().unwrap();
        assert_eq!((first.time_unix_nano, first.duration_nano), (ARRIVAL, 1_000_000_000));
    }
    let (head, _) = program.seen.lock().unwrap()[0].clone();
    assert_eq!(head.uri, "/debug/pprof/profile?seconds=1");
    assert_eq!(head.headers["authorization"], "token");
    assert!(rig.requests("success", "scrape") >= 1);
    rig.0.stop().await;
}

/// Guarantees: an answer that is no profile counts as a failure each time, and scraping continues.
#[tokio::test]
async fn failures() {
    let refusal = Bytes::from_static(b"Could not enable CPU profiling\n");
    let program = program(vec![(500, refusal), (200, Bytes::from_static(b"no profile")), (200, cpu(5))]).await;
    let mut rig = scraping(&program).await;
    assert_eq!(profiles(patiently(rig.consumer.take()).await).observations(), 2);
    assert_eq!(rig.requests("failure", "scrape"), 2);
    rig.0.stop().await;
}

/// Guarantees: a shutdown does not wait for a profile that is being recorded.
#[tokio::test]
async fn shutdown() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    let yaml = format!("scrape: {{interval: 1h, duration: 1s, targets: {{a: {{endpoint: 'http://{target}'}}}}}}");
    let rig = PprofRig::start(&yaml).await;
    rig.0.stop().await;
    let rig = PprofRig::start(&yaml.replace("1h", "1s")).await;
    // The program accepts the connection and never answers.
    let connected = patiently(listener.accept()).await.unwrap();
    rig.0.stop().await;
    drop(connected);
}
