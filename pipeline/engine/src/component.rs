//! The contracts between the engine and the components: processors, exporters, and the words that they share with
//! receivers, whose own contract is [`crate::receiver`].
//!
//! Data flows one way: a receiver hands telemetry to a pipeline, the pipeline's processors change it one after the
//! other on the pipeline's own thread, and each exporter turns what comes out into requests, which wait in a bounded
//! queue until they were sent. Ownership is the protocol: whoever was handed telemetry answers for it, and hands it on
//! or counts its loss under a [`Reason`].
//!
//! A component is announced by a factory, a plain struct of function pointers (see [`crate::registry`]). What was
//! written in the configuration (`Config`) and what it means (`Settings`) are two types: `check` turns one into the
//! other without touching the world, so `validate` needs nothing to run.

use bytes::Bytes;
use profbridge_model::{Losses, Quantities, Reason, SampledOut, SampledOutCounts, Telemetry, Whose};
pub use profbridge_net::BoxFuture;

pub use crate::balance::Held;
use crate::budget::Budget;
pub use crate::clock::Now;
pub use crate::outcome::{Accepted, Rejected, Retry, SendError, StartError};
use crate::peer_limits::PeerLimits;
use crate::telemetry::{ExporterTelemetry, ItemCounts};
use crate::via::Via;

/// A processor: changes, holds or drops telemetry.
///
/// Synchronous, without clock, network, disk or runtime. It lives on its pipeline's thread. For every call the engine
/// checks in each unit of [`Quantities`] (and asserts in debug builds):
/// `in + synthesized + held before = out + dropped + held after`.
///
/// # One batch at a time
///
/// A call puts out at most one batch, and takes on at most about a megabyte more than it held before. What is left to
/// do stays held, and the engine calls again once the batch was handed on. So what is under way is one batch, whatever
/// a request or a full processor comes to, and the engine can do something else between two calls.
///
/// # Threads
///
/// A processor is made on one thread and moves to its pipeline's (`Send`); all calls then come from there, one at a
/// time, so it needs no lock. A call must not block: meanwhile the pipeline takes nothing, and senders wait. What needs
/// a disk or a network has threads of its own and is asked in [`Processor::advance`], as `symbolize` does.
///
/// # Cancellation
///
/// A call is never cut off. One that is still working at the deadline of a shutdown is no longer waited for, and one
/// that panics ends its pipeline; either way what was held is counted as lost.
///
/// [`crate::registry`] shows the smallest processor.
pub trait Processor: Send {
    /// Says how much memory all data of the pipeline may take, in bytes. Called once, before anything else. Bounds that
    /// are too large for it are made smaller.
    fn fit_memory(&mut self, _limit: u64) {}

    /// Says of which types the exporters of its pipeline are, so that nothing need be made that none of them sends, and
    /// whether profiles come to them other than in envelopes. Returns what is worth a warning then. Called once, before
    /// anything else.
    fn goes_to(&mut self, _exporters: &[&str], _profiles_come: bool) -> Option<Warning> {
        None
    }

    /// Takes telemetry. What it does not hold or drop goes to `out`. It need not take in all of it at once, see
    /// [`Processor::is_absorbing`].
    fn process(&mut self, telemetry: Telemetry, now: Now, out: &mut Outbox);

    /// Whether telemetry that was handed in is not taken in as a whole yet; the rest counts as held. Then
    /// [`Processor::advance`] is due and goes on with it, and [`Processor::process`] is not called before that is done.
    fn is_absorbing(&self) -> bool {
        false
    }

    /// The monotonic time at which [`Processor::advance`] has something to do; `None` while nothing waits. While it is
    /// not later than the time of the last call, `advance` is called again.
    fn due(&self) -> Option<u64> {
        None
    }

    /// Does a part of what is due at `now`. May be called when nothing is.
    fn advance(&mut self, _now: Now, _out: &mut Outbox) {}

    /// Memory is short: puts out a part of what is held, as much as makes sense over all calls. Returns whether it
    /// shall be called again.
    fn on_memory_pressure(&mut self, _now: Now, _out: &mut Outbox) -> bool {
        false
    }

    /// The pipeline ends: puts out a part of what is held. Returns whether it shall be called again. When it need not,
    /// nothing is held and nothing is due.
    fn flush(&mut self, _now: Now, _out: &mut Outbox) -> bool {
        false
    }

    /// What is held at the moment. Asked after every call, so it must be cheap.
    fn held(&self) -> Held {
        Held::default()
    }
}

/// Something that works, and perhaps not as it was meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Warning {
    /// What happens, and why.
    pub message: &'static str,
    /// What to do about it.
    pub hint: &'static str,
}

/// Hands telemetry to a processor and lets it take in all of it, for whoever uses one without a pipeline. All that it
/// puts out meanwhile is in `out`.
pub fn process_all(processor: &mut dyn Processor, telemetry: Telemetry, now: Now, out: &mut Outbox) {
    processor.process(telemetry, now, out);
    while processor.due().is_some_and(|due| due <= now.monotonic_nano) {
        processor.advance(now, out);
    }
}

