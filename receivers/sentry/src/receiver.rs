//! Implements the engine's receiver contract.

use std::sync::Arc;

use hyper::service::service_fn;
use profbridge_engine::body;
use profbridge_engine::clock::Clock;
use profbridge_engine::component::{BoxFuture, StartError};
use profbridge_engine::http_server::HttpServer;
use profbridge_engine::receiver::{Receiver, ReceiverContext, RunningReceiver};
use profbridge_engine::registry::{Description, ReceiverFactory};
use profbridge_model::TelemetryKind;
use tokio::sync::Semaphore;

use crate::call::EnvelopeHandler;
use crate::clients::{self, Clients};
use crate::config::Settings;
use crate::service::SentryService;

/// At most this many requests are completed after their connection ended. Further ones are dropped with their
/// connection.
const MAX_UNATTENDED: u32 = 1024;

/// Makes receivers of type `sentry`.
pub const FACTORY: ReceiverFactory = ReceiverFactory {
    description: Description::receiver(
        "sentry",
        "takes envelopes of Sentry's SDKs, and their spans in OTLP, over HTTP",
        &[TelemetryKind::Envelopes, TelemetryKind::Spans],
    ),
    create: |section| Ok(Box::new(SentryReceiver::new(Settings::read(section)?))),
};

/// The receiver `sentry`.
#[derive(Debug, Clone)]
pub struct SentryReceiver {
    settings: Settings,
}

impl SentryReceiver {
    /// A receiver that has not started.
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

impl Receiver for SentryReceiver {
    fn listens(&self) -> Vec<String> {
        vec![self.settings.endpoint.clone()]
    }

    fn start<'a>(self: Box<Self>, context: ReceiverContext) -> BoxFuture<'a, Result<RunningReceiver, StartError>> {
        Box::pin(start(self.settings, context))
    }
}

async fn start(settings: Settings, context: ReceiverContext) -> Result<RunningReceiver, StartError> {
    let server = HttpServer {
        transport: "http",
        keys: "",
        takes: "envelopes",
        endpoint: settings.endpoint.clone(),
        tls: settings.tls.clone(),
        limits: settings.server.clone(),
        cors_origins: Some(settings.cors_origins.clone()),
    };
    let forwarder = context.peer_limits.forwarder_of(context.next.exporters());
    if settings.cors_origins.iter().any(|origin| origin == "*") {
        tracing::warn!("{}: with `*` in `cors_origins` every web page that its users open may send", context.id);
    }
    if forwarder.is_some() && settings.keys.is_none() {
        tracing::warn!(
            "{}: whoever reaches it can send to any project of the `upstream`: name the keys of yours in `public_keys`",
            context.id
        );
    }
    let clients = settings.resolve_clients.then(Clients::default);
    if clients.as_ref().is_some_and(|clients| !clients.sees_other_users()) {
        tracing::warn!(
            "`resolve_clients` finds clients of the user only that profbridge runs as: for those of others it needs the right to \
             trace them (CAP_SYS_PTRACE)"
        );
    }
    let handler = EnvelopeHandler {
        intake: context.next.clone(),
        telemetry: context.telemetry.transport("http"),
        clients,
        host: clients::host_name(),
        settings: Arc::new(settings),
        peer_limits: context.peer_limits.clone(),
        forwarder,
        allowed_hosts: Arc::clone(&context.allowed_hosts),
        slots: body::slots(),
    };
    let unattended = Arc::new(Semaphore::new(MAX_UNATTENDED as usize));
    let service =
        SentryService { handler, clock: Clock::system(), linger: body::LINGER, unattended: Arc::clone(&unattended) };
    let service = service_fn(move |request| service.clone().answer(request));
    let (address, served) = server.listen(service, &context).await?;
    let stopped = Box::pin(async move {
        served.await;
        // Waits for requests whose connection has ended.
        drop(unattended.acquire_many(MAX_UNATTENDED).await);
    });
    Ok(RunningReceiver { addresses: vec![("http", address)], stopped })
}
