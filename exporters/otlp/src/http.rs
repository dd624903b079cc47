//! One POST of `ExportProfilesServiceRequest` or `ExportTraceServiceRequest`.

use std::time::SystemTime;

use ::http::StatusCode;
use ::http::header::{self, HeaderMap, HeaderValue};
use bytes::Bytes;
use profbridge_codec::otlp::{Encoding, Signal};
use profbridge_engine::component::{Accepted, Request, Retry, SendError};
use profbridge_engine::http_out::{self, Answer, HttpOut};
use profbridge_model::Reason;
use profbridge_net::client::Failure;
use profbridge_net::compression::ACCEPT_ENCODING;
use prost::Message as _;

use crate::answer::{self, Refused};
use crate::prepare::Meta;
use crate::settings::Settings;

/// The media types of requests, and of answers to them.
const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

/// Makes one attempt.
pub(crate) async fn export(out: &HttpOut, settings: &Settings, request: &Request<Meta>) -> Result<Accepted, Refused> {
    let signal = request.meta.batch.signal;
    // What has nowhere to go was not made a request.
    let url = settings.target.url(signal).ok_or_else(|| SendError {
        retry: Retry::Never,
        reason: Reason::Internal,
        message: format!("{}: no URL takes {}", settings.host, signal.name()),
    })?;
    let media = match request.meta.encoding {
        Encoding::Protobuf => PROTOBUF,
        Encoding::Json => JSON,
    };
    let mut headers = settings.headers.clone();
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(ACCEPT_ENCODING));
    let coding = request.meta.compression.content_encoding();
    let answer = out.post(url, headers, media, coding, request.body.clone()).await;
    let answer = answer.map_err(|failure| unanswered(settings, &failure))?;
    if answer.status.is_success() {
        return Ok(match &answer.body {
            Ok(body) => success(settings, request, &answer.headers, body.clone()),
            Err(cause) => answer::unreadable(settings, &cause.to_string()),
        });
    }
    let (status, text) = (answer.status, text(&answer));
    let error = refused(settings, signal, status, retry_after(&answer.headers, SystemTime::now()), &text);
    // 413 is the specification's; the Collector's receiver says 400.
    let too_large = answer.body.is_ok() && (status == 413 || (status == 400 && answer::says_too_large(&text)));
    Err(Refused { error, too_large })
}

fn success(settings: &Settings, request: &Request<Meta>, headers: &HeaderMap, body: Bytes) -> Accepted {
    // An empty body is an answer without anything in it, whatever its type and its coding are called.
    if body.is_empty() {
        return answer::accepted(settings, request, &[]);
    }
    // An answer has the type of its request; one of the other type can be read all the same.
    let is_json = match media_type(headers) {
        PROTOBUF => false,
        JSON => true,
        _ => return answer::unreadable(settings, "it is neither protobuf nor JSON; this may not be an OTLP receiver"),
    };
    match answer::unpacked(headers.get(header::CONTENT_ENCODING), body) {
        Ok(message) if is_json => answer::accepted_json(settings, request, &message),
        Ok(message) => answer::accepted(settings, request, &message),
        Err(why) => answer::unreadable(settings, &why),
    }
}

fn unanswered(settings: &Settings, failure: &Failure) -> SendError {
    let message = failure.to_string();
    match failure {
        Failure::Broken { .. } => answer::broken(settings, &message),
        Failure::Redirected { .. } => http_out::unanswered(failure, format!("{}: {message}", settings.host)),
        Failure::Unsendable(_) => http_out::unanswered(failure, message),
        _ => answer::unanswered(settings, &message),
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
fn text(answer: &Answer) -> String {
    let coding = answer.headers.get(header::CONTENT_ENCODING);
    let Some(Ok(body)) = answer.body.as_ref().ok().map(|body| answer::unpacked(coding, body.clone())) else {
        return String::new();
    };
    match media_type(&answer.headers) {
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
    /// rule: otlp#retry-after
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
