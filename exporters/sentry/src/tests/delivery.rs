use std::sync::Mutex;
use std::time::Duration;

use profbridge_engine::component::Now;
use profbridge_engine::config::Section;
use profbridge_engine::delivery::{RunningExporter, Stop};
use profbridge_engine::telemetry::ExporterTelemetry;
use profbridge_model::Reason;
use profbridge_testkit::{START_UNIX_NANO, exporter_context};
use profbridge_wire::sentry::Dsn;
use serde_json::json;
use tokio::time::Instant;

use super::server::{Reply, Server};
use super::{batch, settings};
use crate::FACTORY;

/// The exporter as the engine runs it.
async fn run(yaml: &str) -> (RunningExporter, ExporterTelemetry) {
    assert!(settings(yaml).default.is_some());
    let context = exporter_context("sentry");
    let telemetry = context.telemetry.clone();
    let exporter = (FACTORY.create)(&Section::from_yaml(yaml).unwrap()).unwrap();
    let running = exporter.start(context).await.unwrap();
    (running, telemetry)
}

async fn put(running: &RunningExporter, batches: usize) {
    for _ in 0..batches {
        let now = Now { monotonic_nano: 0, unix_nano: START_UNIX_NANO };
        running.sink().accept(&batch("shop").into(), now);
    }
}

fn soon() -> Stop {
    let deadline = Instant::now() + Duration::from_secs(120);
    Stop { deadline, close_by: deadline + Duration::from_secs(5) }
}

/// Guarantees: with the queue, an outage is waited out, and billed time is counted once.
#[tokio::test]
async fn an_outage_is_waited_out() {
    let replies = Mutex::new(vec![Reply::status(200), Reply::status(503), Reply::Close, Reply::status(502)]);
    let server = Server::start(move |_| replies.lock().unwrap().pop().unwrap_or(Reply::status(200))).await;
    let (running, telemetry) = run(&format!(
        "dsn: {}\nretry_on_failure: {{initial_interval: 1ms, max_interval: 2ms}}\nsending_queue: {{num_consumers: 1}}",
        server.dsn(1)
    ))
    .await;
    put(&running, 1).await;
    server.until(4).await;
    running.stop(soon()).await;
    assert_eq!((telemetry.totals().requests, telemetry.totals().retries), (1, 3));
    assert_eq!(telemetry.totals().sent.samples, 1);
    assert_eq!(telemetry.totals().billed, Duration::from_millis(200));
    let bodies: Vec<_> = server.received().iter().map(|request| request.body.clone()).collect();
    assert!(bodies.iter().all(|body| *body == bodies[0]), "a retry overwrites itself");
}

/// Guarantees: during a rate limit the queue is drained without sending and each loss is counted. At shutdown, the
/// server receives a report of the losses that it does not know: not the envelopes that it rejected by the limit.
#[tokio::test]
async fn behind_a_limit() {
    let server = Server::always(Reply::status(429).with("x-sentry-rate-limits", "60:profile_chunk:organization")).await;
    let (running, telemetry) = run(&format!("dsn: {}\nsending_queue: {{num_consumers: 1}}", server.dsn(1))).await;
    put(&running, 3).await;
    running.stop(soon()).await;
    let received = server.received();
    assert_eq!(received.len(), 2, "one chunk, and the last words");
    let report = received[1].item("client_report");
    let expected = json!([{"reason": "ratelimit_backoff", "category": "profile_chunk", "quantity": 2}]);
    assert_eq!(report["discarded_events"], expected);
    let losses = telemetry.edge().totals().dropped;
    assert!(losses.get(Reason::RateLimited).total() >= 12, "{losses}");
    assert_eq!(telemetry.totals().requests, 0);
}

/// Guarantees: requests that are unsent at shutdown are written to files if configured: the bodies as they would have
/// been sent, in a folder with the DSN, readable only for the owner. They are counted as kept.
#[tokio::test]
async fn keeps_what_is_unsent() {
    use std::os::unix::fs::PermissionsExt as _;

    let server = Server::always(Reply::status(503)).await;
    let folder = tempfile::tempdir().unwrap();
    let path = serde_json::to_string(&folder.path().join("unsent")).unwrap();
    let (running, telemetry) = run(&format!("dsn: {}\ncompression: gzip\non_shutdown: {path}", server.dsn(1))).await;
    put(&running, 2).await;
    server.until(2).await;
    let deadline = Instant::now();
    running.stop(Stop { deadline, close_by: deadline + Duration::from_secs(60) }).await;
    let losses = telemetry.edge().totals().dropped;
    assert_eq!(losses.total(), losses.get(Reason::KeptOnDisk));
    let projects: Vec<_> = std::fs::read_dir(folder.path().join("unsent")).unwrap().collect();
    let [Ok(project)] = &projects[..] else { panic!("{projects:?}") };
    assert_eq!(project.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let dsn = |text: &str| text.parse::<Dsn>().unwrap().without_secret();
    let beside = std::fs::read_to_string(project.path().join("dsn")).unwrap();
    assert_eq!(beside, dsn(&server.dsn(1)));
    let mut bodies = Vec::new();
    for entry in std::fs::read_dir(project.path()).unwrap().map(Result::unwrap) {
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        if entry.file_name().into_string().unwrap().ends_with(".envelope.gzip") {
            bodies.push(std::fs::read(entry.path()).unwrap());
        }
    }
    let received = server.received();
    assert_eq!(bodies.len(), 2);
    assert!(bodies.iter().all(|body| received.iter().any(|sent| sent.body == *body)));
}

/// Guarantees: every request names this process as one that it passed.
#[tokio::test]
async fn says_where_it_came_through() {
    let server = Server::always(Reply::status(200)).await;
    let (running, _telemetry) = run(&format!("dsn: {}", server.dsn(1))).await;
    put(&running, 1).await;
    running.stop(soon()).await;
    assert_eq!(server.received()[0].header("x-profbridge-via"), Some("0000000000000001"));
}

/// Guarantees: an envelope whose answer starts with 200 and then stalls was accepted: it is sent once, and counts as
/// sent.
#[tokio::test]
async fn an_answer_that_trickles_is_an_answer() {
    let server = Server::always(Reply::Trickle { status: 200, headers: vec![] }).await;
    let (running, telemetry) = run(&format!(
        // Long enough for a busy machine to read the head.
        "dsn: {}\ntimeout: 5s\nretry_on_failure: {{initial_interval: 1ms, max_interval: 2ms}}",
        server.dsn(1)
    ))
    .await;
    put(&running, 1).await;
    server.until(1).await;
    running.stop(soon()).await;
    assert_eq!((telemetry.totals().requests, telemetry.totals().retries, server.received().len()), (1, 0, 1));
}
