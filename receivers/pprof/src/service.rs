//! The HTTP endpoints to which profiles are pushed.
//!
//! Before a body is refused, its rest is read and discarded for a few seconds, so that its sender gets to read the
//! answer ([`body::discard_rest`]).

use std::convert::Infallible;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use profbridge_engine::body;
use profbridge_engine::http_fault::RequestTally;
use profbridge_engine::telemetry::{ItemCounts, TransportTelemetry};
use profbridge_net::body::BodyLimits;
use profbridge_net::compression::Coding;
use profbridge_net::server::Peer;

use crate::call::{ProfileHandler, ReceivedProfile};
use crate::fault::Fault;
use crate::ingest::ProfileMetadata;
use crate::multipart;

/// The endpoint for clients of Pyroscope.
pub(crate) const INGEST: &str = "/ingest";

/// The endpoint for plain profiles.
pub(crate) const PLAIN: &str = "/api/pprof";

/// The service of the listener.
#[derive(Clone)]
pub(crate) struct PprofService {
    pub(crate) handler: ProfileHandler,
    pub(crate) telemetry: TransportTelemetry,
    pub(crate) body: BodyLimits,
    /// The time for which the rest of a refused body is read.
    pub(crate) linger: Duration,
}

type HttpAnswer = Response<Full<Bytes>>;

impl PprofService {
    /// Answers a request. Never fails.
    pub(crate) async fn answer(self, mut request: Request<Incoming>) -> Result<HttpAnswer, Infallible> {
        let peer = request.extensions().get::<Peer>().map(|peer| peer.addr.ip().to_canonical());
        if let Some(fault) = misdirected(&request) {
            // Other methods come from browsers and probes, which lose no data.
            if request.method() == Method::POST {
                self.telemetry.not_taken(fault.refusal(peer));
            }
            body::discard_rest(request, self.linger).await;
            return Ok(refused(&fault));
        }
        let tally = RequestTally::new(&self.telemetry, peer);
        let outcome = self.read_request(&mut request, peer).await;
        tally.finish(outcome.as_ref().map(|samples| ItemCounts::samples(*samples)));
        Ok(match outcome {
            Ok(_) => Response::new(Full::default()),
            Err(fault) => {
                body::discard_rest(request, self.linger).await;
                refused(&fault)
            }
        })
    }

    async fn read_request(&self, request: &mut Request<Incoming>, peer: Option<IpAddr>) -> Result<u64, Fault> {
        let query = request.uri().query().unwrap_or_default();
        let headers = request.headers();
        let (metadata, boundary) = match request.uri().path() {
            INGEST => (
                ProfileMetadata::from_ingest_query(query)?,
                multipart::boundary(text(headers, &CONTENT_TYPE)?.unwrap_or_default()),
            ),
            _ => (ProfileMetadata::from_attribute_query(query)?, None),
        };
        let boundary = boundary.transpose()?;
        let coding = Coding::parse(text(headers, &CONTENT_ENCODING)?)?;
        self.handler.intake.room().await?;
        let received = body::read(request.body_mut(), self.body, &self.handler.intake).await?;
        if received.bytes.is_empty() {
            return Err(Fault::malformed("the body is empty"));
        }
        let peer = peer.map(|peer| peer.to_string()).unwrap_or_default().into();
        let max_bytes = self.body.max_bytes;
        self.handler.accept_profile(ReceivedProfile { received, coding, boundary, metadata, peer, max_bytes }).await
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Fault> {
    let value = headers.get(name).map(HeaderValue::to_str).transpose();
    value.map_err(|_| Fault::malformed(format!("{name}: is not text")))
}

/// The fault of a request that is not for this service.
fn misdirected(request: &Request<Incoming>) -> Option<Fault> {
    let (method, path) = (request.method(), request.uri().path());
    if [INGEST, PLAIN].contains(&path) {
        let message = || format!("{method} is not allowed on {path}, profiles are sent with POST");
        return (method != Method::POST).then(|| Fault::new(StatusCode::METHOD_NOT_ALLOWED, "method", message()));
    }
    // The path comes from the client and may be long.
    let path: String = path.chars().take(80).collect();
    let message = format!("nothing is served on {path:?}: profiles are sent to {INGEST} or {PLAIN}");
    Some(Fault::new(StatusCode::NOT_FOUND, "unknown_path", message))
}

fn refused(fault: &Fault) -> HttpAnswer {
    fault.answer("text/plain; charset=utf-8", format!("{}\n", fault.message), "POST")
}
