//! The processors of one pipeline, one after the other, with the law of conservation checked at each.
//!
//! Synchronous and without a clock, so that every test of it is exact. The thread around it is in [`super::thread`].
//!
//! It works in steps. In each, at most one batch leaves the last processor; what is on its way between two processors
//! goes on first, then what a processor has not yet taken in as a whole, those near the end first.

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
    /// What one processor has put out and the next has not seen yet, in order.
    between: VecDeque<Between>,
    /// What sampling has left out, until somebody takes it.
    sampled_out: Vec<SampledOut>,
    /// The processor that puts out what it holds because memory is short.
    relieving: Option<usize>,
    budget: Budget,
    ledger: Ledger,
}

/// One processor with its counters and the memory that it holds.
struct Stage {
    processor: Box<dyn Processor>,
    edge: Edge,
    held: Held,
    memory: Permit,
    /// The memory of the batch that it is taking in, where that is not an arrival's, which has its own.
    batch: Option<Permit>,
}

/// A batch between two processors.
struct Between {
    next: usize,
    telemetry: Telemetry,
    memory: Option<Permit>,
}

/// What the counters of all stages add up to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ChainTotals {
    pub(crate) synthesized: Quantities,
    pub(crate) dropped: Losses,
    pub(crate) held: Held,
}

/// What a step of a relief or a flush came to.
#[derive(Debug)]
pub(crate) struct Progress {
    /// What left the last processor.
    pub(crate) out: Option<Telemetry>,
    /// Whether there is another step to make.
    pub(crate) more: bool,
}

impl Chain {
    /// A chain that has seen nothing yet, whose processors may count on `share` bytes of the budget.
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
            relieving: None,
            budget: budget.clone(),
            ledger: ledger.clone(),
        }
    }

    /// Hands an arrival to the first processor. Not while the chain [is absorbing](Chain::is_absorbing).
    pub(crate) fn process(&mut self, telemetry: Telemetry, now: Now) -> Option<Telemetry> {
        self.between.push_back(Between { next: 0, telemetry, memory: None });
        self.pass(now)
    }

    /// Whether something that was handed in is not taken in by all processors that it gets to.
    pub(crate) fn is_absorbing(&self) -> bool {
        !self.between.is_empty() || self.stages.iter().any(|stage| stage.processor.is_absorbing())
    }

    /// Goes on with what is not taken in, or else does something of what is due.
    pub(crate) fn advance(&mut self, now: Now) -> Option<Telemetry> {
        let absorbing = self.stages.iter().rposition(|stage| stage.processor.is_absorbing());
        let waits = self.between.front().map(|between| between.next);
        if waits > absorbing {
            return self.pass(now);
        }
        let is_due = |stage: &Stage| stage.processor.due().is_some_and(|due| due <= now.monotonic_nano);
        let at = absorbing.or_else(|| self.stages.iter().rposition(is_due))?;
        self.call(at, now, |processor, out| processor.advance(now, out))
    }

    /// Puts out something of what is held because memory is short: the last processor first, since what the others put
    /// out goes into the next. Those in front of one that is still taking something in are not asked: it would have to
    /// take in all of that first, and more afterwards.
    pub(crate) fn on_memory_pressure(&mut self, now: Now) -> Progress {
        let Some(at) = self.relieving.or_else(|| self.stages.len().checked_sub(1)) else {
            return Progress { out: None, more: false };
        };
        if self.stages.iter().skip(at + 1).any(|stage| stage.processor.is_absorbing()) {
            self.relieving = None;
            return Progress { out: None, more: false };
        }
        let mut more = false;
        let out = self.call(at, now, |processor, out| more = processor.on_memory_pressure(now, out));
        self.relieving = if more { Some(at) } else { at.checked_sub(1) };
        Progress { out, more: self.relieving.is_some() }
    }

    /// Puts out something of what is held because the pipeline ends.
    pub(crate) fn flush(&mut self, now: Now) -> Progress {
        if self.is_absorbing() {
            return Progress { out: self.advance(now), more: true };
        }
        for at in 0..self.stages.len() {
            let mut more = false;
            let out = self.call(at, now, |processor, out| more = processor.flush(now, out));
            if more || out.is_some() || self.is_absorbing() {
                return Progress { out, more: true };
            }
        }
        Progress { out: None, more: false }
    }

    /// The earliest monotonic time at which something is due.
    pub(crate) fn due(&self) -> Option<u64> {
        if !self.between.is_empty() {
            return Some(0);
        }
        self.stages.iter().filter_map(|stage| stage.processor.due()).min()
    }

    /// Takes what sampling has left out since this was called before.
    pub(crate) fn take_sampled_out(&mut self) -> Vec<SampledOut> {
        std::mem::take(&mut self.sampled_out)
    }

    /// What all processors hold.
    pub(crate) fn held(&self) -> Held {
        self.stages.iter().fold(Held::default(), |sum, stage| Held {
            quantities: sum.quantities + stage.held.quantities,
            bytes: sum.bytes + stage.held.bytes,
        })
    }

    /// What the counters of all stages add up to.
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

    /// Calls one processor; what it puts out goes through those behind it.
    fn call(&mut self, at: usize, now: Now, call: impl FnOnce(&mut dyn Processor, &mut Outbox)) -> Option<Telemetry> {
        let put_out = self.stages[at].call(Quantities::NONE, &self.ledger, &mut self.sampled_out, call);
        self.put_between(at + 1, put_out, 0);
        self.pass(now)
    }

    /// Hands on what is between processors, as far as those behind are ready for it.
    fn pass(&mut self, now: Now) -> Option<Telemetry> {
        while let Some(between) = self.between.pop_front() {
            let Between { next, telemetry, memory } = between;
            let Some(stage) = self.stages.get_mut(next) else { return Some(telemetry) };
            if stage.processor.is_absorbing() {
                self.between.push_front(Between { next, telemetry, memory });
                return None;
            }
            let inbound = telemetry.quantities();
            // An arrival has its own memory. What a processor makes of it may be more: it puts out what it held before.
            let charged = if memory.is_some() { 0 } else { telemetry.size_bytes() };
            stage.batch = memory;
            let call = |processor: &mut dyn Processor, out: &mut Outbox| processor.process(telemetry, now, out);
            let put_out = stage.call(inbound, &self.ledger, &mut self.sampled_out, call);
            self.put_between(next + 1, put_out, charged);
        }
        None
    }

    /// What a processor has put out goes before what waits for it, to keep the order. So many bytes of it are `charged`.
    fn put_between(&mut self, next: usize, put_out: Vec<Telemetry>, charged: u64) {
        // What leaves the last processor is charged by whoever hands it on.
        let is_between = next < self.stages.len();
        for telemetry in put_out.into_iter().rev() {
            let uncharged = telemetry.size_bytes().saturating_sub(charged);
            let memory = (is_between && uncharged > 0).then(|| self.budget.charge(uncharged));
            self.between.push_front(Between { next, telemetry, memory });
        }
    }
}

impl Stage {
    /// Makes one call and counts what came of it.
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
        if let Some(said) = outbox.said {
            self.edge.say(said);
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
