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
use prost::Message as _;
use serde_json::json;

use crate::fault::Fault;
use crate::limits::{ClientLimits, LIMITED, RATE_LIMITS};
use crate::traces::Media;

const ERROR: HeaderName = HeaderName::from_static("x-sentry-error");

const JSON: &str = "application/json";

/// The headers that a browser may send.
const ALLOWED_HEADERS: &str = "x-sentry-auth, x-requested-with, x-forwarded-for, origin, referer, accept, content-type, \
                               authentication, authorization, content-encoding, transfer-encoding";

/// How long a browser may cache these permissions, in seconds.
const MAX_AGE: &str = "3600";

/// An answer: the receiver's own, or that of the server to which the request was forwarded.
pub(crate) type ClientAnswer = Response<Either<Full<Bytes>, Incoming>>;

fn json(status: StatusCode, body: &serde_json::Value) -> ClientAnswer {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    readable(response)
}

/// Adds the headers that let web pages read an answer.
fn readable(answer: Response<Full<Bytes>>) -> ClientAnswer {
    let mut response = answer.map(Either::Left);
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    let exposed = HeaderValue::from_static("x-sentry-error,x-sentry-rate-limits,retry-after");
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    response
}

/// Answers an accepted envelope. The answer may contain rate limits for its kinds of items.
pub(crate) fn accepted_envelope(event_id: Option<&str>, limits: Option<&ClientLimits>) -> ClientAnswer {
    let body = event_id.map_or_else(|| json!({}), |id| json!({ "id": id }));
    let mut answer = json(StatusCode::OK, &body);
    if let Some(value) = limits.and_then(|limits| HeaderValue::from_str(&limits.header).ok()) {
        answer.headers_mut().insert(RATE_LIMITS, value);
    }
    answer
}

/// Answers accepted spans, all but those of the warning. Like Relay's, the answer has no body, unless there is a
/// warning, which becomes OTLP's partial success (opentelemetry-proto `docs/specification.md`, "Partial Success").
pub(crate) fn accepted_spans(
    media: Media,
    warning: Option<(u64, String)>,
    limits: Option<&ClientLimits>,
) -> ClientAnswer {
    let partial_success = warning.map(|(rejected, error_message)| TracesPartialSuccess {
        rejected_spans: i64::try_from(rejected).unwrap_or(i64::MAX),
        error_message,
    });
    let body = match (media, &partial_success) {
        (_, None) => Bytes::new(),
        (Media::Protobuf, _) => TraceResponse { partial_success }.encode_to_vec().into(),
        (Media::Json, Some(TracesPartialSuccess { rejected_spans, error_message })) => {
            let partial = json!({ "rejectedSpans": rejected_spans.to_string(), "errorMessage": error_message });
            json!({ "partialSuccess": partial }).to_string().into()
        }
    };
    let mut response = Response::new(Full::new(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media.content_type()));
    let mut answer = readable(response);
    if let Some(value) = limits.and_then(|limits| HeaderValue::from_str(&limits.header).ok()) {
        answer.headers_mut().insert(RATE_LIMITS, value);
    }
    answer
}

/// `ExportTraceServiceResponse` (opentelemetry-proto `collector/trace/v1/trace_service.proto`).
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct TraceResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<TracesPartialSuccess>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct TracesPartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_spans: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

/// The content type and the body of a refusal: `google.rpc.Status` for spans in OTLP, else Relay's JSON.
fn refusal(status: StatusCode, message: &str, media: Option<Media>) -> (&'static str, Bytes) {
    let Some(media) = media else {
        return (JSON, json!({ "detail": message, "causes": [] }).to_string().into());
    };
    // googleapis `google/rpc/code.proto`.
    let code = match status {
        StatusCode::UNAUTHORIZED => 16,
        StatusCode::FORBIDDEN => 7,
        StatusCode::NOT_FOUND => 5,
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::TOO_MANY_REQUESTS => 8,
        StatusCode::SERVICE_UNAVAILABLE => 14,
        status if status.is_client_error() => 3,
        _ => 13,
    };
    let body = match media {
        Media::Protobuf => RpcStatus { code, message: message.to_owned() }.encode_to_vec().into(),
        Media::Json => json!({ "code": code, "message": message }).to_string().into(),
    };
    (media.content_type(), body)
}

/// Answers an envelope of which Sentry would currently accept nothing. The pipelines have it nevertheless.
pub(crate) fn limited(limits: &ClientLimits) -> ClientAnswer {
    let mut answer = json(StatusCode::TOO_MANY_REQUESTS, &json!({ "detail": LIMITED, "causes": [] }));
    let headers = answer.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&limits.header) {
        headers.insert(RATE_LIMITS, value);
    }
    headers.insert(RETRY_AFTER, HeaderValue::from(limits.retry_after_seconds));
    answer
}

/// Answers a refused request.
pub(crate) fn refused(fault: &Fault, media: Option<Media>) -> ClientAnswer {
    let (content_type, body) = refusal(fault.status, &fault.message, media);
    let mut answer = readable(fault.answer(content_type, body, "POST, OPTIONS"));
    if let Ok(value) = HeaderValue::from_str(&fault.message) {
        answer.headers_mut().insert(ERROR, value);
    }
    answer
}

/// Answers a browser that asks whether it may send.
pub(crate) fn preflight() -> ClientAnswer {
    let mut answer = json(StatusCode::OK, &json!({}));
    *answer.body_mut() = Either::Left(Full::default());
    let headers = answer.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST"));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ALLOWED_HEADERS));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
    answer
}
