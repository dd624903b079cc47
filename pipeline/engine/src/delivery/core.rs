//! The state of one exporter that its pipelines and consumers share, and its requests.
//!
//! A [`Ticket`] is settled exactly once: sent, or lost for a reason. Dropping an unsettled ticket settles it too, for
//! example if the exporter panics.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use profbridge_model::{Loss, Quantities, Reason, Telemetry};
use profbridge_net::LogGate;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::queue::{Bounds, PushError, Queue, Weight};
use super::queue_config::{Overflow, Sizer};
use super::settings::DeliverySettings;
use crate::balance::Held;
use crate::budget::Permit;
use crate::component::{Accepted, Exporter, ExporterContext, Now, Observer, Prepared, Request, SendError};
use crate::ledger::Ledger;
use crate::telemetry::{ExporterTelemetry, QueueGauges};

/// Minimum time between two log lines of one kind.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The deadlines of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop {
    /// Requests not sent by then are written to disk if the exporter is configured to, or else lost under
    /// [`Reason::Shutdown`].
    pub deadline: Instant,
    /// The exporter has to finish [`Observer::close`] by then.
    pub close_by: Instant,
}

pub(super) struct Core<E: Exporter> {
    pub(super) exporter: E,
    pub(super) settings: DeliverySettings,
    pub(super) context: ExporterContext,
    pub(super) queue: Queue<Ticket<E>>,
    /// The deadlines of the shutdown, once it has begun.
    end: watch::Sender<Option<Stop>>,
    /// The requests that a shutdown leaves unsent; `None` after they were collected.
    unsent: Mutex<Option<Vec<Ticket<E>>>>,
    /// Locked while the exporter prepares a batch, so that it prepares one batch at a time for all pipelines.
    preparing: Mutex<()>,
    /// Batches that pipelines have handed over but that are not prepared, and so not counted, yet.
    pub(super) ledger: Ledger,
    failing: AtomicBool,
    failures: LogGate,
    losses: LogGate,
    warnings: LogGate,
}

impl<E: Exporter> Core<E> {
    pub(super) fn new(exporter: E, settings: DeliverySettings, context: ExporterContext) -> Self {
        // Without a queue, one request is in flight, and its pipeline waits.
        let units = if settings.queue.enabled { settings.queue.queue_size } else { 1 };
        let bounds = Bounds { units, bytes: context.budget.limit() };
        let [failures, losses, warnings] = [LOG_INTERVAL; 3].map(LogGate::new);
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

    pub(super) fn observer(&self) -> Option<&dyn Observer<E::Meta>> {
        self.exporter.observer()
    }

    fn sizer(&self) -> Sizer {
        if self.settings.queue.enabled { self.settings.queue.sizer } else { Sizer::Requests }
    }

    /// Updates the queue's metrics.
    pub(super) fn publish(&self) {
        let level = self.queue.level();
        let capacity = self.queue.bounds.units;
        let gauges = QueueGauges { size: level.units, capacity, in_flight: level.in_flight };
        self.telemetry().set_queue(gauges, !self.queue.has_room());
    }

    /// Starts the shutdown. Only the first call counts.
    pub(super) fn drain_by(&self, stop: Stop) {
        self.end.send_modify(|end| {
            end.get_or_insert(stop);
        });
    }

    /// Whether the deadline of a shutdown has passed.
    pub(super) fn is_over(&self) -> bool {
        self.end.borrow().is_some_and(|stop| stop.deadline <= Instant::now())
    }

    /// Waits until the deadline of a shutdown has passed.
    pub(super) async fn wait_until_over(&self) {
        self.wait_until(|stop| stop.deadline).await;
    }

    /// Waits until running attempts must be cancelled: shortly after the deadline, because an answer that arrived in
    /// time may still have to be read.
    pub(super) async fn wait_for_cut_off(&self) {
        self.wait_until(|stop| stop.deadline + stop.close_by.saturating_duration_since(stop.deadline) / 4).await;
    }

    async fn wait_until(&self, when: impl Fn(&Stop) -> Instant) {
        let mut end = self.end.subscribe();
        // The wait cannot fail, since `self` owns the sender.
        let stop = match end.wait_for(Option::is_some).await {
            Ok(stop) => *stop,
            Err(_) => None,
        };
        match stop {
            Some(stop) => sleep_until(when(&stop)).await,
            None => pending().await,
        }
    }

    /// Pauses between two attempts. Returns `false` at once if the pause would end after the shutdown's deadline.
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

    /// Collects a request that a shutdown leaves unsent, to be written to disk or counted as lost.
    pub(super) fn leave_unsent(&self, ticket: Ticket<E>) {
        let mut unsent = self.unsent.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(unsent) = &mut *unsent else { return ticket.lost(Reason::Shutdown) };
        unsent.push(ticket);
    }

    /// The requests that the shutdown left unsent. Later ones are lost.
    pub(super) fn take_unsent(&self) -> Vec<Ticket<E>> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }

