use std::net::SocketAddr;
use std::time::Duration;

use profbridge_model::{Quantities, Reason};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::*;
use crate::component::{Rejected, Retry};
use crate::config::Carries;
use crate::delivery::{DeliverySettings, DynExporter, Overflow, QueueConfig, RetryConfig, Sizer, deliver};
use crate::fakes::{FakeExporter, FakeReceiver, FakeReply, Holder, Splitter, batch, envelope};
use crate::health::ComponentState;
use crate::intake::Intake;
use crate::plan::PlannedPipeline;
use crate::service::ServiceSettings;

fn service() -> ServiceSettings {
    ServiceSettings {
        metrics: None,
        health: None,
        shutdown_timeout: Duration::from_secs(10),
        ..ServiceSettings::default()
    }
}

fn exporter(id: &str, fake: &FakeExporter, entries: u64) -> (String, Box<dyn DynExporter>) {
    exporter_that(id, fake, entries, Overflow::Drop)
}

fn exporter_that(id: &str, fake: &FakeExporter, entries: u64, overflow: Overflow) -> (String, Box<dyn DynExporter>) {
    let settings = DeliverySettings {
        queue: QueueConfig::try_new(Sizer::Requests, entries, 2, overflow).unwrap(),
        retry: RetryConfig::default(),
        timeout: Duration::from_secs(5),
    };
    (id.to_owned(), deliver(fake.clone(), settings))
}

fn pipeline(id: &str, window: Duration, exporters: &[&str]) -> PlannedPipeline {
    PlannedPipeline {
        id: id.to_owned(),
        carries: Carries::Everything,
        receivers: vec!["otlp".to_owned()],
        processors: vec![("holder".to_owned(), Box::new(Holder::new(window)))],
        exporters: exporters.iter().map(|&id| id.to_owned()).collect(),
    }
}

fn plan(
    service: ServiceSettings,
    receiver: FakeReceiver,
    pipelines: Vec<PlannedPipeline>,
    exporters: Vec<(String, Box<dyn DynExporter>)>,
) -> Plan {
    Plan::from_components(service, vec![("otlp".to_owned(), Box::new(receiver))], pipelines, exporters)
}

/// A plan with one pipeline to one exporter.
fn simple(receiver: FakeReceiver, fake: &FakeExporter, entries: u64) -> Plan {
    let pipelines = vec![pipeline("profiles", HOUR, &["sentry"])];
    plan(service(), receiver, pipelines, vec![exporter("sentry", fake, entries)])
}

async fn consume(intake: &Intake, observations: u64) -> Result<(), Rejected> {
    let permit = intake.admit(100)?;
    intake.consume(batch(observations), permit).await
}

/// Starts a plan whose pipelines run as tasks, for paused time.
async fn start_paused(plan: Plan) -> Result<RunningPlan, StartError> {
    start::start(plan, crate::clock::Clock::system(), crate::pipeline::RunsOn::Task).await
}

const HOUR: Duration = Duration::from_secs(3600);

/// Guarantees: an unparsed envelope is counted in items everywhere: accepted, held, sent; if no item was sent, the
/// report shows that everything is lost.
#[tokio::test(start_paused = true)]
async fn envelopes_are_counted() {
    for (reply, sent) in [(FakeReply::Accept, 2), (FakeReply::Fail(Retry::Never, Reason::RejectedByPeer), 0)] {
        let fake = FakeExporter::always(reply);
        let (receiver, intake) = FakeReceiver::new();
        let running = start_paused(simple(receiver, &fake, 10)).await.unwrap();
        let intake = intake.await.unwrap();
        let permit = intake.admit(100).unwrap();
        intake.consume(envelope(2), permit).await.unwrap();
        let labels = "component=\"holder\",kind=\"processor\",pipeline=\"profiles\"";
        let page = running.metrics().encode();
        for line in [format!("profbridge_items_in_total{{{labels}}} 2"), format!("profbridge_held_items{{{labels}}} 2")]
        {
            assert!(page.contains(&line), "{line} is missing in\n{page}");
        }
        let report = running.stop().await;
        assert!(report.unaccounted().is_none(), "{report}");
        assert_eq!(report.receivers[0].quantities, Quantities::items(2));
        assert_eq!(report.exporters[0].totals.outbound, Quantities::items(sent));
        assert_eq!(report.unserved().is_some(), sent == 0);
        let text = report.to_string();
        let expected = match sent {
            0 => "exporter sentry: 2 items in, 0 sent in 0 requests (0 bytes), dropped 2 items rejected_by_peer",
            _ => "exporter sentry: 2 items in, 2 items sent in 1 requests (488 bytes), 2 seconds will be billed",
        };
        let lines = ["receiver otlp: 2 items in 0 requests", "pipeline profiles: 2 items in, 2 items out", expected];
        for line in lines {
            assert!(text.lines().any(|known| known == line), "{line} is missing in\n{text}");
        }
    }
}

