//! A request in the engine's hands. It is settled exactly once: sent, or lost under a reason.
//!
//! Whatever happens to it, such as a panic of the exporter, dropping a ticket settles it.

use std::sync::Arc;

use profbridge_model::Reason;

use super::queue::Weight;
use super::sink::Core;
use super::{Exporter, Sizer};
use crate::budget::Permit;
use crate::component::{Accepted, Held, Request};

/// What a request takes in memory beside its body: the ticket, its place in the queue, the exporter's own notes. Bounds
/// the number of requests in a queue that is bounded in bytes.
const ENTRY_BYTES: u64 = 512;

pub(super) struct Ticket<E: Exporter> {
    pub(super) core: Arc<Core<E>>,
    pub(super) request: Request<E::Meta>,
    pub(super) weight: Weight,
    /// Whether it counts in the queue until it is settled.
    pub(super) queued: bool,
    settled: bool,
    _memory: Permit,
}

impl<E: Exporter> Ticket<E> {
    /// Takes a request over and counts it as held.
    pub(super) fn new(core: &Arc<Core<E>>, request: Request<E::Meta>) -> Self {
        let beside = ENTRY_BYTES.saturating_add(core.exporter.meta_bytes(&request));
        let bytes = (request.body.len() as u64).saturating_add(beside);
        let units = match core.sizer() {
            Sizer::Bytes => bytes,
            Sizer::Requests => 1,
            // Nothing that carries anything weighs nothing, or a queue would hold any number of it.
            Sizer::Items => request.quantities.total().max(1),
        };
        core.telemetry().edge().hold(Held { quantities: request.quantities, bytes });
        let memory = core.context.budget.charge(bytes);
        let weight = Weight { units, bytes };
        Self { core: Arc::clone(core), request, weight, queued: false, settled: false, _memory: memory }
    }

    /// The destination took it.
    pub(super) fn sent(mut self, accepted: &Accepted) {
        let telemetry = self.core.telemetry();
        let rejected = accepted.rejected.min(self.request.quantities);
        telemetry.edge().add_out(self.request.quantities.saturating_sub(rejected));
        telemetry.edge().drop(Reason::RejectedByPeer, rejected);
        telemetry.sent(self.request.items(), self.request.body.len() as u64, accepted.billed);
        self.settle();
    }

    /// The exporter said that it is lost for good, or has written it to disk.
    pub(super) fn failed(mut self, reason: Reason) {
        self.count(reason);
        self.settle();
    }

    /// It is lost in the engine's hands, which the exporter is told.
    pub(super) fn lost(mut self, reason: Reason) {
        self.count(reason);
        self.settle();
        self.core.exporter.lost(&self.request, reason);
    }

    fn count(&self, reason: Reason) {
        let telemetry = self.core.telemetry();
        telemetry.edge().drop(reason, self.request.quantities);
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
        // A second panic while the first unwinds would end the process.
        if !std::thread::panicking() {
            self.core.exporter.lost(&self.request, Reason::Internal);
        }
    }
}
