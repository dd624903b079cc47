//! The contracts between the engine and its components: processors, exporters, and the types that they share with
//! receivers, whose contract is [`crate::receiver`].
//!
//! Data flows one way: a receiver hands telemetry to a pipeline, the pipeline's processors change it one after the
//! other on the pipeline's own thread, and each exporter turns the result into requests, which wait in a bounded queue
//! until they are sent. The owner of telemetry is responsible for it: it either hands the telemetry on or counts its
//! loss under a [`Reason`].
//!
//! A factory, a plain struct of function pointers (see [`crate::registry`]), makes the components of one type. The
//! configuration as written (`Config`) and its checked meaning (`Settings`) are two types: `check` turns one into the
//! other without I/O, so `validate` works offline.

use bytes::Bytes;
use profbridge_model::{Losses, Quantities, Reason, SampledOut, SampledOutCounts, SampledOutOrigin, Telemetry};
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
/// A processor is synchronous, and uses no clock, network, disk or runtime. It lives on its pipeline's thread. For
/// every call the engine checks in each unit of [`Quantities`] (and asserts in debug builds): `in + synthesized + held
/// before = out + dropped + held after`.
///
/// # One batch at a time
///
/// A call emits at most one batch, and absorbs at most about a megabyte. Remaining work stays inside the processor, and
/// the engine calls again once the batch was handed on. So only one batch is in flight, however much a request or a
/// full processor contains, and the engine can do other work between two calls.
///
/// # Threads
///
/// A processor is made on one thread and moves to its pipeline's thread (`Send`); all calls then come from that thread,
/// one at a time, so it needs no lock. A call must not block, because the pipeline would stop and senders would wait. A
/// processor that needs a disk or a network has its own threads and collects their results in [`Processor::advance`],
/// as `symbolize` does.
///
/// # Cancellation
///
/// A call is never interrupted. A shutdown stops waiting for a call that runs past the deadline, and a call that panics
/// ends its pipeline; in both cases the held data is counted as lost.
///
/// [`crate::registry`] shows the smallest processor.
pub trait Processor: Send {
    /// Sets how much memory all data of the pipeline may take, in bytes. Called once, before all other calls. The
    /// processor lowers its own bounds if they exceed the limit.
    fn fit_memory(&mut self, _limit: u64) {}

    /// Sets the types of the pipeline's exporters, so that the processor skips work that none of them needs, and
    /// whether profiles arrive other than in envelopes. Returns a warning if the combination is questionable. Called
    /// once, before any telemetry.
    fn goes_to(&mut self, _exporters: &[&str], _profiles_come: bool) -> Option<Warning> {
        None
    }

    /// Accepts telemetry. Whatever it neither holds nor drops goes to `out`. It may absorb the batch in several steps,
    /// see [`Processor::is_absorbing`].
    fn process(&mut self, telemetry: Telemetry, now: Now, out: &mut Outbox);

    /// Whether the last batch is not fully absorbed; its rest counts as held. [`Processor::advance`] is then due and
    /// continues with it, and [`Processor::process`] is not called until the batch is absorbed.
    fn is_absorbing(&self) -> bool {
        false
    }

    /// The monotonic time at which [`Processor::advance`] has work to do; `None` if there is no work. `advance` is
    /// called repeatedly until this time lies in the future.
    fn due(&self) -> Option<u64> {
        None
    }

    /// Does part of the work that is due at `now`. May also be called when nothing is due.
    fn advance(&mut self, _now: Now, _out: &mut Outbox) {}

    /// Called when memory is short. Emits part of the held data: over all calls, as much as makes sense. Returns
    /// whether to call again.
    fn on_memory_pressure(&mut self, _now: Now, _out: &mut Outbox) -> bool {
        false
    }

    /// Called when the pipeline ends. Emits part of the held data. Returns whether to call again. After `false` nothing
    /// is held and nothing is due.
    fn flush(&mut self, _now: Now, _out: &mut Outbox) -> bool {
        false
    }

    /// The data that the processor holds now. Called after every call, so it must be cheap.
    fn held(&self) -> Held {
        Held::default()
    }
}

/// A warning about settings that work, but perhaps not as intended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Warning {
    /// What happens, and why.
    pub message: &'static str,
    /// What to do about it.
    pub hint: &'static str,
}

/// Passes telemetry to a processor and lets it absorb all of it, for callers without a pipeline. All output goes to
/// `out`.
pub fn process_all(processor: &mut dyn Processor, telemetry: Telemetry, now: Now, out: &mut Outbox) {
    processor.process(telemetry, now, out);
    while processor.due().is_some_and(|due| due <= now.monotonic_nano) {
        processor.advance(now, out);
    }
}

