//! A consumer that stands in for the pipelines behind a receiver.

use std::sync::Arc;

use profbridge_model::Telemetry;
use tokio::sync::mpsc;

use crate::budget::Budget;
use crate::component::Rejected;
use crate::health::Health;
use crate::intake::{Arrival, Entrance, Intake, Signal};
use crate::telemetry::{Edge, EdgeTotals, Kind, Metrics};

/// The receiving end of [`intake`].
#[derive(Debug)]
pub struct Consumer {
    arrivals: mpsc::Receiver<Arrival>,
    budget: Budget,
    edge: Edge,
}

/// An intake for a receiver under test, and what consumes from it. `memory` is the budget, in bytes.
///
/// Nothing is taken until [`Consumer::take`] or [`Consumer::reject`] is awaited, and four requests may wait until then.
pub fn intake(memory: u64) -> (Intake, Consumer) {
    let budget = Budget::new(memory);
    let metrics = Metrics::new(budget.clone());
    let (sender, arrivals) = mpsc::channel(4);
    let edge = metrics.edge(Kind::Receiver, "test", "");
    let pipeline = metrics.edge(Kind::Pipeline, "test", "");
    let entrance = Entrance { pipeline: Arc::from("test"), signal: Signal::All, sender, edge: pipeline };
    let intake = Intake::new(vec![entrance], budget.clone(), edge.clone(), Health::default());
    (intake, Consumer { arrivals, budget, edge })
}

impl Consumer {
    /// Waits for telemetry and takes it; `None` where no intake is left. Its memory is given back.
    pub async fn take(&mut self) -> Option<Telemetry> {
        let arrival = self.arrivals.recv().await?;
        self.edge.add_in(arrival.telemetry.observations());
        self.edge.add_out(arrival.telemetry.observations());
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

    /// Takes nothing more, as in a shutdown.
    pub fn close(&mut self) {
        self.arrivals.close();
    }

    /// The receiver's counters, in observations.
    pub fn totals(&self) -> EdgeTotals {
        self.edge.totals()
    }

    /// The memory that the receiver's requests take at the moment, in bytes.
    pub fn memory_used(&self) -> u64 {
        self.budget.used()
    }
}
