use std::time::Duration;

use profbridge_model::{Quantities, Reason, Telemetry, TelemetryKind};
use proptest::prelude::*;
use tokio::time::Instant;

use super::chain::FlushProgress;
use super::*;
use crate::component::{Held, Retry};
use crate::delivery::{
    DeliverySettings, ExporterContext, Overflow, QueueConfig, RetryConfig, RunningExporter, Sizer, Stop, deliver,
};
use crate::fakes::{FakeExporter, FakeReply, Holder, Splitter, batch, envelope};
use crate::health::ComponentState;
use crate::intake::{Intake, ReceiverEnd};
use crate::peer_limits::PeerLimits;
use crate::telemetry::ExporterTelemetry;
use crate::testing::ManualClock;
use crate::via::Via;

const MEMORY: u64 = 1 << 20;

fn context() -> PipelineContext {
    let budget = Budget::new(MEMORY);
    let metrics = Metrics::new(budget.clone());
    let (clock, health) = (Clock::system(), Health::default());
    PipelineContext { budget, share: MEMORY, clock, health, metrics, host: RunsOn::Thread }
}

/// A context for tests with paused time.
fn paused() -> PipelineContext {
    PipelineContext { host: RunsOn::Task, ..context() }
}

fn holder(seconds: u64) -> (String, Box<dyn Processor>) {
    ("holder".to_owned(), Box::new(Holder::new(Duration::from_secs(seconds))))
}

async fn sink(
    fake: &FakeExporter,
    context: &PipelineContext,
    entries: u64,
    overflow: Overflow,
) -> (RunningExporter, ExporterTelemetry) {
    let settings = DeliverySettings {
        queue: QueueConfig::try_new(Sizer::Requests, entries, 1, overflow).unwrap(),
        retry: RetryConfig::default(),
        timeout: Duration::ZERO,
    };
    let telemetry = context.metrics.exporter("fake");
    let context = ExporterContext {
        telemetry: telemetry.clone(),
        budget: context.budget.clone(),
        peer_limits: PeerLimits::default(),
        via: Via::new(1),
    };
    (deliver(fake.clone(), settings).start(context).await.unwrap(), telemetry)
}

fn pipeline(
    id: &str,
    context: &PipelineContext,
    processors: Vec<(String, Box<dyn Processor>)>,
    sinks: &[&RunningExporter],
) -> Pipeline {
    let sinks = sinks.iter().map(|exporter| exporter.sink()).collect();
    let parts = PipelineParts { id: id.to_owned(), carries: Carries::Everything, processors, sinks };
    Pipeline::start(parts, context).unwrap()
}

fn intake(context: &PipelineContext, pipelines: &[&Pipeline]) -> (Intake, Edge) {
    let edge = context.metrics.edge(ComponentKind::Receiver, "test", "");
    let entrances = pipelines.iter().map(|pipeline| pipeline.entrance.clone()).collect();
    let (trigger, shutdown) = profbridge_net::Shutdown::pair();
    // Dropping the trigger would trigger the shutdown.
    std::mem::forget(trigger);
    let end = ReceiverEnd { shutdown: shutdown.clone(), last_call: shutdown };
    (Intake::new(entrances, context.budget.clone(), edge.clone(), context.health.clone(), end), edge)
}

async fn consume(intake: &Intake, observations: u64) -> Result<(), crate::component::Rejected> {
    let permit = intake.admit(100).unwrap();
    intake.consume(batch(observations), permit).await
}

