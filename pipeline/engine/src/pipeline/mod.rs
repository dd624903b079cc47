//! A pipeline: its processors, its exporters, and the thread that runs them.

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

/// How many requests may wait for a pipeline; each holds memory of the budget. More than one, so that the thread has
/// work while receivers decode; few, so that senders notice early when the thread cannot keep up.
const WAITING: usize = 16;

pub(crate) struct PipelineParts {
    pub(crate) id: String,
    pub(crate) carries: Carries,
    pub(crate) processors: Vec<(String, Box<dyn Processor>)>,
    pub(crate) sinks: Vec<Arc<dyn Sink>>,
}

/// The data that all pipelines share.
#[derive(Clone)]
pub(crate) struct PipelineContext {
    pub(crate) budget: Budget,
    /// The part of the budget, in bytes, that the processors of each pipeline may use.
    pub(crate) share: u64,
    pub(crate) clock: Clock,
    pub(crate) health: Health,
    pub(crate) metrics: Metrics,
    pub(crate) host: RunsOn,
}

/// How a pipeline runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunsOn {
    /// On its own thread.
    Thread,
    /// As a task. For tests with paused time, because the clock would advance while a thread works.
    #[cfg(test)]
    Task,
}

/// A running pipeline.
pub(crate) struct Pipeline {
    pub(crate) counters: PipelineCounters,
    /// The entrance through which receivers hand over telemetry.
    pub(crate) entrance: Entrance,
    stop: profbridge_net::Trigger,
    deadline: Arc<OnceLock<Instant>>,
    ended: oneshot::Receiver<()>,
}

/// The counters of a pipeline and its processors.
#[derive(Debug, Clone)]
pub(crate) struct PipelineCounters {
    pub(crate) id: Arc<str>,
    /// `inbound`: accepted by the processors. `outbound`: accepted by the exporters. `dropped`: lost between the
    /// processors.
    pub(crate) edge: Edge,
    pub(crate) stages: Vec<Edge>,
    ledger: Ledger,
}

impl PipelineCounters {
    pub(crate) fn new(id: Arc<str>, edge: Edge, stages: Vec<Edge>) -> Self {
        Self { id, edge, stages, ledger: Ledger::default() }
    }

    /// Data that the pipeline accepted and has neither handed on nor lost yet: it is inside the processors.
    pub(crate) fn unsettled(&self) -> Quantities {
        let own = self.edge.totals();
        let chain = Chain::totals(&self.stages);
        let settled = own.outbound + own.dropped.total() + chain.dropped.total();
        (own.inbound + chain.synthesized).saturating_sub(settled)
    }

    /// Counts data that is still inside the processors as lost, and closes the counters. Exporters count the batches
    /// that are being handed over to them.
    pub(crate) fn give_up(&self, reason: Reason) {
        self.ledger.close(|handover| {
            self.edge.add_out(handover);
            self.edge.drop(reason, self.unsettled());
            for stage in &self.stages {
                stage.set_held(crate::component::Held::default());
            }
        });
    }
}

impl Pipeline {
    /// Starts the pipeline's thread. The exporters run on the current runtime.
    pub(crate) fn start(parts: PipelineParts, context: &PipelineContext) -> Result<Self, StartError> {
        let PipelineParts { id, carries, processors, sinks } = parts;
        let id: Arc<str> = id.into();
        let edge = context.metrics.edge(ComponentKind::Pipeline, &id, "");
        let mut stages = Vec::new();
        let mut counted = Vec::new();
        for (processor_id, processor) in processors {
            let stage = context.metrics.edge(ComponentKind::Processor, &processor_id, &id);
            stages.push(stage.clone());
            counted.push((processor, stage));
        }
        let counters = PipelineCounters::new(Arc::clone(&id), edge.clone(), stages);
        let chain = Chain::new(counted, &context.budget, context.share, &counters.ledger);
        let (sender, arrivals) = intake::channel(WAITING);
        let (stop, stopping) = profbridge_net::Shutdown::pair();
        let behind = Sinks(sinks.iter().cloned().collect());
        let deadline = Arc::default();
        let end = thread::ThreadEnd { stopping, deadline: Arc::clone(&deadline) };
        let worker = thread::Worker {
            counters: counters.clone(),
            chain,
            sinks,
            arrivals,
            end,
            context: context.clone(),
            absorbing: None,
            flushing: false,
            last_flush: None,
            absorbed: false,
        };
        context.health.set("pipelines", &id, crate::health::ComponentState::Running);
        let ended = worker.spawn()?;
        let entrance = Entrance { pipeline: id, carries, sender, edge, sinks: behind };
        Ok(Self { counters, entrance, stop, deadline, ended })
    }

    /// Asks the pipeline to stop accepting, flush its processors and hand everything on. Data that is left at the
    /// deadline is lost.
    pub(crate) fn stop(&self, deadline: Instant) {
        // If called twice, the first deadline counts.
        let _ = self.deadline.get_or_init(|| deadline);
        self.stop.trigger();
    }

    /// Completes when the thread has ended.
    pub(crate) async fn ended(&mut self) {
        // An error means that the thread panicked, so it has ended too.
        (&mut self.ended).await.ok();
    }
}

#[cfg(test)]
mod tests;
