use std::time::Duration;

use profbridge_model::{Losses, Quantities, Reason, Telemetry};
use proptest::prelude::*;
use tokio::time::Instant;

use super::*;
use crate::budget::Budget;
use crate::component::{PartlySettled, Retry};
use crate::config::Section;
use crate::fakes::{FakeExporter, FakeReply, batch, envelope};
use crate::peer_limits::PeerLimits;
use crate::telemetry::{EdgeTotals, ExporterTelemetry, Metrics};
use crate::testing::ManualClock;
use crate::via::Via;

/// In the queue, a body of 488 bytes counts as 1000.
const ENTRY: u64 = 1000;

/// How long after the deadline a running attempt may still complete: a quarter of the second that exporters have for
/// their final reports.
const GRACE: Duration = Duration::from_millis(250);

struct Delivery {
    fake: FakeExporter,
    running: RunningExporter,
    telemetry: ExporterTelemetry,
    budget: Budget,
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Retries after exactly 1, 2, 4 and 8 s, for at most a minute.
fn retry() -> RetryConfig {
    let rules = RetryRules {
        initial_interval: seconds(1).into(),
        max_interval: seconds(8).into(),
        multiplier: 2.0,
        randomization_factor: 0.0,
        max_elapsed_time: seconds(60).into(),
        ..RetryRules::default()
    };
    rules.try_into().unwrap()
}

fn settings(entries: u64, overflow: Overflow) -> DeliverySettings {
    DeliverySettings {
        queue: QueueConfig::try_new(Sizer::Bytes, entries * ENTRY, 1, overflow).unwrap(),
        retry: retry(),
        timeout: seconds(5),
    }
}

impl Delivery {
    async fn start(fake: &FakeExporter, settings: DeliverySettings) -> Self {
        let budget = Budget::new(1 << 20);
        let telemetry = Metrics::new(budget.clone()).exporter("fake");
        let context = ExporterContext {
            telemetry: telemetry.clone(),
            budget: budget.clone(),
            peer_limits: PeerLimits::default(),
            via: Via::new(1),
        };
        let running = deliver(fake.clone(), settings).start(context).await.unwrap();
        Self { fake: fake.clone(), running, telemetry, budget }
    }

    async fn put(&self, observations: u64) {
        self.give(batch(observations)).await;
    }

    async fn give(&self, telemetry: impl Into<Telemetry>) {
        let sink = self.running.sink();
        sink.room().await;
        sink.accept(&telemetry.into(), ManualClock::default().now());
    }

