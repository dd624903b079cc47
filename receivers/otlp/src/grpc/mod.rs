//! OTLP over gRPC: unary methods, one per signal.
//!
//! Uses tonic's statuses, metadata and details but not its server: `tonic::server::Grpc` reserves memory for the length
//! that a message claims, decompresses on the socket's thread, and answers a too large message with OUT_OF_RANGE and a
//! damaged one with INTERNAL. Both answers violate opentelemetry-proto `docs/specification.md`, and OTLP clients retry
//! the former for minutes. The rest of a server for a unary method is small: the frame of a message (see [`frame`]) and
//! the trailers of the answer (see [`reply`]). Rules: gRPC `doc/PROTOCOL-HTTP2.md`.

mod frame;
mod reply;

use std::convert::Infallible;
use std::time::Duration;

use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use profbridge_engine::body;
use profbridge_engine::http_fault::RequestTally;
use profbridge_net::body::BodyLimits;
use profbridge_net::compression::Coding;
use profbridge_net::server::Peer;
use profbridge_wire::otlp::Signal;
use profbridge_wire::otlp::signal::SignalNames;

use self::reply::GrpcReply;
use crate::call::{AcceptedRequest, ExportHandler, RequestContent, RequestEncoding, count};
use crate::fault::{CallFault, FaultKind, UnsupportedSignal};
use crate::signal_forwarder::SignalForwarder;

/// The path of the method.
pub(crate) const PATH: &str = Signal::Profiles.names().grpc_path;

/// The path of the method in opentelemetry-proto 1.3.
pub(crate) const EXPERIMENTAL: &str = "/opentelemetry.proto.collector.profiles.v1experimental.ProfilesService/Export";

/// The supported message encodings, as the value of `grpc-accept-encoding`.
const ACCEPT_ENCODING: &str = "zstd,gzip,deflate,identity";

/// The service of one listener.
#[derive(Clone)]
pub(crate) struct OtlpGrpcService {
    pub(crate) handler: ExportHandler,
    pub(crate) body: BodyLimits,
    /// The server for unsupported signals.
    pub(crate) signal_forwarder: Option<SignalForwarder>,
    /// The time for which the rest of a misdirected request is read.
    pub(crate) linger: Duration,
}

impl OtlpGrpcService {
    /// Answers a request, or forwards it to another server. Never fails.
    pub(crate) async fn answer(
        self,
        request: Request<Incoming>,
    ) -> Result<Response<Either<GrpcReply, Incoming>>, Infallible> {
        let path = request.uri().path();
        if let Some(signal_forwarder) = &self.signal_forwarder
            && request.method() == Method::POST
            && speaks_grpc(request.headers())
            && signal_of(path).is_some()
            && self.accepted(path).is_none()
        {
            let limits = BodyLimits { max_bytes: self.body.max_bytes.saturating_add(frame::PREFIX), ..self.body };
            return Ok(signal_forwarder.answer(request, limits, &self.handler, reply::failure).await);
        }
        Ok(self.respond(request).await.map(Either::Left))
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<GrpcReply> {
        // A misdirected request is answered after its end, as over HTTP. If the answer came first, later frames would
        // be ignored, even if they break HTTP/2's rules.
        if !speaks_grpc(request.headers()) {
            body::discard_rest(request, self.linger).await;
            return not_grpc();
        }
        if request.method() != Method::POST {
            body::discard_rest(request, self.linger).await;
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "gRPC uses POST\n");
            response.headers_mut().insert(ALLOW, http::HeaderValue::from_static("POST"));
            return response;
        }
        let peer = request.extensions().get::<Peer>().map(|peer| peer.addr.ip());
        let Some(signal) = self.accepted(request.uri().path()) else {
            let fault = self.unknown(request.uri().path());
            self.handler.telemetry.not_taken(fault.refusal(peer));
            body::discard_rest(request, self.linger).await;
            return reply::failure(&fault);
        };
        let tally = RequestTally::new(&self.handler.telemetry, peer);
        let outcome = self.export(request, signal).await;
        tally.end(|telemetry, peer| count(&outcome, telemetry, peer));
        match outcome {
            Ok(taken) => reply::success(&taken),
            Err(fault) => reply::failure(&fault),
        }
    }

    async fn export(&self, request: Request<Incoming>, signal: Signal) -> Result<AcceptedRequest, CallFault> {
        let content = RequestContent::of(signal, request.uri().path() == EXPERIMENTAL, request.headers())?;
        let (peer, coding) = self.handler.sender(&request, content, "grpc-encoding")?;
        self.handler.intake.room_for(content.kind()).await?;
        let (received, packed) = frame::read_message(request.into_body(), self.body, &self.handler.intake).await?;
        let coding = match (packed, coding) {
            (false, _) => Coding::Identity,
            (true, Coding::Identity) => {
                let rule = "it is marked as compressed, but grpc-encoding names no compression";
                return Err(CallFault::invalid(frame::PLACE, rule));
            }
            (true, coding) => coding,
        };
        self.handler.call(received, coding, content, RequestEncoding::Protobuf, peer).await
    }

    /// The signal of a method, if it is accepted.
    fn accepted(&self, path: &str) -> Option<Signal> {
        let path = if path == EXPERIMENTAL { PATH } else { path };
        Signal::find(|names| names.grpc_path == path).filter(|signal| self.handler.takes(*signal))
    }

    /// The fault for an unknown path, which names the supported one.
    fn unknown(&self, path: &str) -> CallFault {
        let (service, method) = parts(path);
        let (known, _) = parts(PATH);
        let is_its = |names: &SignalNames| parts(names.grpc_path).0 == service;
        let is_taken = Signal::find(is_its).is_some_and(|signal| self.handler.takes(signal));
        if let Some(signal) = signal_of(path).filter(|_| !is_taken) {
            let accepted = self.handler.accepted_signals();
            return CallFault::another_signal(signal, &format!("unknown service {service}"), &accepted);
        }
        let text = if is_taken {
            format!("unknown method {method} of service {service}, its only method is Export")
        } else if service.starts_with("opentelemetry.proto.collector.profiles.") {
            format!(
                "unknown service {service}: this receiver takes the profiles of {known}, and those of v1experimental"
            )
        } else {
            format!("unknown service {service}: this receiver serves {known}")
        };
        CallFault::new(FaultKind::Unknown, text)
    }
}

/// Whether the content type is gRPC with protobuf.
fn speaks_grpc(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim();
    ["application/grpc", "application/grpc+proto"].iter().any(|known| essence.eq_ignore_ascii_case(known))
}

/// Source: gRPC `doc/PROTOCOL-HTTP2.md`: "If Content-Type does not begin with application/grpc, gRPC servers SHOULD
/// respond with HTTP status of 415."
fn not_grpc() -> Response<GrpcReply> {
    let text = "this is OTLP over gRPC with the content type application/grpc; OTLP over HTTP has a port of its own, 4318 by default\n";
    plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, text)
}

fn plain(status: StatusCode, text: &'static str) -> Response<GrpcReply> {
    let mut response = Response::new(Either::Right(Full::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Splits a path into service and method.
fn parts(path: &str) -> (&str, &str) {
    path.trim_start_matches('/').split_once('/').unwrap_or((path, ""))
}

/// The unsupported signal that a path belongs to.
fn signal_of(path: &str) -> Option<UnsupportedSignal> {
    UnsupportedSignal::of(parts(path).0)
}