/// Lets a processor put out all that it holds, for whoever uses one without a pipeline.
pub fn flush_all(processor: &mut dyn Processor, now: Now, out: &mut Outbox) {
    while processor.flush(now, out) {}
}

/// Where a processor puts what leaves it.
#[derive(Debug, Default)]
pub struct Outbox {
    /// What goes on, in order. One batch for each call.
    pub telemetry: Vec<Telemetry>,
    /// What was lost.
    pub losses: Losses,
    /// What sampling left out, which the pipeline's exporters are told of. It is among the losses as well.
    pub sampled_out: Vec<SampledOut>,
    /// What a rule added.
    pub synthesized: Quantities,
    /// Things worth counting that are no loss: a note's name is a metric's label, so it is one of a few constants.
    pub notes: Vec<(&'static str, u64)>,
    /// What there is to say of the last minute, for whoever asks how it goes; `None` where nothing changed.
    pub said: Option<String>,
}

impl Outbox {
    /// Hands telemetry on.
    pub fn send(&mut self, telemetry: impl Into<Telemetry>) {
        self.telemetry.push(telemetry.into());
    }

    /// Counts a loss.
    pub fn drop(&mut self, reason: Reason, quantities: Quantities) {
        self.losses.add(reason, quantities);
    }

    /// Says what sampling left out, and whose it was. Nothing where there is none.
    pub fn say_sampled_out(&mut self, whose: Whose, counts: SampledOutCounts) {
        if !counts.is_none() {
            self.sampled_out.push(SampledOut { whose, counts });
        }
    }

    /// Counts a loss of observations.
    pub fn drop_observations(&mut self, reason: Reason, observations: u64) {
        self.losses.add_observations(reason, observations);
    }

    /// Counts observations that a rule added.
    pub fn synthesize(&mut self, observations: u64) {
        self.synthesized.add_observations(observations);
    }