proptest! {
    /// Guarantees: for random streams, times and chains of processors, all data that enters a chain leaves it, counts
    /// as lost or is held; the charged memory matches the held data; after a flush nothing is held and nothing is due.
    #[test]
    fn chain_conserves(
        windows in proptest::collection::vec(0u64..30, 0..4),
        steps in proptest::collection::vec((0u8..10, 0u64..20), 0..60),
    ) {
        let context = context();
        let clock = ManualClock::default();
        let mut edges = Vec::new();
        let processors = windows.iter().map(|&seconds| {
            let edge = context.metrics.edge(ComponentKind::Processor, "holder", "test");
            edges.push(edge.clone());
            let processor: Box<dyn Processor> = match seconds {
                29 => Box::new(Splitter::default()),
                _ => Box::new(Holder::new(Duration::from_secs(seconds))),
            };
            (processor, edge)
        }).collect();
        let mut chain = Chain::new(processors, &context.budget, MEMORY, &Ledger::default());
        let (mut inbound, mut outbound) = (Quantities::NONE, Quantities::NONE);
        for (action, amount) in steps {
            let now = clock.now();
            let out = match action {
                0 => chain.on_memory_pressure(now).out,
                1..=3 => { clock.advance(Duration::from_secs(amount)); chain.advance(clock.now()) }
                _ if chain.is_absorbing() => chain.advance(now),
                _ => {
                    let telemetry: Telemetry = match action {
                        9 => envelope(amount as usize).into(),
                        _ => batch(amount).into(),
                    };
                    inbound += telemetry.quantities();
                    chain.process(telemetry, now)
                }
            };
            outbound += out.map_or(Quantities::NONE, |out| out.quantities());
            let totals = Chain::totals(&edges);
            prop_assert_eq!(totals.held, chain.held());
            prop_assert!(context.budget.used() >= totals.held.bytes);
            if chain.is_absorbing() {
                // Batches between two processors are counted and charged too.
                let settled = outbound + totals.dropped.total() + totals.held.quantities;
                prop_assert!(settled.saturating_sub(inbound + totals.synthesized).is_none());
            } else {
                let after = outbound + totals.dropped.total() + totals.held.quantities;
                prop_assert_eq!(inbound + totals.synthesized, after);
                prop_assert_eq!(context.budget.used(), totals.held.bytes);
            }
        }
        loop {
            let FlushProgress { out, more } = chain.flush(clock.now());
            outbound += out.map_or(Quantities::NONE, |out| out.quantities());
            if !more {
                break;
            }
        }
        let totals = Chain::totals(&edges);
        prop_assert_eq!(inbound + totals.synthesized, outbound + totals.dropped.total());
        prop_assert_eq!((chain.held(), chain.due(), context.budget.used()), (Held::default(), None, 0));
    }
}

/// Guarantees: memory pressure flushes no processor before one that is still absorbing a request, because that one
/// would have to absorb its whole request first.
#[test]
fn pressure_skips_processors_before_an_absorbing_one() {
    let context = context();
    let edge = |id| context.metrics.edge(ComponentKind::Processor, id, "test");
    let holder: Box<dyn Processor> = Box::new(Holder::new(Duration::from_secs(3600)));
    let splitter: Box<dyn Processor> = Box::new(Splitter::default());
    let processors = vec![(holder, edge("holder")), (splitter, edge("splitter"))];
    let mut chain = Chain::new(processors, &context.budget, MEMORY, &Ledger::default());
    let now = ManualClock::default().now();
    for _ in 0..2 {
        assert!(chain.process(batch(5).into(), now).is_none());
    }
    let mut steps = Vec::new();
    loop {
        let FlushProgress { out, more } = chain.on_memory_pressure(now);
        steps.push((out.map_or(0, |out| out.observations()), chain.held().quantities.total()));
        if !more {
            break;
        }
    }
    // The splitter is empty, so the holder follows; then the splitter absorbs the holder's first batch.
    assert_eq!(steps, [(0, 10), (1, 9), (0, 9)]);
    assert!(chain.is_absorbing());
}

/// Guarantees: debug builds panic at the call that silently loses observations.
#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "in 5 + synthesized 0")]
fn unaccounted_loss_is_asserted() {
    let context = context();
    let edge = context.metrics.edge(ComponentKind::Processor, "forgets", "test");
    let broken = Holder { forgets: true, ..Holder::new(Duration::ZERO) };
    let mut chain = Chain::new(vec![(Box::new(broken), edge)], &context.budget, MEMORY, &Ledger::default());
    chain.process(batch(5).into(), ManualClock::default().now());
}

