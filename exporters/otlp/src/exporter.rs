//! The implementation of the engine's `Exporter`.

use std::sync::{Mutex, OnceLock, PoisonError};

use profbridge_codec::otlp::OtlpEncoder;
use profbridge_engine::component::{
    Accepted, BoxFuture, Exporter, Now, Prepared, Request, Retry, SendError, StartError,
};
use profbridge_engine::delivery::ExporterContext;
use profbridge_engine::http_out::{self, HttpOut};
use profbridge_engine::via::Via;
use profbridge_model::{Reason, Telemetry};
use profbridge_net::client::grpc_channel;
use tonic::transport::Channel;

use crate::answer::FailedAttempt;
use crate::oversize::PeerLimit;
use crate::prepare::{self, OtlpMeta};
use crate::settings::{OtlpDestination, Settings};
use crate::{grpc, http};

/// Exports OTLP.
pub(crate) struct OtlpExporter {
    settings: Settings,
    encoder: Mutex<OtlpEncoder>,
    limit: PeerLimit,
    client: OnceLock<Client>,
}

enum Client {
    /// `Via` lists the processes that requests came through.
    Grpc(Channel, Via),
    Http(Box<HttpOut>),
}

impl OtlpExporter {
    pub(crate) fn new(settings: Settings) -> Self {
        let limit = PeerLimit::new(settings.max_request_bytes);
        let encoder = Mutex::new(prepare::encoder(&settings));
        Self { settings, encoder, limit, client: OnceLock::new() }
    }

    /// Makes one attempt. If the peer says that the request is too large, it is split and its parts are sent one after
    /// the other. Sent parts stay sent, even if the attempt fails later.
    async fn attempt(&self, request: &Request<OtlpMeta>) -> Result<Accepted, SendError> {
        let parts = &request.meta.parts;
        loop {
            let part = parts.next();
            let sending = part.as_deref().unwrap_or(request);
            let outcome = match self.send_once(sending).await {
                Err(refused) if refused.too_large => match self.limit.cut(&self.settings.peer.host, sending).await {
                    Some(smaller) => {
                        parts.replace(smaller);
                        continue;
                    }
                    None => Err(SendError { retry: Retry::Never, reason: Reason::RejectedByPeer, ..refused.error }),
                },
                Err(refused) => Err(refused.error),
                Ok(accepted) => Ok(accepted),
            };
            match part {
                None => return outcome,
                Some(part) => {
                    if let Some(all) = parts.record_outcome(&part, outcome)? {
                        return Ok(all);
                    }
                }
            }
        }
    }

    async fn send_once(&self, request: &Request<OtlpMeta>) -> Result<Accepted, FailedAttempt> {
        let settings = &self.settings;
        match self.client.get().ok_or_else(http_out::not_started)? {
            Client::Grpc(channel, via) => {
                let timeout = settings.timeout;
                let export = grpc::export(channel, settings, via, request);
                tokio::time::timeout(timeout, export).await.unwrap_or_else(|_| {
                    let within = profbridge_engine::config::Duration::from(timeout);
                    Err(settings.peer.unanswered(&format!("no answer within {within}")).into())
                })
            }
            Client::Http(out) => http::export(out, settings, request).await,
        }
    }
}

impl Exporter for OtlpExporter {
    type Meta = OtlpMeta;

    fn prepare(&self, telemetry: &Telemetry, _: Now) -> Prepared<OtlpMeta> {
        let mut encoder = self.encoder.lock().unwrap_or_else(PoisonError::into_inner);
        prepare::prepare(&mut encoder, &self.settings, self.limit.get(), telemetry)
    }

    fn send<'a>(&'a self, request: &'a Request<OtlpMeta>) -> BoxFuture<'a, Result<Accepted, SendError>> {
        Box::pin(self.attempt(request))
    }

    fn destinations(&self) -> Vec<String> {
        self.settings.target.addresses()
    }

    fn start<'a>(&'a self, context: &'a ExporterContext) -> BoxFuture<'a, Result<(), StartError>> {
        Box::pin(async {
            let via = context.via.clone();
            let client = match &self.settings.target {
                OtlpDestination::Grpc(config) => grpc_channel(config).map(|channel| Client::Grpc(channel, via)),
                OtlpDestination::Http { client, .. } => {
                    HttpOut::new(client, via).map(|out| Client::Http(Box::new(out)))
                }
            };
            let client = client.map_err(|error| StartError(format!("{}: {error}", self.settings.peer.host)))?;
            // The engine starts an exporter once; a second client would be identical.
            self.client.get_or_init(|| client);
            Ok(())
        })
    }
}
