//! OTLP over HTTP, in protobuf or JSON: the current path of profiles, that of opentelemetry-proto 1.3, and that of
//! traces.
//!
//! Before a body is refused, its rest is read and discarded for a few seconds, so that its sender gets to read the
//! answer ([`body::discard_rest`]).

mod media;

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use profbridge_engine::body;
use profbridge_engine::http_fault::{RequestTally, retry_after};
use profbridge_net::body::BodyLimits;
use profbridge_net::compression;
use profbridge_net::server::Peer;
use profbridge_wire::otlp::Signal;
use profbridge_wire::otlp::json::Message;

use self::media::Media;
use crate::call::{AcceptedRequest, ExportHandler, RequestContent, count};
use crate::fault::{CallFault, FaultKind, UnsupportedSignal};
use crate::message;
use crate::signal_forwarder::SignalForwarder;

/// The path of profiles.
pub(crate) const PATH: &str = Signal::Profiles.names().http_path;

/// The path of profiles in opentelemetry-proto 1.3.
pub(crate) const EXPERIMENTAL: &str = "/v1experimental/profiles";

/// The service of one listener.
#[derive(Clone)]
pub(crate) struct OtlpHttpService {
    pub(crate) handler: ExportHandler,
    pub(crate) body: BodyLimits,
    /// The server for unsupported signals.
    pub(crate) signal_forwarder: Option<SignalForwarder>,
    /// The time for which the rest of a refused body is read.
    pub(crate) linger: Duration,
}

/// An answer: the receiver's own, or that of the server to which the request was forwarded.
type ClientAnswer = Response<Either<Full<Bytes>, Incoming>>;

impl OtlpHttpService {
    /// Answers a request, or forwards it to another server. Never fails.
    pub(crate) async fn answer(self, request: Request<Incoming>) -> Result<ClientAnswer, Infallible> {
        let Some(signal_forwarder) =
            self.signal_forwarder.as_ref().filter(|_| self.is_unsupported(request.uri().path()))
        else {
            return Ok(self.respond(request).await.map(Either::Left));
        };
        let media = Media::of(request.headers());
        Ok(signal_forwarder.answer(request, self.body, &self.handler, |fault| failure(fault, media)).await)
    }

    async fn respond(&self, mut request: Request<Incoming>) -> Response<Full<Bytes>> {
        let media = Media::of(request.headers());
        let peer = request.extensions().get::<Peer>().map(|peer| peer.addr.ip());
        let signal = match self.addressed(&request) {
            Ok(signal) => signal,
            Err(fault) => {
                // Other methods come from browsers and probes, which lose no data.
                if request.method() == Method::POST {
                    self.handler.telemetry.not_taken(fault.refusal(peer));
                }
                body::discard_rest(request, self.linger).await;
                return failure(&fault, media);
            }
        };
        let tally = RequestTally::new(&self.handler.telemetry, peer);
        let outcome = self.export(&mut request, signal, media).await;
        tally.end(|telemetry, peer| count(&outcome, telemetry, peer));
        match outcome {
            Ok(taken) => success(&taken, signal.names().response, media),
            Err(fault) => {
                body::discard_rest(request, self.linger).await;
                failure(&fault, media)
            }
        }
    }

    async fn export(
        &self,
        request: &mut Request<Incoming>,
        signal: Signal,
        media: Media,
    ) -> Result<AcceptedRequest, CallFault> {
        let content = RequestContent::of(signal, request.uri().path() == EXPERIMENTAL, request.headers())?;
        let (peer, coding) = self.handler.sender(request, content, CONTENT_ENCODING.as_str())?;
        let form = media.form(content)?;
        self.handler.intake.room_for(content.kind()).await?;
        let received = body::read(request.body_mut(), self.body, &self.handler.intake).await?;
        self.handler.call(received, coding, content, form, peer).await
    }

    /// Whether a path belongs to an unsupported signal.
    fn is_unsupported(&self, path: &str) -> bool {
        UnsupportedSignal::of(path).is_some() && self.accepted(path).is_none()
    }

    /// The signal of a path, if it is accepted.
    fn accepted(&self, path: &str) -> Option<Signal> {
        let path = if path == EXPERIMENTAL { PATH } else { path };
        Signal::find(|names| names.http_path == path).filter(|signal| self.handler.takes(*signal))
    }

    /// The signal of a request that is for this service.
    fn addressed(&self, request: &Request<Incoming>) -> Result<Signal, CallFault> {
        let path = request.uri().path();
        let content_type = request.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        if content_type.starts_with(b"application/grpc") {
            self.handler.telemetry.connections().wrong_protocol();
            let text = "this is OTLP over gRPC on the port for HTTP: give the client the port for gRPC, 4317 by default, or \
                        OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf";
            return Err(CallFault::new(FaultKind::Unknown, text));
        }
        if let Some(signal) = self.accepted(path) {
            let (method, name) = (request.method(), signal.names().name);
            let text = || format!("{method} is not allowed on {path}, {name} are sent with POST");
            return if *method == Method::POST { Ok(signal) } else { Err(CallFault::new(FaultKind::Method, text())) };
        }
        if let Some(signal) = UnsupportedSignal::of(path) {
            let what = format!("nothing is served on {path}");
            return Err(CallFault::another_signal(signal, &what, &self.handler.accepted_signals()));
        }
        let paths =
            Signal::ALL.map(Signal::names).map(|names| format!("{} are sent to {}", names.name, names.http_path));
        let text = format!("nothing is served on {path}: {}", paths.join(", "));
        Err(CallFault::new(FaultKind::Unknown, text))
    }
}

fn success(taken: &AcceptedRequest, message: Message, media: Media) -> Response<Full<Bytes>> {
    let (content_type, body) = media.response(message, message::response(taken));
    let mut response = Response::new(Full::new(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn failure(fault: &CallFault, media: Media) -> Response<Full<Bytes>> {
    let (content_type, body) = media.status(fault);
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = fault.status();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    match fault.kind {
        FaultKind::Method => {
            headers.insert(ALLOW, HeaderValue::from_static("POST"));
        }
        FaultKind::Coding => {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(compression::ACCEPT_ENCODING));
        }
        _ => {}
    }
    if let Some(delay) = fault.retry_after {
        headers.insert(RETRY_AFTER, retry_after(delay));
    }
    response
}
