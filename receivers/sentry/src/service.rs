//! Sentry's HTTP endpoints.
//!
//! Before a body is refused, its rest is read and discarded for a few seconds, so that its sender gets to read the
//! answer ([`body::discard_rest`]).

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, AsHeaderName, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::Either;
use hyper::body::Incoming;
use profbridge_engine::body;
use profbridge_engine::clock::Clock;
use profbridge_engine::http_fault::RequestTally;
use profbridge_model::TelemetryKind;
use profbridge_model::envelope::RequestMeta;
use profbridge_net::body::{BodyLimits, Guarded};
use profbridge_net::client::PartlyReadBody;
use profbridge_net::compression::Coding;
use profbridge_net::server::{ConnectionState, Peer};
use profbridge_wire::sentry::auth;
use profbridge_wire::sentry::client_auth::{self, Forms};
use profbridge_wire::sentry::envelope;
use tokio::sync::Semaphore;

use crate::answer::{self, ClientAnswer};
use crate::call::{self, BodyKind, EnvelopeHandler, RequestHead, RequestOutcome, is_allowed};
use crate::endpoint::Endpoint;
use crate::fault::{self, Fault};
use crate::traces::{self, Media};

const SENTRY_AUTH: HeaderName = HeaderName::from_static(auth::HEADER);
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Headers with information about the client, which Relay keeps (getsentry/relay
/// `relay-server/src/extractors/request_meta.rs`). They are forwarded unchanged.
const KEPT: [&str; 12] = [
    "user-agent",
    "origin",
    "referer",
    "sec-ch-ua",
    "sec-ch-ua-arch",
    "sec-ch-ua-bitness",
    "sec-ch-ua-full-version-list",
    "sec-ch-ua-mobile",
    "sec-ch-ua-model",
    "sec-ch-ua-platform",
    "sec-ch-ua-platform-version",
    "sec-ch-ua-form-factors",
];

/// What to do with a request.
enum Disposition {
    /// Read it: the contents of its head, or why it is refused.
    Read(Result<Box<RequestHead>, Fault>),
    /// Forward it unread, to this path.
    Forward(String),
}

/// The service of the listener.
#[derive(Clone)]
pub(crate) struct SentryService {
    pub(crate) handler: EnvelopeHandler,
    pub(crate) clock: Clock,
    /// How long the rest of a refused body is read.
    pub(crate) linger: Duration,
    /// Limits the requests that run without their connection.
    pub(crate) unattended: Arc<Semaphore>,
}

impl SentryService {
    /// Answers a request. Never fails. A request that has arrived is completed even if its connection ends, because a
    /// browser closes the connection with its page, and nobody retries.
    pub(crate) async fn answer(self, request: Request<Incoming>) -> Result<ClientAnswer, Infallible> {
        let Ok(place) = Arc::clone(&self.unattended).try_acquire_owned() else {
            return Ok(self.respond(request).await);
        };
        let task = tokio::spawn(async move {
            let answer = self.respond(request).await;
            drop(place);
            answer
        });
        Ok(task.await.unwrap_or_else(|error| {
            tracing::error!(%error, "a request handler panicked");
            answer::refused(&fault::internal(), None)
        }))
    }

    async fn respond(&self, request: Request<Incoming>) -> ClientAnswer {
        let peer = request.extensions().get::<Peer>().copied();
        let address = peer.map(|peer| peer.addr.ip().to_canonical());
        let disposition = self.disposition(&request);
        let has_decodable_items = matches!(disposition, Ok(Disposition::Read(_)));
        if request.method() == Method::OPTIONS && has_decodable_items {
            return answer::preflight();
        }
        // Other methods come from browsers and probes, which lose no data.
        let counts = has_decodable_items
            || request.method() == Method::POST
            || (disposition.is_ok() && self.handler.forwarder.is_some());
        let tally = counts.then(|| RequestTally::new(&self.handler.telemetry, address));
        let (mut parts, body) = request.into_parts();
        add_forwarded(&mut parts.headers, address);
        let (mut limits, mut media) = (self.handler.settings.body, None);
        if let Ok(Disposition::Read(Ok(head))) = &disposition {
            limits.max_bytes = head.form.max_bytes(&self.handler.settings);
        }
        if let Endpoint::Traces(_) = Endpoint::of(parts.uri.path()) {
            media = Some(Media::of(&parts.headers).unwrap_or(Media::Protobuf));
        }
        let mut body = Some(Guarded::new(body, limits));
        let outcome = match disposition {
            Ok(Disposition::Read(Ok(head))) => self.handler.call(*head, &parts, &mut body).await,
            Ok(Disposition::Forward(path)) => self.forward(&path, &parts, &mut body).await,
            Ok(Disposition::Read(Err(fault))) | Err(fault) => Err(fault),
        };
        if let Some(tally) = tally {
            tally.finish(outcome.as_ref().map(RequestOutcome::items));
        }
        match outcome {
            Ok(RequestOutcome::Accepted { limits: Some(limits), .. }) if limits.everything => answer::limited(&limits),
            Ok(RequestOutcome::Accepted { event_id, limits, warning, .. }) => match media {
                None => answer::accepted_envelope(event_id.as_deref(), limits.as_ref()),
                Some(media) => answer::accepted_spans(media, warning, limits.as_ref()),
            },
            Ok(RequestOutcome::Forwarded(response)) => response.map(Either::Right),
            Err(fault) => {
                if let Some(rest) = body {
                    body::discard_rest(Request::from_parts(parts, rest.into_inner()), self.linger).await;
                }
                answer::refused(&fault, media)
            }
        }
    }

    /// Decides what to do with a request.
    fn disposition(&self, request: &Request<Incoming>) -> Result<Disposition, Fault> {
        let path = request.uri().path();
        let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
        let read = |project, form, path| Ok(Disposition::Read(self.head(request, project, form, path).map(Box::new)));
        match Endpoint::of(path) {
            Endpoint::Envelope(project) => {
                read(project, BodyKind::Envelope, format!("/api/{project}/envelope/{query}"))
            }
            Endpoint::Store(project) => {
                let path = format!("/api/{project}/store/{query}");
                // With GET the event is in the query.
                if self.handler.forwarder.is_some() && request.method() == Method::GET {
                    return Ok(Disposition::Forward(path));
                }
                let is_envelope =
                    text(request.headers(), &CONTENT_TYPE).is_some_and(|kind| kind.starts_with(envelope::CONTENT_TYPE));
                read(project, if is_envelope { BodyKind::Envelope } else { BodyKind::Event }, path)
            }
            Endpoint::Traces(project) if self.handler.intake.takes(TelemetryKind::Spans) => {
                match Media::of(request.headers()) {
                    Some(media) => read(project, BodyKind::Traces(media), path.to_owned()),
                    None => {
                        let fault = other_method(request.method(), TelemetryKind::Spans);
                        Ok(Disposition::Read(Err(fault.unwrap_or_else(traces::unknown_media))))
                    }
                }
            }
            Endpoint::Traces(project) => {
                Ok(Disposition::Forward(format!("/api/{project}/integration/otlp/v1/traces/{query}")))
            }
            Endpoint::Unread(start) => Ok(Disposition::Forward(format!("{}{query}", &path[start..]))),
            elsewhere => Err(misdirected(elsewhere, path)),
        }
    }

    /// Forwards a request without reading it.
    async fn forward(
        &self,
        path: &str,
        parts: &Parts,
        body: &mut Option<Guarded<Incoming>>,
    ) -> Result<RequestOutcome, Fault> {
        self.handler.intake.record_via(&parts.headers, TelemetryKind::Envelopes)?;
        if let Some(keys) = &self.handler.settings.keys {
            // The key may be in the path, in a header or in the query, depending on the endpoint.
            let said = parts.headers.values().filter_map(|value| value.to_str().ok()).chain([path]);
            let said: Vec<String> = said.map(str::to_ascii_lowercase).collect();
            if !keys.iter().any(|key| said.iter().any(|said| said.contains(&**key))) {
                let message = "the request names no public key that this receiver takes (public_keys)";
                return Err(Fault::new(StatusCode::FORBIDDEN, "key_not_allowed", message));
            }
        }
        // If it cannot be forwarded, its rest is discarded before the answer.
        let Some(rest) = body.take_if(|_| self.handler.forwarder.is_some()) else { return Err(call::no_forwarder()) };
        // The server has its own limits; here the body only passes through.
        let limits = BodyLimits { timeout: call::ANSWER_TIMEOUT, ..BodyLimits::new(usize::MAX) };
        let rest = Guarded::new(rest.into_inner(), limits);
        let request = Request::from_parts(parts.clone(), PartlyReadBody::new(Bytes::new(), rest));
        self.handler.forward(None, path, request).await
    }

    /// Reads a request's head.
    fn head(
        &self,
        request: &Request<Incoming>,
        project: u64,
        form: BodyKind,
        path: String,
    ) -> Result<RequestHead, Fault> {
        let headers = request.headers();
        let kind = if matches!(form, BodyKind::Traces(_)) { TelemetryKind::Spans } else { TelemetryKind::Envelopes };
        if let Some(fault) = other_method(request.method(), kind) {
            return Err(fault);
        }
        self.handler.intake.record_via(headers, kind)?;
        let forms = Forms {
            header: text(headers, &SENTRY_AUTH),
            authorization: text(headers, &AUTHORIZATION),
            query: request.uri().query(),
        };
        let auth = client_auth::read(forms).map_err(fault::unauthenticated)?;
        // Checked before the body is read, so that unauthorised senders cost nothing.
        auth.iter().try_for_each(|auth| is_allowed(&self.handler.settings, &auth.key))?;
        let peer = request.extensions().get::<Peer>().copied();
        let kept = request.extensions().get::<ConnectionState>().filter(|_| self.handler.clients.is_some());
        let owner = kept.and_then(ConnectionState::get);
        let client_address = peer.map(|peer| peer.addr.ip().to_canonical());
        let forwarded_for = shared(headers, FORWARDED_FOR);
        // Behind a proxy the host at the other end would be the proxy's.
        let is_local = forwarded_for.is_none() && client_address.is_some_and(|address| address.is_loopback());
        let meta = RequestMeta {
            client_address,
            forwarded_for,
            client_host: self.handler.host.clone().filter(|_| is_local),
            headers: KEPT.iter().filter_map(|name| Some((*name, shared(headers, *name)?))).collect(),
            arrival_unix_nano: Some(self.clock.now().unix_nano),
            ..RequestMeta::default()
        };
        // Relay ignores a coding that is empty or `UTF-8` (`relay-server/src/middlewares/decompression.rs`).
        let coding = text(headers, &CONTENT_ENCODING).filter(|coding| !coding.trim().eq_ignore_ascii_case("utf-8"));
        let hosts = [HOST, FORWARDED_HOST].iter().filter_map(|name| text(headers, name)).map(str::to_owned).collect();
        Ok(RequestHead { project, form, auth, coding: Coding::parse(coding)?, meta, peer, owner, hosts, path })
    }
}

/// Adds a client's address to `X-Forwarded-For`. A loopback address would tell the server nothing.
fn add_forwarded(headers: &mut HeaderMap, address: Option<IpAddr>) {
    let Some(address) = address.filter(|address| !address.is_loopback()) else { return };
    let before = shared(headers, FORWARDED_FOR);
    let through = before.map_or(address.to_string(), |before| format!("{before}, {address}"));
    if let Ok(through) = HeaderValue::from_str(&through) {
        headers.insert(FORWARDED_FOR, through);
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// A header's value, which may be non-ASCII; several are joined into a list (RFC 9110, 5.3).
fn shared(headers: &HeaderMap, name: impl AsHeaderName) -> Option<Arc<str>> {
    let values = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    values.reduce(|all, next| format!("{all}, {next}").into()).map(|all| all.as_ref().into())
}

/// The fault of a request whose method is not POST.
fn other_method(method: &Method, kind: TelemetryKind) -> Option<Fault> {
    let message = format!("{method} is not allowed here, {} are sent with POST", kind.noun());
    (method != Method::POST).then(|| Fault::new(StatusCode::METHOD_NOT_ALLOWED, "method", message))
}

/// The fault of a request that is not for this service.
fn misdirected(endpoint: Endpoint, path: &str) -> Fault {
    match endpoint {
        Endpoint::NoProject => Fault::new(StatusCode::BAD_REQUEST, "project", "the project in the path is no number"),
        _ => {
            // The path comes from the client and may be long.
            let path: String = path.chars().take(80).collect();
            let message = format!("nothing is served on {path:?}: envelopes are sent to /api/PROJECT/envelope/");
            Fault::new(StatusCode::NOT_FOUND, "unknown_path", message)
        }
    }
}
