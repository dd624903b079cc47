//! The entrance to the pipelines, which each receiver has.
//!
//! A receiver asks for room in the queues ([`Intake::room`]) and in memory ([`Intake::admit`]) before it reads a body,
//! and then hands over the decoded telemetry ([`Intake::consume`]). `Ok` means that the processors of every pipeline
//! have it: the pipelines are now responsible for it. While these calls wait, senders wait too (backpressure).

mod arrivals;
mod memory;
mod rejections;

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use profbridge_model::{Quantities, Reason, Telemetry, TelemetryKind};
use profbridge_net::Shutdown;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

pub use arrivals::{Arrival, Arrivals, channel};
pub(crate) use memory::MAX_UNANNOUNCED;

use self::arrivals::{ClaimState, WithdrawnWhenDropped};
pub(crate) use self::rejections::queue_full;
use self::rejections::{broken, circle, stopped, unroutable};
use crate::budget::{Budget, Permit};
use crate::component::Rejected;
use crate::config::Carries;
use crate::delivery::{Overflow, Sink};
use crate::health::Health;
use crate::telemetry::Edge;
use crate::via;

/// How often a request that waits for its pipelines checks whether their queues have become full.
const OVERFLOW_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Counts observations whose times are more than a day from their arrival, or before 2000.
const TIME_SKEW: &str = "time_skew";

/// The maximum number of senders that get a warning; others get none.
const MAX_WARNED: usize = 1024;

/// The entrance to one pipeline.
#[derive(Debug, Clone)]
pub struct Entrance {
    /// The pipeline's id.
    pub pipeline: Arc<str>,
    /// The kinds of telemetry that the pipeline carries.
    pub carries: Carries,
    /// The pipeline's channel. Its length is bounded, and its bytes are bounded by the memory budget.
    pub sender: mpsc::Sender<Arrival>,
    /// The pipeline's own counters.
    pub edge: Edge,
    /// The pipeline's exporters.
    pub sinks: Sinks,
}

impl Entrance {
    /// The exporter whose full queue causes refusals, if any.
    fn refused_by(&self) -> Option<&str> {
        let mut full = self.sinks.0.iter().filter(|sink| !sink.has_room() && sink.overflow() == Overflow::Refuse);
        full.next().map(|sink| sink.id())
    }
}

/// The exporters behind a pipeline.
#[derive(Clone)]
pub struct Sinks(pub Arc<[Arc<dyn Sink>]>);

impl std::fmt::Debug for Sinks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|sink| sink.id())).finish()
    }
}

/// The destination of a receiver's telemetry. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Intake {
    shared: Arc<IntakeState>,
    /// The time until which a request waits for memory and queue room before it is refused; `None` means it never
    /// waits.
    deadline: Option<Instant>,
    /// The permission to wait for much memory, which one request at a time has, see [`Intake::in_turn`].
    turn: Option<Arc<OwnedSemaphorePermit>>,
}

#[derive(Debug)]
struct IntakeState {
    entrances: Vec<Entrance>,
    budget: Budget,
    edge: Edge,
    health: Health,
    end: ReceiverEnd,
    /// The senders that were warned about the times of their data.
    warned: Mutex<HashSet<String>>,
}

/// How a receiver is stopped.
#[derive(Debug, Clone)]
pub struct ReceiverEnd {
    /// Triggered when the receiver should stop; then nothing waits for room any more.
    pub shutdown: Shutdown,
    /// Triggered shortly before the receiver's tasks are dropped. Senders that still wait get their answer now, while
    /// it can still be sent: a request that any pipeline has started to process is accepted, any other is withdrawn.
    pub last_call: Shutdown,
}

impl Intake {
    /// An entrance to these pipelines.
    pub fn new(entrances: Vec<Entrance>, budget: Budget, edge: Edge, health: Health, end: ReceiverEnd) -> Self {
        let shared = IntakeState { entrances, budget, edge, health, end, warned: Mutex::default() };
        Self { shared: Arc::new(shared), deadline: None, turn: None }
    }