/// Makes a processor emit everything that it holds, for callers without a pipeline.
pub fn flush_all(processor: &mut dyn Processor, now: Now, out: &mut Outbox) {
    while processor.flush(now, out) {}
}

/// Where a processor puts its output.
#[derive(Debug, Default)]
pub struct Outbox {
    /// The output, in order: at most one batch per call.
    pub telemetry: Vec<Telemetry>,
    /// The lost quantities, by reason.
    pub losses: Losses,
    /// The data that sampling removed, for the pipeline's exporters. It is also counted in `losses`.
    pub sampled_out: Vec<SampledOut>,
    /// The quantities that the processor added by a rule.
    pub synthesized: Quantities,
    /// Counts of events that are not losses. A note's name becomes a metric label, so it must be one of a few
    /// constants.
    pub notes: Vec<(&'static str, u64)>,
    /// A summary of the last minute, for progress lines; `None` if nothing changed.
    pub summary: Option<String>,
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

    /// Reports what sampling removed from this sender's data. Zero counts are ignored.
    pub fn report_sampled_out(&mut self, whose: SampledOutOrigin, counts: SampledOutCounts) {
        if !counts.is_none() {
            self.sampled_out.push(SampledOut { whose, counts });
        }
    }

    /// Counts a loss of observations.
    pub fn drop_observations(&mut self, reason: Reason, observations: u64) {
        self.losses.add_observations(reason, observations);
    }

    /// Counts observations that the processor added by a rule.
    pub fn synthesize(&mut self, observations: u64) {
        self.synthesized.add_observations(observations);
    }

    /// Counts an event that is not a loss, under one of a few constant names. A count of 0 is ignored.
    pub fn note(&mut self, name: &'static str, count: u64) {
        add_note(&mut self.notes, name, count);
    }
}

/// Adds to the note of this name. A count of 0 is ignored.
pub fn add_note(notes: &mut Vec<(&'static str, u64)>, name: &'static str, count: u64) {
    match notes.iter_mut().find(|(known, _)| *known == name) {
        Some((_, total)) => *total += count,
        None if count == 0 => {}
        None => notes.push((name, count)),
    }
}

/// One prepared request of an exporter, as it waits in the queue.
///
/// The queue holds the final body (compressed, with ids that make a retry overwrite the first attempt) instead of the
/// telemetry: the body takes a seventh of the memory, and a retry only has to send it.
#[derive(Debug, Clone)]
pub struct Request<M> {
    /// The body, ready to send.
    pub body: Bytes,
    /// The quantities of telemetry in the body, for the counters.
    pub quantities: Quantities,
    /// The number of samples in OTLP's sense (`Sample` messages), as the Collector counts them.
    pub samples: u64,
    /// The data that the exporter needs to send the body.
    pub meta: M,
}

impl<M> Request<M> {
    /// Replaces the metadata of the request.
    pub fn with<N>(self, meta: impl FnOnce(M) -> N) -> Request<N> {
        let Self { body, quantities, samples, meta: known } = self;
        Request { body, quantities, samples, meta: meta(known) }
    }

    /// The number of items as the Collector counts them.
    pub(crate) fn items(&self) -> ItemCounts {
        ItemCounts::of(self.samples, self.quantities)
    }
}

/// The requests that an exporter made of telemetry.
#[derive(Debug)]
pub struct Prepared<M> {
    /// The requests, in order.
    pub requests: Vec<Request<M>>,
    /// The data that could not be converted to a request.
    pub losses: Losses,
    /// The quantities that the exporter added by a rule, such as closing samples.
    pub synthesized: Quantities,
    /// Counts of events that are not losses.
    pub notes: Vec<(&'static str, u64)>,
}

impl<M> Default for Prepared<M> {
    fn default() -> Self {
        Self { requests: Vec::new(), losses: Losses::default(), synthesized: Quantities::NONE, notes: Vec::new() }
    }
}

impl<M> Prepared<M> {
    /// No requests: everything is lost.
    pub fn lost(reason: Reason, quantities: Quantities) -> Self {
        let mut prepared = Self::default();
        prepared.losses.add(reason, quantities);
        prepared
    }
}

/// An exporter: turns telemetry into requests, and makes single attempts to send one.
///
/// The engine provides queue, timeout, retry, backoff and concurrency for all exporters (see [`crate::delivery`]).
///
/// # Threads
///
/// Pipelines and the tasks that send share the exporter (`Sync`), so its state is behind locks or atomics.
/// [`Exporter::prepare`] is called on a pipeline's thread, one call at a time over all pipelines.
/// [`Exporter::send`] runs on tokio's runtime, for `sending_queue.num_consumers` requests at the same time.
///
/// # Cancellation
///
/// The timeout and the deadline of a shutdown drop the future of `send` at any await point. A second attempt must be
/// able to repair everything that is half done then. If `send` panics, only its request is counted as lost.
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
    /// What the exporter needs to send a request, apart from its body.
    type Meta: Send + Sync + 'static;

    /// Turns telemetry into requests. May take as long as needed to compute, but must not wait for anything. In each
    /// unit `in + synthesized = quantities of the requests + losses`.
    fn prepare(&self, telemetry: &Telemetry, now: Now) -> Prepared<Self::Meta>;

    /// Makes one attempt to send a request, for at most the configured timeout.
    fn send<'a>(&'a self, request: &'a Request<Self::Meta>) -> BoxFuture<'a, Result<Accepted, SendError>>;

    /// The destinations, each as `HOST:PORT`, so that the engine can detect one that leads back to this process.
    fn destinations(&self) -> Vec<String> {
        Vec::new()
    }

    /// Acquires what sending needs (a folder, a file), or fails the start with a message that names what is missing. An
    /// unreachable destination must not fail the start: it may come up later. `_context` also contains the place to
    /// publish the rate limits that a destination sets for senders, and the ids to send in the header
    /// [`via::HEADER`](crate::via::HEADER) of each request. Called once.
    fn start<'a>(&'a self, _context: &'a ExporterContext) -> BoxFuture<'a, Result<(), StartError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The observer that is informed about requests outside of [`Exporter::send`] and takes part in decisions about
    /// them; most exporters have none.
    fn observer(&self) -> Option<&dyn Observer<Self::Meta>> {
        None
    }
}

/// Takes part in what the engine does with an exporter's requests, for a destination that wants reports of losses or
/// sets rate limits.
///
/// [`Observer::sampled_out`] is called on a pipeline's thread, [`Observer::refuses`] on tokio's runtime, and
/// [`Observer::lost`] on either; they must not block. The future of [`Observer::close`] is dropped at the deadline of a
/// shutdown.
pub trait Observer<M> {
    /// Reports data that sampling removed before it reached the exporter. Called before the remaining data is prepared.
    fn sampled_out(&self, what: &SampledOut);

    /// Returns a reason if the destination would refuse the request now (because of a rate limit). The engine then
    /// drops it unsent for this reason. Called before each attempt.
    fn refuses(&self, request: &Request<M>) -> Option<Reason>;

    /// Called when the engine lost a request, so that the exporter can report it to its destination: the queue was
    /// full, [`Observer::refuses`] gave a reason, the retries were used up, or the shutdown's deadline passed. Not
    /// called after an error with [`Retry::Never`], which the exporter itself returned.
    fn lost(&self, request: &Request<M>, reason: Reason);

    /// What attempts that failed have delivered and lost of a request that is sent in several posts. If the request
    /// fails in the end, only the rest counts as lost for that reason.
    fn settled(&self, _request: &Request<M>) -> Option<PartlySettled> {
        None
    }

    /// Writes the requests that a shutdown left unsent to disk, if the exporter is configured to. Returns how many of
    /// them it wrote, counted from the first. These count under [`Reason::KeptOnDisk`], the others as lost. Called
    /// once, before [`Observer::close`].
    fn keep<'a>(&'a self, requests: Vec<&'a Request<M>>) -> BoxFuture<'a, usize>;

    /// Memory in bytes that a request takes beyond its body and a fixed overhead of some hundred bytes. Other parties
    /// determine it, for example by headers that are forwarded. It counts in the memory budget and in a queue bounded
    /// in bytes.
    fn meta_bytes(&self, request: &Request<M>) -> u64;

    /// The last call, after every request was sent or lost. The exporter sends its final reports and closes.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// The settled part of a request that is sent in several posts.
#[derive(Debug, Clone, Default)]
pub struct PartlySettled {
    /// What was delivered.
    pub delivered: Quantities,
    /// What is lost for good.
    pub losses: Losses,
}

/// What the engine provides to an exporter.
#[derive(Debug, Clone)]
pub struct ExporterContext {
    /// The exporter's counters.
    pub telemetry: ExporterTelemetry,
    /// The process's memory budget, to which the queue is charged.
    pub budget: Budget,
    /// Where the exporter publishes the rate limits that its destinations set for senders.
    pub peer_limits: PeerLimits,
    /// The profbridge processes through which the telemetry came.
    pub via: Via,
}
