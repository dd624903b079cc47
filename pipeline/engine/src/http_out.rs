//! The HTTP client of exporters that POST their requests: checks of configuration keys, the client itself, and the
//! meaning of answers.
//!
//! The client enforces the time limit of an attempt itself, so such an exporter sets no timeout of its own. Once the
//! head of an answer has arrived, the outcome is known, however slowly the rest arrives.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{self, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::{StatusCode, Uri};
use profbridge_model::{Reason, TelemetryKind};
use profbridge_net::body::BodyError;
use profbridge_net::client::{EndpointError, Failure, HttpClient, HttpClientConfig};
use profbridge_net::compression::{Coding, decompress};
use profbridge_net::tls::TlsClientConfig;

use crate::config::{Problem, Problems, Secret, Section};
use crate::outcome::{Retry, SendError};
use crate::via::{self, Via};

/// Maximum number of characters of a server's text that are shown.
const MAX_SHOWN: usize = 300;

/// Headers that the exporter sets itself, or that would break a connection.
const RESERVED: [HeaderName; 11] = [
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::EXPECT,
    header::HOST,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::ACCEPT_ENCODING,
];

/// Reads the key `headers` of a section.
pub fn check_headers(section: &Section, written: &BTreeMap<String, Secret>, problems: &mut Vec<Problem>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in written {
        let key = format!("headers.\"{name}\"");
        let mut refuse = |message: &str, hint: &str| problems.push(section.problem(&key, message, hint));
        let Ok(header) = HeaderName::try_from(name) else {
            refuse("this is no name of a header", "names have letters, digits and dashes");
            continue;
        };
        let Ok(mut content) = HeaderValue::try_from(value.expose()) else {
            refuse("the value of this header has characters that headers cannot have", "");
            continue;
        };
        if RESERVED.contains(&header) || header.as_str().starts_with("grpc-") {
            refuse("this header is written by the exporter itself", "delete it");
            continue;
        }
        if header.as_str().ends_with("-bin") {
            refuse("binary metadata is not supported", "delete it");
            continue;
        }
        content.set_sensitive(true);
        headers.insert(header, content);
    }
    headers
}

/// Checks the URL at `key`. The hint shows an example.
///
/// # Errors
///
/// It is not a URL that accepts a POST.
pub fn check_url(section: &Section, key: &str, written: &str, hint: &str) -> Result<Uri, Problems> {
    let refused =
        |rule: &str| -> Problems { section.problem(key, format!("the endpoint cannot be used: {rule}"), hint).into() };
    if !written.starts_with("http://") && !written.starts_with("https://") {
        return Err(refused("the URL does not begin with http:// or https://"));
    }
    if written.split_once("://").is_none_or(|(_, rest)| rest.is_empty() || rest.starts_with('/')) {
        return Err(refused("the host is missing"));
    }
    let url: Uri = written.parse().map_err(|_| refused("it is not a URL"))?;
    let authority = url.authority().filter(|authority| !authority.host().is_empty());
    let authority = authority.ok_or_else(|| refused("the host is missing"))?;
    if authority.as_str().contains('@') {
        return Err(refused("user information belongs into a header"));
    }
    let after_host = authority.as_str().rsplit(']').next().unwrap_or_default();
    if authority.port_u16().is_none() && after_host.contains(':') {
        return Err(refused("the port is not a number from 0 to 65535"));
    }
    Ok(url)
}

/// A destination server: its name in messages, and the secrets of the request that messages must not show.
#[derive(Debug)]
pub struct Peer {
    /// The server's host and port.
    pub host: String,
    /// The headers of each request; their values are secret.
    pub headers: HeaderMap,
    /// A possible cause to mention if an encrypted connection ends before an answer. In TLS 1.3 a client whose
    /// certificate is refused or missing sees only the end of the connection, because its own handshake is over by then
    /// (RFC 8446, sections 2 and 4.4.2.4).
    suspicion: Option<&'static str>,
}

impl Peer {
    /// The server that the URL names.
    pub fn new(url: &Uri, headers: HeaderMap, tls: &TlsClientConfig) -> Self {
        let encrypted = url.scheme_str() == Some("https");
        let suspicion = encrypted.then_some(match &tls.cert_file {
            Some(_) => "the peer may have refused the TLS client certificate (`tls.cert_file`); its log says why",
            None => "the peer may want a TLS client certificate (`tls.cert_file`); its log says why",
        });
        Self { host: url.authority().map(ToString::to_string).unwrap_or_default(), headers, suspicion }
    }

