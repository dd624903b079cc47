//! Forwards requests of unsupported signals unchanged to another server.
//!
//! If `OTEL_EXPORTER_OTLP_ENDPOINT` names this receiver, a service sends every signal here. If a server for the others
//! is configured, the service's traces, metrics and logs arrive there: method, path, headers and body are forwarded
//! unchanged, and so is the server's answer, including its limits and refusals. Nothing is retried here; in OTLP the
//! sender retries.

use std::time::Duration;

use ::http::{Request, Response, Uri};
use bytes::Bytes;
use http_body_util::Either;
use hyper::body::{Body as _, Incoming};
use profbridge_engine::component::StartError;
use profbridge_engine::intake::Intake;
use profbridge_net::body::{BodyLimits, Guarded};
use profbridge_net::client::{FORWARDING_BYTES, ForwardingClient, HttpClientConfig, PartlyReadBody};
use profbridge_net::server::Peer;
use profbridge_net::tls::TlsClientConfig;

use crate::call::ExportHandler;
use crate::fault::{CallFault, FaultKind};

/// The timeout for the head of an answer, including the time to send the request's body. SDKs give up after 10 s by
/// default.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

const FORWARDED: &str = "otlp_requests_handed_on";

/// Forwards requests of other signals to a server.
#[derive(Debug, Clone)]
pub(crate) struct SignalForwarder {
    forwarding: ForwardingClient,
    server: Uri,
}

impl SignalForwarder {
    /// A forwarder to a server that uses `grpc` or `http`; it does not connect yet. The signals' paths are appended to
    /// the server's URL.
    ///
    /// # Errors
    ///
    /// The system's certificates cannot be read.
    pub(crate) fn new(server: Uri, protocol: &str) -> Result<Self, StartError> {
        let tls = (server.scheme_str() == Some("https")).then(TlsClientConfig::default);
        let config = HttpClientConfig { tls, ..HttpClientConfig::default() };
        let forwarding =
            if protocol == "grpc" { ForwardingClient::grpc(&config) } else { ForwardingClient::new(&config) };
        let failed = |error| StartError(format!("protocols.{protocol}.forward_unsupported: {error}"));
        Ok(Self { forwarding: forwarding.map_err(failed)?, server })
    }

    /// Forwards a request and returns the answer. If the request is too large, or there is no answer, the result of
    /// `failure` is returned instead.
    pub(crate) async fn answer<B>(
        &self,
        request: Request<Incoming>,
        limits: BodyLimits,
        handler: &ExportHandler,
        failure: impl FnOnce(&CallFault) -> Response<B>,
    ) -> Response<Either<B, Incoming>> {
        let peer = request.extensions().get::<Peer>().map(|peer| peer.addr.ip());
        match self.pass(request, limits, &handler.intake).await {
            Ok(answer) => answer.map(Either::Right),
            Err(fault) => {
                handler.telemetry.not_taken(fault.refusal(peer));
                failure(&fault).map(Either::Left)
            }
        }
    }

    /// Forwards a request, streaming its body.
    async fn pass(
        &self,
        mut request: Request<Incoming>,
        limits: BodyLimits,
        intake: &Intake,
    ) -> Result<Response<Incoming>, CallFault> {
        if request.body().size_hint().lower() > limits.max_bytes as u64 {
            return Err(CallFault::too_large(limits.max_bytes));
        }
        let circle = "it passed through this process before and came back: correct `forward_unsupported`";
        intake.add_own_id(request.headers_mut()).map_err(|_| CallFault::new(FaultKind::Loop, circle))?;
        let _memory = intake.admit_waiting(FORWARDING_BYTES).await?;
        let (base, path) = (self.server.to_string(), request.uri().path_and_query().map_or("/", |path| path.as_str()));
        let url = format!("{}{path}", base.trim_end_matches('/')).parse();
        let url = url.map_err(|_| CallFault::invalid("path", "it is no path"))?;
        let request = request.map(|body| PartlyReadBody::new(Bytes::new(), Guarded::new(body, limits)));
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, self.forwarding.pass(url, request)).await;
        intake.note(FORWARDED, 1);
        let host = self.server.authority().map(ToString::to_string).unwrap_or_default();
        let unreachable = |why: String| CallFault::later(format!("{host} did not take it: {why}"));
        let answer = answer.map_err(|_| unreachable(format!("no answer within {ANSWER_TIMEOUT:?}")))?;
        answer.map_err(|failure| unreachable(failure.to_string()))
    }
}
