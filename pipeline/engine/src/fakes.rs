//! Components for the engine's own tests: they follow a script and record their calls.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use bytes::Bytes;
use profbridge_model::{
    Builder, Envelope, Item, Loss, Profiles, Quantities, Reason, SampledOut, SampledOutCounts, Telemetry,
};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::component::ExporterContext;
use crate::component::{
    Accepted, BoxFuture, Exporter, Held, Now, Observer, Outbox, PartlySettled, Prepared, Processor, Request, Retry,
    SendError, StartError,
};
use crate::intake::Intake;
use crate::receiver::{Receiver, ReceiverContext, RunningReceiver};

/// A batch with this many observations.
pub(crate) fn batch(observations: u64) -> Profiles {
    let mut builder = Builder::new();
    builder.on_cpu(20);
    let times: Vec<u64> = (1..=observations).collect();
    if !times.is_empty() {
        builder.sample(None, None, None, &times, &[]);
    }
    builder.finish().unwrap()
}

/// An unparsed envelope with this many items.
pub(crate) fn envelope(items: usize) -> Envelope {
    let item = Item { header: Bytes::from_static(b"{}"), payload: Bytes::new().into() };
    Envelope { items: vec![item; items], ..Envelope::default() }
}

/// What a [`FakeExporter`] does in one attempt.
#[derive(Debug, Clone)]
pub(crate) enum FakeReply {
    Accept,
    Reject(u64),
    Fail(Retry, Reason),
    /// Accepts the request after this time.
    Slow(Duration),
    Hang,
    Panic,
}

/// The recorded calls of a [`FakeExporter`].
#[derive(Debug)]
pub(crate) struct ExporterCalls {
    /// The replies to the next attempts. After these, `otherwise` is the reply.
    pub(crate) script: Mutex<VecDeque<FakeReply>>,
    pub(crate) otherwise: Mutex<FakeReply>,
    pub(crate) attempts: Mutex<Vec<Instant>>,
    pub(crate) lost: Mutex<Vec<(Quantities, Reason)>>,
    /// The number of requests that the exporter writes to disk at the end.
    pub(crate) keeps: Mutex<usize>,
    /// Each report of sampled-out spans, with the number of batches prepared before it.
    pub(crate) sampled_out: Mutex<Vec<(SampledOutCounts, u64)>>,
    pub(crate) prepared: Mutex<u64>,
    pub(crate) refuses: Mutex<Option<Reason>>,
    pub(crate) settled: Mutex<Option<PartlySettled>>,
    pub(crate) prepare_panics: Mutex<bool>,
    /// Signals the first channel when preparing starts, then waits for the second.
    pub(crate) prepare_waits: Mutex<Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>>,
    pub(crate) start_fails: Mutex<bool>,
    pub(crate) closed: Mutex<bool>,
    /// The number of attempts so far, for which tests wait.
    pub(crate) count: watch::Sender<usize>,
}

/// Makes one request per batch, with a body of the configured size.
#[derive(Clone)]
pub(crate) struct FakeExporter {
    pub(crate) seen: Arc<ExporterCalls>,
    pub(crate) body: usize,
}

impl FakeExporter {
    pub(crate) fn new(script: impl IntoIterator<Item = FakeReply>) -> Self {
        let seen = ExporterCalls {
            script: Mutex::new(script.into_iter().collect()),
            otherwise: Mutex::new(FakeReply::Accept),
            attempts: Mutex::default(),
            lost: Mutex::default(),
            keeps: Mutex::default(),
            sampled_out: Mutex::default(),
            prepared: Mutex::default(),
            refuses: Mutex::default(),
            settled: Mutex::default(),
            prepare_panics: Mutex::default(),
            prepare_waits: Mutex::default(),
            start_fails: Mutex::default(),
            closed: Mutex::default(),
            count: watch::Sender::new(0),
        };
        Self { seen: Arc::new(seen), body: 488 }
    }

    pub(crate) fn always(reply: FakeReply) -> Self {
        let fake = Self::new([]);
        *fake.seen.otherwise.lock().unwrap() = reply;
        fake
    }

    /// Waits until this many attempts have been made.
    pub(crate) async fn attempts(&self, count: usize) {
        self.seen.count.subscribe().wait_for(|made| *made >= count).await.unwrap();
    }

    pub(crate) fn made(&self) -> usize {
        self.seen.attempts.lock().unwrap().len()
    }