    /// The error if the outcome is unknown: no answer arrived, or the connection broke. A retry is right, although it
    /// may create a duplicate.
    pub fn unanswered(&self, cause: &str) -> SendError {
        // Connection errors already contain the host.
        let cause = self.clean(cause);
        let message = if cause.contains(&self.host) { cause } else { format!("{}: {cause}", self.host) };
        SendError { retry: Retry::Later, reason: Reason::RetriesExhausted, message }
    }

    /// The error if the connection ended before an answer.
    pub fn broken(&self, cause: &str) -> SendError {
        let suspicion = self.suspicion.map(|suspicion| format!("; {suspicion}")).unwrap_or_default();
        self.unanswered(&format!("{cause}{suspicion}"))
    }

    /// The error of a request without a usable answer.
    pub fn failed(&self, failure: &Failure) -> SendError {
        let message = failure.to_string();
        match failure {
            Failure::Broken { .. } => self.broken(&message),
            Failure::Redirected { .. } => unanswered(failure, format!("{}: {message}", self.host)),
            Failure::Unsendable(_) => unanswered(failure, message),
            _ => self.unanswered(&message),
        }
    }

    /// The error if the server refused the request.
    pub fn refused(&self, retry: Retry, reason: Reason, status: &str, text: &str) -> SendError {
        let text = self.shown(text);
        let message = match &*text {
            "" => format!("{} answers {status}", self.host),
            text => format!("{} answers {status}: {text}", self.host),
        };
        SendError { retry, reason, message }
    }

    /// Returns a server's text in a form that is safe to show: on one line, shortened, and without the secrets of the
    /// request's headers, which a server may echo.
    pub fn shown(&self, text: &str) -> String {
        let text = self.clean(text);
        match text.char_indices().nth(MAX_SHOWN) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text,
        }
    }

    fn clean(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for value in self.headers.values().filter_map(|value| value.to_str().ok()) {
            // In `Bearer abc`, the second word alone is secret too.
            for secret in value.split_whitespace().chain([value]).filter(|secret| secret.len() > 6) {
                text = text.replace(secret, "[redacted]");
            }
        }
        text.split(|c: char| c.is_control() || c.is_whitespace())
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Posts requests for a running exporter.
#[derive(Debug)]
pub struct HttpOut {
    client: HttpClient,
    via: Via,
}

/// The answer of a server; not a redirect.
#[derive(Debug)]
pub struct HttpAnswer {
    /// The status, which decides the outcome.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, or why it could not be read.
    pub body: Result<Bytes, BodyError>,
}

impl HttpAnswer {
    /// How long the server asks to wait (`Retry-After`, RFC 9110 section 10.2.3), given in seconds or as a date.
    /// `since_epoch` is the current time, for dates.
    pub fn retry_after(&self, since_epoch: Duration) -> Option<Duration> {
        let text = self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        match text.parse::<f64>() {
            Ok(seconds) if seconds >= 0.0 => Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)),
            Ok(_) => None,
            Err(_) => {
                let date = httpdate::parse_http_date(text).ok()?;
                Some(date.duration_since(UNIX_EPOCH).ok()?.saturating_sub(since_epoch))
            }
        }
    }

    /// The media type of the body, without parameters.
    pub fn media_type(&self) -> &str {
        let value = self.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        value.split(';').next().unwrap_or_default().trim()
    }

    /// The decompressed body, of at most `most` bytes.
    ///
    /// # Errors
    ///
    /// Why the body could not be read.
    pub fn unpacked(&self, most: usize) -> Result<Bytes, String> {
        let body = self.body.as_ref().map_err(ToString::to_string)?;
        unpacked(self.headers.get(CONTENT_ENCODING), body.clone(), most)
    }

    /// The error for a status that means refusal: 429, 502, 503 and 504 allow a retry, as OTLP says
    /// (opentelemetry-proto `docs/specification.md`, "Retryable Response Codes"). `text` is the message in the body.
    pub fn refused(&self, peer: &Peer, text: &str, since_epoch: Duration) -> SendError {
        let pause = self.retry_after(since_epoch).filter(|pause| !pause.is_zero());
        let later = pause.map_or(Retry::Later, Retry::After);
        let (retry, reason) = match self.status.as_u16() {
            429 => (later, Reason::RateLimited),
            502..=504 => (later, Reason::RetriesExhausted),
            _ => (Retry::Never, Reason::RejectedByPeer),
        };
        let mut error = peer.refused(retry, reason, &self.status.to_string(), text);
        if self.status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            error.message.push_str("; it may not understand the `compression`");
        }
        error
    }
}