    /// Counts something that is no loss, under one of a few constant names. A count of 0 is none.
    pub fn note(&mut self, name: &'static str, count: u64) {
        add_note(&mut self.notes, name, count);
    }
}

/// Adds to the count that has this name, among things that are no losses. A count of 0 is none.
pub fn add_note(notes: &mut Vec<(&'static str, u64)>, name: &'static str, count: u64) {
    match notes.iter_mut().find(|(known, _)| *known == name) {
        Some((_, total)) => *total += count,
        None if count == 0 => {}
        None => notes.push((name, count)),
    }
}

/// One request that an exporter prepared: what waits in its queue.
///
/// The queue holds what will be sent (compressed, with the ids that make a retry overwrite itself) and not what it was
/// made from: that is a seventh of the memory, and a retry costs nothing but the sending.
#[derive(Debug, Clone)]
pub struct Request<M> {
    /// The body, ready to be sent.
    pub body: Bytes,
    /// How much is in it, for the counters.
    pub quantities: Quantities,
    /// How many samples in OTLP's sense (`Sample` messages), which the Collector's counters count.
    pub samples: u64,
    /// What the exporter needs to know when it sends the body.
    pub meta: M,
}

impl<M> Request<M> {
    /// The same, with something else that is known of it.
    pub fn with<N>(self, meta: impl FnOnce(M) -> N) -> Request<N> {
        let Self { body, quantities, samples, meta: known } = self;
        Request { body, quantities, samples, meta: meta(known) }
    }

    /// How much is in it as the Collector counts it.
    pub(crate) fn items(&self) -> ItemCounts {
        ItemCounts { samples: self.samples, spans: self.quantities.spans }
    }
}

/// What an exporter made of telemetry.
#[derive(Debug)]
pub struct Prepared<M> {
    /// The requests, in order.
    pub requests: Vec<Request<M>>,
    /// What could not be turned into a request.
    pub losses: Losses,
    /// What a rule added, such as closing samples.
    pub synthesized: Quantities,
    /// Things worth counting that are no loss.
    pub notes: Vec<(&'static str, u64)>,
}

impl<M> Default for Prepared<M> {
    fn default() -> Self {
        Self { requests: Vec::new(), losses: Losses::default(), synthesized: Quantities::NONE, notes: Vec::new() }
    }
}

/// An exporter: turns telemetry into requests, and sends one request once.
///
/// Queue, timeout, retry, backoff and concurrency live in the engine, once (see [`crate::delivery`]).
///
/// # Threads
///
/// Shared (`Sync`) by the pipelines that feed it and the tasks that send, so what it remembers stands behind locks or
/// atomics. [`Exporter::prepare`] is called on a pipeline's thread, one call at a time whichever pipeline it is.
/// [`Exporter::send`] runs on tokio's runtime, for `sending_queue.num_consumers` requests at the same time.
///
/// # Cancellation
///
/// The future of `send` is dropped at any point where it waits: by the timeout, and by the deadline of a shutdown.
/// Nothing may be half done then that a second attempt would not repair. A request whose `send` panics is counted as
/// lost; the others go on.
///
/// ```
/// use profbridge_engine::component::{Accepted, BoxFuture, Exporter, Now, Prepared, Request, SendError};
/// use profbridge_model::Telemetry;
///
/// /// Prints how much would be sent.
/// struct Print;
///
/// impl Exporter for Print {
///     type Meta = ();
///
///     fn prepare(&self, telemetry: &Telemetry, _now: Now) -> Prepared<()> {
///         let quantities = telemetry.quantities();
///         let body = format!("{} observations", quantities.observations).into();
///         Prepared { requests: vec![Request { body, quantities, samples: 0, meta: () }], ..Prepared::default() }
///     }
///
///     fn send<'a>(&'a self, request: &'a Request<()>) -> BoxFuture<'a, Result<Accepted, SendError>> {
///         Box::pin(async move {
///             println!("{}", String::from_utf8_lossy(&request.body));
///             Ok(Accepted::default())
///         })
///     }
/// }
/// ```
pub trait Exporter: Send + Sync + 'static {
    /// What the exporter needs to know of a request beside its body.
    type Meta: Send + Sync + 'static;

    /// Turns telemetry into requests. May take as long as the work takes, but must not wait for anything.
    /// `in + synthesized = quantities of the requests + losses`, in each unit.
    fn prepare(&self, telemetry: &Telemetry, now: Now) -> Prepared<Self::Meta>;

    /// Makes one attempt to send a request, for at most the configured timeout.
    fn send<'a>(&'a self, request: &'a Request<Self::Meta>) -> BoxFuture<'a, Result<Accepted, SendError>>;

    /// Where it connects to, each as `HOST:PORT`, so that one that leads back here is noticed.
    fn destinations(&self) -> Vec<String> {
        Vec::new()
    }

    /// Acquires what sending needs (a folder, a file), or fails the start of profbridge with a message that names what
    /// is missing. A destination that cannot be reached is no reason to fail: it may come up later.
    /// The context says among others where to publish the limits that a destination sets to those whose telemetry is
    /// forwarded, and what to name in the header [`via::HEADER`](crate::via::HEADER) of each request. Called once.
    fn start<'a>(&'a self, _context: &'a ExporterContext) -> BoxFuture<'a, Result<(), StartError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Who is told what becomes of requests outside of [`Exporter::send`], and decides about them there; nobody for
    /// most exporters.
    fn observer(&self) -> Option<&dyn Observer<Self::Meta>> {
        None
    }
}

/// Takes part in what the engine does with an exporter's requests, for a destination that is told about losses or that
/// limits its senders.
///
/// [`Observer::sampled_out`] is called on a pipeline's thread, [`Observer::refuses`] on tokio's runtime, and
/// [`Observer::lost`] on either; they must not block. The future of [`Observer::close`] is dropped at the deadline of a
/// shutdown.
pub trait Observer<M> {
    /// Sampling has left something out of what the exporter would have got. Called before what is left is prepared.
    fn sampled_out(&self, what: &SampledOut);

    /// Whether a request would be refused at the moment (a rate limit holds): it is then dropped unsent, for the
    /// returned reason. Asked before each attempt.
    fn refuses(&self, request: &Request<M>) -> Option<Reason>;

    /// Called when a request was lost in the engine's hands, so that the exporter can report it to its peer: the queue
    /// was full, [`Observer::refuses`] named a reason, the retries were used up, the deadline of the shutdown passed.
    /// Not called after an error with [`Retry::Never`], of which the exporter knows.
    fn lost(&self, request: &Request<M>, reason: Reason);

    /// Writes requests to disk that a shutdown leaves unsent, where the exporter is configured so, and says how many of
    /// them, from the first on, are there. They are counted under [`Reason::KeptOnDisk`], the others are lost. Called
    /// once, before [`Observer::close`].
    fn keep<'a>(&'a self, requests: Vec<&'a Request<M>>) -> BoxFuture<'a, usize>;

    /// What a request takes in memory beside its body and some hundred bytes, in bytes: what others determine, such as
    /// headers that are handed on. It counts in the memory budget, and in a queue that is bounded in bytes.
    fn meta_bytes(&self, request: &Request<M>) -> u64;

    /// The last call: everything was sent or lost. The exporter sends what it still has to say and closes.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// What an exporter needs of the engine.
#[derive(Debug, Clone)]
pub struct ExporterContext {
    /// The exporter's counters.
    pub telemetry: ExporterTelemetry,
    /// The process's memory, which the queue is charged to.
    pub budget: Budget,
    /// Where the exporter publishes the limits that its destinations set to senders.
    pub peer_limits: PeerLimits,
    /// The processes that telemetry came through which it sends on.
    pub via: Via,
}
