//! Answers to clients.
//!
//! Source: getsentry/relay `relay-server/src/endpoints/common.rs` (the bodies), `relay-server/src/middlewares/cors.rs`
//! (the headers that let browsers send, and read the answer).

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, CONTENT_TYPE, HeaderName, RETRY_AFTER,
};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use serde_json::json;

use crate::fault::Fault;
use crate::limits::ClientLimits;

const ERROR: HeaderName = HeaderName::from_static("x-sentry-error");
const RATE_LIMITS: HeaderName = HeaderName::from_static("x-sentry-rate-limits");

const JSON: &str = "application/json";

/// The headers that a browser may send.
const ALLOWED_HEADERS: &str = "x-sentry-auth, x-requested-with, x-forwarded-for, origin, referer, accept, content-type, \
                               authentication, authorization, content-encoding, transfer-encoding";

/// How long a browser may cache these permissions, in seconds.
const MAX_AGE: &str = "3600";

/// An answer: the receiver's own, or that of the server to which the request was forwarded.
pub(crate) type HttpAnswer = Response<Either<Full<Bytes>, Incoming>>;

fn json(status: StatusCode, body: &serde_json::Value) -> HttpAnswer {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    readable(response)
}

/// Adds the headers that let web pages read an answer.
fn readable(answer: Response<Full<Bytes>>) -> HttpAnswer {
    let mut response = answer.map(Either::Left);
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    let exposed = HeaderValue::from_static("x-sentry-error,x-sentry-rate-limits,retry-after");
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    response
}

/// The envelope was accepted. The answer may contain rate limits for its kinds of items.
pub(crate) fn taken(event_id: Option<&str>, limits: Option<&ClientLimits>) -> HttpAnswer {
    let body = event_id.map_or_else(|| json!({}), |id| json!({ "id": id }));
    let mut answer = json(StatusCode::OK, &body);
    if let Some(value) = limits.and_then(|limits| HeaderValue::from_str(&limits.header).ok()) {
        answer.headers_mut().insert(RATE_LIMITS, value);
    }
    answer
}

/// Sentry would currently accept nothing of the envelope.
pub(crate) fn limited(limits: &ClientLimits) -> HttpAnswer {
    let detail = "Sentry limits everything that is in the envelope";
    let mut answer = json(StatusCode::TOO_MANY_REQUESTS, &json!({ "detail": detail }));
    let headers = answer.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&limits.header) {
        headers.insert(RATE_LIMITS, value);
    }
    headers.insert(RETRY_AFTER, HeaderValue::from(limits.retry_after_seconds));
    answer
}

/// The request was refused.
pub(crate) fn refused(fault: &Fault) -> HttpAnswer {
    let body = json!({ "detail": fault.message, "causes": [] });
    let mut answer = readable(fault.answer(JSON, body.to_string(), "POST, OPTIONS"));
    if let Ok(value) = HeaderValue::from_str(&fault.message) {
        answer.headers_mut().insert(ERROR, value);
    }
    answer
}

/// Answers a browser's question whether it may send.
pub(crate) fn preflight() -> HttpAnswer {
    let mut answer = json(StatusCode::OK, &json!({}));
    *answer.body_mut() = Either::Left(Full::default());
    let headers = answer.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST"));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ALLOWED_HEADERS));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
    answer
}
