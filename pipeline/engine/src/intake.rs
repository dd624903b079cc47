//! The entrance to the pipelines, as a receiver sees it.
//!
//! A receiver asks whether there is room in the queues ([`Intake::room`]) and in memory ([`Intake::admit`]) before it
//! reads a body, and hands over what it made of it ([`Intake::consume`]). `Ok` means that the processors of every
//! pipeline have it: from there on the pipelines answer for it. Waiting is the backpressure.

mod arrivals;
mod memory;
mod rejections;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use profbridge_model::{Quantities, Reason, Telemetry, TelemetryKind};
use profbridge_net::Shutdown;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

pub use arrivals::{Arrival, Arrivals, channel};

use self::arrivals::{Fate, WithdrawnWhenDropped};
pub(crate) use self::rejections::queue_full;
use self::rejections::{broken, circle, stopped, unroutable};
use crate::budget::{Budget, Permit};
use crate::component::Rejected;
use crate::config::Carries;
use crate::delivery::{Overflow, Sink};
use crate::health::Health;
use crate::telemetry::Edge;
use crate::via;

/// How long a request waits for its pipelines before it is looked at whether their queues are full, and again after
/// that.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// The entrance to one pipeline.
#[derive(Debug, Clone)]
pub struct Entrance {
    /// The pipeline's id.
    pub pipeline: Arc<str>,
    /// What it carries.
    pub carries: Carries,
    /// Its channel. Bounded; what waits in it is bounded in bytes by the memory budget.
    pub sender: mpsc::Sender<Arrival>,
    /// The pipeline's own counters.
    pub edge: Edge,
    /// The exporters behind it.
    pub sinks: Sinks,
}

impl Entrance {
    /// The exporter whose queue is full, so that requests are refused.
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

/// Where a receiver's telemetry goes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Intake {
    shared: Arc<Shared>,
    /// Until when a request waits for memory and for room in queues instead of being refused; `None`: not at all.
    deadline: Option<Instant>,
}

#[derive(Debug)]
struct Shared {
    entrances: Vec<Entrance>,
    budget: Budget,
    edge: Edge,
    health: Health,
    end: End,
}

/// How a receiver is ended.
#[derive(Debug, Clone)]
pub struct End {
    /// The receiver shall stop: nothing then waits for room.
    pub shutdown: Shutdown,
    /// The receiver is soon cut off. Whoever still waits is answered now, while the answer can still leave: what a
    /// pipeline has begun to take is the pipelines' from here on, and what none has begun to take is given back.
    pub last_call: Shutdown,
}

impl Intake {
    /// An entrance to these pipelines.
    pub fn new(entrances: Vec<Entrance>, budget: Budget, edge: Edge, health: Health, end: End) -> Self {
        Self { shared: Arc::new(Shared { entrances, budget, edge, health, end }), deadline: None }
    }

    /// The same entrance for a request that waits until `deadline` for memory and for room in queues, before it is
    /// refused: for protocols whose clients do not repeat what was refused.
    #[must_use]
    pub fn waiting_until(&self, deadline: Instant) -> Self {
        Self { shared: Arc::clone(&self.shared), deadline: Some(deadline) }
    }

    /// Whether the deadline of [`Intake::waiting_until`] has passed, or there is none.
    fn has_waited(&self) -> bool {
        self.deadline.is_none_or(|deadline| deadline <= Instant::now())
    }

    /// Whether requests wait for memory at all.
    pub(crate) fn may_wait(&self) -> bool {
        self.deadline.is_some()
    }