    /// Stops the delivery within `within`, checks the conservation law, and returns the counters.
    async fn stop(self, within: Duration) -> EdgeTotals {
        let deadline = Instant::now() + within;
        self.running.stop(Stop { deadline, close_by: deadline + seconds(1) }).await;
        let totals = self.telemetry.edge().totals();
        assert_eq!(totals.held, crate::component::Held::default());
        assert_eq!(totals.inbound + totals.synthesized, totals.outbound + totals.dropped.total(), "{totals:?}");
        assert_eq!(self.budget.used(), 0);
        assert_eq!(self.telemetry.totals().queue.size, 0);
        assert!(*self.fake.seen.closed.lock().unwrap(), "the exporter was not closed");
        totals
    }
}

/// Guarantees: each request is settled once. Data that the destination accepts counts as sent, with its billed time;
/// data that it rejects permanently counts as lost and is not sent again. A request under a rate limit is not
/// attempted. The exporter is informed of losses that it did not report itself.
#[tokio::test(start_paused = true)]
async fn outcomes() {
    let never = FakeReply::Fail(Retry::Never, Reason::RejectedByPeer);
    for (reply, refuses, sent, lost, told) in [
        (FakeReply::Accept, None, 7, None, false),
        (FakeReply::Reject(3), None, 4, Some(Reason::RejectedByPeer), false),
        (never, None, 0, Some(Reason::RejectedByPeer), false),
        (FakeReply::Accept, Some(Reason::RateLimited), 0, Some(Reason::RateLimited), true),
    ] {
        let fake = FakeExporter::new([reply.clone()]);
        *fake.seen.refuses.lock().unwrap() = refuses;
        let delivery = Delivery::start(&fake, settings(10, Overflow::Refuse)).await;
        delivery.put(7).await;
        let telemetry = delivery.telemetry.clone();
        let totals = delivery.stop(seconds(10)).await;
        assert_eq!((totals.inbound.total(), totals.outbound.total()), (7, sent), "{reply:?}");
        assert_eq!(lost.map_or(0, |reason| totals.dropped.get(reason).total()), 7 - sent, "{reply:?}");
        assert_eq!((fake.made(), fake.lost().len()), (usize::from(refuses.is_none()), usize::from(told)), "{reply:?}");
        if sent == 7 {
            let exported = telemetry.totals();
            assert_eq!((exported.sent.samples, exported.requests, exported.bytes), (1, 1, 488));
            assert_eq!(exported.billed, seconds(2));
        }
    }
}

/// Guarantees: of a request that fails after a part of it was sent, only the rest counts under the reason of its
/// failure, also if the engine gives up.
#[tokio::test(start_paused = true)]
async fn parts_of_a_request() {
    for (refuses, reason) in [(None, Reason::RejectedByPeer), (Some(Reason::RateLimited), Reason::RateLimited)] {
        let fake = FakeExporter::new([FakeReply::Fail(Retry::Never, Reason::RejectedByPeer)]);
        let mut losses = Losses::default();
        losses.add_observations(Reason::TooLarge, 2);
        *fake.seen.settled.lock().unwrap() = Some(PartlySettled { delivered: Quantities::observations(4), losses });
        *fake.seen.refuses.lock().unwrap() = refuses;
        let delivery = Delivery::start(&fake, settings(10, Overflow::Refuse)).await;
        delivery.put(7).await;
        let totals = delivery.stop(seconds(10)).await;
        let dropped = [Reason::TooLarge, reason].map(|reason| totals.dropped.get(reason).total());
        assert_eq!((totals.inbound.total(), totals.outbound.total(), dropped), (7, 4, [2, 1]));
    }
}

/// Guarantees: retries follow the configured pauses, each attempt ends at its timeout, and a request that is finally
/// accepted is not lost.
#[tokio::test(start_paused = true)]
async fn retry_schedule() {
    let later = || FakeReply::Fail(Retry::Later, Reason::RetriesExhausted);
    let after = FakeReply::Fail(Retry::After(seconds(20)), Reason::RetriesExhausted);
    let fake = FakeExporter::new([later(), later(), FakeReply::Hang, after]);
    let delivery = Delivery::start(&fake, settings(10, Overflow::Refuse)).await;
    let started = Instant::now();
    delivery.put(1).await;
    fake.attempts(5).await;
    let at: Vec<u64> =
        fake.seen.attempts.lock().unwrap().iter().map(|at| at.duration_since(started).as_secs()).collect();
    // The pauses: 1 s; 2 s; a timeout of 5 s and 4 s; the 20 s that the destination asks for.
    assert_eq!(at, [0, 1, 3, 12, 32]);
    assert_eq!(delivery.telemetry.totals().retries, 4);
    let totals = delivery.stop(seconds(10)).await;
    assert_eq!(totals.outbound.total(), 1);
}

/// Guarantees: retries end, the loss counts under the exporter's reason, and the exporter is informed.
#[tokio::test(start_paused = true)]
async fn retries_are_used_up() {
    let fake = FakeExporter::always(FakeReply::Fail(Retry::Later, Reason::RetriesExhausted));
    let delivery = Delivery::start(&fake, settings(10, Overflow::Refuse)).await;
    delivery.put(6).await;
    // Attempts start at 0, 1, 3, 7, 15, 23, 31, 39, 47, 55 s; the next one would start after 60 s.
    fake.attempts(10).await;
    tokio::time::sleep(seconds(100)).await;
    assert_eq!(fake.made(), 10);
    assert_eq!(fake.lost(), [(6, Reason::RetriesExhausted)]);
    let telemetry = delivery.telemetry.clone();
    let totals = delivery.stop(seconds(10)).await;
    assert_eq!(totals.dropped.get(Reason::RetriesExhausted).total(), 6);
    assert_eq!(telemetry.totals().send_failed.samples, 1);
}

/// Guarantees: with `drop_on_overflow` a queue accepts as many bytes as configured, requests in flight included;
/// further requests are dropped and counted without waiting.
#[tokio::test(start_paused = true)]
async fn full_queue_drops_the_newest() {
    let fake = FakeExporter::always(FakeReply::Hang);
    let delivery = Delivery::start(&fake, settings(3, Overflow::Drop)).await;
    let before = Instant::now();
    for observations in 1..=5 {
        delivery.put(observations).await;
    }
    assert_eq!(before, Instant::now());
    assert_eq!(delivery.telemetry.totals().queue.size, 3 * ENTRY);
    assert_eq!(delivery.telemetry.totals().queue.capacity, 3 * ENTRY);
    assert_eq!(delivery.budget.used(), 3 * ENTRY);
    assert_eq!(delivery.telemetry.totals().enqueue_failed.samples, 2);
    assert_eq!(fake.lost(), [(4, Reason::QueueFull), (5, Reason::QueueFull)]);
    let totals = delivery.stop(seconds(10)).await;
    assert_eq!((totals.dropped.get(Reason::QueueFull).total(), totals.dropped.get(Reason::Shutdown).total()), (9, 6));
}

/// Guarantees: a queue can also be bounded in requests and in observations.
#[tokio::test(start_paused = true)]
async fn other_sizers() {
    for (sizer, size) in [(Sizer::Requests, 2), (Sizer::Items, 10)] {
        let queue = QueueConfig::try_new(sizer, size, 1, Overflow::Drop).unwrap();
        let fake = FakeExporter::always(FakeReply::Hang);
        let delivery = Delivery::start(&fake, DeliverySettings { queue, ..settings(1, Overflow::Drop) }).await;
        for _ in 0..3 {
            delivery.put(5).await;
        }
        assert_eq!(delivery.telemetry.totals().queue.size, size, "{sizer:?}");
        let totals = delivery.stop(seconds(1)).await;
        assert_eq!(totals.dropped.get(Reason::QueueFull).total(), 5, "{sizer:?}");
    }
}

/// Guarantees: in a queue bounded in items, requests without observations count too: an unparsed envelope by its items,
/// an empty batch as one. Losses of envelopes are counted in items.
#[tokio::test(start_paused = true)]
async fn every_request_has_weight() {
    let queue = QueueConfig::try_new(Sizer::Items, 6, 1, Overflow::Drop).unwrap();
    let fake = FakeExporter::always(FakeReply::Hang);
    let delivery = Delivery::start(&fake, DeliverySettings { queue, ..settings(1, Overflow::Drop) }).await;
    delivery.give(envelope(0)).await;
    assert_eq!(delivery.telemetry.totals().queue.size, 1);
    delivery.put(0).await;
    assert_eq!(delivery.telemetry.totals().queue.size, 2);
    delivery.give(envelope(3)).await;
    assert_eq!(delivery.telemetry.totals().queue.size, 5);
    assert_eq!(delivery.telemetry.edge().totals().held.quantities, Quantities::items(4));
    delivery.give(envelope(2)).await;
    assert_eq!(delivery.telemetry.totals().queue.size, 5);
    let totals = delivery.stop(seconds(1)).await;
    assert_eq!(totals.inbound, Quantities::items(6));
    assert_eq!(totals.dropped.get(Reason::QueueFull), Quantities::items(2));
    assert_eq!(totals.dropped.get(Reason::Shutdown), Quantities::items(4));
}

/// Guarantees: whatever its unit, a queue never holds more bytes than the memory limit of the process.
#[tokio::test(start_paused = true)]
async fn memory_limit_bounds_every_queue() {
    let queue = QueueConfig::try_new(Sizer::Requests, 100, 1, Overflow::Drop).unwrap();
    let mut fake = FakeExporter::always(FakeReply::Hang);
    fake.body = 300_000;
    let delivery = Delivery::start(&fake, DeliverySettings { queue, ..settings(1, Overflow::Drop) }).await;
    for _ in 0..5 {
        delivery.put(1).await;
    }
    assert_eq!(delivery.budget.used(), 3 * 300_512);
    let totals = delivery.stop(seconds(1)).await;
    assert_eq!(totals.dropped.get(Reason::QueueFull).total(), 2);
}

/// Guarantees: a request larger than the queue's capacity is sent when the queue is empty, instead of always being
/// dropped.
#[tokio::test(start_paused = true)]
async fn oversized_request() {
    let mut fake = FakeExporter::new([]);
    fake.body = 5000;
    let delivery = Delivery::start(&fake, settings(1, Overflow::Wait)).await;
    delivery.put(1).await;
    delivery.put(2).await;
    let totals = delivery.stop(seconds(10)).await;
    assert_eq!(totals.outbound.total(), 3);
}

/// Guarantees: without `drop_on_overflow` a full queue reports no room until a request leaves it, and a pipeline that
/// waits for room loses nothing.
#[tokio::test(start_paused = true)]
async fn waits_for_room() {
    for overflow in [Overflow::Refuse, Overflow::Wait] {
        let fake = FakeExporter::always(FakeReply::Slow(seconds(3)));
        let delivery = Delivery::start(&fake, settings(1, overflow)).await;
        let started = Instant::now();
        for _ in 0..4 {
            delivery.put(1).await;
            assert!(!delivery.running.sink().has_room());
        }
        assert_eq!(started.elapsed(), seconds(9));
        let totals = delivery.stop(seconds(10)).await;
        assert_eq!(totals.outbound.total(), 4);
    }
}

/// Guarantees: a batch that is handed over without room is accepted and sent: data inside the pipeline is never
/// dropped.
#[tokio::test(start_paused = true)]
async fn batch_beyond_the_bound_is_accepted() {
    let fake = FakeExporter::always(FakeReply::Slow(seconds(1)));
    let delivery = Delivery::start(&fake, settings(1, Overflow::Refuse)).await;
    for _ in 0..4 {
        delivery.running.sink().accept(&batch(2).into(), ManualClock::default().now());
    }
    assert_eq!(delivery.telemetry.totals().queue.size, 4 * ENTRY);
    assert_eq!(delivery.budget.used(), 4 * ENTRY);
    let totals = delivery.stop(seconds(10)).await;
    assert_eq!(totals.outbound.total(), 8);
}

/// Guarantees: a pipeline that waits for a full queue stops waiting at the shutdown's deadline, and its batch is
/// counted.
#[tokio::test(start_paused = true)]
async fn waiting_ends_with_the_shutdown() {
    let fake = FakeExporter::always(FakeReply::Hang);
    let delivery = Delivery::start(&fake, settings(1, Overflow::Wait)).await;
    delivery.put(1).await;
    let started = Instant::now();
    let deadline = started + seconds(7);
    delivery.running.drain_by(Stop { deadline, close_by: deadline + seconds(1) });
    delivery.put(2).await;
    assert_eq!(started.elapsed(), seconds(7));
    let totals = delivery.stop(seconds(0)).await;
    assert_eq!(totals.dropped.get(Reason::Shutdown).total(), 3);
}

/// Guarantees: without a queue there is no room for a second request until the first was sent.
#[tokio::test(start_paused = true)]
async fn without_a_queue() {
    let fake = FakeExporter::always(FakeReply::Slow(seconds(3)));
    let settings = DeliverySettings { queue: QueueConfig::disabled(), ..settings(1, Overflow::Refuse) };
    let delivery = Delivery::start(&fake, settings).await;
    let started = Instant::now();
    delivery.put(1).await;
    assert!(!delivery.running.sink().has_room());
    delivery.running.sink().room().await;
    assert_eq!(started.elapsed(), seconds(3));
    assert_eq!(delivery.telemetry.totals().requests, 1);
    delivery.stop(seconds(10)).await;
}

/// Guarantees: exactly as many requests are in flight at the same time as there are consumers.
/// rule: otlp#send-concurrent
#[tokio::test(start_paused = true)]
async fn consumers() {
    let fake = FakeExporter::always(FakeReply::Slow(seconds(1)));
    let queue = QueueConfig::try_new(Sizer::Requests, 100, 3, Overflow::Refuse).unwrap();
    let delivery = Delivery::start(&fake, DeliverySettings { queue, ..settings(1, Overflow::Refuse) }).await;
    let started = Instant::now();
    for _ in 0..7 {
        delivery.put(1).await;
    }
    fake.attempts(3).await;
    assert_eq!(delivery.telemetry.totals().queue.in_flight, 3);
    delivery.stop(seconds(10)).await;
    // Batches of 3, 3 and 1 requests, one second each.
    assert_eq!(started.elapsed(), seconds(3));
}

/// Guarantees: a shutdown sends queued requests, keeps its deadline, and counts the requests not sent by then.
#[tokio::test(start_paused = true)]
async fn shutdown_drains_until_the_deadline() {
    let fake = FakeExporter::always(FakeReply::Slow(seconds(3)));
    let delivery = Delivery::start(&fake, settings(10, Overflow::Refuse)).await;
    for _ in 0..5 {
        delivery.put(2).await;
    }
    let started = Instant::now();
    let totals = delivery.stop(seconds(10)).await;
    assert_eq!(started.elapsed(), seconds(10) + GRACE);
    assert_eq!((totals.outbound.total(), totals.dropped.get(Reason::Shutdown).total()), (6, 4));
    assert_eq!(fake.lost(), [(2, Reason::Shutdown), (2, Reason::Shutdown)]);
}

/// Guarantees: the result of an attempt that started before the deadline counts if the answer arrives shortly after the
/// deadline, and no attempt starts after it.
#[tokio::test(start_paused = true)]
async fn answers_at_the_deadline() {
    let fake = FakeExporter::always(FakeReply::Slow(Duration::from_millis(3400)));
    let delivery = Delivery::start(&fake, settings(10, Overflow::Refuse)).await;
    for _ in 0..5 {
        delivery.put(2).await;
    }
    let totals = delivery.stop(seconds(10)).await;
    assert_eq!((totals.outbound.total(), totals.dropped.get(Reason::Shutdown).total(), fake.made()), (6, 4, 3));
}

/// Guarantees: the exporter gets the requests that a shutdown leaves unsent, oldest first, to write them to disk:
/// queued ones, those between retries, and those in flight. Requests that it writes count as kept, the others as lost.
#[tokio::test(start_paused = true)]
async fn keeps_what_is_left() {
    let fake =
        FakeExporter::new([FakeReply::Fail(Retry::After(seconds(40)), Reason::RetriesExhausted), FakeReply::Hang]);
    *fake.seen.otherwise.lock().unwrap() = FakeReply::Hang;
    *fake.seen.keeps.lock().unwrap() = 3;
    let delivery = Delivery::start(&fake, settings(10, Overflow::Refuse)).await;
    for observations in 1..=4 {
        delivery.put(observations).await;
    }
    fake.attempts(1).await;
    let totals = delivery.stop(seconds(4)).await;
    let counted = [Reason::KeptOnDisk, Reason::Shutdown].map(|reason| totals.dropped.get(reason).total());
    assert_eq!(counted.iter().sum::<u64>(), 10);
    assert_eq!(fake.lost().len(), 1, "what is kept is not lost: {counted:?}");
}

/// Guarantees: an exporter whose requests keep failing is reported after the threshold, until a request succeeds; a
/// single failure and a used-up quota are not reported.
#[tokio::test(start_paused = true)]
async fn trouble() {
    let refused = |reason| FakeReply::Fail(Retry::Never, reason);
    let script = [Reason::RejectedByPeer, Reason::RejectedByPeer].map(refused);
    let fake = FakeExporter::new(script.into_iter().chain([FakeReply::Accept, refused(Reason::RateLimited)]));
    let delivery = Delivery::start(&fake, settings(10, Overflow::Refuse)).await;
    let limits = crate::health::Thresholds::default();
    let mut seen = Vec::new();
    for number in 1..=4 {
        delivery.put(1).await;
        fake.attempts(number).await;
        tokio::time::sleep(seconds(100)).await;
        seen.push(delivery.telemetry.trouble_beyond(&limits).map(|(_, remedy)| remedy));
    }
    assert_eq!(seen, [None, Some(Reason::RejectedByPeer.explanation()), None, None]);
    delivery.stop(seconds(1)).await;
}

/// Guarantees: a queue that stays full is reported, although requests keep leaving it, until there is room again.
#[tokio::test(start_paused = true)]
async fn full_for_long() {
    let fake = FakeExporter::always(FakeReply::Slow(seconds(3)));
    let delivery = Delivery::start(&fake, settings(10, Overflow::Refuse)).await;
    for _ in 0..40 {
        delivery.put(1).await;
    }
    let limits = crate::health::Thresholds::default();
    let trouble = delivery.telemetry.trouble_beyond(&limits);
    assert!(trouble.is_some_and(|(error, _)| error.starts_with("the queue has been full for")));
    tokio::time::sleep(seconds(31)).await;
    assert_eq!(delivery.telemetry.trouble_beyond(&limits), None);
    delivery.stop(seconds(1)).await;
}

/// Guarantees: a request whose next attempt would start after the deadline does not delay the shutdown.
#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_a_hopeless_retry() {
    let fake = FakeExporter::always(FakeReply::Fail(Retry::After(seconds(40)), Reason::RetriesExhausted));
    let delivery = Delivery::start(&fake, settings(10, Overflow::Refuse)).await;
    delivery.put(2).await;
    fake.attempts(1).await;
    let started = Instant::now();
    let totals = delivery.stop(seconds(10)).await;
    assert_eq!(started.elapsed(), seconds(0));
    assert_eq!(totals.dropped.get(Reason::Shutdown).total(), 2);
}

