//! One exporter with all that its pipelines and its consumers share.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use profbridge_model::{Quantities, Reason, SampledOut, Telemetry, Unit};
use profbridge_net::LogGate;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::queue::{Bounds, Queue, Refusal};
use super::ticket::Ticket;
use super::{DeliverySettings, ExporterContext, Overflow, Sink, Sizer, Stop};
use crate::balance::Balance;
use crate::component::{BoxFuture, Exporter, Now, Prepared, Request, SendError};
use crate::ledger::Ledger;
use crate::telemetry::{ExporterTelemetry, QueueGauges};

/// Between two lines of one kind in the log.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

pub(super) struct Core<E: Exporter> {
    pub(super) exporter: E,
    pub(super) settings: DeliverySettings,
    pub(super) context: ExporterContext,
    pub(super) queue: Queue<Ticket<E>>,
    /// When a shutdown has to be over, once it has begun.
    end: watch::Sender<Option<Stop>>,
    /// What a shutdown leaves unsent; `None` once it was taken.
    unsent: Mutex<Option<Vec<Ticket<E>>>>,
    /// An exporter prepares one batch at a time, whichever pipeline it comes from.
    preparing: Mutex<()>,
    /// What pipelines have given the exporter that is not prepared, and so not counted, yet.
    ledger: Ledger,
    failing: AtomicBool,
    failures: LogGate,
    losses: LogGate,
    warnings: LogGate,
}

impl<E: Exporter> Core<E> {
    pub(super) fn new(exporter: E, settings: DeliverySettings, context: ExporterContext) -> Self {
        // Without a queue one request is on its way, and its pipeline waits.
        let units = if settings.queue.enabled { settings.queue.queue_size } else { 1 };
        let bounds = Bounds { units, bytes: context.budget.limit() };
        let [failures, losses, warnings] = [BETWEEN_LINES; 3].map(LogGate::new);
        let core = Self {
            exporter,
            settings,
            context,
            queue: Queue::new(bounds),
            end: watch::Sender::new(None),
            unsent: Mutex::new(Some(Vec::new())),
            preparing: Mutex::new(()),
            ledger: Ledger::default(),
            failing: AtomicBool::new(false),
            failures,
            losses,
            warnings,
        };
        core.publish();
        core
    }

    pub(super) fn telemetry(&self) -> &ExporterTelemetry {
        &self.context.telemetry
    }

    pub(super) fn sizer(&self) -> Sizer {
        if self.settings.queue.enabled { self.settings.queue.sizer } else { Sizer::Requests }
    }

    /// Shows the queue's state in the metrics.
    pub(super) fn publish(&self) {
        let level = self.queue.level();
        let capacity = self.queue.bounds.units;
        let gauges = QueueGauges { size: level.units, capacity, in_flight: level.in_flight };
        self.telemetry().set_queue(gauges, !self.queue.has_room());
    }

    /// Says that the shutdown has begun. The first to say so decides.
    pub(super) fn drain_by(&self, stop: Stop) {
        self.end.send_modify(|end| {
            end.get_or_insert(stop);
        });
    }

    /// Whether the deadline of a shutdown has passed.
    fn is_over(&self) -> bool {
        self.end.borrow().is_some_and(|stop| stop.deadline <= Instant::now())
    }

    /// Waits until the deadline of a shutdown has passed.
    pub(super) async fn over(&self) {
        self.until(|stop| stop.deadline).await;
    }

    /// Waits until attempts that are under way are given up: somewhat behind the deadline, since an answer within it
    /// may still have to be read.
    pub(super) async fn cut_off(&self) {
        self.until(|stop| stop.deadline + stop.close_by.saturating_duration_since(stop.deadline) / 4).await;
    }

    async fn until(&self, when: impl Fn(&Stop) -> Instant) {
        let mut end = self.end.subscribe();
        // The sender lives as long as this.
        let stop = match end.wait_for(Option::is_some).await {
            Ok(stop) => *stop,
            Err(_) => None,
        };
        match stop {
            Some(stop) => sleep_until(when(&stop)).await,
            None => pending().await,
        }
    }

    /// Pauses between two attempts. `false`, at once, where the next would come after the deadline of a shutdown.
    pub(super) async fn pause(&self, pause: Duration) -> bool {
        let resume = Instant::now() + pause;
        let mut end = self.end.subscribe();
        loop {
            if end.borrow_and_update().is_some_and(|stop| resume >= stop.deadline) {
                return false;
            }
            tokio::select! {
                () = sleep_until(resume) => return true,
                _ = end.changed() => {}
            }
        }
    }

    /// Takes a request that a shutdown leaves unsent, to be kept on disk or counted as lost.
    pub(super) fn leave_unsent(&self, ticket: Ticket<E>) {
        let mut unsent = self.unsent.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(unsent) = &mut *unsent else { return ticket.lost(Reason::Shutdown) };
        unsent.push(ticket);
    }

