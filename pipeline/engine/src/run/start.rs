//! The start of a plan.

use std::sync::Arc;

use profbridge_identity::Rules;
use profbridge_net::Shutdown;
use tokio::task::JoinSet;

use super::reporter::{ReportedPipeline, Reporter};
use super::running::{ListenAddress, ReceiverTask, RunningPlan};
use super::server::Server;
use crate::budget::Budget;
use crate::clock::Clock;
use crate::component::{ExporterContext, StartError};
use crate::delivery::{DynExporter, RunningExporter, Sink};
use crate::health::{ComponentState, Health};
use crate::intake::{Entrance, Intake, ReceiverEnd};
use crate::peer_limits::PeerLimits;
use crate::pipeline::{Pipeline, PipelineContext, PipelineParts, RunsOn};
use crate::plan::{Plan, PlannedPipeline};
use crate::receiver::{Receiver, ReceiverContext};
use crate::service::ServiceSettings;
use crate::telemetry::{ComponentKind, ExporterTelemetry, Metrics};
use crate::via::Via;

/// The components started so far. If a later one fails, they are stopped in order, as in a shutdown.
struct Started {
    running: RunningPlan,
    around: PipelineContext,
    /// Triggered when everything but the components should stop.
    last: Shutdown,
    /// Triggered when the receivers should stop.
    receivers: Shutdown,
    /// Triggered when the receivers should answer senders that still wait.
    last_call: Shutdown,
    /// The rate limits that destinations set for senders.
    peer_limits: PeerLimits,
    /// The rules for process identity.
    identity: Rules,
    /// This process's own id for the `via` header.
    id: u64,
    /// Names under which loopback listeners may be reached.
    allowed_hosts: Arc<[String]>,
}

pub(super) async fn start(plan: Plan, clock: Clock, host: RunsOn) -> Result<RunningPlan, StartError> {
    let Plan { service, receivers, pipelines, exporters, disabled, .. } = plan;
    let mut started = Started::new(&service, pipelines.len(), clock, host, disabled);
    // A supervisor that asks during the start must see that nothing runs yet.
    for (id, _) in &receivers {
        started.around.health.set("receivers", id, ComponentState::Starting);
    }
    match started.all(&service, receivers, pipelines, exporters).await {
        Ok(()) => {
            let Started { running, .. } = started;
            for address in &running.addresses {
                let ListenAddress { component, protocol, address } = address;
                tracing::info!("{component}/{protocol} listening on {address}");
            }
            Ok(running)
        }
        Err(error) => {
            started.running.stop().await;
            Err(error)
        }
    }
}

impl Started {
    fn new(
        service: &ServiceSettings,
        pipelines: usize,
        clock: Clock,
        host: RunsOn,
        disabled: Vec<(String, String)>,
    ) -> Self {
        let budget = Budget::new(service.memory);
        let share = budget.limit() / pipelines.max(1) as u64;
        let metrics = Metrics::new(budget.clone());
        let health = Health::default();
        let (stop_receivers, receivers) = Shutdown::pair();
        let (last_call, soon) = Shutdown::pair();
        let (stop_last, last) = Shutdown::pair();
        for (id, why) in &disabled {
            tracing::info!(exporter = id, "switched off: {why}");
            health.set("exporters", id, ComponentState::Disabled(why.clone()));
        }
        let running = RunningPlan {
            addresses: Vec::new(),
            shutdown_timeout: service.shutdown_timeout,
            health: health.clone(),
            metrics: metrics.clone(),
            receivers: Vec::new(),
            stop_receivers,
            last_call,
            pipelines: Vec::new(),
            exporters: Vec::new(),
            exporter_telemetry: Vec::new(),
            disabled,
            servers: Vec::new(),
            stop_last,
            reporter: tokio::spawn(std::future::ready(())),
            started: tokio::time::Instant::now(),
        };
        Self {
            running,
            around: PipelineContext { budget, share, clock, health, metrics, host },
            last,
            receivers,
            last_call: soon,
            peer_limits: PeerLimits::default(),
            identity: service.identity.clone(),
            id: fastrand::u64(..),
            allowed_hosts: service.allowed_hosts.as_slice().into(),
        }
    }

    async fn all(
        &mut self,
        service: &ServiceSettings,
        receivers: Vec<(String, Box<dyn Receiver>)>,
        pipelines: Vec<PlannedPipeline>,
        exporters: Vec<(String, Box<dyn DynExporter>)>,
    ) -> Result<(), StartError> {
        self.servers(service).await?;
        for (id, exporter) in exporters {
            self.exporter(&id, exporter).await?;
        }
        let mut feeds: Vec<(Vec<String>, Entrance)> = Vec::new();
        let mut watched = Vec::new();
        for planned in pipelines {
            let fed_by = planned.receivers.clone();
            let exporters = self.telemetry_of(&planned.exporters);
            let pipeline = self.pipeline(planned)?;
            feeds.push((fed_by, pipeline.entrance.clone()));
            watched.push(ReportedPipeline { counters: pipeline.counters.clone(), exporters });
            self.running.pipelines.push(pipeline);
        }
        for (id, receiver) in receivers {
            let entrances = feeds.iter().filter(|(fed_by, _)| fed_by.contains(&id));
            let entrances = entrances.map(|(_, entrance)| entrance.clone()).collect();
            self.receiver(id, receiver, entrances).await?;
        }
        let receivers = self.running.receivers.iter().map(|receiver| receiver.telemetry.clone()).collect();
        let listening = self.running.addresses.iter().filter(|known| known.protocol != TELEMETRY).cloned().collect();
        let reporter = Reporter::new(watched, receivers, listening);
        self.running.reporter = tokio::spawn(reporter.run(self.last.clone()));
        Ok(())
    }