/// Guarantees: `consume` returns `Ok` once the processors have the data. The request's memory is then released, and the
/// held data is charged instead. When the window closes, the data is handed on without further input.
#[tokio::test(start_paused = true)]
async fn acknowledged_on_admission() {
    let context = paused();
    let fake = FakeExporter::new([]);
    let (exporter, sent) = sink(&fake, &context, 10, Overflow::Refuse).await;
    let pipeline = pipeline("profiles", &context, vec![holder(30)], &[&exporter]);
    let (intake, receiver) = intake(&context, &[&pipeline]);
    let began = Instant::now();
    consume(&intake, 5).await.unwrap();
    assert_eq!(receiver.totals().outbound.total(), 5);
    assert_eq!(pipeline.counters.stages[0].totals().held, Held::observations(5, 5001));
    assert_eq!(fake.made(), 0);
    fake.attempts(1).await;
    assert!(began.elapsed() >= Duration::from_secs(30));
    let stop = crate::delivery::Stop { deadline: Instant::now(), close_by: Instant::now() };
    exporter.stop(stop).await;
    assert_eq!((sent.edge().totals().outbound.total(), pipeline.counters.unsettled().total()), (5, 0));
    assert_eq!(context.budget.used(), 0);
}

/// Guarantees: at the end a pipeline hands on everything it holds, and requests accepted before are not refused.
#[tokio::test]
async fn stop_flushes() {
    let context = context();
    let fake = FakeExporter::new([]);
    let (exporter, sent) = sink(&fake, &context, 100, Overflow::Refuse).await;
    let mut pipeline = pipeline("profiles", &context, vec![holder(3600), holder(7200)], &[&exporter]);
    let (intake, _) = intake(&context, &[&pipeline]);
    for _ in 0..20 {
        consume(&intake, 5).await.unwrap();
    }
    pipeline.stop(Instant::now() + Duration::from_secs(60));
    pipeline.ended().await;
    assert_eq!((sent.edge().totals().inbound.total(), pipeline.counters.unsettled().total()), (100, 0));
    let rejected = consume(&intake, 5).await.unwrap_err();
    assert_eq!((rejected.reason, rejected.retry), (Reason::Shutdown, Retry::Later));
    assert_eq!(context.health.states()[0].2, ComponentState::Stopped);
}

/// Guarantees: a panicking processor ends its pipeline: the sender may retry, the held data is counted as lost, and
/// health reports the failure. Another pipeline of the same receiver continues, and the data that the failed one misses
/// is counted.
#[tokio::test]
async fn panic_ends_one_pipeline() {
    let context = context();
    let fake = FakeExporter::new([]);
    let (exporter, sent) = sink(&fake, &context, 100, Overflow::Refuse).await;
    let breaks = Holder { panics_at: Some(8), ..Holder::new(Duration::from_secs(3600)) };
    let mut broken = pipeline("broken", &context, vec![("breaks".to_owned(), Box::new(breaks))], &[&exporter]);
    let (alone, _) = intake(&context, &[&broken]);
    consume(&alone, 5).await.unwrap();
    let rejected = consume(&alone, 8).await.unwrap_err();
    assert_eq!((rejected.reason, rejected.retry), (Reason::Internal, Retry::Later));
    broken.ended().await;
    assert_eq!(broken.counters.edge.totals().dropped.get(Reason::Internal).total(), 5);
    assert_eq!((broken.counters.unsettled().total(), context.budget.used()), (0, 0));
    assert_eq!(
        context.health.states()[0].2,
        ComponentState::Failed(
            "panicked: assertion `left != right` failed: told to panic\n  left: Some(8)\n right: Some(8)".to_owned()
        )
    );
    assert!(!context.health.is_ready());

    let works = pipeline("works", &context, vec![holder(0)], &[&exporter]);
    let (both, receiver) = intake(&context, &[&broken, &works]);
    consume(&both, 6).await.unwrap();
    fake.attempts(1).await;
    assert_eq!((sent.edge().totals().inbound.total(), receiver.totals().outbound.total()), (6, 6));
    assert_eq!(broken.counters.edge.totals().dropped.get(Reason::Internal).total(), 11);
    assert_eq!(consume(&alone, 5).await.unwrap_err().reason, Reason::Internal);
}

