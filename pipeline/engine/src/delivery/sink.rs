//! The entrance of an exporter, as pipelines see it.

use std::sync::Arc;

use profbridge_model::{SampledOut, Telemetry};

use super::core::{Core, Ticket};
use super::queue_config::Overflow;
use crate::balance::Balance;
use crate::component::{BoxFuture, Exporter, Now};

/// Where pipelines put telemetry for one exporter.
///
/// Shared by the threads of pipelines and the tasks of receivers (`Sync`). Every call answers at once, but for
/// [`Sink::accept`], which does the exporter's preparing and first lets another pipeline's end. A pipeline calls it on
/// its own thread, a receiver never.
pub trait Sink: Send + Sync {
    /// The exporter's id in the configuration.
    fn id(&self) -> &str;

    /// What happens where there is no room.
    fn overflow(&self) -> Overflow;

    /// Whether a batch can be handed over now. Always, where what does not fit is dropped ([`Overflow::Drop`]), and
    /// where nothing waits any longer because the deadline of a shutdown has passed.
    fn has_room(&self) -> bool;

    /// Whether there is memory for what a batch becomes: the limit is not passed, or nothing is queued whose sending
    /// would free some. Always, where what does not fit is dropped, and behind the deadline of a shutdown.
    fn has_memory(&self) -> bool {
        true
    }

    /// Completes when [`Sink::has_room`] and [`Sink::has_memory`] hold, at once where they do. Safe to drop at any
    /// time.
    fn room(&self) -> BoxFuture<'_, ()>;

    /// Prepares telemetry and queues the requests. From here on the sink answers for it. Never waits.
    ///
    /// A caller makes sure that there is room. A batch is then taken whole, so the queue may exceed its bound by the
    /// requests of one batch for each pipeline that hands over at the same time; they are charged to the memory budget
    /// all the same. Without room it is taken too, but for [`Overflow::Drop`].
    fn accept(&self, telemetry: &Telemetry, now: Now);

    /// Takes note of the processes that a request to its pipeline came through. `false` where this one is among them.
    fn came_through(&self, _processes: &[u64]) -> bool {
        true
    }

    /// Hands on what sampling has left out. Never waits.
    fn sampled_out(&self, _what: &SampledOut) {}
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
        if let Some(observer) = self.0.observer() {
            observer.sampled_out(what);
        }
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
            requests.map(|request| Ticket::new(core, request)).collect::<Vec<_>>()
        });
        for ticket in tickets.unwrap_or_default() {
            core.enqueue(ticket);
        }
    }
}
