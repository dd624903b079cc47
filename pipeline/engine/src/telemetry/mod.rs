//! What profbridge counts about itself.
//!
//! Counters are handed to components as plain handles; nothing is global. Names of the Collector are used where the
//! meaning is equal: `otelcol_*_profile_samples` count `Sample` messages, as the Collector does
//! (opentelemetry-collector `receiverhelper/documentation.md`, `exporterhelper/documentation.md`). Everything that is
//! called observations is ours.

mod collect;
mod edge;
mod exporter;
mod process;
mod receiver;
pub mod server;

use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::registry::Registry;

pub use edge::{Edge, EdgeTotals};
pub use exporter::{ExporterTelemetry, QueueGauges};
pub use receiver::{ReceiverTelemetry, TransportTelemetry};

use crate::budget::Budget;

/// What a component is, as the label `kind` of its metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A receiver.
    Receiver,
    /// A processor of one pipeline.
    Processor,
    /// A pipeline as a whole: from its entrance to its exporters.
    Pipeline,
    /// An exporter.
    Exporter,
}

impl Kind {
    /// The kind's name as a label.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Receiver => "receiver",
            Kind::Processor => "processor",
            Kind::Pipeline => "pipeline",
            Kind::Exporter => "exporter",
        }
    }
}

/// The counters of all components. Cheap to clone; clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    all: Arc<All>,
}

#[derive(Debug)]
struct All {
    edges: Mutex<Vec<Edge>>,
    receivers: Mutex<Vec<ReceiverTelemetry>>,
    exporters: Mutex<Vec<ExporterTelemetry>>,
    budget: Budget,
    started: tokio::time::Instant,
}

impl Metrics {
    /// No counters yet, for a process that started now.
    pub fn new(budget: Budget) -> Self {
        let all = All {
            edges: Mutex::default(),
            receivers: Mutex::default(),
            exporters: Mutex::default(),
            budget,
            started: tokio::time::Instant::now(),
        };
        Self { all: Arc::new(all) }
    }

    /// The counters of a component's edge. `pipeline` is empty for what pipelines share.
    pub fn edge(&self, kind: Kind, component: &str, pipeline: &str) -> Edge {
        let edge = Edge::new(kind, component, pipeline);
        self.all.edges.lock().unwrap_or_else(PoisonError::into_inner).push(edge.clone());
        edge
    }

    /// The counters of a receiver.
    pub fn receiver(&self, id: &str) -> ReceiverTelemetry {
        let receiver = ReceiverTelemetry::new(id);
        self.all.receivers.lock().unwrap_or_else(PoisonError::into_inner).push(receiver.clone());
        receiver
    }

    /// The counters of an exporter.
    pub fn exporter(&self, id: &str) -> ExporterTelemetry {
        let exporter = ExporterTelemetry::new(id, self.edge(Kind::Exporter, id, ""));
        self.all.exporters.lock().unwrap_or_else(PoisonError::into_inner).push(exporter.clone());
        exporter
    }

    /// All metrics in OpenMetrics' text form.
    pub fn encode(&self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(collect::Collector(Arc::clone(&self.all))));
        let mut text = String::new();
        // Writing into a string fails only where an encoder refuses, and ours does not.
        if prometheus_client::encoding::text::encode(&mut text, &registry).is_err() {
            text.clear();
        }
        text
    }
}

#[cfg(test)]
mod tests;
