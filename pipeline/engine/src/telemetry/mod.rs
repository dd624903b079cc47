//! What profbridge counts about itself.
//!
//! Counters are handed to components as plain handles; nothing is global. Names of the Collector are used where the
//! meaning is equal, letter by letter as its page has them: `otelcol_*_profile_samples` count `Sample` messages and
//! `otelcol_*_spans` spans, as the Collector does (opentelemetry-collector `receiverhelper/documentation.md`,
//! `exporterhelper/documentation.md`), and do not end in `_total` (`internal/e2e/metric_stability_test.go`). Everything
//! that is called observations is ours, and so are the metrics of the same names for the other units, such as `items`.

mod collect;
mod edge;
mod exporter;
mod item_counts;
mod page;
mod process;
mod producers;
mod receiver;
mod refusals;
pub mod server;

use std::sync::{Arc, Mutex, PoisonError};

pub use edge::{Edge, EdgeTotals};
pub use exporter::{ExporterTelemetry, ExporterTotals, QueueGauges};
pub use item_counts::ItemCounts;
pub use producers::Producer;
pub use receiver::{ReceiverTelemetry, TransportTelemetry};
pub use refusals::Refusal;

use crate::budget::Budget;
use crate::health::Thresholds;

/// What a component is, as the label `kind` of its metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ComponentKind {
    /// A receiver.
    Receiver,
    /// A processor of one pipeline.
    Processor,
    /// A pipeline as a whole: from its entrance to its exporters.
    Pipeline,
    /// An exporter.
    Exporter,
}

impl ComponentKind {
    /// The kind's name as a label.
    pub fn as_str(self) -> &'static str {
        match self {
            ComponentKind::Receiver => "receiver",
            ComponentKind::Processor => "processor",
            ComponentKind::Pipeline => "pipeline",
            ComponentKind::Exporter => "exporter",
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
    pub fn edge(&self, kind: ComponentKind, component: &str, pipeline: &str) -> Edge {
        let edge = Edge::new(kind, component, pipeline);
        self.all.edges.lock().unwrap_or_else(PoisonError::into_inner).push(edge.clone());
        edge
    }

    /// The counters of a receiver.
    pub fn receiver(&self, id: &str) -> ReceiverTelemetry {
        let receiver = ReceiverTelemetry::new(id, Arc::downgrade(&self.all));
        self.all.receivers.lock().unwrap_or_else(PoisonError::into_inner).push(receiver.clone());
        receiver
    }

    /// The counters of an exporter.
    pub fn exporter(&self, id: &str) -> ExporterTelemetry {
        let exporter = ExporterTelemetry::new(id, self.edge(ComponentKind::Exporter, id, ""));
        self.all.exporters.lock().unwrap_or_else(PoisonError::into_inner).push(exporter.clone());
        exporter
    }

    /// The exporters in trouble beyond these thresholds: the id, what happened, and what to do about it.
    pub(crate) fn troubles(&self, beyond: &Thresholds) -> Vec<(String, String, &'static str)> {
        let exporters = self.all.exporters.lock().unwrap_or_else(PoisonError::into_inner);
        let troubled = |exporter: &ExporterTelemetry| {
            let (error, remedy) = exporter.trouble_beyond(beyond)?;
            Some((exporter.id().to_owned(), error, remedy))
        };
        exporters.iter().filter_map(troubled).collect()
    }

    /// All metrics in Prometheus' text form.
    pub fn encode(&self) -> String {
        collect::Collector(Arc::clone(&self.all)).page()
    }
}

#[cfg(test)]
mod tests;