/// Decompresses a body of at most `most` bytes according to its encoding header. Servers compress an answer like its
/// request: grpc-go does so even if the request announces no encoding (grpc `doc/compression.md`).
///
/// # Errors
///
/// Why the body could not be decompressed.
pub fn unpacked(encoding: Option<&HeaderValue>, body: Bytes, most: usize) -> Result<Bytes, String> {
    let name = encoding.map(|value| String::from_utf8_lossy(value.as_bytes()));
    let coding = Coding::parse(name.as_deref()).map_err(|error| error.to_string())?;
    decompress(coding, body, most).map_err(|error| error.to_string())
}

impl HttpOut {
    /// Creates a client; does not connect yet.
    ///
    /// # Errors
    ///
    /// The TLS settings cannot be used.
    pub fn new(config: &HttpClientConfig, via: Via) -> Result<Self, EndpointError> {
        Ok(Self { client: HttpClient::new(config)?, via })
    }

    /// Posts a body of this kind of telemetry, with its content type and, if it is compressed, its content coding.
    ///
    /// # Errors
    ///
    /// No answer arrived; [`unanswered`] turns this error into one for the engine.
    pub async fn post(
        &self,
        url: &Uri,
        kind: TelemetryKind,
        mut headers: HeaderMap,
        content_type: &'static str,
        coding: Option<&'static str>,
        body: Bytes,
    ) -> Result<HttpAnswer, Failure> {
        headers.insert(via::HEADER, self.via.header(kind));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.extend(coding.map(|coding| (CONTENT_ENCODING, HeaderValue::from_static(coding))));
        match self.client.post(url, headers, body).await {
            Ok(response) => {
                Ok(HttpAnswer { status: response.status, headers: response.headers, body: Ok(response.body) })
            }
            Err(Failure::Response { status, headers, cause }) => {
                Ok(HttpAnswer { status, headers: *headers, body: Err(cause) })
            }
            Err(failure) => Err(failure),
        }
    }
}

/// The error for a request without an answer, with this message. A retry is right and may create a duplicate, unless
/// the request itself is wrong or has the wrong destination.
pub fn unanswered(failure: &Failure, message: String) -> SendError {
    let (retry, reason) = match failure {
        Failure::Unsendable(_) => (Retry::Never, Reason::Internal),
        Failure::Redirected { .. } => (Retry::Never, Reason::RejectedByPeer),
        _ => (Retry::Later, Reason::RetriesExhausted),
    };
    SendError { retry, reason, message }
}

/// The error if the exporter had to send before it was started, which is a bug.
pub fn not_started() -> SendError {
    let message = "the exporter was not started".to_owned();
    SendError { retry: Retry::Never, reason: Reason::Internal, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: `Retry-After` is read as seconds, whole or not, and as a date; a date in the past means no pause,
    /// and invalid values are ignored.
    /// rule: otlp#retry-after
    #[test]
    fn retry_after_has_two_forms() {
        let now = Duration::from_secs(784_111_777);
        let read = |text: &'static str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]);
            HttpAnswer { status: StatusCode::SERVICE_UNAVAILABLE, headers, body: Ok(Bytes::new()) }.retry_after(now)
        };
        assert_eq!(read(" 120 "), Some(Duration::from_secs(120)));
        assert_eq!(read("1.5"), Some(Duration::from_millis(1500)));
        assert_eq!(read("Sun, 06 Nov 1994 08:50:37 GMT"), Some(Duration::from_secs(60)));
        assert_eq!(read("Sun, 06 Nov 1994 08:40:37 GMT"), Some(Duration::ZERO));
        assert_eq!(read("0"), Some(Duration::ZERO));
        assert_eq!(read("1e300"), Some(Duration::MAX));
        assert_eq!([read("soon"), read("-1"), read("NaN")], [None; 3]);
    }

    /// Guarantees: for each status, the error allows a retry or does not, after the requested pause.
    #[test]
    fn statuses() {
        let peer = Peer::new(&Uri::from_static("http://c:1/"), HeaderMap::new(), &TlsClientConfig::default());
        let refused = |status: u16, pause: &'static str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(pause))]);
            let status = StatusCode::from_u16(status).unwrap();
            let error = HttpAnswer { status, headers, body: Ok(Bytes::new()) }.refused(&peer, "no", Duration::ZERO);
            (error.retry, error.reason)
        };
        let after = Retry::After(Duration::from_secs(7));
        assert_eq!(refused(429, "7"), (after, Reason::RateLimited));
        assert_eq!(refused(503, "7"), (after, Reason::RetriesExhausted));
        assert_eq!(refused(503, "0"), (Retry::Later, Reason::RetriesExhausted));
        assert_eq!(refused(500, "7"), (Retry::Never, Reason::RejectedByPeer));
    }
}
