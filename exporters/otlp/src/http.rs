//! One POST of `ExportProfilesServiceRequest` or `ExportTraceServiceRequest`.

use std::time::SystemTime;

use ::http::header::{self, HeaderMap, HeaderValue};
use ::http::{StatusCode, Uri};
use profbridge_codec::otlp::{Encoding, Signal};
use profbridge_engine::component::{Accepted, Request, Retry, SendError};
use profbridge_model::Reason;
use profbridge_net::client::{Failure, HttpClient, Response};
use profbridge_net::compression::ACCEPT_ENCODING;
use prost::Message as _;

use crate::answer::{self, Refused};
use crate::prepare::Meta;
use crate::settings::Settings;

/// The media types of requests, and of answers to them.
const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

/// Makes one attempt.
pub(crate) async fn export(
    client: &HttpClient,
    url: Option<&Uri>,
    settings: &Settings,
    mut headers: HeaderMap,
    request: &Request<Meta>,
) -> Result<Accepted, Refused> {
    let signal = request.meta.batch.signal;
    // What has nowhere to go was not made a request.
    let url = url.ok_or_else(|| SendError {
        retry: Retry::Never,
        reason: Reason::Internal,
        message: format!("{}: no URL takes {}", settings.host, signal.name()),
    })?;
    let media = match request.meta.encoding {
        Encoding::Protobuf => PROTOBUF,
        Encoding::Json => JSON,
    };
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    if let Some(name) = request.meta.compression.content_encoding() {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(name));
    }
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(ACCEPT_ENCODING));
    match client.post(url, headers, request.body.clone()).await {
        Ok(response) if response.status.is_success() => Ok(success(settings, request, response)),
        Ok(response) => {
            let (status, text) = (response.status, text(&response));
            let pause = retry_after(&response.headers, SystemTime::now());
            let error = refused(settings, signal, status, pause, &text);
            // 413 is the specification's; the Collector's receiver says 400.
            let too_large = status == 413 || (status == 400 && answer::says_too_large(&text));
            Err(Refused { error, too_large })
        }
        Err(failure) => Ok(failed(settings, signal, failure)?),
    }
}

fn success(settings: &Settings, request: &Request<Meta>, response: Response) -> Accepted {
    // An empty body is an answer without anything in it, whatever its type and its coding are called.
    if response.body.is_empty() {
        return answer::accepted(settings, request, &[]);
    }
    // An answer has the type of its request; one of the other type can be read all the same.
    let is_json = match media_type(&response.headers) {
        PROTOBUF => false,
        JSON => true,
        _ => return answer::unreadable(settings, "it is neither protobuf nor JSON; this may not be an OTLP receiver"),
    };
    match answer::unpacked(response.headers.get(header::CONTENT_ENCODING), response.body) {
        Ok(message) if is_json => answer::accepted_json(settings, request, &message),
        Ok(message) => answer::accepted(settings, request, &message),
        Err(why) => answer::unreadable(settings, &why),
    }
}

fn failed(settings: &Settings, signal: Signal, failure: Failure) -> Result<Accepted, SendError> {
    match failure {
        Failure::Response { status, cause, .. } if status.is_success() => {
            Ok(answer::unreadable(settings, &cause.to_string()))
        }
        Failure::Response { status, headers, .. } => {
            Err(refused(settings, signal, status, retry_after(&headers, SystemTime::now()), ""))
        }
        Failure::Unsendable(_) => {
            Err(SendError { retry: Retry::Never, reason: Reason::Internal, message: failure.to_string() })
        }
        Failure::Redirected { .. } => Err(SendError {
            retry: Retry::Never,
            reason: Reason::RejectedByPeer,
            message: format!("{}: {failure}", settings.host),
        }),
        Failure::Connect(_) | Failure::TimedOut { .. } => Err(answer::unanswered(settings, &failure.to_string())),
        Failure::Broken { .. } => Err(answer::broken(settings, &failure.to_string())),
    }
}

/// The specification's table (opentelemetry-proto `docs/specification.md`, "Retryable Response Codes").
fn refused(
    settings: &Settings,
    signal: Signal,
    status: StatusCode,
    retry_after: Option<Retry>,
    text: &str,
) -> SendError {
    let (retry, reason) = match status.as_u16() {
        429 => (retry_after.unwrap_or(Retry::Later), Reason::RateLimited),
        502..=504 => (retry_after.unwrap_or(Retry::Later), Reason::RetriesExhausted),
        _ => (Retry::Never, Reason::RejectedByPeer),
    };
    let mut error = answer::refused(settings, retry, reason, &status.to_string(), text);
    match status.as_u16() {
        415 => error.message.push_str("; it may not understand the `compression`"),
        404 => error.message.push_str(&format!("; it may not take {}, or under another path", signal.name())),
        _ => {}
    }
    error
}

/// `Retry-After`: seconds or a date (RFC 9110 section 10.2.3).
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Retry> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let pause = match text.parse() {
        Ok(seconds) => std::time::Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(answer::after(Some(pause)))
}

/// What an error's body says: the message of a `google.rpc.Status`, as the specification asks for, or plain text.
fn text(response: &Response) -> String {
    let Ok(body) = answer::unpacked(response.headers.get(header::CONTENT_ENCODING), response.body.clone()) else {
        return String::new();
    };
    match media_type(&response.headers) {
        PROTOBUF => tonic_types::Status::decode(body).map(|status| status.message).unwrap_or_default(),
        JSON => {
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
            body.get("message").and_then(|message| message.as_str()).unwrap_or_default().to_owned()
        }
        "text/plain" => String::from_utf8_lossy(&body).into_owned(),
        _ => String::new(),
    }
}

fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    /// Guarantees: `Retry-After` is read as seconds and as a date; zero, the past and nonsense leave the pause to us.
    #[test]
    fn retry_after_has_two_forms() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        let read = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(text));
            retry_after(&headers, now)
        };
        assert_eq!(read("120"), Some(Retry::After(Duration::from_secs(120))));
        assert_eq!(read("Sun, 06 Nov 1994 08:50:37 GMT"), Some(Retry::After(Duration::from_secs(60))));
        assert_eq!(read("Sun, 06 Nov 1994 08:40:37 GMT"), Some(Retry::Later));
        assert_eq!(read("0"), Some(Retry::Later));
        assert_eq!(read("soon"), None);
        assert_eq!(read("-1"), None);
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