/// Guarantees: a shutdown keeps its deadline even if a receiver does not end, a destination hangs and the queue is
/// full; the remaining data is counted.
#[tokio::test(start_paused = true)]
async fn deadline_holds() {
    let fake = FakeExporter::always(FakeReply::Hang);
    let (mut receiver, intake) = FakeReceiver::new();
    receiver.hangs = true;
    let running = start_paused(simple(receiver, &fake, 2)).await.unwrap();
    let intake = intake.await.unwrap();
    for _ in 0..5 {
        consume(&intake, 6).await.unwrap();
    }
    let began = Instant::now();
    let report = running.stop().await;
    assert!(began.elapsed() <= Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(report.unaccounted().is_none());
    let dropped = &report.exporters[0].totals.dropped;
    assert_eq!((dropped.get(Reason::QueueFull).total(), dropped.get(Reason::Shutdown).total()), (18, 12));
}

/// Guarantees: if an exporter cannot start, the start fails with the exporter's name, and nothing listens.
#[tokio::test(start_paused = true)]
async fn failed_start() {
    let (works, fails) = (FakeExporter::new([]), FakeExporter::new([]));
    *fails.seen.start_fails.lock().unwrap() = true;
    let (receiver, intake) = FakeReceiver::new();
    let exporters = vec![exporter("works", &works, 9), exporter("fails", &fails, 9)];
    let planned = plan(service(), receiver, vec![pipeline("profiles", HOUR, &["works", "fails"])], exporters);
    let error = start_paused(planned).await.err().unwrap();
    assert_eq!(error.to_string(), "exporters/fails: told to fail");
    intake.await.unwrap_err();
    assert!(*works.seen.closed.lock().unwrap(), "what had been started was not stopped");

    let (mut receiver, _) = FakeReceiver::new();
    receiver.fails = true;
    let error = start_paused(simple(receiver, &works, 9)).await.err().unwrap();
    assert_eq!(error.to_string(), "receivers/otlp: the port is in use");
}

async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Guarantees: health is 200 while everything runs and 503 with the reason once a pipeline has failed; the metrics have
/// the Collector's names and profbridge's.
#[tokio::test]
async fn endpoints() {
    let loopback = || Some("127.0.0.1:0".to_owned());
    let service = ServiceSettings { metrics: loopback(), health: loopback(), ..service() };
    let (receiver, intake) = FakeReceiver::new();
    let fake = FakeExporter::new([]);
    let broken = PlannedPipeline {
        processors: vec![("breaks".to_owned(), Box::new(Holder { panics_at: Some(8), ..Holder::new(HOUR) }))],
        ..pipeline("profiles", HOUR, &["sentry"])
    };
    let running = start(plan(service, receiver, vec![broken], vec![exporter("sentry", &fake, 9)])).await.unwrap();
    let health = running.address("health", "telemetry").unwrap();
    let metrics = running.address("metrics", "telemetry").unwrap();
    assert!(get(health, "/").await.starts_with("HTTP/1.1 200 OK"));
    assert!(get(health, "/other").await.starts_with("HTTP/1.1 404"));

    let intake = intake.await.unwrap();
    consume(&intake, 5).await.unwrap();
    let text = get(metrics, "/metrics").await;
    assert!(text.contains("content-type: text/plain; version=0.0.4"), "{text}");
    for line in [
        "profbridge_observations_in_total{component=\"breaks\",kind=\"processor\",pipeline=\"profiles\"} 5",
        "profbridge_held_observations{component=\"breaks\",kind=\"processor\",pipeline=\"profiles\"} 5",
        "profbridge_observations_out_total{component=\"otlp\",kind=\"receiver\"} 5",
        "otelcol_exporter_sent_profile_samples{exporter=\"sentry\"} 0",
        "otelcol_exporter_queue_capacity{exporter=\"sentry\"} 9",
        "profbridge_memory_limit_bytes 268435456",
        "# TYPE otelcol_process_uptime counter",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }

    consume(&intake, 8).await.unwrap_err();
    // When the next request is refused, the thread has updated its state.
    while consume(&intake, 1).await.unwrap_err().reason != Reason::Internal {
        tokio::task::yield_now().await;
    }
    let answer = get(health, "/").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("\"pipelines/profiles\":{\"detail\":\"panicked"), "{answer}");
    let report = running.stop().await;
    assert_eq!(report.failures.len(), 1);
    assert_eq!((report.unaccounted().total(), report.pipelines[0].dropped.get(Reason::Internal).total()), (0, 5));
}