/// Guarantees: a panic in an exporter's `prepare` ends the pipeline, and the batch is counted.
#[tokio::test]
async fn panic_while_preparing() {
    let context = context();
    let fake = FakeExporter::new([]);
    *fake.seen.prepare_panics.lock().unwrap() = true;
    let (exporter, _) = sink(&fake, &context, 100, Overflow::Refuse).await;
    let mut pipeline = pipeline("broken", &context, vec![], &[&exporter]);
    let (intake, _) = intake(&context, &[&pipeline]);
    consume(&intake, 9).await.unwrap();
    pipeline.ended().await;
    assert_eq!(pipeline.counters.edge.totals().dropped.get(Reason::Internal).total(), 9);
}

/// Guarantees: with `drop_on_overflow` a hanging destination affects only its own queue: the other exporters get all
/// data, and senders do not wait.
#[tokio::test]
async fn slow_exporter_stalls_nobody() {
    let context = context();
    let (hangs, works) = (FakeExporter::always(FakeReply::Hang), FakeExporter::new([]));
    let (first, lost) = sink(&hangs, &context, 2, Overflow::Drop).await;
    let (second, _) = sink(&works, &context, 100, Overflow::Refuse).await;
    let pipeline = pipeline("profiles", &context, vec![], &[&first, &second]);
    let (intake, _) = intake(&context, &[&pipeline]);
    for _ in 0..30 {
        consume(&intake, 1).await.unwrap();
    }
    works.attempts(30).await;
    assert_eq!(lost.edge().totals().dropped.get(Reason::QueueFull).total(), 28);
}

/// Guarantees: while a queue is full, a request is refused before it is accepted: its sender may retry, and it is not
/// counted. Accepted data is sent completely when the destination recovers, and then requests are accepted again.
#[tokio::test]
async fn a_full_queue_refuses() {
    let context = context();
    let away = || FakeReply::Fail(Retry::After(Duration::from_millis(1)), Reason::RetriesExhausted);
    let fake = FakeExporter::always(away());
    let (exporter, sent) = sink(&fake, &context, 2, Overflow::Refuse).await;
    let pipeline = pipeline("profiles", &context, vec![], &[&exporter]);
    let (intake, receiver) = intake(&context, &[&pipeline]);
    let mut taken = 0;
    let rejected = loop {
        match consume(&intake, 5).await {
            Ok(()) => taken += 5,
            Err(rejected) => break rejected,
        }
    };
    assert_eq!((rejected.component.as_str(), rejected.reason), ("exporters/fake", Reason::QueueFull));
    assert!(rejected.message.starts_with("the queue of exporter fake is full: "), "{}", rejected.message);
    assert!(rejected.message.contains("`sending_queue.num_consumers`"), "the remedy: {}", rejected.message);
    assert!(matches!(rejected.retry, Retry::After(pause) if !pause.is_zero()));
    assert_eq!(intake.room().await.unwrap_err(), rejected);
    assert_eq!((receiver.totals().inbound.total(), receiver.totals().dropped.total().total()), (taken, 0));
    *fake.seen.otherwise.lock().unwrap() = FakeReply::Accept;
    while consume(&intake, 5).await.is_err() {
        tokio::task::yield_now().await;
    }
    while sent.edge().totals().outbound.total() < taken + 5 {
        tokio::task::yield_now().await;
    }
    assert!(sent.edge().totals().dropped.is_none());
}

/// Guarantees: a request that waits for room is refused at the shutdown, and its sender may retry.
#[tokio::test]
async fn waiting_for_room_ends_with_the_shutdown() {
    let context = context();
    let fake = FakeExporter::always(FakeReply::Hang);
    let (exporter, _) = sink(&fake, &context, 1, Overflow::Wait).await;
    let pipeline = pipeline("profiles", &context, vec![], &[&exporter]);
    let edge = context.metrics.edge(ComponentKind::Receiver, "test", "");
    let (trigger, shutdown) = profbridge_net::Shutdown::pair();
    let health = context.health.clone();
    let end = ReceiverEnd { shutdown: shutdown.clone(), last_call: shutdown };
    let intake = Intake::new(vec![pipeline.entrance.clone()], context.budget.clone(), edge, health, end);
    consume(&intake, 5).await.unwrap();
    fake.attempts(1).await;
    let waiting = tokio::spawn(async move { intake.room().await });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    trigger.trigger();
    let rejected = waiting.await.unwrap().unwrap_err();
    assert_eq!((rejected.reason, rejected.retry), (Reason::Shutdown, Retry::Later));
}