    async fn servers(&mut self, service: &ServiceSettings) -> Result<(), StartError> {
        let mut servers = Vec::new();
        if let Some(endpoint) = &service.metrics {
            let server = Server::metrics(
                endpoint,
                self.around.metrics.clone(),
                Arc::clone(&self.allowed_hosts),
                self.last.clone(),
            )
            .await?;
            servers.push(("metrics", server));
        }
        if let Some(endpoint) = &service.health {
            let (health, metrics) = (self.around.health.clone(), self.around.metrics.clone());
            let (thresholds, hosts) = (service.health_thresholds, Arc::clone(&self.allowed_hosts));
            let server = Server::health(endpoint, (health, metrics, thresholds), hosts, self.last.clone()).await?;
            servers.push(("health", server));
        }
        for (component, server) in servers {
            self.listens(component, TELEMETRY, server.address);
            self.running.servers.push(server);
        }
        Ok(())
    }

    fn listens(&mut self, component: &str, protocol: &str, address: std::net::SocketAddr) {
        let (component, protocol) = (component.to_owned(), protocol.to_owned());
        self.running.addresses.push(ListenAddress { component, protocol, address });
    }

    async fn exporter(&mut self, id: &str, exporter: Box<dyn DynExporter>) -> Result<(), StartError> {
        let telemetry = self.around.metrics.exporter(id);
        let context = ExporterContext {
            telemetry: telemetry.clone(),
            budget: self.around.budget.clone(),
            peer_limits: self.peer_limits.clone(),
            via: Via::new(self.id),
        };
        let health = self.around.health.clone();
        health.set("exporters", id, ComponentState::Starting);
        let exporter = exporter.start(context).await.map_err(|error| at(&health, "exporters", id, &error))?;
        health.set("exporters", id, ComponentState::Running);
        self.running.exporters.push((telemetry, exporter));
        Ok(())
    }

    /// The exporters of a pipeline, in its order.
    fn exporters_of<'a>(&'a self, ids: &'a [String]) -> impl Iterator<Item = &'a (ExporterTelemetry, RunningExporter)> {
        ids.iter().filter_map(|id| self.running.exporters.iter().find(|(telemetry, _)| telemetry.id() == id))
    }

    fn telemetry_of(&self, ids: &[String]) -> Vec<ExporterTelemetry> {
        self.exporters_of(ids).map(|(telemetry, _)| telemetry.clone()).collect()
    }

    fn pipeline(&self, planned: PlannedPipeline) -> Result<Pipeline, StartError> {
        let sinks: Vec<Arc<dyn Sink>> = self.exporters_of(&planned.exporters).map(|(_, e)| e.sink()).collect();
        let PlannedPipeline { id, carries, processors, .. } = planned;
        Pipeline::start(PipelineParts { id, carries, processors, sinks }, &self.around)
    }

    async fn receiver(
        &mut self,
        id: String,
        receiver: Box<dyn Receiver>,
        entrances: Vec<Entrance>,
    ) -> Result<(), StartError> {
        let health = self.around.health.clone();
        let telemetry = self.around.metrics.receiver(&id);
        let edge = self.around.metrics.edge(ComponentKind::Receiver, &id, "");
        let end = ReceiverEnd { shutdown: self.receivers.clone(), last_call: self.last_call.clone() };
        let context = ReceiverContext {
            id: id.clone(),
            next: Intake::new(entrances, self.around.budget.clone(), edge.clone(), health.clone(), end),
            shutdown: self.receivers.clone(),
            telemetry: telemetry.clone(),
            peer_limits: self.peer_limits.clone(),
            identity: self.identity.clone(),
            allowed_hosts: Arc::clone(&self.allowed_hosts),
        };
        let running = receiver.start(context).await.map_err(|error| at(&health, "receivers", &id, &error))?;
        for (protocol, address) in &running.addresses {
            self.listens(&id, protocol, *address);
        }
        health.set("receivers", &id, ComponentState::Running);
        let task = tokio::spawn(watch(id, running.stopped, self.receivers.clone(), health));
        self.running.receivers.push(ReceiverTask { telemetry, edge, task });
        Ok(())
    }
}

/// The name of the protocol of profbridge's own endpoints in the list of addresses.
const TELEMETRY: &str = "telemetry";

/// Waits for a receiver to end. Ending without a shutdown is a failure.
async fn watch(id: String, stopped: crate::component::BoxFuture<'static, ()>, shutdown: Shutdown, health: Health) {
    // The receiver runs as a separate task, so that its panic is noticed here, and in a `JoinSet`, so that it is
    // aborted with this task.
    let mut task = JoinSet::new();
    task.spawn(stopped);
    let state = match task.join_next().await {
        Some(Err(error)) => ComponentState::Failed(error.to_string()),
        _ if shutdown.is_triggered() => ComponentState::Stopped,
        _ => ComponentState::Failed("it ended unasked".to_owned()),
    };
    if let ComponentState::Failed(why) = &state {
        tracing::error!(receiver = id, "the receiver has failed: {why}");
    }
    health.set("receivers", &id, state);
}

/// Adds the name of the component that could not start to the error.
fn at(health: &Health, section: &'static str, id: &str, error: &StartError) -> StartError {
    health.set(section, id, ComponentState::Failed(error.to_string()));
    StartError(format!("{section}/{id}: {error}"))
}
