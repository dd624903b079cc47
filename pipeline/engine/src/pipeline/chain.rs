//! The sequence of processors of one pipeline. Checks the conservation law at each processor.
//!
//! The chain is synchronous and has no clock, so that its tests are deterministic. [`super::thread`] runs it.
//!
//! The chain works in steps. In each step at most one batch leaves the last processor. A step first moves batches that
//! wait between two processors, then continues with processors that have not fully absorbed a batch, last processor
//! first.

use std::collections::VecDeque;

use profbridge_model::{Losses, Quantities, SampledOut, Telemetry};

use crate::balance::Balance;
use crate::budget::{Budget, Permit};
use crate::component::{Held, Now, Outbox, Processor};
use crate::ledger::Ledger;
use crate::telemetry::Edge;

/// The processors of a pipeline, in order.
pub(crate) struct Chain {
    stages: Vec<Stage>,
    /// Batches that one processor has emitted and the next has not received yet, in order.
    between: VecDeque<QueuedBatch>,
    /// The reports about data that sampling removed, until [`Chain::take_sampled_out`].
    sampled_out: Vec<SampledOut>,
    /// The processor that is flushing because of memory pressure.
    flushing_stage: Option<usize>,
    budget: Budget,
    ledger: Ledger,
}

/// One processor with its counters and its memory permit.
struct Stage {
    processor: Box<dyn Processor>,
    edge: Edge,
    held: Held,
    memory: Permit,
    /// The memory of the batch that the processor is absorbing; `None` for an arrival, which has its own permit.
    batch: Option<Permit>,
}

/// A batch between two processors.
struct QueuedBatch {
    next: usize,
    telemetry: Telemetry,
    memory: Option<Permit>,
}

/// The sums of all stages' counters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ChainTotals {
    pub(crate) synthesized: Quantities,
    pub(crate) dropped: Losses,
    pub(crate) held: Held,
}

/// The result of one step of flushing.
#[derive(Debug)]
pub(crate) struct FlushProgress {
    /// The batch that left the last processor.
    pub(crate) out: Option<Telemetry>,
    /// Whether another step is needed.
    pub(crate) more: bool,
}

impl Chain {
    /// An empty chain whose processors may use `share` bytes of the budget.
    pub(crate) fn new(
        processors: Vec<(Box<dyn Processor>, Edge)>,
        budget: &Budget,
        share: u64,
        ledger: &Ledger,
    ) -> Self {
        let stage = |(mut processor, edge): (Box<dyn Processor>, Edge)| {
            processor.fit_memory(share);
            Stage { processor, edge, held: Held::default(), memory: budget.charge(0), batch: None }
        };
        Self {
            stages: processors.into_iter().map(stage).collect(),
            between: VecDeque::new(),
            sampled_out: Vec::new(),
            flushing_stage: None,
            budget: budget.clone(),
            ledger: ledger.clone(),
        }
    }

    /// Passes an arrival to the first processor. Must not be called while the chain [is
    /// absorbing](Chain::is_absorbing).
    pub(crate) fn process(&mut self, telemetry: Telemetry, now: Now) -> Option<Telemetry> {
        self.between.push_back(QueuedBatch { next: 0, telemetry, memory: None });
        self.move_queued(now)
    }

    /// Whether some processor has not fully absorbed its batch, or batches wait between processors.
    pub(crate) fn is_absorbing(&self) -> bool {
        !self.between.is_empty() || self.stages.iter().any(|stage| stage.processor.is_absorbing())
    }

    /// Continues with batches that are not fully absorbed; without any, does part of the due work.
    pub(crate) fn advance(&mut self, now: Now) -> Option<Telemetry> {
        let absorbing = self.stages.iter().rposition(|stage| stage.processor.is_absorbing());
        let waits = self.between.front().map(|between| between.next);
        if waits > absorbing {
            return self.move_queued(now);
        }
        let is_due = |stage: &Stage| stage.processor.due().is_some_and(|due| due <= now.monotonic_nano);
        let at = absorbing.or_else(|| self.stages.iter().rposition(is_due))?;
        self.call(at, now, |processor, out| processor.advance(now, out))
    }

    /// Flushes part of the held data because of memory pressure. The last processor is flushed first, because it
    /// receives the output of the others. Processors before one that is still absorbing are skipped: that one would
    /// first have to absorb its whole batch, and then their output too.
    pub(crate) fn on_memory_pressure(&mut self, now: Now) -> FlushProgress {
        let Some(at) = self.flushing_stage.or_else(|| self.stages.len().checked_sub(1)) else {
            return FlushProgress { out: None, more: false };
        };
        if self.stages.iter().skip(at + 1).any(|stage| stage.processor.is_absorbing()) {
            self.flushing_stage = None;
            return FlushProgress { out: None, more: false };
        }
        let mut more = false;
        let out = self.call(at, now, |processor, out| more = processor.on_memory_pressure(now, out));
        self.flushing_stage = if more { Some(at) } else { at.checked_sub(1) };
        FlushProgress { out, more: self.flushing_stage.is_some() }
    }