/// Guarantees: when memory becomes short, or a request is refused for lack of memory, processors flush without waiting
/// for the next request.
#[tokio::test]
async fn short_memory_flushes() {
    let context = context();
    let fake = FakeExporter::new([]);
    let (exporter, _) = sink(&fake, &context, 100, Overflow::Refuse).await;
    let greedy = Holder { bytes_each: MEMORY / 10, ..Holder::new(Duration::from_secs(3600)) };
    let pipeline = pipeline("profiles", &context, vec![("greedy".to_owned(), Box::new(greedy))], &[&exporter]);
    let (intake, _) = intake(&context, &[&pipeline]);
    consume(&intake, 5).await.unwrap();
    assert_eq!(fake.made(), 0);
    // A request of another size uses up the remaining memory.
    let big = intake.admit(MEMORY / 10 * 4).unwrap();
    fake.attempts(1).await;
    drop(big);
    let rejected = intake.admit(MEMORY + 1).unwrap_err();
    assert_eq!((rejected.reason, rejected.retry), (Reason::LimitExceeded, Retry::Never));
    let _all = intake.admit(MEMORY - context.budget.used()).unwrap();
    let rejected = intake.admit(1).unwrap_err();
    assert_eq!(rejected.reason, Reason::MemoryLimit);
    assert!(matches!(rejected.retry, Retry::After(pause) if !pause.is_zero()));
}

/// Guarantees: telemetry that no pipeline of the receiver carries is refused permanently.
#[tokio::test]
async fn signals() {
    let context = context();
    let (exporter, _) = sink(&FakeExporter::new([]), &context, 100, Overflow::Refuse).await;
    let parts = PipelineParts {
        id: "profiles".to_owned(),
        carries: Carries::Only(TelemetryKind::Profiles),
        processors: vec![],
        sinks: vec![exporter.sink()],
    };
    let pipeline = Pipeline::start(parts, &context).unwrap();
    let (intake, _) = intake(&context, &[&pipeline]);
    consume(&intake, 1).await.unwrap();
    let permit = intake.admit(1).unwrap();
    let rejected = intake.consume(profbridge_model::Envelope::default(), permit).await.unwrap_err();
    assert_eq!((rejected.reason, rejected.retry), (Reason::Unroutable, Retry::Never));
}

/// Guarantees: a sender that disconnects while it waits does not change the counters.
#[tokio::test]
async fn cancelled_sender() {
    let context = context();
    let fake = FakeExporter::always(FakeReply::Hang);
    let (exporter, _) = sink(&fake, &context, 1, Overflow::Wait).await;
    let mut pipeline = pipeline("profiles", &context, vec![], &[&exporter]);
    let (intake, receiver) = intake(&context, &[&pipeline]);
    let mut senders = tokio::task::JoinSet::new();
    for _ in 0..(WAITING + 10) {
        let intake = intake.clone();
        senders.spawn(async move { consume(&intake, 1).await });
    }
    // One request is in flight; the others wait in the channel or in the thread, which waits for room.
    fake.attempts(1).await;
    senders.join_next().await.unwrap().unwrap().unwrap();
    senders.shutdown().await;
    exporter.drain_by(Stop { deadline: Instant::now(), close_by: Instant::now() });
    pipeline.stop(Instant::now());
    pipeline.ended().await;
    assert_eq!(pipeline.counters.unsettled().total(), 0);
    assert_eq!(receiver.totals().outbound.total(), pipeline.counters.edge.totals().inbound.total());
}

mod sampled_out;
mod steps;
