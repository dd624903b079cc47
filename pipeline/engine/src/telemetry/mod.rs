//! profbridge's own metrics.
//!
//! Components get their counters as plain handles; nothing is global. A counter that counts the same as one of the
//! Collector's has exactly its name: `otelcol_*_profile_samples` count `Sample` messages and `otelcol_*_spans` spans
//! (opentelemetry-collector `receiverhelper/documentation.md`, `exporterhelper/documentation.md`), and do not end in
//! `_total` (`internal/e2e/metric_stability_test.go`). All metrics in observations are profbridge's own, and so are the
//! metrics of the same names for other units, such as `items`.

mod collect;
mod edge;
mod exporter;
mod item_counts;
mod page;
mod process;
mod producers;
mod receiver;
mod refusals;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use edge::{ComponentKind, Edge, EdgeTotals};
pub use exporter::{ExporterTelemetry, ExporterTotals, QueueGauges};
pub use item_counts::ItemCounts;
pub(crate) use page::CONTENT_TYPE;
pub use producers::Producer;
pub use receiver::{ReceiverTelemetry, TransportTelemetry};
pub use refusals::Refusal;

use crate::budget::Budget;
use crate::health::Thresholds;

/// The counters of all components. Cheap to clone; clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    edges: Arc<Mutex<Vec<Edge>>>,
    receivers: Arc<Mutex<Vec<ReceiverTelemetry>>>,
    exporters: Arc<Mutex<Vec<ExporterTelemetry>>>,
    budget: Budget,
    started: tokio::time::Instant,
}

/// Locks a list of counters. A panic cannot leave it inconsistent, so poisoning is ignored.
fn lock<T>(counters: &Mutex<Vec<T>>) -> MutexGuard<'_, Vec<T>> {
    counters.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Metrics {
    /// Empty counters of a process that starts now.
    pub fn new(budget: Budget) -> Self {
        let (edges, receivers, exporters) = Default::default();
        Self { edges, receivers, exporters, budget, started: tokio::time::Instant::now() }
    }

    /// The counters of a component's edge. `pipeline` is empty if pipelines share the component.
    pub fn edge(&self, kind: ComponentKind, component: &str, pipeline: &str) -> Edge {
        let edge = Edge::new(kind, component, pipeline);
        lock(&self.edges).push(edge.clone());
        edge
    }

    /// The counters of a receiver.
    pub fn receiver(&self, id: &str) -> ReceiverTelemetry {
        let receiver = ReceiverTelemetry::new(id, Arc::clone(&self.edges));
        lock(&self.receivers).push(receiver.clone());
        receiver
    }

    /// The counters of an exporter.
    pub fn exporter(&self, id: &str) -> ExporterTelemetry {
        let exporter = ExporterTelemetry::new(id, self.edge(ComponentKind::Exporter, id, ""));
        lock(&self.exporters).push(exporter.clone());
        exporter
    }

    /// The exporters that exceed these thresholds: id, what happened, and what to do about it.
    pub(crate) fn troubles(&self, beyond: &Thresholds) -> Vec<(String, String, &'static str)> {
        let exporters = lock(&self.exporters);
        let troubled = |exporter: &ExporterTelemetry| {
            let (error, remedy) = exporter.trouble_beyond(beyond)?;
            Some((exporter.id().to_owned(), error, remedy))
        };
        exporters.iter().filter_map(troubled).collect()
    }

    /// All metrics in the Prometheus text format.
    pub fn encode(&self) -> String {
        let (edges, receivers) = (lock(&self.edges).clone(), lock(&self.receivers).clone());
        let (exporters, budget, uptime) = (lock(&self.exporters).clone(), &self.budget, self.started.elapsed());
        collect::Collector { edges, receivers, exporters, budget, uptime }.page()
    }
}

#[cfg(test)]
mod tests;
