//! Runs a plan: exporters first, receivers last, and back in the other order.
//!
//! A shutdown has one deadline, the configuration's `shutdown_timeout`, and spends it in this order: receivers stop
//! accepting and finish what is under way (at most a fifth of it; after a tenth whoever still waits is answered: what a
//! pipeline has begun to take is taken, and what none has begun to take is given back to its sender), processors put
//! out what they hold, queues drain, exporters say what they still have to say (what is left, a second at least, or a
//! twentieth of a short deadline). Whatever is not sent by then is counted.

mod report;
mod reporter;
mod start;
mod stop;

use std::net::SocketAddr;

use profbridge_net::{Shutdown, Trigger};
use tokio::task::JoinHandle;

pub use report::{ExporterReport, PipelineReport, ProcessorReport, ReceiverReport, Report};

use crate::component::StartError;
use crate::config::Duration;
use crate::delivery::RunningExporter;
use crate::health::Health;
use crate::pipeline::Pipeline;
use crate::plan::Plan;
use crate::telemetry::server::Server;
use crate::telemetry::{Edge, ExporterTelemetry, Metrics, ReceiverTelemetry};

/// Something that listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Who: the id of a receiver, or `metrics` or `health`.
    pub component: String,
    /// For what, such as `grpc` or `http`.
    pub protocol: String,
    /// Where, with the port that the system chose.
    pub address: SocketAddr,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} on {}", self.component, self.protocol, self.address)
    }
}

/// A plan that runs. Dropping it ends everything at once, uncounted; [`RunningPlan::stop`] ends it in order.
pub struct RunningPlan {
    addresses: Vec<Address>,
    shutdown_timeout: std::time::Duration,
    health: Health,
    metrics: Metrics,
    receivers: Vec<ReceiverTask>,
    /// Stops the receivers.
    stop_receivers: Trigger,
    /// Lets nobody wait for the receivers any longer.
    last_call: Trigger,
    pipelines: Vec<Pipeline>,
    exporters: Vec<(ExporterTelemetry, RunningExporter)>,
    /// The counters of exporters that have been told to stop.
    exporter_telemetry: Vec<ExporterTelemetry>,
    disabled: Vec<(String, String)>,
    servers: Vec<Server>,
    /// Stops what outlives the components: the telemetry servers and the reporter.
    stop_last: Trigger,
    reporter: JoinHandle<()>,
    started: tokio::time::Instant,
}

struct ReceiverTask {
    telemetry: ReceiverTelemetry,
    edge: Edge,
    task: JoinHandle<()>,
}

impl RunningPlan {
    /// Everything that listens.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The address of one protocol of a component.
    pub fn address(&self, component: &str, protocol: &str) -> Option<SocketAddr> {
        let found = self.addresses.iter().find(|known| known.component == component && known.protocol == protocol);
        found.map(|found| found.address)
    }

    /// What each component is doing.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// The counters of all components.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}

/// Starts a plan, waits for `shutdown`, and stops it in order.
///
/// # Errors
///
/// A component could not start. What had been started is stopped.
pub async fn run(plan: Plan, mut shutdown: Shutdown) -> Result<Report, StartError> {
    let running = start(plan).await?;
    shutdown.wait().await;
    tracing::info!(within = %Duration::from(running.shutdown_timeout), "shutting down");
    Ok(running.stop().await)
}

/// Starts a plan: exporters first, receivers last. Must be called on tokio's runtime.
///
/// # Errors
///
/// A component could not start. What had been started is stopped.
pub async fn start(plan: Plan) -> Result<RunningPlan, StartError> {
    start::start(plan, crate::clock::Clock::system(), crate::pipeline::Host::Thread).await
}

#[cfg(test)]
mod tests;