/// Guarantees: if an exporter panics while sending, only that request is lost, and counted.
#[tokio::test(start_paused = true)]
async fn panic_while_sending() {
    let fake = FakeExporter::new([FakeReply::Panic]);
    let delivery = Delivery::start(&fake, settings(10, Overflow::Refuse)).await;
    delivery.put(2).await;
    delivery.put(3).await;
    let totals = delivery.stop(seconds(10)).await;
    assert_eq!((totals.outbound.total(), totals.dropped.get(Reason::Internal).total()), (3, 2));
}

/// Guarantees: telemetry that is handed over after the exporter was stopped counts as lost.
#[tokio::test(start_paused = true)]
async fn after_the_end() {
    let delivery = Delivery::start(&FakeExporter::new([]), settings(10, Overflow::Refuse)).await;
    let (sink, telemetry) = (delivery.running.sink(), delivery.telemetry.clone());
    delivery.stop(seconds(1)).await;
    assert!(sink.has_room(), "nobody waits behind the end");
    sink.accept(&batch(4).into(), ManualClock::default().now());
    assert_eq!(telemetry.edge().totals().dropped.get(Reason::Shutdown).total(), 4);
}

fn reply() -> impl Strategy<Value = FakeReply> {
    prop_oneof![
        3 => Just(FakeReply::Accept),
        1 => (0u64..9).prop_map(FakeReply::Reject),
        1 => Just(FakeReply::Fail(Retry::Later, Reason::RetriesExhausted)),
        1 => Just(FakeReply::Fail(Retry::Never, Reason::RejectedByPeer)),
        1 => (0u64..20).prop_map(|pause| FakeReply::Fail(Retry::After(seconds(pause)), Reason::RateLimited)),
        1 => (0u64..9).prop_map(|pause| FakeReply::Slow(seconds(pause))),
        1 => Just(FakeReply::Hang),
        1 => Just(FakeReply::Panic),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Guarantees: whatever the destination does, however full the queue is and whenever the shutdown comes, every
    /// observation is sent or counted as lost, the shutdown keeps its deadline, and all memory is released.
    #[test]
    fn nothing_vanishes(
        script in proptest::collection::vec(reply(), 0..40),
        batches in proptest::collection::vec((0u64..9, 0u64..4), 1..30),
        entries in 1u64..6,
        consumers in 1usize..4,
        within in 0u64..30,
        overflow in prop_oneof![Just(Overflow::Refuse), Just(Overflow::Wait), Just(Overflow::Drop)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let queue = QueueConfig::try_new(Sizer::Bytes, entries * ENTRY, consumers, overflow).unwrap();
            let delivery = Delivery::start(&FakeExporter::new(script), DeliverySettings { queue, ..settings(1, Overflow::Refuse) }).await;
            let expected: u64 = batches.iter().map(|(observations, _)| observations).sum();
            for (observations, pause) in batches {
                delivery.put(observations).await;
                assert!(delivery.telemetry.totals().queue.size <= entries * ENTRY);
                tokio::time::sleep(seconds(pause)).await;
            }
            let started = Instant::now();
            let totals = delivery.stop(seconds(within)).await;
            assert_eq!(totals.inbound.total(), expected);
            // tokio's timers are accurate to a millisecond.
            assert!(started.elapsed() <= seconds(within) + GRACE + Duration::from_millis(1));
        });
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct DeliveryConfig {
    sending_queue: QueueConfig,
    retry_on_failure: RetryConfig,
}

fn written(yaml: &str) -> Result<DeliveryConfig, String> {
    let section = Section::from_yaml(yaml).unwrap();
    section.extract().map_err(|problems| {
        let hint = |problem: &crate::config::Problem| problem.hint.clone().unwrap_or_default();
        let texts = problems.as_slice().iter().map(|p| format!("{}: {}; {}", p.key_path, p.message, hint(p)));
        texts.collect::<Vec<_>>().join("\n")
    })
}

/// Guarantees: unwritten keys have their defaults, and the Collector's keys are understood.
#[test]
fn keys_match_the_collector() {
    let defaults = written("").unwrap();
    assert_eq!(defaults.sending_queue, QueueConfig::default());
    assert_eq!((defaults.sending_queue.queue_size, defaults.sending_queue.num_consumers), (64 << 20, 64));
    assert_eq!((defaults.sending_queue.sizer, defaults.sending_queue.overflow), (Sizer::Bytes, Overflow::Refuse));
    assert_eq!(defaults.retry_on_failure, RetryConfig::default());
    assert_eq!(defaults.retry_on_failure.max_elapsed_time.get(), seconds(300));
    let yaml = "{sending_queue: {sizer: requests, num_consumers: 10, block_on_overflow: true}, retry_on_failure: {enabled: false}}";
    let collector = written(yaml).unwrap();
    assert_eq!(collector.sending_queue, QueueConfig::try_new(Sizer::Requests, 1000, 10, Overflow::Wait).unwrap());
    assert_eq!(collector.retry_on_failure, RetryConfig::disabled());
    // In a Collector configuration, this means 5000 requests.
    let copied = written("{sending_queue: {queue_size: 5000}}").unwrap();
    assert_eq!(copied.sending_queue, QueueConfig::try_new(Sizer::Requests, 5000, 64, Overflow::Refuse).unwrap());
    for yaml in [
        "{queue_size: 8MiB}",
        "{sizer: bytes, queue_size: 8MiB}",
        "{sizer: bytes, queue_size: 8388608}",
        "{sizer: bytes, queue_size: '8388608'}",
    ] {
        let bytes = written(&format!("{{sending_queue: {yaml}}}")).unwrap().sending_queue;
        assert_eq!((bytes.sizer, bytes.queue_size), (Sizer::Bytes, 8 << 20), "{yaml}");
    }
    let drops = written("{sending_queue: {drop_on_overflow: true}}").unwrap();
    assert_eq!(drops.sending_queue.overflow, Overflow::Drop);
    assert!(!written("{sending_queue: {enabled: false}}").unwrap().sending_queue.enabled);
}

/// Guarantees: each broken rule is reported at its key.
#[test]
fn config_rules() {
    for (section, yaml, expected) in [
        ("sending_queue", "num_consumers: 0", ": `num_consumers` is 0, so nothing would be sent"),
        ("sending_queue", "num_consumers: 5000", ": `num_consumers` is larger than 1024"),
        ("sending_queue", "queue_size: 0", ": `queue_size` is 0, so nothing would be taken"),
        ("sending_queue", "queue_size: 64MiB, sizer: requests", ": `queue_size` has a unit of bytes, but the queue is"),
        ("sending_queue", "queue_size: 64MiB, sizer: items", ": `queue_size` has a unit of bytes, but the queue is"),
        ("sending_queue", "block_on_overflow: true, drop_on_overflow: true", ": `block_on_overflow` and `drop_on_"),
        ("sending_queue", "enabled: false, drop_on_overflow: true", ": `drop_on_overflow` has no meaning"),
        ("sending_queue", "storage: x", ".storage: unknown key `storage`; leave it out: queues are in memory"),
        ("sending_queue", "wait_for_result: true", ".wait_for_result: unknown key `wait_for_result`; leave it out: an"),
        ("sending_queue", "batch: {min_size: 1}", ".batch: unknown key `batch`; leave it out: a queue does not"),
        ("sending_queue", "size: 1", ".size: unknown key `size`"),
        ("retry_on_failure", "initial_interval: 0s", ": `initial_interval` is shorter than 1ms"),
        ("retry_on_failure", "randomization_factor: 1.5", ": `randomization_factor` is not"),
        ("retry_on_failure", "multiplier: 0.5", ": `multiplier` is not between 1 and 100"),
        ("retry_on_failure", "max_interval: 1s", ": `max_interval` is shorter than"),
        ("retry_on_failure", "max_elapsed_time: 1s", ": `max_elapsed_time` is shorter than"),
    ] {
        let Err(found) = written(&format!("{{{section}: {{{yaml}}}}}")) else { panic!("{yaml} was taken") };
        assert!(found.starts_with(&format!("{section}{expected}")), "{yaml}: {found}");
    }
}

/// Guarantees: a batch that is still being prepared when the exporter stops counts as lost once; its requests are never
/// sent, and nothing is counted when the preparation ends.
#[tokio::test]
async fn batch_being_prepared_at_the_end_is_lost_once() {
    let fake = FakeExporter::new([]);
    let (prepares, preparing) = std::sync::mpsc::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel();
    *fake.seen.prepare_waits.lock().unwrap() = Some((prepares, may_go_on));
    let delivery = Delivery::start(&fake, settings(10, Overflow::Refuse)).await;
    let sink = delivery.running.sink();
    let telemetry = delivery.telemetry.clone();
    let pipeline = std::thread::spawn(move || sink.accept(&batch(7).into(), ManualClock::default().now()));
    preparing.recv().unwrap();
    let totals = delivery.stop(Duration::ZERO).await;
    assert_eq!((totals.inbound.total(), totals.dropped.get(Reason::Shutdown).total()), (7, 7));
    go_on.send(()).unwrap();
    pipeline.join().unwrap();
    assert_eq!((telemetry.edge().totals(), fake.made()), (totals, 0));
}
