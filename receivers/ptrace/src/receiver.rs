//! Starts the receiver: the sampler process, the control socket, and the driver that connects them with the pipelines.

use profbridge_engine::component::{BoxFuture, StartError};
use profbridge_engine::receiver::{Receiver, ReceiverContext, RunningReceiver, together};
use profbridge_engine::registry::{Description, PROFILES, ReceiverFactory};
use profbridge_sampler::message::Select;
use profbridge_symbolizer::Symbolizer;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::config::{ControlSettings, Settings};
use crate::control::server::{ControlEvent, ControlServer};
use crate::control::socket::ControlSocket;
use crate::delivery::Delivery;
use crate::driver::{Driver, DriverParts};
use crate::link::{self, Launch};
use crate::resource;

/// Creates receivers of type `ptrace`.
pub const FACTORY: ReceiverFactory = ReceiverFactory {
    description: Description::receiver(
        "ptrace",
        "samples processes of this machine with the built-in sampler",
        PROFILES,
    ),
    create: |section| Ok(Box::new(Ptrace::new(Settings::read(section)?))),
};

/// How many requests of the control socket may wait for the driver.
const WAITING_REQUESTS: usize = 64;

/// The receiver `ptrace`.
#[derive(Debug, Clone)]
pub struct Ptrace {
    settings: Settings,
}

impl Ptrace {
    /// Creates a receiver. [`Ptrace::start`] starts it.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

impl Receiver for Ptrace {
    fn start<'a>(self: Box<Self>, context: ReceiverContext) -> BoxFuture<'a, Result<RunningReceiver, StartError>> {
        let commands = self.settings.targets.iter().any(|target| matches!(target.select, Select::Command(_)));
        let launch = link::real(self.settings.realtime, commands);
        Box::pin(start(self.settings, context, launch, resource::host_name()))
    }
}

/// Starts with any source of sampler processes; tests simulate them.
pub(crate) async fn start(
    settings: Settings,
    context: ReceiverContext,
    mut launch: Launch,
    host: String,
) -> Result<RunningReceiver, StartError> {
    for target in &settings.targets {
        if let Some(warning) = target.sampling.stops.warning() {
            tracing::warn!("{}: targets.{}: {warning}", context.id, target.name);
        }
    }
    let (event_sender, control_events) = mpsc::channel(WAITING_REQUESTS);
    let server = match &settings.control {
        Some(control) => serve(control, &context.id, event_sender)?,
        None => None,
    };
    let symbolizer = settings
        .symbolizer
        .clone()
        .map(|symbolizer| Symbolizer::with_server(symbolizer, profbridge_debuginfod::start(&settings.debuginfod)?));
    let symbolizer = symbolizer.transpose();
    let symbolizer = symbolizer.map_err(|error| StartError(format!("symbolize: cannot start a thread: {error}")))?;
    let link = launch().map_err(StartError)?;
    let transport = context.telemetry.transport("sampler");
    let limit = crate::driver::delivery_limit(&settings);
    let (delivery, couriers) = Delivery::new(context.next.clone(), transport, context.shutdown.clone(), limit);
    let ReceiverContext { id, next: intake, identity, telemetry, .. } = context.clone();
    let parts = DriverParts { id, intake, host, identity, symbolizer, delivery, launch, telemetry };
    let driver = Driver::new(settings, parts);
    let shutdown = context.shutdown;
    let stopped = Box::pin(async move {
        // Dropping the set ends the server, which would otherwise run forever.
        let mut server_task = JoinSet::new();
        if let Some(server) = server {
            server_task.spawn(server.run());
        }
        together(vec![Box::pin(couriers), Box::pin(driver.run(link, control_events, shutdown))]).await;
        drop(server_task);
    });
    Ok(RunningReceiver { addresses: Vec::new(), stopped })
}

fn serve(
    control: &ControlSettings,
    id: &str,
    events: mpsc::Sender<ControlEvent>,
) -> Result<Option<ControlServer>, StartError> {
    let made = ControlSocket::listen(&control.socket)
        .map_err(|error| error.to_string())
        .and_then(|(socket, listener)| Ok((socket, UnixListener::from_std(listener).map_err(|e| e.to_string())?)));
    match made {
        Ok((socket, listener)) => {
            Ok(Some(ControlServer { listener, socket, max_connections: control.max_connections, events }))
        }
        Err(error) if control.required => Err(StartError(format!("control.socket: {error}"))),
        Err(error) => {
            tracing::warn!(
                "{id}: processes cannot be started and stopped while it runs, there is no control socket: {error}"
            );
            Ok(None)
        }
    }
}
