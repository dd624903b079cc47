//! A running plan, and its shutdown.

use std::net::SocketAddr;
use std::time::Duration;

use profbridge_model::Reason;
use profbridge_net::Trigger;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::report::{ExporterReport, PipelineReport, ReceiverReport, RunReport};
use super::server::Server;
use crate::delivery::{RunningExporter, Stop};
use crate::health::{ComponentState, Health};
use crate::pipeline::Pipeline;
use crate::telemetry::{Edge, ExporterTelemetry, Metrics, ReceiverTelemetry};

/// An address that a component listens on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenAddress {
    /// The component: the id of a receiver, or `metrics` or `health`.
    pub component: String,
    /// The protocol, such as `grpc` or `http`.
    pub protocol: String,
    /// The address, with the port that the system chose.
    pub address: SocketAddr,
}

impl std::fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} on {}", self.component, self.protocol, self.address)
    }
}

/// A running plan. Dropping it stops everything at once, uncounted; [`RunningPlan::stop`] stops it in order.
pub struct RunningPlan {
    pub(super) addresses: Vec<ListenAddress>,
    pub(super) shutdown_timeout: Duration,
    pub(super) health: Health,
    pub(super) metrics: Metrics,
    pub(super) receivers: Vec<ReceiverTask>,
    /// Stops the receivers.
    pub(super) stop_receivers: Trigger,
    /// Makes the receivers answer senders that still wait.
    pub(super) last_call: Trigger,
    pub(super) pipelines: Vec<Pipeline>,
    pub(super) exporters: Vec<(ExporterTelemetry, RunningExporter)>,
    /// The counters of exporters that are being stopped.
    pub(super) exporter_telemetry: Vec<ExporterTelemetry>,
    pub(super) disabled: Vec<(String, String)>,
    pub(super) servers: Vec<Server>,
    /// Stops the telemetry servers and the reporter, which outlive the components.
    pub(super) stop_last: Trigger,
    pub(super) reporter: JoinHandle<()>,
    pub(super) started: Instant,
}

pub(super) struct ReceiverTask {
    pub(super) telemetry: ReceiverTelemetry,
    pub(super) edge: Edge,
    pub(super) task: JoinHandle<()>,
}

impl RunningPlan {
    /// All addresses on which components listen.
    pub fn addresses(&self) -> &[ListenAddress] {
        &self.addresses
    }

    /// The address of one protocol of a component.
    pub fn address(&self, component: &str, protocol: &str) -> Option<SocketAddr> {
        let found = self.addresses.iter().find(|known| known.component == component && known.protocol == protocol);
        found.map(|found| found.address)
    }

    /// The state of each component.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// The counters of all components.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}

/// The deadlines of one shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Deadlines {
    /// Senders that still wait get their answer: early enough to be transmitted, since servers close connections 10 s
    /// after their shutdown began, and receivers are dropped at the next deadline.
    last_call: Instant,
    /// Receivers must have finished requests in progress.
    receivers: Instant,
    /// Exporters must have sent or lost everything, and accept nothing more.
    sent: Instant,
    /// Pipelines must have counted the data that they still had at `sent`. Later than `sent` by the time that one step
    /// may take.
    handed_on: Instant,
    /// Exporters must have sent their final reports.
    closed: Instant,
}

/// The maximum time that requests in progress may continue before their senders get an answer.
const LAST_CALL: Duration = Duration::from_secs(5);

/// The time for the exporters' final reports, which are small; half of it if a pipeline exceeded its deadline.
const FINAL_REPORT_TIME: Duration = Duration::from_secs(2);

impl Deadlines {
    fn new(now: Instant, timeout: Duration) -> Self {
        let last_words = FINAL_REPORT_TIME.min(timeout / 10);
        Self {
            last_call: now + LAST_CALL.min(timeout / 10),
            receivers: now + timeout / 5,
            sent: now + (timeout - last_words),
            handed_on: now + (timeout - last_words / 2),
            closed: now + timeout,
        }
    }