    /// Flushes part of the held data because the pipeline ends.
    pub(crate) fn flush(&mut self, now: Now) -> FlushProgress {
        if self.is_absorbing() {
            return FlushProgress { out: self.advance(now), more: true };
        }
        for at in 0..self.stages.len() {
            let mut more = false;
            let out = self.call(at, now, |processor, out| more = processor.flush(now, out));
            if more || out.is_some() || self.is_absorbing() {
                return FlushProgress { out, more: true };
            }
        }
        FlushProgress { out: None, more: false }
    }

    /// The earliest monotonic time at which work is due.
    pub(crate) fn due(&self) -> Option<u64> {
        if !self.between.is_empty() {
            return Some(0);
        }
        self.stages.iter().filter_map(|stage| stage.processor.due()).min()
    }

    /// Returns and clears the reports about data that sampling removed.
    pub(crate) fn take_sampled_out(&mut self) -> Vec<SampledOut> {
        std::mem::take(&mut self.sampled_out)
    }

    /// The sum of the data that the processors hold.
    pub(crate) fn held(&self) -> Held {
        self.stages.iter().fold(Held::default(), |sum, stage| Held {
            quantities: sum.quantities + stage.held.quantities,
            bytes: sum.bytes + stage.held.bytes,
        })
    }

    /// The sums of all stages' counters.
    pub(crate) fn totals(edges: &[Edge]) -> ChainTotals {
        let mut sum = ChainTotals::default();
        for totals in edges.iter().map(Edge::totals) {
            sum.synthesized += totals.synthesized;
            sum.dropped.merge(&totals.dropped);
            sum.held.quantities += totals.held.quantities;
            sum.held.bytes += totals.held.bytes;
        }
        sum
    }

    /// Calls one processor and passes its output through the following ones.
    fn call(&mut self, at: usize, now: Now, call: impl FnOnce(&mut dyn Processor, &mut Outbox)) -> Option<Telemetry> {
        let put_out = self.stages[at].call(Quantities::NONE, &self.ledger, &mut self.sampled_out, call);
        self.put_between(at + 1, put_out, 0);
        self.move_queued(now)
    }

    /// Moves batches that wait between processors as far as possible.
    fn move_queued(&mut self, now: Now) -> Option<Telemetry> {
        while let Some(between) = self.between.pop_front() {
            let QueuedBatch { next, telemetry, memory } = between;
            let Some(stage) = self.stages.get_mut(next) else { return Some(telemetry) };
            if stage.processor.is_absorbing() {
                self.between.push_front(QueuedBatch { next, telemetry, memory });
                return None;
            }
            let inbound = telemetry.quantities();
            // An arrival has its own permit. Other batches are charged here; they may be larger than the data that the
            // processor held before.
            let charged = if memory.is_some() { 0 } else { telemetry.size_bytes() };
            stage.batch = memory;
            let call = |processor: &mut dyn Processor, out: &mut Outbox| processor.process(telemetry, now, out);
            let put_out = stage.call(inbound, &self.ledger, &mut self.sampled_out, call);
            self.put_between(next + 1, put_out, charged);
        }
        None
    }

    /// Puts a processor's output in front of the batches that already wait there, to keep the order. Another permit
    /// covers `charged` bytes of it.
    fn put_between(&mut self, next: usize, put_out: Vec<Telemetry>, charged: u64) {
        // The caller charges the batch that leaves the last processor.
        let is_between = next < self.stages.len();
        for telemetry in put_out.into_iter().rev() {
            let uncharged = telemetry.size_bytes().saturating_sub(charged);
            let memory = (is_between && uncharged > 0).then(|| self.budget.charge(uncharged));
            self.between.push_front(QueuedBatch { next, telemetry, memory });
        }
    }
}

impl Stage {
    /// Calls the processor once and counts the effects.
    fn call(
        &mut self,
        inbound: Quantities,
        ledger: &Ledger,
        sampled_out: &mut Vec<SampledOut>,
        call: impl FnOnce(&mut dyn Processor, &mut Outbox),
    ) -> Vec<Telemetry> {
        let mut outbox = Outbox::default();
        call(&mut *self.processor, &mut outbox);
        debug_assert!(outbox.telemetry.len() <= 1, "{}: more than one batch", self.edge.component());
        let held = self.processor.held();
        let outbound = outbox.telemetry.iter().map(Telemetry::quantities).sum();
        let balance = Balance {
            inbound,
            synthesized: outbox.synthesized,
            held_before: self.held.quantities,
            outbound,
            dropped: outbox.losses.total(),
            held_after: held.quantities,
        };
        debug_assert!(balance.unaccounted().is_none(), "{}: {balance}", self.edge.component());
        ledger.write(|| {
            self.edge.add_in(inbound);
            self.edge.add_out(outbound);
            self.edge.add_synthesized(outbox.synthesized);
            self.edge.drop_all(&outbox.losses);
            self.edge.note_all(&outbox.notes);
            self.edge.add_unaccounted(balance.unaccounted());
            self.edge.set_held(held);
        });
        if let Some(summary) = outbox.summary {
            self.edge.set_summary(summary);
        }
        self.held = held;
        self.memory.set(held.bytes);
        if !self.processor.is_absorbing() {
            self.batch = None;
        }
        sampled_out.append(&mut outbox.sampled_out);
        outbox.telemetry
    }
}