    /// Waits for the deadline; for ever where there is none.
    async fn deadline(&self) {
        match self.deadline {
            Some(deadline) => sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    }

    /// Asks every pipeline that profiles of this receiver would go to whether its exporters have room for more, before
    /// a request is read. Waits where an exporter is configured so ([`Overflow::Wait`]), until the receiver shall stop.
    ///
    /// # Errors
    ///
    /// The queue of an exporter is full, or the receiver shall stop. The sender keeps the request and may come back.
    pub async fn room(&self) -> Result<(), Rejected> {
        self.room_behind(|_| true).await
    }

    /// As [`Intake::room`], of the pipelines that carry one kind of telemetry.
    ///
    /// # Errors
    ///
    /// As [`Intake::room`].
    pub async fn room_for(&self, kind: TelemetryKind) -> Result<(), Rejected> {
        self.room_behind(|carries| carries.includes(kind)).await
    }

    /// The ids of the exporters that this receiver's telemetry may reach.
    pub fn exporters(&self) -> impl Iterator<Item = &str> {
        self.shared.entrances.iter().flat_map(|entrance| entrance.sinks.0.iter().map(|sink| sink.id()))
    }

    /// Whether any pipeline of this receiver carries telemetry of a kind.
    pub fn takes(&self, kind: TelemetryKind) -> bool {
        self.shared.entrances.iter().any(|entrance| entrance.carries.includes(kind))
    }

    /// Refuses a request that has waited as long as it may, where the queue of an exporter is full.
    fn not_refused(&self, entrance: &Entrance) -> Result<(), Rejected> {
        match entrance.refused_by() {
            Some(exporter) if self.has_waited() => Err(queue_full(exporter)),
            _ => Ok(()),
        }
    }

    /// Takes note of the processes that a request says it came through, for those that its telemetry will go to.
    ///
    /// # Errors
    ///
    /// This process is among them: the request is sent in a circle.
    pub fn came_through(&self, headers: &http::HeaderMap) -> Result<(), Rejected> {
        let Some(processes) = headers.get(via::HEADER).map(via::ids_of) else { return Ok(()) };
        let mut sinks = self.shared.entrances.iter().flat_map(|entrance| entrance.sinks.0.iter());
        match sinks.find(|sink| !sink.came_through(&processes)) {
            Some(sink) => Err(circle(sink.id())),
            None => Ok(()),
        }
    }

    async fn room_behind(&self, carries: impl Fn(Carries) -> bool + Send) -> Result<(), Rejected> {
        loop {
            let carriers = self.shared.entrances.iter().filter(|entrance| carries(entrance.carries));
            let mut waits: Option<(&Arc<dyn Sink>, &Entrance)> = None;
            for entrance in carriers {
                self.not_refused(entrance)?;
                let full = entrance.sinks.0.iter().find(|sink| !sink.has_room());
                waits = waits.or(full.map(|sink| (sink, entrance)));
            }
            let Some((sink, entrance)) = waits else { return Ok(()) };
            tokio::select! {
                () = sink.room() => {}
                // Whoever may still wait behind the deadline waits for room, and not for a time that has passed.
                () = self.deadline(), if !self.has_waited() => {}
                () = self.shared.end.shutdown.clone().triggered() => return Err(stopped(&entrance.pipeline)),
            }
        }
    }

    /// Counts what the receiver itself refused for good, for instance profiles that break a rule.
    pub fn refused(&self, reason: Reason, quantities: Quantities) {
        self.shared.edge.add_in(quantities);
        self.shared.edge.drop(reason, quantities);
    }

    /// Counts something that is no loss, under one of a few constant names.
    pub fn note(&self, name: &'static str, count: u64) {
        self.shared.edge.note_all(&[(name, count)]);
    }

    /// Says how high something stands now that rises and falls, under one of a few constant names.
    pub fn level(&self, name: &'static str, level: u64) {
        self.shared.edge.set_level(name, level);
    }

    /// Hands telemetry to every pipeline of this receiver that carries its kind.
    ///
    /// `Ok` means that the pipelines answer for it. Dropped before it is ready, it is withdrawn unless a pipeline has
    /// begun to take it.
    ///
    /// # Errors
    ///
    /// No pipeline took it, or none carries it, or the queue of an exporter is full, as for [`Intake::room`]: it may
    /// have become so since the receiver asked. Or the receiver is about to be cut off, and no pipeline has begun to
    /// take it.
    pub async fn consume(&self, telemetry: impl Into<Telemetry>, permit: Permit) -> Result<(), Rejected> {
        let telemetry = telemetry.into();
        let quantities = telemetry.quantities();
        self.room_behind(|carries| carries.carries(&telemetry)).await?;
        let mut slots = Vec::new();
        let mut failed = Vec::new();
        let mut carriers = 0;
        let mut last_call = self.shared.end.last_call.clone();
        // Room is taken in all pipelines before anything is sent to one, so a refusal is a refusal by all.
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
                    // A pipeline that waits for a full queue takes nothing, so those in front keep their places.
                    () = sleep(LOOK_AFTER) => self.not_refused(entrance)?,
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
        let fate = Arc::new(Fate::default());
        let _withdrawn = WithdrawnWhenDropped(Arc::clone(&fate));
        let mut answers = Vec::with_capacity(slots.len());
        // The last gets the batch itself: most go to one pipeline, and what stands beside the bytes of spans is copied.
        let batches = std::iter::repeat_n(telemetry, slots.len());
        for (position, ((entrance, slot), telemetry)) in slots.into_iter().zip(batches).enumerate() {
            let (taken, answer) = oneshot::channel();
            let source = (position == 0).then(|| self.shared.edge.clone());
            let (permit, fate) = (Arc::clone(&permit), Arc::clone(&fate));
            slot.send(Arrival { telemetry, permit, source, taken, fate });
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
                        if fate.withdraw() {
                            return Err(stopped(&entrance.pipeline));
                        }
                        // It is taken in to its end, whoever waits for that.
                        break None;
                    }
                    // A pipeline that waits for a full queue does not come to what waits in front of it.
                    () = sleep(LOOK_AFTER) => {
                        if let Err(refused) = self.not_refused(entrance)
                            && fate.withdraw()
                        {
                            return Err(refused);
                        }
                    }
                }
            };
            match answer {
                Some(Ok(Ok(()))) | None => accepted = true,
                Some(Ok(Err(why))) => rejected = Some(why),
                // Its thread dropped it: it panicked.
                Some(Err(_)) => failed.push(entrance),
            }
        }
        if !accepted {
            return Err(rejected.unwrap_or_else(|| broken(failed.first().map_or("", |entrance| &*entrance.pipeline))));
        }
        // Others have it, so the sender must not send it again: for a pipeline that failed it is lost.
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