    /// What a shutdown left unsent. What comes later is lost.
    pub(super) fn take_unsent(&self) -> Vec<Ticket<E>> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }

    /// Logs that an attempt failed and another will follow: at its beginning, and then once in a while.
    pub(super) fn note_failure(&self, error: &SendError, pause: Duration) {
        let message = &error.message;
        self.telemetry().failed(error.reason, message);
        self.failing.store(true, Ordering::Relaxed);
        if let Some(more) = self.failures.pass() {
            tracing::warn!(exporter = self.telemetry().id(), retry_in = ?pause, more, "sending fails, trying again: {message}");
        }
    }

    /// Logs that a request is lost for good, once in a while.
    pub(super) fn note_loss(&self, lost: Quantities, reason: Reason, message: &str) {
        self.telemetry().failed(reason, message);
        if let Some(more) = self.losses.pass() {
            tracing::warn!(
                exporter = self.telemetry().id(),
                observations = lost.observations,
                spans = lost.any(Unit::Spans),
                items = lost.any(Unit::Items),
                %reason,
                more,
                "a request is lost: {message}"
            );
        }
    }

    /// Logs that sending works again, and what the destination remarked.
    pub(super) fn note_success(&self, rejected: Quantities, message: Option<&str>) {
        self.telemetry().worked();
        if self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!(exporter = self.telemetry().id(), "sending works again");
        }
        let message = message.unwrap_or_default();
        let rejected = rejected.total();
        if (rejected > 0 || !message.is_empty())
            && let Some(more) = self.warnings.pass()
        {
            tracing::warn!(exporter = self.telemetry().id(), rejected, more, "the destination remarks: {message}");
        }
    }

    fn prepare(&self, telemetry: &Telemetry, now: Now) -> Prepared<E::Meta> {
        let _one_at_a_time = self.preparing.lock().unwrap_or_else(PoisonError::into_inner);
        self.exporter.prepare(telemetry, now)
    }

    /// Counts what is still being prepared as lost: it comes too late, and so does everything from here on.
    pub(super) fn give_up(&self) {
        self.ledger.close(|late| self.count_late(late));
    }

    fn count_late(&self, late: Quantities) {
        self.telemetry().edge().add_in(late);
        self.telemetry().edge().drop(Reason::Shutdown, late);
    }

    fn enqueue(&self, mut ticket: Ticket<E>) {
        let weight = ticket.weight;
        // It may be taken out, and settled, before the push returns.
        ticket.queued = true;
        let pushed = match self.settings.queue.overflow {
            Overflow::Drop => self.queue.try_push(ticket, weight),
            Overflow::Refuse | Overflow::Wait => {
                self.queue.push(ticket, weight).map_err(|ticket| (ticket, Refusal::Closed))
            }
        };
        let Err((mut ticket, refusal)) = pushed else {
            self.publish();
            return;
        };
        ticket.queued = false;
        if refusal == Refusal::Closed {
            return self.leave_unsent(ticket);
        }
        let quantities = ticket.request.quantities;
        ticket.lost(Reason::QueueFull);
        self.note_loss(quantities, Reason::QueueFull, Reason::QueueFull.explanation());
    }
}

/// The entrance that pipelines see.
pub(super) struct Entrance<E: Exporter>(pub(super) Arc<Core<E>>);

impl<E: Exporter> Sink for Entrance<E> {
    fn id(&self) -> &str {
        self.0.telemetry().id()
    }

    fn overflow(&self) -> Overflow {
        self.0.settings.queue.overflow
    }

    fn has_room(&self) -> bool {
        self.overflow() == Overflow::Drop || self.0.queue.has_room() || self.0.is_over()
    }

    fn has_memory(&self) -> bool {
        // Windows become larger than they were held as. They stay where they are while what is queued takes the memory.
        self.overflow() == Overflow::Drop
            || !self.0.context.budget.is_exceeded()
            || self.0.queue.is_idle()
            || self.0.is_over()
    }

    fn room(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let has_room = || self.has_room() && self.has_memory();
            if has_room() {
                return;
            }
            tokio::select! {
                () = self.0.queue.until(has_room) => {}
                () = self.0.over() => {}
            }
        })
    }

    fn came_through(&self, processes: &[u64]) -> bool {
        self.0.context.via.came_through(processes)
    }

    fn sampled_out(&self, what: &SampledOut) {
        self.0.exporter.sampled_out(what);
    }

    fn accept(&self, telemetry: &Telemetry, now: Now) {
        let core = &self.0;
        let inbound = telemetry.quantities();
        // Until it is prepared; one whose preparation panics is the pipeline's to count.
        let Some(handing) = core.ledger.hand(inbound) else { return core.count_late(inbound) };
        let prepared = core.prepare(telemetry, now);
        let edge = core.telemetry().edge();
        let balance = Balance {
            inbound,
            synthesized: prepared.synthesized,
            outbound: prepared.requests.iter().map(|request| request.quantities).sum(),
            dropped: prepared.losses.total(),
            ..Balance::default()
        };
        debug_assert!(balance.unaccounted().is_none(), "{}: {balance}", core.telemetry().id());
        let tickets = handing.done(|| {
            edge.add_in(inbound);
            edge.add_synthesized(prepared.synthesized);
            edge.drop_all(&prepared.losses);
            edge.note_all(&prepared.notes);
            edge.add_unaccounted(balance.unaccounted());
            // All are in the engine's hands at once, so that a panic leaves none uncounted.
            let requests = prepared.requests.into_iter();
            requests.map(|request: Request<_>| Ticket::new(core, request)).collect::<Vec<_>>()
        });
        for ticket in tickets.unwrap_or_default() {
            core.enqueue(ticket);
        }
    }
}
