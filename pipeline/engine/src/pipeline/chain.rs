//! The processors of one pipeline, one after the other, with the law of conservation checked at each.
//!
//! Synchronous and without a clock, so that every test of it is exact. The thread around it is in [`super::thread`].

use profbridge_model::{Losses, Telemetry};

use crate::balance::Balance;
use crate::budget::{Budget, Permit};
use crate::component::{Held, Now, Outbox, Processor};
use crate::telemetry::Edge;

/// The processors of a pipeline, in order.
pub(crate) struct Chain {
    stages: Vec<Stage>,
}

/// One processor with its counters and the memory that it holds.
struct Stage {
    processor: Box<dyn Processor>,
    edge: Edge,
    held: Held,
    memory: Permit,
}

/// What the counters of all stages add up to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ChainTotals {
    pub(crate) synthesized: u64,
    pub(crate) dropped: Losses,
    pub(crate) held: Held,
}

impl Chain {
    pub(crate) fn new(processors: Vec<(Box<dyn Processor>, Edge)>, budget: &Budget) -> Self {
        let stages = processors
            .into_iter()
            .map(|(processor, edge)| Stage { processor, edge, held: Held::default(), memory: budget.charge(0) })
            .collect();
        Self { stages }
    }

    /// Hands telemetry to the first processor; what leaves the last is returned.
    pub(crate) fn process(&mut self, telemetry: Telemetry, now: Now) -> Vec<Telemetry> {
        self.feed(0, vec![telemetry], now)
    }

    /// Does what is due.
    pub(crate) fn advance(&mut self, now: Now) -> Vec<Telemetry> {
        self.each(now, |processor, out| {
            if processor.due().is_some_and(|due| due <= now.monotonic_nano) {
                processor.advance(now, out);
            }
        })
    }

    /// Puts out what is held because memory is short.
    pub(crate) fn relieve(&mut self, now: Now) -> Vec<Telemetry> {
        self.each(now, |processor, out| processor.relieve(now, out))
    }

    /// Puts out all that is held.
    pub(crate) fn flush(&mut self, now: Now) -> Vec<Telemetry> {
        self.each(now, |processor, out| processor.flush(now, out))
    }

    /// The earliest monotonic time at which something is due.
    pub(crate) fn due(&self) -> Option<u64> {
        self.stages.iter().filter_map(|stage| stage.processor.due()).min()
    }

    /// What all processors hold.
    pub(crate) fn held(&self) -> Held {
        self.stages.iter().fold(Held::default(), |sum, stage| Held {
            observations: sum.observations + stage.held.observations,
            bytes: sum.bytes + stage.held.bytes,
        })
    }

    /// What the counters of all stages add up to.
    pub(crate) fn totals(edges: &[Edge]) -> ChainTotals {
        let mut sum = ChainTotals::default();
        for totals in edges.iter().map(Edge::totals) {
            sum.synthesized += totals.synthesized;
            sum.dropped.merge(&totals.dropped);
            sum.held.observations += totals.held.observations;
            sum.held.bytes += totals.held.bytes;
        }
        sum
    }

    /// Calls each processor, from the first to the last; what one puts out goes through those behind it.
    fn each(&mut self, now: Now, mut call: impl FnMut(&mut dyn Processor, &mut Outbox)) -> Vec<Telemetry> {
        let mut out = Vec::new();
        for at in 0..self.stages.len() {
            let put_out = self.stages[at].call(0, |processor, outbox| call(processor, outbox));
            out.extend(self.feed(at + 1, put_out, now));
        }
        out
    }

    /// Hands telemetry to the processors from the one at `first` on.
    fn feed(&mut self, first: usize, mut telemetry: Vec<Telemetry>, now: Now) -> Vec<Telemetry> {
        for stage in self.stages.iter_mut().skip(first) {
            let mut put_out = Vec::new();
            for one in telemetry {
                let inbound = one.observations();
                put_out.append(&mut stage.call(inbound, |processor, outbox| processor.process(one, now, outbox)));
            }
            telemetry = put_out;
        }
        telemetry
    }
}

impl Stage {
    /// Makes one call and counts what came of it.
    fn call(&mut self, inbound: u64, call: impl FnOnce(&mut dyn Processor, &mut Outbox)) -> Vec<Telemetry> {
        let mut outbox = Outbox::default();
        call(&mut *self.processor, &mut outbox);
        let held = self.processor.held();
        let outbound = outbox.telemetry.iter().map(Telemetry::observations).sum();
        let balance = Balance {
            inbound,
            synthesized: outbox.synthesized,
            held_before: self.held.observations,
            outbound,
            dropped: outbox.losses.total(),
            held_after: held.observations,
        };
        debug_assert_eq!(balance.unaccounted(), 0, "{}: {balance}", self.edge.component());
        self.edge.add_in(inbound);
        self.edge.add_out(outbound);
        self.edge.add_synthesized(outbox.synthesized);
        self.edge.drop_all(&outbox.losses);
        self.edge.note_all(&outbox.notes);
        self.edge.add_unaccounted(balance.unaccounted());
        self.edge.set_held(held);
        self.held = held;
        self.memory.set(held.bytes);
        outbox.telemetry
    }
}
