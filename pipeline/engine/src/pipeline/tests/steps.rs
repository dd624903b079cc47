//! Tests that one batch is processed at a time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use super::*;
use crate::budget::Budget;
use crate::component::{BoxFuture, Now};
use crate::delivery::Sink;

/// A sink that records the charged memory at each batch.
struct Watcher {
    budget: Budget,
    has_room: AtomicBool,
    /// If set, the sink has no room after its first batch.
    takes_one: AtomicBool,
    freed: Notify,
    /// The charged memory, and the observations of the batch.
    seen: Mutex<Vec<(u64, u64)>>,
}

impl Watcher {
    fn new(context: &PipelineContext, has_room: bool) -> Arc<Self> {
        let (budget, has_room) = (context.budget.clone(), AtomicBool::new(has_room));
        let (takes_one, freed) = (AtomicBool::new(false), Notify::new());
        Arc::new(Self { budget, has_room, takes_one, freed, seen: Mutex::default() })
    }

    fn set_room(&self, has_room: bool) {
        self.has_room.store(has_room, Ordering::SeqCst);
        self.freed.notify_waiters();
    }

    fn seen(&self) -> Vec<(u64, u64)> {
        self.seen.lock().unwrap().clone()
    }
}

impl Sink for Watcher {
    fn id(&self) -> &str {
        "watcher"
    }

    fn overflow(&self) -> Overflow {
        Overflow::Refuse
    }

    fn has_room(&self) -> bool {
        self.has_room.load(Ordering::SeqCst)
    }

    fn room(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            loop {
                let mut freed = std::pin::pin!(self.freed.notified());
                freed.as_mut().enable();
                if self.has_room() {
                    return;
                }
                freed.await;
            }
        })
    }

    fn accept(&self, telemetry: &Telemetry, _now: crate::component::Now) {
        self.seen.lock().unwrap().push((self.budget.used(), telemetry.observations()));
        if self.takes_one.load(Ordering::SeqCst) {
            self.set_room(false);
        }
    }
}

fn start(context: &PipelineContext, processors: Vec<(String, Box<dyn Processor>)>, sink: &Arc<Watcher>) -> Pipeline {
    let sinks: Vec<Arc<dyn Sink>> = vec![Arc::clone(sink) as _];
    Pipeline::start(
        PipelineParts { id: "profiles".to_owned(), carries: Carries::Only(TelemetryKind::Profiles), processors, sinks },
        context,
    )
    .unwrap()
}

fn splitter() -> (String, Box<dyn Processor>) {
    ("splitter".to_owned(), Box::new(Splitter::default()))
}

/// Guarantees: if a request expands to a hundred batches, only one is in flight at a time. Until the exporters have it,
/// it is charged in addition to the request. The sender gets its answer when the request is fully absorbed, and then
/// the request's memory is released.
#[tokio::test(start_paused = true)]
async fn one_batch_under_way() {
    let context = paused();
    let sink = Watcher::new(&context, true);
    let pipeline = start(&context, vec![splitter()], &sink);
    let (intake, _) = intake(&context, &[&pipeline]);
    consume(&intake, 100).await.unwrap();
    let size = batch(1).size_bytes();
    assert!(size > 0);
    // The first batch comes directly from the request, whose permit is the larger of the two.
    let expected: Vec<_> =
        (0..100).map(|n| (100 + 99 - n + if n == 0 { size.saturating_sub(100) } else { size }, 1)).collect();
    assert_eq!(sink.seen(), expected);
    tokio::task::yield_now().await;
    assert_eq!(context.budget.used(), 0);
}

/// Guarantees: while exporters have no room, data stays in the processors even if it is due. It continues one batch at
/// a time when there is room.
#[tokio::test(start_paused = true)]
async fn batches_wait_in_the_processors() {
    let context = paused();
    let sink = Watcher::new(&context, true);
    let pipeline = start(&context, vec![holder(30)], &sink);
    let (intake, _) = intake(&context, &[&pipeline]);
    for _ in 0..3 {
        consume(&intake, 5).await.unwrap();
    }
    sink.set_room(false);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!((sink.seen(), context.budget.used()), (vec![], 15_003));
    sink.set_room(true);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let size = batch(5).size_bytes();
    assert_eq!(sink.seen(), [(10_002 + size, 5), (5001 + size, 5), (size, 5)]);
    assert_eq!(context.budget.used(), 0);
}

/// Guarantees: while much data is emitted, senders get answers in between.
#[tokio::test(start_paused = true)]
async fn senders_are_answered_during_output() {
    let context = paused();
    let sink = Watcher::new(&context, true);
    let pipeline = start(&context, vec![holder(30)], &sink);
    let (intake, _) = intake(&context, &[&pipeline]);
    for _ in 0..50 {
        consume(&intake, 5).await.unwrap();
    }
    sink.set_room(false);
    tokio::time::sleep(Duration::from_secs(40)).await;
    let sender = tokio::spawn(async move { consume(&intake, 9).await });
    sink.set_room(true);
    sender.await.unwrap().unwrap();
    assert!(sink.seen().len() < 50, "{}", sink.seen().len());
}