    /// Logs that an attempt failed and will be repeated: the first failure, and then at intervals.
    pub(super) fn note_failure(&self, error: &SendError, pause: Duration) {
        let message = &error.message;
        self.telemetry().failed(error.reason, message);
        self.failing.store(true, Ordering::Relaxed);
        if let Some(more) = self.failures.pass() {
            tracing::warn!(exporter = self.telemetry().id(), retry_in = ?pause, more, "sending fails, trying again: {message}");
        }
    }

    /// Logs at intervals that a request is lost for good.
    pub(super) fn note_loss(&self, lost: Quantities, reason: Reason, message: &str) {
        self.telemetry().failed(reason, message);
        if let Some(more) = self.losses.pass() {
            tracing::warn!(
                exporter = self.telemetry().id(),
                %lost,
                %reason,
                more,
                "a request is lost: {message}"
            );
        }
    }

    /// Logs that sending works again, and the message of the destination if it sent one.
    pub(super) fn note_success(&self, lost: Quantities, message: Option<&str>) {
        self.telemetry().record_success();
        if self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!(exporter = self.telemetry().id(), "sending works again");
        }
        let message = message.unwrap_or_default();
        let lost = lost.total();
        if (lost > 0 || !message.is_empty())
            && let Some(more) = self.warnings.pass()
        {
            tracing::warn!(exporter = self.telemetry().id(), lost, more, "the destination warns: {message}");
        }
    }

    pub(super) fn prepare(&self, telemetry: &Telemetry, now: Now) -> Prepared<E::Meta> {
        let _one_at_a_time = self.preparing.lock().unwrap_or_else(PoisonError::into_inner);
        self.exporter.prepare(telemetry, now)
    }

    /// Counts batches that are still being prepared as lost, because there is no time left to send them; later batches
    /// are lost as well.
    pub(super) fn give_up(&self) {
        self.ledger.close(|late| self.count_late(late));
    }

    pub(super) fn count_late(&self, late: Quantities) {
        self.telemetry().edge().add_in(late);
        self.telemetry().edge().drop(Reason::Shutdown, late);
    }

    pub(super) fn enqueue(&self, mut ticket: Ticket<E>) {
        let weight = ticket.weight;
        // Set before the push: a consumer may pop and settle the ticket before the push returns.
        ticket.queued = true;
        let pushed = match self.settings.queue.overflow {
            Overflow::Drop => self.queue.try_push(ticket, weight),
            Overflow::Refuse | Overflow::Wait => {
                self.queue.push(ticket, weight).map_err(|ticket| (ticket, PushError::Closed))
            }
        };
        let Err((mut ticket, refusal)) = pushed else {
            self.publish();
            return;
        };
        ticket.queued = false;
        if refusal == PushError::Closed {
            return self.leave_unsent(ticket);
        }
        let quantities = ticket.request.quantities;
        ticket.lost(Reason::QueueFull);
        self.note_loss(quantities, Reason::QueueFull, Reason::QueueFull.explanation());
    }
}