/// Guarantees: an address in use fails the start, and the error names the key.
#[tokio::test]
async fn telemetry_address_in_use() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let service = ServiceSettings { metrics: Some(taken.local_addr().unwrap().to_string()), ..service() };
    let (receiver, _intake) = FakeReceiver::new();
    let planned = plan(service, receiver, vec![], vec![]);
    let error = start(planned).await.err().unwrap().to_string();
    assert!(error.starts_with("service.telemetry.metrics.address: cannot listen on 127.0.0.1:"), "{error}");
}

/// Guarantees: a receiver that ends without a shutdown is not reported as running.
#[tokio::test]
async fn receiver_that_ends_unasked() {
    struct Ends;
    impl crate::receiver::Receiver for Ends {
        fn start<'a>(
            self: Box<Self>,
            _context: crate::receiver::ReceiverContext,
        ) -> crate::component::BoxFuture<'a, Result<crate::receiver::RunningReceiver, StartError>> {
            let running = crate::receiver::RunningReceiver { addresses: vec![], stopped: Box::pin(async {}) };
            Box::pin(std::future::ready(Ok(running)))
        }
    }
    let exporters = vec![exporter("file", &FakeExporter::new([]), 9)];
    let planned = Plan::from_components(
        service(),
        vec![("otlp".to_owned(), Box::new(Ends))],
        vec![pipeline("profiles", HOUR, &["file"])],
        exporters,
    );
    let running = start(planned).await.unwrap();
    while running.health().is_ready() {
        tokio::task::yield_now().await;
    }
    let state = running.health().states().into_iter().find(|(section, ..)| *section == "receivers").unwrap().2;
    assert_eq!(state, ComponentState::Failed("it ended unasked".to_owned()));
    assert!(!running.stop().await.is_clean());
}