    /// The same intake for a request that waits for memory and queue room until `deadline` before it is refused. For
    /// protocols whose clients do not retry refused requests.
    #[must_use]
    pub fn waiting_until(&self, deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..self.clone() }
    }

    /// Whether the deadline of [`Intake::waiting_until`] has passed, or there is none.
    fn is_past_deadline(&self) -> bool {
        self.deadline.is_none_or(|deadline| deadline <= Instant::now())
    }

    /// Whether requests may wait for memory.
    pub(crate) fn may_wait(&self) -> bool {
        self.deadline.is_some()
    }

    /// Waits for the deadline; forever if there is none.
    async fn deadline(&self) {
        match self.deadline {
            Some(deadline) => sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    }

    /// Checks, before a request is read, that the exporters of every pipeline for this receiver's profiles have room.
    /// Waits if an exporter is configured to ([`Overflow::Wait`]), until the receiver should stop.
    ///
    /// # Errors
    ///
    /// The queue of an exporter is full, or the receiver should stop. The sender keeps the request and may retry.
    pub async fn room(&self) -> Result<(), Rejected> {
        self.wait_for_queue_room(|_| true).await
    }

    /// Like [`Intake::room`], for the pipelines that carry this kind of telemetry.
    ///
    /// # Errors
    ///
    /// As [`Intake::room`].
    pub async fn room_for(&self, kind: TelemetryKind) -> Result<(), Rejected> {
        self.wait_for_queue_room(|carries| carries.includes(kind)).await
    }

    /// The ids of the exporters that this receiver's telemetry may reach.
    pub fn exporters(&self) -> impl Iterator<Item = &str> {
        self.shared.entrances.iter().flat_map(|entrance| entrance.sinks.0.iter().map(|sink| sink.id()))
    }

    /// The ids of the exporters that this receiver's telemetry of a kind may reach.
    pub fn exporters_of(&self, kind: TelemetryKind) -> impl Iterator<Item = &str> {
        let entrances = self.shared.entrances.iter().filter(move |entrance| entrance.carries.includes(kind));
        entrances.flat_map(|entrance| entrance.sinks.0.iter().map(|sink| sink.id()))
    }

    /// Whether any pipeline of this receiver carries this kind of telemetry.
    pub fn takes(&self, kind: TelemetryKind) -> bool {
        self.shared.entrances.iter().any(|entrance| entrance.carries.includes(kind))
    }

    /// Refuses a request whose waiting time is over, if the queue of an exporter is full.
    fn check_overflow(&self, entrance: &Entrance) -> Result<(), Rejected> {
        match entrance.refused_by() {
            Some(exporter) if self.is_past_deadline() => Err(queue_full(exporter)),
            _ => Ok(()),
        }
    }

    /// Passes the ids of the processes through which a request came to the exporters of its telemetry, which is of this
    /// kind.
    ///
    /// # Errors
    ///
    /// One of the ids is that of this process: the request travels in a circle.
    pub fn record_via(&self, headers: &http::HeaderMap, kind: TelemetryKind) -> Result<(), Rejected> {
        let Some(processes) = headers.get(via::HEADER).map(via::parse_ids) else { return Ok(()) };
        let entrances = self.shared.entrances.iter().filter(|entrance| entrance.carries.includes(kind));
        let mut sinks = entrances.flat_map(|entrance| entrance.sinks.0.iter());
        match sinks.find(|sink| sink.via().is_some_and(|via| !via.record_via(&processes, kind))) {
            Some(sink) => Err(circle(sink.id())),
            None => Ok(()),
        }
    }

    /// Adds this process to the header of a request that the receiver itself forwards.
    ///
    /// # Errors
    ///
    /// As [`Intake::record_via`].
    pub fn add_own_id(&self, headers: &mut http::HeaderMap) -> Result<(), Rejected> {
        let mut sinks = self.shared.entrances.iter().flat_map(|entrance| entrance.sinks.0.iter());
        match sinks.find_map(|sink| Some((sink.id(), sink.via()?))) {
            Some((exporter, via)) if !via.add_to(headers) => Err(circle(exporter)),
            _ => Ok(()),
        }
    }

    async fn wait_for_queue_room(&self, carries: impl Fn(Carries) -> bool + Send) -> Result<(), Rejected> {
        loop {
            let carriers = self.shared.entrances.iter().filter(|entrance| carries(entrance.carries));
            let mut waits: Option<(&Arc<dyn Sink>, &Entrance)> = None;
            for entrance in carriers {
                self.check_overflow(entrance)?;
                let full = entrance.sinks.0.iter().find(|sink| !sink.has_room());
                waits = waits.or(full.map(|sink| (sink, entrance)));
            }
            let Some((sink, entrance)) = waits else { return Ok(()) };
            tokio::select! {
                () = sink.room() => {}
                // After the deadline only requests that wait for queue room remain; the deadline must not wake them
                // again.
                () = self.deadline(), if !self.is_past_deadline() => {}
                () = self.shared.end.shutdown.clone().triggered() => return Err(stopped(&entrance.pipeline)),
            }
        }
    }

    /// Counts data that the receiver itself refused permanently, for example profiles that break a rule.
    pub fn refused(&self, reason: Reason, quantities: Quantities) {
        self.shared.edge.add_in(quantities);
        self.shared.edge.drop(reason, quantities);
    }

    /// Counts an event that is not a loss, under one of a few constant names.
    pub fn note(&self, name: &'static str, count: u64) {
        self.shared.edge.note_all(&[(name, count)]);
    }

    /// Counts observations whose times are wrong and were replaced, and logs this once for each sender. `example` is
    /// one of the times, in RFC 3339.
    pub fn note_wrong_times(&self, sender: &str, observations: u64, example: &str) {
        self.note(TIME_SKEW, observations);
        let mut warned = self.shared.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.len() < MAX_WARNED && warned.insert(sender.to_owned()) {
            tracing::warn!(
                "{sender} sends profiles of {example}, which cannot be when they were made: they are taken when they \
                 arrive, unless it states another time ({TIME_SKEW}). Correct its clock, or the unit of its times: \
                 nanoseconds in a profile"
            );
        }
    }

    /// Sets a gauge, under one of a few constant names.
    pub fn level(&self, name: &'static str, level: u64) {
        self.shared.edge.set_level(name, level);
    }

    /// Hands telemetry to every pipeline of this receiver that carries its kind.
    ///
    /// `Ok` means that the pipelines are responsible for the telemetry. If the future is dropped earlier, the request
    /// is withdrawn, unless a pipeline has started to process it.
    ///
    /// # Errors
    ///
    /// No pipeline accepted or carries the telemetry, or the queue of an exporter has become full since
    /// [`Intake::room`]. Or the receiver is about to be dropped, and no pipeline has started to process the request.
    pub async fn consume(&self, telemetry: impl Into<Telemetry>, permit: Permit) -> Result<(), Rejected> {
        let telemetry = telemetry.into();
        let quantities = telemetry.quantities();
        self.wait_for_queue_room(|carries| carries.carries(&telemetry)).await?;
        let mut slots = Vec::new();
        let mut failed = Vec::new();
        let mut carriers = 0;
        let mut last_call = self.shared.end.last_call.clone();
        // Reserves a place in all pipelines before sending to any, so that either all accept the telemetry or all
        // refuse it.
        for entrance in &self.shared.entrances {
            if !entrance.carries.carries(&telemetry) {
                continue;
            }
            carriers += 1;
            let mut reserved = pin!(entrance.sender.reserve());
            let slot = loop {
                tokio::select! {
                    biased;
                    () = last_call.wait() => return Err(stopped(&entrance.pipeline)),
                    slot = &mut reserved => break slot,
                    // A pipeline that waits for a full queue receives nothing, so its channel stays full.
                    () = sleep(OVERFLOW_CHECK_INTERVAL) => self.check_overflow(entrance)?,
                }
            };
            match slot {
                Ok(slot) => slots.push((entrance, slot)),
                Err(_) if self.has_failed(&entrance.pipeline) => failed.push(entrance),
                Err(_) => return Err(stopped(&entrance.pipeline)),
            }
        }
        if carriers == 0 {
            return Err(unroutable(&self.shared.edge, &telemetry));
        }
        let permit = Arc::new(permit);
        let claim = Arc::new(ClaimState::default());
        let _withdrawn = WithdrawnWhenDropped(Arc::clone(&claim));
        let mut answers = Vec::with_capacity(slots.len());
        // The last pipeline gets the batch itself instead of a clone: usually there is only one pipeline, and cloning
        // copies the decoded parts of spans.
        let batches = std::iter::repeat_n(telemetry, slots.len());
        for (position, ((entrance, slot), telemetry)) in slots.into_iter().zip(batches).enumerate() {
            let (taken, answer) = oneshot::channel();
            let source = (position == 0).then(|| self.shared.edge.clone());
            let (permit, claim) = (Arc::clone(&permit), Arc::clone(&claim));
            slot.send(Arrival { telemetry, permit, source, taken, claim });
            answers.push((entrance, answer));
        }
        drop(permit);

        let mut accepted = false;
        let mut rejected = None;
        for (entrance, mut answer) in answers {
            let answer = loop {
                tokio::select! {
                    biased;
                    answer = &mut answer => break Some(answer),
                    () = last_call.wait() => {
                        if claim.withdraw() {
                            return Err(stopped(&entrance.pipeline));
                        }
                        // A pipeline has started to process the request and will finish, whether or not anyone waits.
                        break None;
                    }
                    // A pipeline that waits for a full queue does not receive the requests in its channel.
                    () = sleep(OVERFLOW_CHECK_INTERVAL) => {
                        if let Err(refused) = self.check_overflow(entrance)
                            && claim.withdraw()
                        {
                            return Err(refused);
                        }
                    }
                }
            };
            match answer {
                Some(Ok(Ok(()))) | None => accepted = true,
                Some(Ok(Err(why))) => rejected = Some(why),
                // The pipeline's thread panicked and dropped the request.
                Some(Err(_)) => failed.push(entrance),
            }
        }
        if !accepted {
            return Err(rejected.unwrap_or_else(|| broken(failed.first().map_or("", |entrance| &*entrance.pipeline))));
        }
        // Other pipelines have the data, so the sender must not retry: for a pipeline that failed, the data is lost.
        for entrance in failed {
            entrance.edge.add_in(quantities);
            entrance.edge.drop(Reason::Internal, quantities);
        }
        Ok(())
    }

    fn has_failed(&self, pipeline: &str) -> bool {
        self.shared.health.has_failed("pipelines", pipeline)
    }
}

#[cfg(test)]
mod tests;
