//! Requests of signals that are not taken here, handed on untouched to a server that takes them.
//!
//! Whoever sets `OTEL_EXPORTER_OTLP_ENDPOINT` to this receiver sends every signal of a service here. With a server
//! named for the others its traces, metrics and logs arrive as before: method, path, headers and body go on as they
//! came, and the server's answer comes back as it is, so its limits and its refusals reach the sender. Nothing is
//! repeated here; the sender does that, as OTLP has it.

use std::future::poll_fn;
use std::time::Duration;

use ::http::{HeaderMap, Request, Response, Uri, Version};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use profbridge_engine::body;
use profbridge_engine::component::StartError;
use profbridge_engine::intake::Intake;
use profbridge_net::body::{BodyLimits, Guarded};
use profbridge_net::client::{GrpcClientConfig, HttpClient, HttpClientConfig, grpc_channel, passed_on};
use profbridge_net::error_chain;
use profbridge_net::tls::TlsClientConfig;
use tonic::client::GrpcService as _;
use tonic::transport::Channel;

use crate::fault::Fault;

/// The largest answer, in bytes: the specification's recommendation (opentelemetry-proto `docs/specification.md`).
const MAX_ANSWER: usize = 4 << 20;

/// How long an answer may take; SDKs give up after 10 s by default.
const PATIENCE: Duration = Duration::from_secs(30);

/// Requests that were handed on.
const HANDED_ON: &str = "otlp_requests_handed_on";

/// Where requests of other signals go, over gRPC.
#[derive(Debug, Clone)]
pub(crate) struct GrpcElsewhere {
    channel: Channel,
    host: String,
}

/// What a server answered over gRPC.
pub(crate) struct GrpcAnswer {
    /// The status and the headers.
    pub(crate) head: Response<()>,
    /// The message with its prefix.
    pub(crate) data: Bytes,
    /// The trailers, where the status is not among the headers.
    pub(crate) trailers: Option<HeaderMap>,
}

impl GrpcElsewhere {
    /// A server that is not connected to yet.
    ///
    /// # Errors
    ///
    /// The system's certificates cannot be read.
    pub(crate) fn new(server: &Uri) -> Result<Self, StartError> {
        let insecure = server.scheme_str() != Some("https");
        let tls = TlsClientConfig { insecure, ..TlsClientConfig::default() };
        let config = GrpcClientConfig { tls, ..GrpcClientConfig::new(server.to_string()) };
        let channel = grpc_channel(&config).map_err(|error| failed("grpc", &error))?;
        Ok(Self { channel, host: host(server) })
    }

    /// Hands a call on.
    ///
    /// # Errors
    ///
    /// It could not be read, or nobody answered.
    pub(crate) async fn pass(
        &self,
        mut request: Request<Incoming>,
        limits: BodyLimits,
        intake: &Intake,
    ) -> Result<GrpcAnswer, Fault> {
        let received = body::read(request.body_mut(), limits, intake).await?;
        let (parts, _) = request.into_parts();
        let mut call = Request::new(tonic::body::Body::new(Full::new(received.bytes.clone())));
        *call.method_mut() = parts.method;
        *call.version_mut() = Version::HTTP_2;
        // The channel adds scheme and host.
        *call.uri_mut() = parts.uri.path().parse().map_err(|_| Fault::invalid("path", "it is no path"))?;
        *call.headers_mut() = passed_on(&parts.headers);
        let answer = tokio::time::timeout(PATIENCE, self.answer(call)).await;
        intake.note(HANDED_ON, 1);
        answer.unwrap_or_else(|_| Err(self.unreachable(&format!("no answer within {PATIENCE:?}"))))
    }

    async fn answer(&self, call: Request<tonic::body::Body>) -> Result<GrpcAnswer, Fault> {
        let mut channel = self.channel.clone();
        let answered = async {
            poll_fn(|cx| channel.poll_ready(cx)).await?;
            channel.call(call).await
        };
        let (head, body) = answered.await.map_err(|error| self.unreachable(&error_chain(&error)))?.into_parts();
        let limits = BodyLimits { timeout: PATIENCE, ..BodyLimits::new(MAX_ANSWER) };
        let mut body = Guarded::new(body, limits);
        let (mut data, mut trailers) = (BytesMut::new(), None);
        while let Some(frame) = body.frame().await {
            match frame.map_err(|error| self.unreachable(&error.to_string()))?.into_data() {
                Ok(more) => data.extend_from_slice(&more),
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        let mut response = Response::new(());
        *response.status_mut() = head.status;
        *response.headers_mut() = passed_on(&head.headers);
        Ok(GrpcAnswer { head: response, data: data.freeze(), trailers })
    }

    fn unreachable(&self, why: &str) -> Fault {
        Fault::later(format!("{} did not take it: {why}", self.host))
    }
}

/// Where requests of other signals go, over HTTP.
#[derive(Debug, Clone)]
pub(crate) struct HttpElsewhere {
    client: HttpClient,
    server: Uri,
    host: String,
}

impl HttpElsewhere {
    /// A server that is not connected to yet. The paths of signals come behind its URL.
    ///
    /// # Errors
    ///
    /// The system's certificates cannot be read.
    pub(crate) fn new(server: Uri) -> Result<Self, StartError> {
        let tls = (server.scheme_str() == Some("https")).then(TlsClientConfig::default);
        let config =
            HttpClientConfig { tls, timeout: PATIENCE, max_response_bytes: MAX_ANSWER, ..HttpClientConfig::default() };
        let client = HttpClient::new(&config).map_err(|error| failed("http", &error))?;
        let host = host(&server);
        Ok(Self { client, server, host })
    }

    /// Hands a request on.
    ///
    /// # Errors
    ///
    /// It could not be read, or nobody answered.
    pub(crate) async fn pass(
        &self,
        request: &mut Request<Incoming>,
        limits: BodyLimits,
        intake: &Intake,
    ) -> Result<Response<Full<Bytes>>, Fault> {
        let received = body::read(request.body_mut(), limits, intake).await?;
        let base = self.server.to_string();
        let url: Uri = format!("{}{}", base.trim_end_matches('/'), request.uri().path())
            .parse()
            .map_err(|_| Fault::invalid("path", "it is no path"))?;
        let headers = passed_on(request.headers());
        let answer = self.client.send(request.method().clone(), &url, headers, received.bytes.clone()).await;
        intake.note(HANDED_ON, 1);
        let answer = answer.map_err(|failure| Fault::later(format!("{} did not take it: {failure}", self.host)))?;
        let mut response = Response::new(Full::new(answer.body));
        *response.status_mut() = answer.status;
        *response.headers_mut() = passed_on(&answer.headers);
        Ok(response)
    }
}

/// Host and port, for messages.
fn host(server: &Uri) -> String {
    server.authority().map(ToString::to_string).unwrap_or_default()
}

fn failed(protocol: &str, error: &dyn std::fmt::Display) -> StartError {
    StartError(format!("protocols.{protocol}.forward_unsupported: {error}"))
}
