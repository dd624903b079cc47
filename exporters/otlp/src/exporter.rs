//! The exporter as the engine sees it.

use std::sync::{Mutex, OnceLock, PoisonError};

use ::http::HeaderMap;
use profbridge_codec::otlp::Encoder;
use profbridge_engine::component::{
    Accepted, BoxFuture, Exporter, Now, Prepared, Request, Retry, SendError, StartError,
};
use profbridge_engine::peer_limits::PeerLimits;
use profbridge_engine::via::{self, Via};
use profbridge_model::{Reason, Telemetry};
use profbridge_net::client::{HttpClient, grpc_channel};
use tonic::transport::Channel;

use crate::answer::{self, Refused};
use crate::oversize::PeerLimit;
use crate::prepare::{self, Meta};
use crate::settings::{Settings, Target};
use crate::{grpc, http};

/// Sends OTLP.
pub(crate) struct OtlpExporter {
    settings: Settings,
    encoder: Mutex<Encoder>,
    limit: PeerLimit,
    client: OnceLock<Client>,
    /// The processes that something came through.
    via: OnceLock<Via>,
}

enum Client {
    Grpc(Channel),
    Http(Box<HttpClient>),
}

impl OtlpExporter {
    pub(crate) fn new(settings: Settings) -> Self {
        let limit = PeerLimit::new(settings.max_request_bytes);
        let encoder = Mutex::new(prepare::encoder(&settings));
        Self { settings, encoder, limit, client: OnceLock::new(), via: OnceLock::new() }
    }

    /// Makes one attempt. Where the peer says that the request is too large, it is cut, and its parts are sent one
    /// after the other; what was sent of them stays sent, whatever becomes of the attempt.
    async fn attempt(&self, request: &Request<Meta>) -> Result<Accepted, SendError> {
        let parts = &request.meta.parts;
        loop {
            let part = parts.next();
            let sending = part.as_deref().unwrap_or(request);
            let outcome = match self.send_once(sending).await {
                Err(refused) if refused.too_large => match self.limit.cut(&self.settings.host, sending).await {
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
                    if let Some(all) = parts.settle(&part, outcome)? {
                        return Ok(all);
                    }
                }
            }
        }
    }

    /// The headers that every request has.
    fn headers(&self) -> HeaderMap {
        let mut headers = self.settings.headers.clone();
        if let Some(via) = self.via.get() {
            headers.insert(via::HEADER, via.header());
        }
        headers
    }

    async fn send_once(&self, request: &Request<Meta>) -> Result<Accepted, Refused> {
        match (self.client.get(), &self.settings.target) {
            (Some(Client::Grpc(channel)), _) => {
                let timeout = self.settings.timeout;
                let export = grpc::export(channel, &self.settings, self.headers(), request);
                tokio::time::timeout(timeout, export).await.unwrap_or_else(|_| {
                    let within = profbridge_engine::config::Duration::from(timeout);
                    Err(answer::unanswered(&self.settings, &format!("no answer within {within}")).into())
                })
            }
            (Some(Client::Http(client)), target) => {
                let url = target.url(request.meta.batch.signal);
                http::export(client, url, &self.settings, self.headers(), request).await
            }
            _ => Err(SendError {
                retry: Retry::Never,
                reason: Reason::Internal,
                message: "the exporter was not started".to_owned(),
            }
            .into()),
        }
    }
}

impl Exporter for OtlpExporter {
    type Meta = Meta;

    fn prepare(&self, telemetry: &Telemetry, _: Now) -> Prepared<Meta> {
        let mut encoder = self.encoder.lock().unwrap_or_else(PoisonError::into_inner);
        prepare::prepare(&mut encoder, &self.settings, self.limit.get(), telemetry)
    }

    fn send<'a>(&'a self, request: &'a Request<Meta>) -> BoxFuture<'a, Result<Accepted, SendError>> {
        Box::pin(self.attempt(request))
    }

    fn share(&self, _: PeerLimits, via: Via) {
        self.via.get_or_init(|| via);
    }

    fn destinations(&self) -> Vec<String> {
        self.settings.target.addresses()
    }

    fn start(&self) -> BoxFuture<'_, Result<(), StartError>> {
        Box::pin(async {
            let failed = |error: &dyn std::fmt::Display| StartError(format!("{}: {error}", self.settings.host));
            let client = match &self.settings.target {
                Target::Grpc(config) => Client::Grpc(grpc_channel(config).map_err(|error| failed(&error))?),
                Target::Http { client, .. } => {
                    Client::Http(Box::new(HttpClient::new(client).map_err(|error| failed(&error))?))
                }
            };
            // Started once, by contract; a second client would be the same.
            self.client.get_or_init(|| client);
            Ok(())
        })
    }
}
