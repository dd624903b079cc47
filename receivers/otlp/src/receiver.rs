//! Implements the engine's receiver contract.

use std::path::Path;
use std::sync::Arc;

use hyper::service::service_fn;
use profbridge_engine::body;
use profbridge_engine::clock::Clock;
use profbridge_engine::component::{BoxFuture, StartError};
use profbridge_engine::http_server::HttpServer;
use profbridge_engine::receiver::{Receiver, ReceiverContext, RunningReceiver, together};
use profbridge_engine::registry::{Description, ReceiverFactory};
use profbridge_net::body::BodyLimits;
use profbridge_net::client::host_and_port;
use profbridge_wire::otlp::Signal;

use crate::call::ExportHandler;
use crate::config::{ProtocolSettings, Settings};
use crate::host::ThisHost;
use crate::origin::HostAttribution;
use crate::signal_forwarder::SignalForwarder;
use crate::{grpc, http};

/// Creates receivers of type `otlp`.
pub const FACTORY: ReceiverFactory = ReceiverFactory {
    description: Description::receiver("otlp", "takes OTLP profiles and traces over gRPC and HTTP", Signal::KINDS),
    create: |section| Ok(Box::new(OtlpReceiver::new(Settings::read(section)?))),
};

/// The receiver `otlp`.
#[derive(Debug, Clone)]
pub struct OtlpReceiver {
    settings: Settings,
    /// This host; `None` if it is read at the start.
    host: Option<ThisHost>,
    clock: Clock,
}

impl OtlpReceiver {
    /// A receiver that has not started.
    pub fn new(settings: Settings) -> Self {
        Self { settings, host: None, clock: Clock::system() }
    }

    /// A receiver that has not started, on the given host and with the given clock for arrival times.
    #[cfg(test)]
    pub(crate) fn on(host: ThisHost, clock: Clock, settings: Settings) -> Self {
        Self { settings, host: Some(host), clock }
    }
}

impl Receiver for OtlpReceiver {
    fn listens(&self) -> Vec<String> {
        let Settings { grpc, http, .. } = &self.settings;
        grpc.iter().chain(http).map(|protocol| protocol.endpoint.clone()).collect()
    }

    fn forwards_to(&self) -> Vec<String> {
        let Settings { grpc, http, .. } = &self.settings;
        grpc.iter()
            .chain(http)
            .filter_map(|protocol| protocol.forward_unsupported.as_ref())
            .map(host_and_port)
            .collect()
    }

    fn start<'a>(self: Box<Self>, context: ReceiverContext) -> BoxFuture<'a, Result<RunningReceiver, StartError>> {
        Box::pin(start(*self, context))
    }
}

async fn start(receiver: OtlpReceiver, context: ReceiverContext) -> Result<RunningReceiver, StartError> {
    let OtlpReceiver { settings, host, clock } = receiver;
    let host = host.unwrap_or_else(|| ThisHost::read(Path::new("/")));
    let names_host = settings.resource.insert.iter().any(|(key, _)| key == "host.id");
    if host.id.is_none() && settings.resource.local_host && !names_host {
        let name = host.name.as_deref().unwrap_or("unknown");
        tracing::info!(
            "{}: this machine has no /etc/machine-id of its own (a container has none), so profiles from the loopback that name \
             no host get host.name {name:?} and no host.id: mount the machine's /etc/machine-id, or set resource.insert",
            context.id
        );
    }
    let origin = Arc::new(HostAttribution::new(context.id.clone(), settings.resource, host));
    let slots = body::slots();
    let handler = |protocol: &'static str, body: &BodyLimits| ExportHandler {
        intake: context.next.clone(),
        telemetry: context.telemetry.transport(protocol),
        max_bytes: body.max_bytes,
        slots: Arc::clone(&slots),
        origin: Arc::clone(&origin),
        clock: clock.clone(),
    };
    let mut addresses = Vec::new();
    let mut servers = Vec::new();
    if let Some(settings) = settings.grpc {
        let ProtocolSettings { body, linger, ref forward_unsupported, .. } = settings;
        let signal_forwarder =
            forward_unsupported.clone().map(|server| SignalForwarder::new(server, "grpc")).transpose()?;
        let service = grpc::OtlpGrpcService { handler: handler("grpc", &body), body, signal_forwarder, linger };
        let service = service_fn(move |request| service.clone().answer(request));
        let (address, running) = server_of("grpc", "protocols.grpc.", settings).listen(service, &context).await?;
        addresses.push(("grpc", address));
        servers.push(running);
    }
    if let Some(settings) = settings.http {
        let ProtocolSettings { body, linger, ref forward_unsupported, .. } = settings;
        let signal_forwarder =
            forward_unsupported.clone().map(|server| SignalForwarder::new(server, "http")).transpose()?;
        let service = http::OtlpHttpService { handler: handler("http", &body), body, signal_forwarder, linger };
        let service = service_fn(move |request| service.clone().answer(request));
        let (address, running) = server_of("http", "protocols.http.", settings).listen(service, &context).await?;
        addresses.push(("http", address));
        servers.push(running);
    }
    Ok(RunningReceiver { addresses, stopped: together(servers) })
}

fn server_of(transport: &'static str, keys: &'static str, settings: ProtocolSettings) -> HttpServer {
    let ProtocolSettings { endpoint, tls, server: limits, .. } = settings;
    // Browsers cannot send gRPC from web pages, so only HTTP needs CORS.
    let cors_origins = (transport == "http").then(Vec::new);
    HttpServer { transport, keys, takes: "telemetry", endpoint, tls, limits, cors_origins }
}
