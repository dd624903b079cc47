//! The entrance of an exporter, through which pipelines hand over telemetry.

use std::sync::Arc;

use profbridge_model::{SampledOut, Telemetry};

use super::core::{Core, Ticket};
use super::queue_config::Overflow;
use crate::balance::Balance;
use crate::component::{BoxFuture, Exporter, Now};
use crate::via::Via;

/// The entrance through which pipelines hand over telemetry to one exporter.
///
/// Shared by the threads of pipelines and the tasks of receivers (`Sync`). All calls return at once, except for
/// [`Sink::accept`], which prepares the batch and first waits while another pipeline's batch is being prepared. Only a
/// pipeline's own thread calls it, never a receiver.
pub trait Sink: Send + Sync {
    /// The exporter's id in the configuration.
    fn id(&self) -> &str;

    /// What happens when the queue is full.
    fn overflow(&self) -> Overflow;

    /// Whether a batch can be handed over now. Always true if batches that do not fit are dropped ([`Overflow::Drop`]),
    /// and after the deadline of a shutdown, because nothing waits then.
    fn has_room(&self) -> bool;

    /// Whether there is memory for the requests of a batch: the limit is not exceeded, or no request is queued whose
    /// sending would free memory. Always true if batches that do not fit are dropped, and after the deadline of a
    /// shutdown.
    fn has_memory(&self) -> bool {
        true
    }

    /// Completes as soon as [`Sink::has_room`] and [`Sink::has_memory`] are true. Safe to cancel.
    fn room(&self) -> BoxFuture<'_, ()>;

    /// Prepares telemetry and queues the requests. The sink is then responsible for the telemetry. Never waits.
    ///
    /// The caller checks for room first. A batch is then accepted as a whole, so the queue may exceed its bound by the
    /// requests of one batch for each pipeline that hands over at the same time; they are still charged to the memory
    /// budget. A batch is accepted even without room, except with [`Overflow::Drop`].
    fn accept(&self, telemetry: &Telemetry, now: Now);

    /// The processes through which requests came to the exporter's pipelines, and this process.
    fn via(&self) -> Option<&Via> {
        None
    }

    /// Reports data that sampling removed. Never waits.
    fn sampled_out(&self, _what: &SampledOut) {}
}

pub(super) struct ExporterSink<E: Exporter>(pub(super) Arc<Core<E>>);

impl<E: Exporter> Sink for ExporterSink<E> {
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
        // A batch may need more memory as requests than in a window. It stays in the window while queued requests use
        // up the memory.
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
                () = self.0.queue.wait_until(has_room) => {}
                () = self.0.wait_until_over() => {}
            }
        })
    }

    fn via(&self) -> Option<&Via> {
        Some(&self.0.context.via)
    }

    fn sampled_out(&self, what: &SampledOut) {
        if let Some(observer) = self.0.observer() {
            observer.sampled_out(what);
        }
    }

    fn accept(&self, telemetry: &Telemetry, now: Now) {
        let core = &self.0;
        let inbound = telemetry.quantities();
        // The batch is registered until it is prepared; if preparing panics, the pipeline counts it.
        let Some(handover) = core.ledger.begin_handover(inbound) else { return core.count_late(inbound) };
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
        let tickets = handover.complete(|| {
            edge.add_in(inbound);
            edge.add_synthesized(prepared.synthesized);
            edge.drop_all(&prepared.losses);
            edge.note_all(&prepared.notes);
            edge.add_unaccounted(balance.unaccounted());
            // All requests become tickets at once, so that a panic leaves none uncounted.
            let requests = prepared.requests.into_iter();
            requests.map(|request| Ticket::new(core, request)).collect::<Vec<_>>()
        });
        for ticket in tickets.unwrap_or_default() {
            core.enqueue(ticket);
        }
    }
}