    /// The number of observations of each lost request, and the reason.
    pub(crate) fn lost(&self) -> Vec<(u64, Reason)> {
        self.seen.lost.lock().unwrap().iter().map(|&(lost, reason)| (lost.observations, reason)).collect()
    }
}

impl Exporter for FakeExporter {
    type Meta = ();

    fn prepare(&self, telemetry: &Telemetry, _now: Now) -> Prepared<()> {
        assert!(!*self.seen.prepare_panics.lock().unwrap(), "told to panic");
        if let Some((prepares, go_on)) = &*self.seen.prepare_waits.lock().unwrap() {
            prepares.send(()).unwrap();
            go_on.recv().unwrap();
        }
        let quantities = telemetry.quantities();
        *self.seen.prepared.lock().unwrap() += quantities.observations;
        let body = Bytes::from(vec![0; self.body]);
        let request = Request { body, quantities, samples: 1, meta: () };
        Prepared { requests: vec![request], ..Prepared::default() }
    }

    fn start<'a>(&'a self, _: &'a ExporterContext) -> BoxFuture<'a, Result<(), StartError>> {
        let fails = *self.seen.start_fails.lock().unwrap();
        let result = if fails { Err(StartError("told to fail".to_owned())) } else { Ok(()) };
        Box::pin(std::future::ready(result))
    }

    fn send<'a>(&'a self, request: &'a Request<()>) -> BoxFuture<'a, Result<Accepted, SendError>> {
        Box::pin(async move {
            self.seen.attempts.lock().unwrap().push(Instant::now());
            let script = &self.seen.script;
            let reply = script.lock().unwrap().pop_front();
            let reply = reply.unwrap_or_else(|| self.seen.otherwise.lock().unwrap().clone());
            self.seen.count.send_modify(|count| *count += 1);
            match reply {
                FakeReply::Accept => Ok(Accepted { billed: Duration::from_secs(2), ..Accepted::default() }),
                FakeReply::Reject(rejected) => {
                    let quantities = Quantities::observations(rejected);
                    let losses = vec![Loss { reason: Reason::RejectedByPeer, quantities }];
                    Ok(Accepted { losses, ..Accepted::default() })
                }
                FakeReply::Fail(retry, reason) => Err(SendError { retry, reason, message: "told to fail".to_owned() }),
                FakeReply::Slow(pause) => {
                    tokio::time::sleep(pause).await;
                    Ok(Accepted::default())
                }
                FakeReply::Hang => std::future::pending().await,
                FakeReply::Panic => panic!("told to panic while sending {}", request.quantities),
            }
        })
    }

    fn observer(&self) -> Option<&dyn Observer<()>> {
        Some(self)
    }
}

impl Observer<()> for FakeExporter {
    fn sampled_out(&self, what: &SampledOut) {
        let prepared = *self.seen.prepared.lock().unwrap();
        self.seen.sampled_out.lock().unwrap().push((what.counts, prepared));
    }

    fn keep<'a>(&'a self, _: Vec<&'a Request<()>>) -> BoxFuture<'a, usize> {
        Box::pin(std::future::ready(*self.seen.keeps.lock().unwrap()))
    }

    fn meta_bytes(&self, _request: &Request<()>) -> u64 {
        0
    }

    fn refuses(&self, _request: &Request<()>) -> Option<Reason> {
        *self.seen.refuses.lock().unwrap()
    }

    fn settled(&self, _request: &Request<()>) -> Option<PartlySettled> {
        self.seen.settled.lock().unwrap().clone()
    }

    fn lost(&self, request: &Request<()>, reason: Reason) {
        self.seen.lost.lock().unwrap().push((request.quantities, reason));
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        *self.seen.closed.lock().unwrap() = true;
        Box::pin(std::future::ready(()))
    }
}

/// Holds every batch for a while, charges a fixed number of bytes per observation, and drops and adds some.
pub(crate) struct Holder {
    pub(crate) held: Vec<Telemetry>,
    pub(crate) since: u64,
    pub(crate) window: Duration,
    pub(crate) bytes_each: u64,
    pub(crate) panics_at: Option<u64>,
    /// Breaks the conservation law by forgetting its input.
    pub(crate) forgets: bool,
}

impl Holder {
    pub(crate) fn new(window: Duration) -> Self {
        Self { held: Vec::new(), since: 0, window, bytes_each: 1000, panics_at: None, forgets: false }
    }