fn reply() -> impl Strategy<Value = FakeReply> {
    prop_oneof![
        4 => Just(FakeReply::Accept),
        1 => Just(FakeReply::Reject(1)),
        1 => Just(FakeReply::Fail(Retry::Later, Reason::RetriesExhausted)),
        1 => Just(FakeReply::Fail(Retry::Never, Reason::RejectedByPeer)),
        1 => Just(FakeReply::Slow(Duration::from_secs(2))),
        1 => Just(FakeReply::Hang),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Guarantees: a shutdown at any moment, with busy senders, open windows and arbitrary destinations, loses nothing
    /// uncounted: the data acknowledged to senders is the data that the pipelines accepted, and in each pipeline and
    /// exporter each observation is sent or counted as lost.
    #[test]
    fn shutdown_at_any_moment(
        script in proptest::collection::vec(reply(), 0..20),
        windows in proptest::collection::vec(0u64..60, 1..3),
        senders in proptest::collection::vec(proptest::collection::vec((0u64..20, 0u64..5), 0..12), 1..5),
        after in 0u64..40,
        overflow in prop_oneof![Just(Overflow::Refuse), Just(Overflow::Wait), Just(Overflow::Drop)],
        hangs in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (first, second) = (FakeExporter::new(script), FakeExporter::new([]));
            let (mut receiver, intake) = FakeReceiver::new();
            receiver.hangs = hangs;
            let pipelines: Vec<PlannedPipeline> = windows
                .iter()
                .enumerate()
                .map(|(position, &window)| {
                    pipeline(&format!("p{position}"), Duration::from_secs(window), &["first", "second"])
                })
                .collect();
            let count = pipelines.len() as u64;
            let exporters = vec![exporter_that("first", &first, 4, overflow), exporter("second", &second, 4)];
            let running = start_paused(plan(service(), receiver, pipelines, exporters)).await.unwrap();
            let intake = intake.await.unwrap();
            let mut sending = tokio::task::JoinSet::new();
            for batches in senders {
                let intake = intake.clone();
                sending.spawn(async move {
                    let mut taken = 0;
                    for (observations, pause) in batches {
                        if consume(&intake, observations).await.is_ok() {
                            taken += observations;
                        }
                        tokio::time::sleep(Duration::from_secs(pause)).await;
                    }
                    taken
                });
            }
            tokio::time::sleep(Duration::from_secs(after)).await;
            let report = running.stop().await;
            let mut taken = 0;
            while let Some(sender) = sending.join_next().await {
                taken += sender.unwrap();
            }
            assert!(report.unaccounted().is_none(), "{report}");
            assert_eq!(report.receivers[0].quantities.total(), taken, "{report}");
            assert!(report.is_clean(), "{report}");
            for pipeline in &report.pipelines {
                assert_eq!((pipeline.inbound.total(), pipeline.held.quantities.total()), (taken, 0), "{report}");
            }
            let handed_on: u64 = report.pipelines.iter().map(|pipeline| pipeline.outbound.total()).sum();
            for exporter in &report.exporters {
                if exporter.id == "first" && overflow != Overflow::Drop {
                    assert_eq!(exporter.totals.dropped.get(Reason::QueueFull).total(), 0, "{report}");
                }
                let totals = &exporter.totals;
                assert_eq!((totals.inbound.total(), totals.held.quantities.total()), (handed_on, 0), "{report}");
            }
            assert_eq!(report.pipelines.len() as u64, count);
        });
    }
}

/// Guarantees: the same holds with real threads: senders on several, each pipeline on its own, and a shutdown in
/// between.
#[test]
fn shutdown_on_real_threads() {
    for round in 0..30_usize {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let (first, second) = (FakeExporter::new([]), FakeExporter::always(FakeReply::Hang));
            let (receiver, intake) = FakeReceiver::new();
            let pipelines =
                vec![pipeline("held", HOUR, &["first", "second"]), pipeline("direct", Duration::ZERO, &["first"])];
            let exporters = vec![exporter("first", &first, 4), exporter("second", &second, 4)];
            let running = start(plan(service(), receiver, pipelines, exporters)).await.unwrap();
            let intake = intake.await.unwrap();
            let mut sending = tokio::task::JoinSet::new();
            for sender in 0..4_u64 {
                let intake = intake.clone();
                sending.spawn(async move {
                    let mut taken = 0;
                    while consume(&intake, sender + 2).await.is_ok() {
                        taken += sender + 2;
                    }
                    taken
                });
            }
            first.attempts(round).await;
            // Ends the hanging exporter, so that the shutdown does not wait for its deadline.
            *second.seen.otherwise.lock().unwrap() = FakeReply::Accept;
            let report = running.stop().await;
            let mut taken = 0;
            while let Some(sender) = sending.join_next().await {
                taken += sender.unwrap();
            }
            assert!(report.unaccounted().is_none(), "{report}");
            assert_eq!(report.receivers[0].quantities.total(), taken, "{report}");
            assert!(report.pipelines.iter().all(|pipeline| pipeline.inbound.total() == taken), "{report}");
        });
    }
}

