//! A consumer that replaces the pipelines behind a receiver.

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
use profbridge_engine::via::Via;

/// The receiving end of [`intake`].
#[derive(Debug)]
pub struct Consumer {
    arrivals: Arrivals,
    budget: Budget,
    edge: Edge,
    gate: Arc<Gate>,
    /// Makes requests of the intake stop waiting when this is dropped.
    _stop: Trigger,
    last_call: Trigger,
}

/// An exporter whose queue a test can mark as full.
#[derive(Debug)]
struct Gate {
    /// The reaction to a full queue; `None` while there is room.
    full: watch::Sender<Option<Overflow>>,
    via: Via,
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
            // The wait cannot fail, since `self` owns the sender.
            drop(self.full.subscribe().wait_for(Option::is_none).await);
        })
    }

    fn accept(&self, _telemetry: &Telemetry, _now: Now) {}

    fn via(&self) -> Option<&Via> {
        Some(&self.via)
    }
}

/// Creates an intake for a receiver under test, and its consumer. `memory` is the budget in bytes.
///
/// No request is accepted until [`Consumer::take`] or [`Consumer::reject`] is awaited; up to four requests may wait
/// until then.
pub fn intake(memory: u64) -> (Intake, Consumer) {
    intake_of(Carries::Everything, memory)
}

/// Like [`intake`], with a pipeline that only carries this kind.
pub fn intake_of(carries: Carries, memory: u64) -> (Intake, Consumer) {
    let budget = Budget::new(memory);
    let metrics = Metrics::new(budget.clone());
    let (sender, arrivals) = channel(4);
    let edge = metrics.edge(ComponentKind::Receiver, "test", "");
    let pipeline = metrics.edge(ComponentKind::Pipeline, "test", "");
    let gate = Arc::new(Gate { full: watch::Sender::new(None), via: Via::new(fastrand::u64(..)) });
    let sinks = Sinks([Arc::clone(&gate) as Arc<dyn Sink>].into());
    let entrance = Entrance { pipeline: Arc::from("test"), carries, sender, edge: pipeline, sinks };
    let (stop, shutdown) = Shutdown::pair();
    let (last_call, soon) = Shutdown::pair();
    let end = ReceiverEnd { shutdown, last_call: soon };
    let intake = Intake::new(vec![entrance], budget.clone(), edge.clone(), Health::default(), end);
    (intake, Consumer { arrivals, budget, edge, gate, _stop: stop, last_call })
}

impl Consumer {
    /// Waits for telemetry and accepts it; `None` if no intake is left. Its memory is released.
    pub async fn take(&mut self) -> Option<Telemetry> {
        let arrival = self.arrivals.recv().await?;
        self.edge.add_in(arrival.telemetry.quantities());
        self.edge.add_out(arrival.telemetry.quantities());
        drop(arrival.permit);
        // The telemetry is accepted even if the receiver no longer waits for the answer.
        arrival.taken.send(Ok(())).ok();
        Some(arrival.telemetry)
    }

    /// Waits for telemetry and refuses it; `None` if no intake is left.
    pub async fn reject(&mut self, why: Rejected) -> Option<Telemetry> {
        let arrival = self.arrivals.recv().await?;
        drop(arrival.permit);
        arrival.taken.send(Err(why)).ok();
        Some(arrival.telemetry)
    }

    /// Sets whether the queue of the consumer's exporter is full, and what happens then; `None` means there is room.
    pub fn set_full(&self, overflow: Option<Overflow>) {
        self.gate.full.send_replace(overflow);
    }

    /// The number of requests that wait for room in the queue of the consumer's exporter.
    pub fn waiting(&self) -> usize {
        self.gate.full.receiver_count()
    }

    /// Triggers the last call, as in a long shutdown.
    pub fn last_call(&self) {
        self.last_call.trigger();
    }

    /// Accepts no more requests, as in a shutdown.
    pub fn close(&mut self) {
        self.arrivals.close();
    }

    /// The receiver's counters.
    pub fn totals(&self) -> EdgeTotals {
        self.edge.totals()
    }

    /// The current memory of the receiver's requests, in bytes.
    pub fn memory_used(&self) -> u64 {
        self.budget.used()
    }
}