    /// The deadlines for exporters.
    fn stop(&self) -> Stop {
        Stop { deadline: self.sent, close_by: self.closed }
    }
}

impl RunningPlan {
    /// Stops everything in order, within the configured `shutdown_timeout`, and reports what happened.
    pub async fn stop(mut self) -> RunReport {
        let began = Instant::now();
        let deadlines = Deadlines::new(began, self.shutdown_timeout);
        self.stop_receivers(deadlines).await;
        // From now on no exporter waits past its deadline, and so no pipeline waits for an exporter after it.
        for (telemetry, exporter) in &self.exporters {
            self.health.set("exporters", telemetry.id(), ComponentState::Stopping);
            exporter.drain_by(deadlines.stop());
        }
        let mut failures = self.stop_pipelines(deadlines).await;
        self.stop_exporters(deadlines).await;
        for (section, id, state) in self.health.states() {
            if let ComponentState::Failed(why) = state {
                failures.push(format!("{section}/{id}: {why}"));
            }
        }
        let report = self.report(began, failures);
        self.stop_last.trigger();
        for server in std::mem::take(&mut self.servers) {
            server.stopped().await;
        }
        // The reporter may be writing a line, which is no longer needed.
        self.reporter.abort();
        report
    }

    async fn stop_receivers(&mut self, deadlines: Deadlines) {
        for receiver in &self.receivers {
            self.health.set("receivers", receiver.telemetry.id(), ComponentState::Stopping);
        }
        self.stop_receivers.trigger();
        for receiver in &mut self.receivers {
            if timeout_at(deadlines.last_call, &mut receiver.task).await.is_err() {
                break;
            }
        }
        self.last_call.trigger();
        for receiver in self.receivers.iter_mut().filter(|receiver| !receiver.task.is_finished()) {
            if timeout_at(deadlines.receivers, &mut receiver.task).await.is_err() {
                tracing::warn!(receiver = receiver.telemetry.id(), "requests are aborted at the deadline");
                receiver.task.abort();
            }
        }
    }

    async fn stop_pipelines(&mut self, deadlines: Deadlines) -> Vec<String> {
        let mut failures = Vec::new();
        for pipeline in &self.pipelines {
            self.health.set("pipelines", &pipeline.counters.id, ComponentState::Stopping);
            pipeline.stop(deadlines.sent);
        }
        for pipeline in &mut self.pipelines {
            if timeout_at(deadlines.handed_on, pipeline.ended()).await.is_err() {
                let counters = &pipeline.counters;
                failures.push(format!("pipelines/{}: it was still working at the deadline", counters.id));
                counters.give_up(Reason::Shutdown);
            }
        }
        failures
    }

    async fn stop_exporters(&mut self, deadlines: Deadlines) {
        let stop = deadlines.stop();
        let mut stopping = tokio::task::JoinSet::new();
        for (telemetry, exporter) in std::mem::take(&mut self.exporters) {
            let health = self.health.clone();
            self.exporter_telemetry.push(telemetry.clone());
            stopping.spawn(async move {
                exporter.stop(stop).await;
                health.set("exporters", telemetry.id(), ComponentState::Stopped);
            });
        }
        while let Some(ended) = stopping.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "an exporter failed while it stopped");
            }
        }
    }

    fn report(&self, began: Instant, failures: Vec<String>) -> RunReport {
        RunReport {
            ran: began.duration_since(self.started),
            stopped_in: began.elapsed(),
            receivers: self
                .receivers
                .iter()
                .map(|receiver| ReceiverReport::new(&receiver.telemetry, &receiver.edge))
                .collect(),
            pipelines: self.pipelines.iter().map(|pipeline| PipelineReport::new(&pipeline.counters)).collect(),
            exporters: self.exporter_telemetry.iter().map(ExporterReport::new).collect(),
            disabled: self.disabled.clone(),
            failures,
        }
    }
}