/// Guarantees: a pipeline ends by the shutdown's deadline, however much data is held; the rest counts as lost to the
/// shutdown, including a request that is being absorbed.
#[tokio::test(start_paused = true)]
async fn the_deadline_ends_a_flush() {
    let context = paused();
    let sink = Watcher::new(&context, true);
    let mut pipeline = start(&context, vec![holder(3600), splitter()], &sink);
    let (intake, _) = intake(&context, &[&pipeline]);
    for _ in 0..3 {
        consume(&intake, 20).await.unwrap();
    }
    pipeline.stop(Instant::now());
    pipeline.ended().await;
    let counters = &pipeline.counters;
    let totals = counters.edge.totals();
    assert_eq!((totals.inbound.total(), totals.outbound.total()), (60, sink.seen().len() as u64));
    assert_eq!(totals.dropped.get(Reason::Shutdown).total(), 60 - totals.outbound.total());
    assert!(totals.outbound.total() < 60);
    assert_eq!((counters.unsettled().total(), context.budget.used()), (0, 0));
}

/// Guarantees: after a pipeline was given up, nothing is counted any more: neither as handed on in addition to lost,
/// nor twice.
#[tokio::test(start_paused = true)]
async fn nothing_is_counted_after_the_end() {
    let context = paused();
    let sink = Watcher::new(&context, true);
    sink.takes_one.store(true, Ordering::SeqCst);
    let pipeline = start(&context, vec![splitter()], &sink);
    let (intake, receiver) = intake(&context, &[&pipeline]);
    let sender = tokio::spawn(async move { consume(&intake, 20).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let counters = &pipeline.counters;
    assert_eq!((receiver.totals().outbound.total(), sink.seen().len()), (20, 1));
    counters.give_up(Reason::Shutdown);
    counters.give_up(Reason::Internal);
    sink.takes_one.store(false, Ordering::SeqCst);
    sink.set_room(true);
    sender.await.unwrap().ok();
    let totals = counters.edge.totals();
    assert_eq!((totals.inbound.total(), totals.outbound.total(), totals.dropped.total().total()), (20, 1, 19));
    assert_eq!((totals.dropped.get(Reason::Shutdown).total(), sink.seen().len()), (19, 1));
    assert_eq!(counters.stages[0].totals().held, Held::default());
}

/// Gives the pipeline up while it accepts a batch.
struct GivingUpSink {
    counters: std::sync::OnceLock<PipelineCounters>,
    given: Mutex<u64>,
}

impl Sink for GivingUpSink {
    fn id(&self) -> &str {
        "gives up"
    }

    fn overflow(&self) -> Overflow {
        Overflow::Refuse
    }

    fn has_room(&self) -> bool {
        true
    }

    fn room(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn accept(&self, telemetry: &Telemetry, _now: Now) {
        self.counters.get().unwrap().give_up(Reason::Shutdown);
        *self.given.lock().unwrap() += telemetry.observations();
    }
}

/// Guarantees: if a pipeline is given up while an exporter prepares a batch, only the exporter counts the batch.
#[tokio::test(start_paused = true)]
async fn batch_in_handover_is_not_lost() {
    let context = paused();
    let sink = Arc::new(GivingUpSink { counters: std::sync::OnceLock::new(), given: Mutex::default() });
    let sinks: Vec<Arc<dyn Sink>> = vec![Arc::clone(&sink) as _];
    let processors = vec![splitter()];
    let parts =
        PipelineParts { id: "profiles".to_owned(), carries: Carries::Only(TelemetryKind::Profiles), processors, sinks };
    let mut pipeline = Pipeline::start(parts, &context).unwrap();
    sink.counters.set(pipeline.counters.clone()).unwrap();
    let (intake, _) = intake(&context, &[&pipeline]);
    consume(&intake, 20).await.unwrap();
    pipeline.stop(Instant::now() + Duration::from_secs(9));
    pipeline.ended().await;
    let totals = pipeline.counters.edge.totals();
    assert_eq!((totals.inbound.total(), totals.outbound.total(), *sink.given.lock().unwrap()), (20, 1, 1));
    assert_eq!(totals.dropped.get(Reason::Shutdown).total(), 19);
}

/// Holds a batch, and emits it together with the next one.
#[derive(Default)]
struct Pairs {
    held: u64,
}

impl Processor for Pairs {
    fn process(&mut self, telemetry: Telemetry, _now: Now, out: &mut crate::component::Outbox) {
        match std::mem::take(&mut self.held) {
            0 => self.held = telemetry.observations(),
            held => out.send(batch(held + telemetry.observations())),
        }
    }

    fn held(&self) -> Held {
        Held::observations(self.held, if self.held > 0 { batch(self.held).size_bytes() } else { 0 })
    }
}

/// Guarantees: if a processor emits held data together with an arrival, the held data is charged while the next
/// processor absorbs it, in addition to the arrival's own memory.
#[tokio::test(start_paused = true)]
async fn flushed_batch_is_charged() {
    let context = paused();
    let sink = Watcher::new(&context, true);
    let pairs: Box<dyn Processor> = Box::new(Pairs::default());
    let pipeline = start(&context, vec![("pairs".to_owned(), pairs), splitter()], &sink);
    let (intake, _) = intake(&context, &[&pipeline]);
    consume(&intake, 5000).await.unwrap();
    consume(&intake, 10).await.unwrap();
    let merged = batch(5010).size_bytes() - batch(10).size_bytes();
    // The last batch leaves after everything was absorbed.
    let seen = sink.seen();
    assert_eq!(seen.len(), 5010);
    assert!(seen[..5009].iter().all(|(charged, _)| *charged >= merged), "{:?}, {merged}", &seen[..3]);
    tokio::task::yield_now().await;
    assert_eq!(context.budget.used(), 0);
}