fn blocking(id: &str, fake: &FakeExporter) -> (String, Box<dyn DynExporter>) {
    let settings = DeliverySettings {
        queue: QueueConfig::try_new(Sizer::Requests, 1, 1, Overflow::Wait).unwrap(),
        retry: RetryConfig::default(),
        timeout: Duration::ZERO,
    };
    (id.to_owned(), deliver(fake.clone(), settings))
}

/// Guarantees: a pipeline that waits for a hanging destination is released at the deadline, early enough to hand on and
/// count all its data: nothing is counted twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_of_a_waiting_pipeline() {
    let hangs = FakeExporter::always(FakeReply::Hang);
    let (receiver, intake) = FakeReceiver::new();
    let pipelines = vec![pipeline("direct", Duration::ZERO, &["hangs"])];
    // A twentieth of the timeout is for the thread's last step, which on a busy machine has to wait for a core.
    let service = ServiceSettings { shutdown_timeout: Duration::from_secs(10), ..service() };
    let running = start(plan(service, receiver, pipelines, vec![blocking("hangs", &hangs)])).await.unwrap();
    let intake = intake.await.unwrap();
    let mut sending = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let intake = intake.clone();
        sending.spawn(async move { if consume(&intake, 5).await.is_ok() { 5 } else { 0 } });
    }
    hangs.attempts(1).await;
    let report = running.stop().await;
    let taken: u64 = sending.join_all().await.into_iter().sum();
    assert!(report.unaccounted().is_none(), "{report}");
    assert!(report.is_clean(), "{report}");
    let [direct] = &report.pipelines[..] else { panic!("one pipeline") };
    assert_eq!((direct.inbound.total(), direct.outbound.total()), (taken, taken), "{report}");
    assert_eq!(report.exporters[0].totals.dropped.get(Reason::Shutdown).total(), taken, "{report}");
}

/// Guarantees: if a shutdown finds requests in progress, each sender gets an answer before the receivers are dropped. A
/// request that any pipeline has started to absorb is accepted: all pipelines deliver it, or count it as lost at the
/// deadline. A request that no pipeline has started to absorb is refused, and none delivers it.
#[tokio::test(start_paused = true)]
async fn request_being_absorbed_is_answered() {
    for (pause, expected) in [(Duration::from_millis(10), [Ok(()), Ok(())]), (HOUR, [Ok(()), Err(Reason::Shutdown)])] {
        let slow = FakeExporter::always(FakeReply::Slow(pause));
        let (mut receiver, intake) = FakeReceiver::new();
        receiver.hangs = true;
        let splits = |id: &str| PlannedPipeline {
            processors: vec![("splitter".to_owned(), Box::new(Splitter::default()))],
            ..pipeline(id, HOUR, &["slow"])
        };
        let exporters = vec![exporter_that("slow", &slow, 2, Overflow::Refuse)];
        let pipelines = vec![splits("first"), splits("second")];
        let running = start_paused(plan(service(), receiver, pipelines, exporters)).await.unwrap();
        let intake = intake.await.unwrap();
        let began = Instant::now();
        let senders: Vec<_> = (0..2)
            .map(|_| {
                let intake = intake.clone();
                tokio::spawn(async move { (consume(&intake, 100).await, Instant::now()) })
            })
            .collect();
        slow.attempts(1).await;
        let report = running.stop().await;
        let mut answers = Vec::new();
        for sender in senders {
            let (answer, at) = sender.await.unwrap();
            assert!(at < began + Duration::from_secs(2), "{:?}", at - began);
            answers.push(answer.map_err(|rejected| rejected.reason));
        }
        assert_eq!(answers, expected, "{report}");
        let taken = 100 * answers.iter().filter(|answer| answer.is_ok()).count() as u64;
        assert_eq!((report.unaccounted().total(), report.receivers[0].quantities.total()), (0, taken), "{report}");
        assert!(report.pipelines.iter().all(|pipeline| pipeline.inbound.total() == taken), "{report}");
        let exporter = &report.exporters[0].totals;
        if pause < HOUR {
            assert_eq!(exporter.outbound.total(), 2 * taken, "{report}");
        }
        assert_eq!(
            exporter.inbound.total(),
            report.pipelines.iter().map(|pipeline| pipeline.outbound.total()).sum::<u64>(),
            "{report}"
        );
    }
}
