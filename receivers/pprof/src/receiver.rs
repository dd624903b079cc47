//! Implements the engine's receiver contract.

use hyper::service::service_fn;
use profbridge_engine::body;
use profbridge_engine::clock::Clock;
use profbridge_engine::component::{BoxFuture, StartError};
use profbridge_engine::http_server::HttpServer;
use profbridge_engine::receiver::{Receiver, ReceiverContext, RunningReceiver, together};
use profbridge_engine::registry::{Description, PROFILES, ReceiverFactory};

use crate::call::ProfileHandler;
use crate::config::Settings;
use crate::scrape::Scraper;
use crate::service::PprofService;

/// Creates receivers of type `pprof`.
pub const FACTORY: ReceiverFactory = ReceiverFactory {
    description: Description::receiver("pprof", "takes pprof profiles over HTTP, and fetches them", PROFILES),
    create: |section| Ok(Box::new(Pprof::new(Settings::read(section)?))),
};

/// The receiver `pprof`.
#[derive(Debug, Clone)]
pub struct Pprof {
    settings: Settings,
    clock: Clock,
}

impl Pprof {
    /// A receiver that has not started.
    pub fn new(settings: Settings) -> Self {
        Self { settings, clock: Clock::system() }
    }

    /// Replaces the clock for arrival times.
    #[cfg(test)]
    pub(crate) fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }
}

impl Receiver for Pprof {
    fn listens(&self) -> Vec<String> {
        self.settings.push.iter().map(|push| push.endpoint.clone()).collect()
    }

    fn start<'a>(self: Box<Self>, context: ReceiverContext) -> BoxFuture<'a, Result<RunningReceiver, StartError>> {
        Box::pin(start(self.settings, self.clock, context))
    }
}

async fn start(settings: Settings, clock: Clock, context: ReceiverContext) -> Result<RunningReceiver, StartError> {
    let Settings { push, mut scrape, insert } = settings;
    let handler = ProfileHandler { intake: context.next.clone(), slots: body::slots(), insert: insert.into(), clock };
    let (mut addresses, mut parts) = (Vec::new(), Vec::<BoxFuture<'static, ()>>::new());
    for target in std::mem::take(&mut scrape.targets) {
        let name = target.name.clone();
        let telemetry = context.telemetry.transport("scrape");
        let scraper = Scraper::new(&context.id, &scrape, target, handler.clone(), telemetry);
        let scraper = scraper.map_err(|error| StartError(format!("scrape.targets.{name}.tls: {error}")))?;
        parts.push(Box::pin(scraper.run(context.shutdown.clone())));
    }
    if let Some(push) = push {
        let server = HttpServer {
            transport: "http",
            keys: "push.",
            takes: "profiles",
            endpoint: push.endpoint,
            tls: push.tls,
            limits: push.server,
            cors_origins: Some(Vec::new()),
        };
        let telemetry = context.telemetry.transport("http");
        let service = PprofService { handler, telemetry, body: push.body, linger: body::LINGER };
        let service = service_fn(move |request| service.clone().answer(request));
        let (address, stopped) = server.listen(service, &context).await?;
        addresses.push(("http", address));
        parts.push(stopped);
    }
    Ok(RunningReceiver { addresses, stopped: together(parts) })
}