    /// Emits the oldest batch. Returns whether it holds another one.
    fn send_held(&mut self, out: &mut Outbox) -> bool {
        if !self.held.is_empty() {
            out.send(self.held.remove(0));
        }
        !self.held.is_empty()
    }
}

impl Processor for Holder {
    fn process(&mut self, telemetry: Telemetry, now: Now, out: &mut Outbox) {
        let observations = telemetry.observations();
        assert_ne!(self.panics_at, Some(observations), "told to panic");
        if self.forgets {
            return;
        }
        if observations % 3 == 1 {
            out.drop(Reason::Resent, telemetry.quantities());
            return;
        }
        if observations % 5 == 2 {
            out.synthesize(1);
            out.note("lengthened", 1);
            out.drop_observations(Reason::OffCpu, 1);
        }
        if self.held.is_empty() {
            self.since = now.monotonic_nano;
        }
        self.held.push(telemetry);
        if self.window.is_zero() {
            self.send_held(out);
        }
    }

    fn due(&self) -> Option<u64> {
        (!self.held.is_empty()).then(|| self.since + self.window.as_nanos() as u64)
    }

    fn advance(&mut self, now: Now, out: &mut Outbox) {
        if self.due().is_some_and(|due| due <= now.monotonic_nano) {
            self.send_held(out);
        }
    }

    fn on_memory_pressure(&mut self, _now: Now, out: &mut Outbox) -> bool {
        self.send_held(out)
    }

    fn flush(&mut self, _now: Now, out: &mut Outbox) -> bool {
        self.send_held(out)
    }

    fn held(&self) -> Held {
        let quantities = self.held.iter().map(Telemetry::quantities).sum::<Quantities>();
        let bytes = (self.held.len() as u64) + quantities.total() * self.bytes_each;
        Held { quantities, bytes }
    }
}

/// Splits a batch: each call emits one observation as a separate batch.
#[derive(Default)]
pub(crate) struct Splitter {
    left: u64,
}

impl Splitter {
    fn send_held(&mut self, out: &mut Outbox) -> bool {
        if self.left > 0 {
            self.left -= 1;
            out.send(batch(1));
        }
        self.left > 0
    }
}

impl Processor for Splitter {
    fn process(&mut self, telemetry: Telemetry, _now: Now, out: &mut Outbox) {
        assert_eq!(self.left, 0, "the batch before is not taken in yet");
        match telemetry {
            Telemetry::Profiles(profiles) => {
                self.left = profiles.observations();
                self.send_held(out);
            }
            // Spans are not observations, and an envelope cannot be split.
            other => out.send(other),
        }
    }

    fn is_absorbing(&self) -> bool {
        self.left > 0
    }

    fn due(&self) -> Option<u64> {
        self.is_absorbing().then_some(0)
    }

    fn advance(&mut self, _now: Now, out: &mut Outbox) {
        self.send_held(out);
    }

    fn flush(&mut self, _now: Now, out: &mut Outbox) -> bool {
        self.send_held(out)
    }

    fn held(&self) -> Held {
        Held::observations(self.left, self.left)
    }
}

/// Gives its intake to the test and waits for the shutdown.
pub(crate) struct FakeReceiver {
    pub(crate) intake: tokio::sync::oneshot::Sender<Intake>,
    /// Ignores the shutdown.
    pub(crate) hangs: bool,
    pub(crate) fails: bool,
}

impl FakeReceiver {
    pub(crate) fn new() -> (Self, tokio::sync::oneshot::Receiver<Intake>) {
        let (sender, intake) = tokio::sync::oneshot::channel();
        (Self { intake: sender, hangs: false, fails: false }, intake)
    }
}

impl Receiver for FakeReceiver {
    fn start<'a>(self: Box<Self>, context: ReceiverContext) -> BoxFuture<'a, Result<RunningReceiver, StartError>> {
        Box::pin(async move {
            if self.fails {
                return Err(StartError("the port is in use".to_owned()));
            }
            self.intake.send(context.next).ok();
            let shutdown = context.shutdown;
            let hangs = self.hangs;
            let stopped = Box::pin(async move {
                shutdown.triggered().await;
                if hangs {
                    std::future::pending::<()>().await;
                }
            });
            Ok(RunningReceiver { addresses: vec![("grpc", ([127, 0, 0, 1], 4317).into())], stopped })
        })
    }
}
