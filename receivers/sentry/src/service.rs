//! Sentry's HTTP endpoints.
//!
//! The rest of a body that is refused is read and forgotten first, for a few seconds, so that its sender sees the
//! answer ([`body::discard_rest`]).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_ENCODING, HeaderName, ORIGIN, REFERER, USER_AGENT};
use http::{HeaderMap, Method, Request, StatusCode};
use hyper::body::Incoming;
use profbridge_engine::body;
use profbridge_engine::clock::Clock;
use profbridge_engine::http_fault::Tally;
use profbridge_model::envelope::RequestMeta;
use profbridge_net::compression::Coding;
use profbridge_net::server::{Kept, Peer};
use profbridge_wire::sentry::auth;
use profbridge_wire::sentry::client_auth::{self, Forms};

use crate::answer::{self, Answer};
use crate::call::{Caller, Form, Head, Outcome, is_allowed};
use crate::endpoint::Endpoint;
use crate::fault::{self, Fault};

const SENTRY_AUTH: HeaderName = HeaderName::from_static(auth::HEADER);
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The service of the listener.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) caller: Caller,
    pub(crate) clock: Clock,
    /// How long the rest of a refused body is read.
    pub(crate) linger: Duration,
}

impl Service {
    /// Answers a request. Never fails.
    pub(crate) async fn answer(self, mut request: Request<Incoming>) -> Result<Answer, Infallible> {
        let peer = request.extensions().get::<Peer>().copied();
        let address = peer.map(|peer| peer.addr.ip().to_canonical());
        let (project, form) = match Endpoint::of(request.uri().path()) {
            Endpoint::Envelope(project) => (project, Form::Envelope),
            Endpoint::Store(project) => (project, Form::Event),
            elsewhere => {
                let fault = misdirected(elsewhere, request.uri().path());
                // Whoever only looks (a browser, a probe) loses nothing.
                if request.method() == Method::POST {
                    self.caller.telemetry.not_taken(fault.refusal(address));
                }
                body::discard_rest(request, self.linger).await;
                return Ok(answer::refused(&fault));
            }
        };
        if request.method() == Method::OPTIONS {
            return Ok(answer::preflight());
        }
        let tally = Tally::new(&self.caller.telemetry, address);
        let outcome = match self.head(&request, project, form) {
            Ok(head) => self.caller.call(head, request.body_mut()).await,
            Err(fault) => Err(fault),
        };
        tally.finish(outcome.as_ref().map(Outcome::items));
        Ok(match outcome {
            Ok(Outcome::Taken { event_id, limits, .. }) => answer::taken(event_id.as_deref(), limits.as_ref()),
            Ok(Outcome::Limited { limits, .. }) => answer::limited(&limits),
            Err(fault) => {
                body::discard_rest(request, self.linger).await;
                answer::refused(&fault)
            }
        })
    }

    /// What the head of a request says.
    fn head(&self, request: &Request<Incoming>, project: u64, form: Form) -> Result<Head, Fault> {
        if request.method() != Method::POST {
            let message = format!("{} is not allowed here, envelopes are sent with POST", request.method());
            return Err(Fault::new(StatusCode::METHOD_NOT_ALLOWED, "method", message));
        }
        let headers = request.headers();
        self.caller.intake.came_through(headers)?;
        let forms = Forms {
            header: text(headers, &SENTRY_AUTH),
            authorization: text(headers, &AUTHORIZATION),
            query: request.uri().query(),
        };
        let auth = client_auth::read(forms).map_err(fault::unauthenticated)?;
        // Before the body is read: who may not send costs nothing.
        auth.iter().try_for_each(|auth| is_allowed(&self.caller.settings, &auth.key))?;
        let peer = request.extensions().get::<Peer>().copied();
        let kept = request.extensions().get::<Kept>().filter(|_| self.caller.clients.is_some());
        let owner = kept.and_then(Kept::get);
        let meta = RequestMeta {
            client_address: peer.map(|peer| peer.addr.ip().to_canonical()),
            forwarded_for: shared(headers, &FORWARDED_FOR),
            user_agent: shared(headers, &USER_AGENT),
            origin: shared(headers, &ORIGIN),
            referer: shared(headers, &REFERER),
            arrival_unix_nano: Some(self.clock.now().unix_nano),
            ..RequestMeta::default()
        };
        // Relay passes over a coding that is empty or `UTF-8` (`relay-server/src/middlewares/decompression.rs`).
        let coding = text(headers, &CONTENT_ENCODING).filter(|coding| !coding.trim().eq_ignore_ascii_case("utf-8"));
        Ok(Head { project, form, auth, coding: Coding::parse(coding)?, meta, peer, owner })
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// A header's value, which need not be ASCII: several of them as one list (RFC 9110, 5.3).
fn shared(headers: &HeaderMap, name: &HeaderName) -> Option<Arc<str>> {
    let values = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    values.reduce(|all, next| format!("{all}, {next}").into()).map(|all| all.as_ref().into())
}

/// Why a path is not for this service.
fn misdirected(endpoint: Endpoint, path: &str) -> Fault {
    match endpoint {
        Endpoint::Other(what) => {
            let message =
                format!("this receiver takes envelopes and events, not {what}: send those to Sentry directly");
            Fault::new(StatusCode::NOT_FOUND, "other_endpoint", message)
        }
        Endpoint::NoProject => Fault::new(StatusCode::BAD_REQUEST, "project", "the project in the path is no number"),
        _ => {
            // A path is whatever a stranger wrote.
            let path: String = path.chars().take(80).collect();
            let message = format!("nothing is served on {path:?}: envelopes are sent to /api/PROJECT/envelope/");
            Fault::new(StatusCode::NOT_FOUND, "unknown_path", message)
        }
    }
}
