//! The entrance to the pipelines, as a receiver sees it.
//!
//! A receiver asks whether there is room in the queues ([`Intake::room`]) and in memory ([`Intake::admit`]) before it
//! reads a body, and hands over what it made of it ([`Intake::consume`]). `Ok` means that the processors of every
//! pipeline have it: from there on the pipelines answer for it. Waiting is the backpressure.

mod arrivals;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use profbridge_model::{Quantities, Reason, Telemetry, TelemetryKind};
use profbridge_net::Shutdown;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

pub(crate) use arrivals::{Arrival, Arrivals, channel};

use self::arrivals::{Fate, WithdrawnWhenDropped};
use crate::budget::{Budget, Exhausted, Permit};
use crate::component::{Rejected, Retry};
use crate::config::Carries;
use crate::delivery::{Overflow, Sink};
use crate::health::Health;
use crate::telemetry::Edge;

/// When a sender that was turned away for want of memory may come back. Windows are put out at once when memory is
/// short, so the next report of a profiler (5 s in the OpenTelemetry eBPF profiler) finds room.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// When a sender that was turned away because a queue is full may come back: the pause after which an exporter itself
/// tries again for the first time.
const QUEUE_RETRY_AFTER: Duration = Duration::from_secs(5);

/// How long a request waits for its pipelines before it is looked at whether their queues are full, and again after
/// that.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// The entrance to one pipeline.
#[derive(Debug, Clone)]
pub(crate) struct Entrance {
    /// The pipeline's id.
    pub(crate) pipeline: Arc<str>,
    /// What it carries.
    pub(crate) carries: Carries,
    /// Its channel. Bounded; what waits in it is bounded in bytes by the memory budget.
    pub(crate) sender: mpsc::Sender<Arrival>,
    /// The pipeline's own counters.
    pub(crate) edge: Edge,
    /// The exporters behind it.
    pub(crate) sinks: Sinks,
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
pub(crate) struct Sinks(pub(crate) Arc<[Arc<dyn Sink>]>);

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
pub(crate) struct End {
    /// The receiver shall stop: nothing then waits for room.
    pub(crate) shutdown: Shutdown,
    /// The receiver is soon cut off. Whoever still waits is answered now, while the answer can still leave: what a
    /// pipeline has begun to take is the pipelines' from here on, and what none has begun to take is given back.
    pub(crate) last_call: Shutdown,
}

impl Intake {
    pub(crate) fn new(entrances: Vec<Entrance>, budget: Budget, edge: Edge, health: Health, end: End) -> Self {
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

    /// Takes memory for a request of `bytes`, before its body is read.
    ///
    /// # Errors
    ///
    /// The memory budget is used up: the sender may come back. Or `bytes` alone is more than the budget: it may not.
    pub fn admit(&self, bytes: u64) -> Result<Permit, Rejected> {
        self.shared.budget.admit(bytes).map_err(out_of_memory)
    }

    /// As [`Intake::admit`], and waits for memory where the request may wait.
    ///
    /// # Errors
    ///
    /// As [`Intake::admit`], when the deadline has passed.
    pub async fn admitted(&self, bytes: u64) -> Result<Permit, Rejected> {
        let mut permit = self.shared.budget.charge(0);
        self.grown(&mut permit, bytes).await?;
        Ok(permit)
    }

    /// As [`Intake::grown`], for a thread that may block and belongs to a runtime.
    ///
    /// # Errors
    ///
    /// As [`Intake::grown`].
    pub fn grow_blocking(&self, permit: &mut Permit, more: u64) -> Result<(), Rejected> {
        match self.grow(permit, more) {
            Err(rejected) if rejected.retry != Retry::Never && !self.has_waited() => {
                Handle::current().block_on(self.grown(permit, more))
            }
            result => result,
        }
    }

    /// As [`Intake::grow`], and waits for memory where the request may wait.
    ///
    /// # Errors
    ///
    /// As [`Intake::grow`], when the deadline has passed.
    pub async fn grown(&self, permit: &mut Permit, more: u64) -> Result<(), Rejected> {
        let refused = match self.grow(permit, more) {
            Err(rejected) if rejected.retry != Retry::Never && !self.has_waited() => rejected,
            result => return result,
        };
        let waiting = self.shared.budget.waiting();
        loop {
            // Asked for before the next attempt, so that what is given back in between is not missed.
            let mut freed = pin!(waiting.freed());
            freed.as_mut().enable();
            if self.grow(permit, more).is_ok() {
                return Ok(());
            }
            tokio::select! {
                () = freed => {}
                () = self.deadline() => return Err(refused),
                () = self.shared.end.shutdown.clone().triggered() => return Err(refused),
            }
        }
    }

    /// Takes more memory for a request that turned out larger, by decompression or decoding.
    ///
    /// # Errors
    ///
    /// As [`Intake::admit`]. The permit is as it was.
    pub fn grow(&self, permit: &mut Permit, more: u64) -> Result<(), Rejected> {
        let all = permit.bytes().saturating_add(more);
        permit.grow(more).map_err(|exhausted| {
            // What the request has already counts too: one that never fits must not come back for ever.
            let wanted = if all > exhausted.limit { all } else { more };
            out_of_memory(Exhausted { wanted, ..exhausted })
        })
    }

    /// Says that a large request is gone without a pipeline having seen it: what it took is given back to the system,
    /// if it is much together with what went before.
    pub fn refused_large(&self) {
        self.shared.budget.give_back_freed();
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

fn out_of_memory(exhausted: Exhausted) -> Rejected {
    let Exhausted { wanted, used, limit } = exhausted;
    let component = "service.limits.memory".to_owned();
    if wanted > limit {
        let message = format!("the request needs {wanted} bytes of memory, the limit is {limit}");
        return Rejected { component, reason: Reason::LimitExceeded, retry: Retry::Never, message };
    }
    let message = format!("{used} of {limit} bytes of memory are used, {wanted} more are needed");
    Rejected { component, reason: Reason::MemoryLimit, retry: Retry::After(RETRY_AFTER), message }
}

/// The queue of an exporter is full.
pub(crate) fn queue_full(exporter: &str) -> Rejected {
    Rejected {
        component: format!("exporters/{exporter}"),
        reason: Reason::QueueFull,
        retry: Retry::After(QUEUE_RETRY_AFTER),
        message: format!("the queue of exporter {exporter} is full"),
    }
}

fn stopped(pipeline: &str) -> Rejected {
    Rejected {
        component: format!("pipelines/{pipeline}"),
        reason: Reason::Shutdown,
        retry: Retry::Later,
        message: "profbridge is shutting down".to_owned(),
    }
}

fn broken(pipeline: &str) -> Rejected {
    Rejected {
        component: format!("pipelines/{pipeline}"),
        reason: Reason::Internal,
        retry: Retry::Later,
        message: "the pipeline has failed, see the log of profbridge".to_owned(),
    }
}

fn unroutable(edge: &Edge, telemetry: &Telemetry) -> Rejected {
    Rejected {
        component: edge.component().to_owned(),
        reason: Reason::Unroutable,
        retry: Retry::Never,
        message: format!("no pipeline of this receiver carries {}", telemetry.kind().noun()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes::batch;
    use crate::testing::intake;

    fn send(intake: &Intake, observations: u64) -> tokio::task::JoinHandle<Result<(), Rejected>> {
        let intake = intake.clone();
        let permit = intake.admit(100).unwrap();
        tokio::spawn(async move { intake.consume(batch(observations), permit).await })
    }

    /// Guarantees: a request that was let in while there was room, and waits for a pipeline that waits for a full
    /// queue, is refused after a moment and never taken: its sender repeats it, and it must not be there twice.
    #[tokio::test(start_paused = true)]
    async fn what_waits_is_withdrawn() {
        let (intake, mut consumer) = intake(1 << 20);
        let waiting = send(&intake, 5);
        tokio::task::yield_now().await;
        consumer.set_full(Some(Overflow::Refuse));
        let rejected = waiting.await.unwrap().unwrap_err();
        assert_eq!(rejected.reason, Reason::QueueFull);
        consumer.set_full(None);
        let next = send(&intake, 7);
        assert_eq!(consumer.take().await.unwrap().observations(), 7);
        next.await.unwrap().unwrap();
        assert_eq!((consumer.totals().inbound, consumer.memory_used()), (Quantities::observations(7), 0));
    }

    /// Guarantees: so is one for which there was no place any more in front of that pipeline.
    #[tokio::test(start_paused = true)]
    async fn what_waits_for_a_place_is_refused() {
        let (intake, mut consumer) = intake(1 << 20);
        // Four places, and one that waits for one.
        let waiting: Vec<_> = (1..=5).map(|observations| send(&intake, observations)).collect();
        tokio::task::yield_now().await;
        consumer.set_full(Some(Overflow::Refuse));
        for request in waiting {
            assert_eq!(request.await.unwrap().unwrap_err().reason, Reason::QueueFull);
        }
        consumer.set_full(None);
        let next = send(&intake, 7);
        assert_eq!(consumer.take().await.unwrap().observations(), 7);
        next.await.unwrap().unwrap();
        assert_eq!(consumer.memory_used(), 0);
    }

    /// Guarantees: where requests wait for a full queue, one that was let in waits for as long as it takes.
    #[tokio::test(start_paused = true)]
    async fn what_may_wait_is_not_withdrawn() {
        let (intake, mut consumer) = intake(1 << 20);
        let waiting = send(&intake, 5);
        tokio::task::yield_now().await;
        consumer.set_full(Some(Overflow::Wait));
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(consumer.take().await.unwrap().observations(), 5);
        waiting.await.unwrap().unwrap();
    }

    /// Guarantees: a request whose sender goes away before a pipeline has begun to take it is not taken.
    #[tokio::test]
    async fn who_goes_away_takes_it_along() {
        let (intake, mut consumer) = intake(1 << 20);
        let waiting = send(&intake, 5);
        tokio::task::yield_now().await;
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        let next = send(&intake, 7);
        assert_eq!(consumer.take().await.unwrap().observations(), 7);
        next.await.unwrap().unwrap();
    }

    /// Guarantees: when the receiver is about to be cut off, what no pipeline has begun to take is given back to its
    /// sender and never taken, and so is what comes then.
    #[tokio::test]
    async fn the_last_call_gives_back_what_waits() {
        let (intake, mut consumer) = intake(1 << 20);
        let waiting = send(&intake, 5);
        tokio::task::yield_now().await;
        consumer.last_call();
        assert_eq!(waiting.await.unwrap().unwrap_err().reason, Reason::Shutdown);
        assert_eq!(send(&intake, 7).await.unwrap().unwrap_err().reason, Reason::Shutdown);
        consumer.close();
        assert!(consumer.take().await.is_none());
        assert_eq!((consumer.totals().inbound, consumer.memory_used()), (Quantities::NONE, 0));
    }

    /// Guarantees: a request that may wait gets its memory as soon as some was given back, and one that never fits is
    /// refused at once.
    #[tokio::test(start_paused = true)]
    async fn waits_for_memory() {
        let (intake, _consumer) = intake(100);
        let start = Instant::now();
        let patient = intake.waiting_until(start + Duration::from_secs(9));
        let first = intake.admit(80).unwrap();
        let waits = tokio::spawn({
            let patient = patient.clone();
            async move { patient.admitted(50).await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!waits.is_finished());
        drop(first);
        assert_eq!(waits.await.unwrap().unwrap().bytes(), 50);
        assert_eq!(start.elapsed(), Duration::from_secs(1));
        assert_eq!(patient.admitted(101).await.unwrap_err().retry, Retry::Never);
        assert_eq!(start.elapsed(), Duration::from_secs(1));
    }

    /// Guarantees: where requests wait for a full queue, the deadline refuses none, and whoever waits behind it lets
    /// others work meanwhile.
    #[tokio::test(start_paused = true)]
    async fn the_deadline_is_not_for_queues_that_wait() {
        let (intake, consumer) = intake(100);
        let patient = intake.waiting_until(Instant::now() + Duration::from_secs(1));
        consumer.set_full(Some(Overflow::Wait));
        let waits = tokio::spawn(async move { patient.room().await });
        // The clock moves on only while nothing is busy.
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!waits.is_finished());
        consumer.set_full(None);
        waits.await.unwrap().unwrap();
    }

    /// Guarantees: at its deadline a request that waits for memory or for room in a queue is refused, for the reason
    /// that it would have been refused for at once; and room that comes before is taken.
    #[tokio::test(start_paused = true)]
    async fn waits_no_longer_than_the_deadline() {
        let (intake, consumer) = intake(100);
        let start = Instant::now();
        let patient = intake.waiting_until(start + Duration::from_secs(9));
        consumer.set_full(Some(Overflow::Refuse));
        let waits = tokio::spawn({
            let patient = patient.clone();
            async move { patient.room().await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!waits.is_finished());
        consumer.set_full(None);
        waits.await.unwrap().unwrap();

        consumer.set_full(Some(Overflow::Refuse));
        let _all = intake.admit(100).unwrap();
        let (room, memory) = tokio::join!(patient.room(), patient.admitted(1));
        assert_eq!(room.unwrap_err().reason, Reason::QueueFull);
        assert_eq!(memory.unwrap_err().reason, Reason::MemoryLimit);
        assert_eq!(start.elapsed(), Duration::from_secs(9));
    }
}
