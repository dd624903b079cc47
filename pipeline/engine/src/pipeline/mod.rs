//! A pipeline: its processors, its exporters, and the thread on which they work.

mod chain;
mod thread;

use std::sync::{Arc, OnceLock};

use profbridge_model::{Quantities, Reason};
use tokio::sync::oneshot;
use tokio::time::Instant;

pub(crate) use chain::Chain;

use crate::budget::Budget;
use crate::clock::Clock;
use crate::component::{Processor, StartError};
use crate::config::Carries;
use crate::delivery::Sink;
use crate::health::Health;
use crate::intake::{self, Entrance, Sinks};
use crate::ledger::Ledger;
use crate::telemetry::{ComponentKind, Edge, Metrics};

/// How many requests may wait for a pipeline; each holds its part of the memory budget. More than one, so that the
/// thread always has work while receivers decode; few, so that senders feel at once that it cannot keep up.
const WAITING: usize = 16;

/// What a pipeline is made of.
pub(crate) struct Parts {
    pub(crate) id: String,
    pub(crate) carries: Carries,
    pub(crate) processors: Vec<(String, Box<dyn Processor>)>,
    pub(crate) sinks: Vec<Arc<dyn Sink>>,
}

/// What all pipelines share.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) budget: Budget,
    /// What of the budget the processors of each pipeline may count on, in bytes.
    pub(crate) share: u64,
    pub(crate) clock: Clock,
    pub(crate) health: Health,
    pub(crate) metrics: Metrics,
    pub(crate) host: Host,
}

/// Where a pipeline works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Host {
    /// On a thread of its own.
    Thread,
    /// As a task, for tests that pause the time: it would run on while a thread works.
    #[cfg(test)]
    Task,
}

/// A pipeline that runs.
pub(crate) struct Pipeline {
    pub(crate) counters: Counters,
    /// Where receivers put telemetry.
    pub(crate) entrance: Entrance,
    stop: profbridge_net::Trigger,
    deadline: Arc<OnceLock<Instant>>,
    ended: oneshot::Receiver<()>,
}

/// The counters of a pipeline and its processors.
#[derive(Debug, Clone)]
pub(crate) struct Counters {
    pub(crate) id: Arc<str>,
    /// In: what the processors took. Out: what the exporters took. Dropped: what is lost between the processors.
    pub(crate) edge: Edge,
    pub(crate) stages: Vec<Edge>,
    ledger: Ledger,
}

impl Counters {
    pub(crate) fn new(id: Arc<str>, edge: Edge, stages: Vec<Edge>) -> Self {
        Self { id, edge, stages, ledger: Ledger::default() }
    }

    /// What the pipeline took and has not yet handed on, lost or counted: what is in the processors' hands.
    pub(crate) fn unsettled(&self) -> Quantities {
        let own = self.edge.totals();
        let chain = Chain::totals(&self.stages);
        let settled = own.outbound + own.dropped.total() + chain.dropped.total();
        (own.inbound + chain.synthesized).saturating_sub(settled)
    }

    /// Counts what is still in the processors' hands as lost, and nothing from then on. What exporters are just being
    /// given is theirs to count.
    pub(crate) fn give_up(&self, reason: Reason) {
        self.ledger.close(|handing| {
            self.edge.add_out(handing);
            self.edge.drop(reason, self.unsettled());
            for stage in &self.stages {
                stage.set_held(crate::component::Held::default());
            }
        });
    }
}

impl Pipeline {
    /// Starts the pipeline's thread, on whose runtime the exporters run.
    pub(crate) fn start(parts: Parts, around: &Context) -> Result<Self, StartError> {
        let Parts { id, carries, processors, sinks } = parts;
        let id: Arc<str> = id.into();
        let edge = around.metrics.edge(ComponentKind::Pipeline, &id, "");
        let mut stages = Vec::new();
        let mut counted = Vec::new();
        for (processor_id, processor) in processors {
            let stage = around.metrics.edge(ComponentKind::Processor, &processor_id, &id);
            stages.push(stage.clone());
            counted.push((processor, stage));
        }
        let counters = Counters::new(Arc::clone(&id), edge.clone(), stages);
        let chain = Chain::new(counted, &around.budget, around.share, &counters.ledger);
        let (sender, arrivals) = intake::channel(WAITING);
        let (stop, stopping) = profbridge_net::Shutdown::pair();
        let behind = Sinks(sinks.iter().cloned().collect());
        let deadline = Arc::default();
        let end = thread::End { stopping, deadline: Arc::clone(&deadline) };
        let worker = thread::Worker {
            counters: counters.clone(),
            chain,
            sinks,
            arrivals,
            end,
            around: around.clone(),
            taking: None,
            relieving: false,
            relieved: None,
            absorbed: false,
        };
        around.health.set("pipelines", &id, crate::health::ComponentState::Running);
        let ended = worker.spawn()?;
        let entrance = Entrance { pipeline: id, carries, sender, edge, sinks: behind };
        Ok(Self { counters, entrance, stop, deadline, ended })
    }

    /// Asks the pipeline to take nothing more, and to put out and hand on what it holds. What it still has at the
    /// deadline is lost.
    pub(crate) fn stop(&self, deadline: Instant) {
        // Asked twice, the first deadline holds.
        let _ = self.deadline.get_or_init(|| deadline);
        self.stop.trigger();
    }

    /// Completes when the thread has ended.
    pub(crate) async fn ended(&mut self) {
        // An error means that the thread is gone, which is an end as well.
        (&mut self.ended).await.ok();
    }
}

#[cfg(test)]
mod tests;