/// Estimated memory in bytes of a request beyond its body: the ticket, its queue entry, the exporter's metadata. It
/// bounds the number of requests in a queue that is bounded in bytes.
const ENTRY_BYTES: u64 = 512;

/// A request that waits or is being sent.
pub(super) struct Ticket<E: Exporter> {
    pub(super) core: Arc<Core<E>>,
    pub(super) request: Request<E::Meta>,
    weight: Weight,
    /// Whether the queue counts the request until it is settled.
    queued: bool,
    settled: bool,
    _memory: Permit,
}

impl<E: Exporter> Ticket<E> {
    /// Wraps a request and counts it as held.
    pub(super) fn new(core: &Arc<Core<E>>, request: Request<E::Meta>) -> Self {
        let beside = ENTRY_BYTES.saturating_add(core.observer().map_or(0, |observer| observer.meta_bytes(&request)));
        let bytes = (request.body.len() as u64).saturating_add(beside);
        let units = match core.sizer() {
            Sizer::Bytes => bytes,
            Sizer::Requests => 1,
            // Every request weighs at least 1, because a queue could otherwise hold an unlimited number of empty ones.
            Sizer::Items => request.quantities.total().max(1),
        };
        core.telemetry().edge().hold(Held { quantities: request.quantities, bytes });
        let memory = core.context.budget.charge(bytes);
        let weight = Weight { units, bytes };
        Self { core: Arc::clone(core), request, weight, queued: false, settled: false, _memory: memory }
    }

    /// Settles the request as sent: the destination accepted it.
    pub(super) fn sent(mut self, accepted: &Accepted) {
        let telemetry = self.core.telemetry();
        telemetry.edge().add_out(self.count_losses(accepted.losses.iter().copied()));
        telemetry.sent(self.request.items(), self.request.body.len() as u64, accepted.billed);
        self.settle();
    }

    /// Settles the request for the exporter's reason: lost for good, or written to disk.
    pub(super) fn failed(mut self, reason: Reason) {
        self.count(reason);
        self.settle();
    }

    /// Settles the request as lost by the engine, and informs the exporter.
    pub(super) fn lost(mut self, reason: Reason) {
        self.count(reason);
        self.settle();
        self.notify_observer(reason);
    }

    fn notify_observer(&self, lost: Reason) {
        if let Some(observer) = self.core.observer() {
            observer.lost(&self.request, lost);
        }
    }

    /// Counts the losses of a part. Returns what is left of the request.
    fn count_losses(&self, losses: impl Iterator<Item = Loss>) -> Quantities {
        let mut left = self.request.quantities;
        for loss in losses {
            let lost = loss.quantities.min(left);
            self.core.telemetry().edge().drop(loss.reason, lost);
            left = left.saturating_sub(lost);
        }
        left
    }

    fn count(&self, reason: Reason) {
        let telemetry = self.core.telemetry();
        let settled = self.core.observer().and_then(|observer| observer.settled(&self.request)).unwrap_or_default();
        let left = self.count_losses(settled.losses.iter());
        let delivered = settled.delivered.min(left);
        telemetry.edge().add_out(delivered);
        telemetry.edge().drop(reason, left.saturating_sub(delivered));
        let items = self.request.items();
        match reason {
            Reason::QueueFull => telemetry.count(|totals| totals.enqueue_failed += items),
            _ => telemetry.count(|totals| totals.send_failed += items),
        }
    }

    fn settle(&mut self) {
        self.settled = true;
        let held = Held { quantities: self.request.quantities, bytes: self.weight.bytes };
        self.core.telemetry().edge().release(held);
        if self.queued {
            self.core.queue.settle(self.weight);
            self.core.publish();
        }
    }
}

impl<E: Exporter> Drop for Ticket<E> {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        self.count(Reason::Internal);
        self.settle();
        // A second panic during unwinding would abort the process.
        if !std::thread::panicking() {
            self.notify_observer(Reason::Internal);
        }
    }
}
