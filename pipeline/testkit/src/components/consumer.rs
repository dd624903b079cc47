//! A consumer that stands in for the pipelines behind a receiver.

use std::sync::Arc;

use profbridge_model::Telemetry;
use profbridge_net::{Shutdown, Trigger};
use tokio::sync::watch;

use profbridge_engine::budget::Budget;
use profbridge_engine::component::{BoxFuture, Now, Rejected};
use profbridge_engine::config::Carries;
use profbridge_engine::delivery::{Overflow, Sink};
use profbridge_engine::health::Health;
use profbridge_engine::intake::{Arrivals, Entrance, Intake, ReceiverEnd, Sinks, channel};
use profbridge_engine::telemetry::{ComponentKind, Edge, EdgeTotals, Metrics};

/// The receiving end of [`intake`].
#[derive(Debug)]
pub struct Consumer {
    arrivals: Arrivals,
    budget: Budget,
    edge: Edge,
    gate: Arc<Gate>,
    /// Ends the intake's waiting when it is dropped.
    _stop: Trigger,
    last_call: Trigger,
}

/// An exporter whose queue is full when a test says so.
#[derive(Debug)]
struct Gate {
    /// What happens while it is full; `None` while there is room.
    full: watch::Sender<Option<Overflow>>,
}

impl Sink for Gate {
    fn id(&self) -> &'static str {
        "test"
    }

    fn overflow(&self) -> Overflow {
        self.full.borrow().unwrap_or_default()
    }

    fn has_room(&self) -> bool {
        self.full.borrow().is_none()
    }

    fn room(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // Its sender lives as long as this.
            drop(self.full.subscribe().wait_for(Option::is_none).await);
        })
    }

    fn accept(&self, _telemetry: &Telemetry, _now: Now) {}
}

/// An intake for a receiver under test, and what consumes from it. `memory` is the budget, in bytes.
///
/// Nothing is taken until [`Consumer::take`] or [`Consumer::reject`] is awaited, and four requests may wait until then.
pub fn intake(memory: u64) -> (Intake, Consumer) {
    intake_of(Carries::Everything, memory)
}

/// The same with a pipeline that carries only this.
pub fn intake_of(carries: Carries, memory: u64) -> (Intake, Consumer) {
    let budget = Budget::new(memory);
    let metrics = Metrics::new(budget.clone());
    let (sender, arrivals) = channel(4);
    let edge = metrics.edge(ComponentKind::Receiver, "test", "");
    let pipeline = metrics.edge(ComponentKind::Pipeline, "test", "");
    let gate = Arc::new(Gate { full: watch::Sender::new(None) });
    let sinks = Sinks([Arc::clone(&gate) as Arc<dyn Sink>].into());
    let entrance = Entrance { pipeline: Arc::from("test"), carries, sender, edge: pipeline, sinks };
    let (stop, shutdown) = Shutdown::pair();
    let (last_call, soon) = Shutdown::pair();
    let end = ReceiverEnd { shutdown, last_call: soon };
    let intake = Intake::new(vec![entrance], budget.clone(), edge.clone(), Health::default(), end);
    (intake, Consumer { arrivals, budget, edge, gate, _stop: stop, last_call })
}

impl Consumer {
    /// Waits for telemetry and takes it; `None` where no intake is left. Its memory is given back.
    pub async fn take(&mut self) -> Option<Telemetry> {
        let arrival = self.arrivals.recv().await?;
        self.edge.add_in(arrival.telemetry.quantities());
        self.edge.add_out(arrival.telemetry.quantities());
        drop(arrival.permit);
        // A receiver that no longer waits for the answer does not hinder that it was taken.
        arrival.taken.send(Ok(())).ok();
        Some(arrival.telemetry)
    }

    /// Waits for telemetry and refuses it; `None` where no intake is left.
    pub async fn reject(&mut self, why: Rejected) -> Option<Telemetry> {
        let arrival = self.arrivals.recv().await?;
        drop(arrival.permit);
        arrival.taken.send(Err(why)).ok();
        Some(arrival.telemetry)
    }

    /// From here on the queue of the exporter behind it is full, and that is what happens then; `None`: there is room.
    pub fn set_full(&self, overflow: Option<Overflow>) {
        self.gate.full.send_replace(overflow);
    }

    /// How many requests wait for room in that queue.
    pub fn waiting(&self) -> usize {
        self.gate.full.receiver_count()
    }

    /// Says that the receiver is soon cut off, as in a shutdown in which requests are under way for long.
    pub fn last_call(&self) {
        self.last_call.trigger();
    }

    /// Takes nothing more, as in a shutdown.
    pub fn close(&mut self) {
        self.arrivals.close();
    }

    /// The receiver's counters.
    pub fn totals(&self) -> EdgeTotals {
        self.edge.totals()
    }

    /// The memory that the receiver's requests take at the moment, in bytes.
    pub fn memory_used(&self) -> u64 {
        self.budget.used()
    }
}
