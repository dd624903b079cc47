//! The reason why an HTTP request was refused, with the status of the answer. For receivers whose protocol, unlike
//! OTLP, defines no statuses of its own.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, ALLOW, CONTENT_TYPE, HeaderName, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use profbridge_model::Reason;
use profbridge_net::body::BodyError;
use profbridge_net::compression::{self, CodingError, DecompressError};

use crate::body::{ReadError, UnpackError};
use crate::component::{Rejected, Retry};
use crate::telemetry::{ItemCounts, Refusal, TransportTelemetry};

/// The delay given to a sender that was refused for lack of room.
const LATER: Duration = Duration::from_secs(2);

/// Maximum length of an answer's text in bytes.
const LONGEST_TEXT: usize = 512;

/// The word for a request whose sender went away before its end.
const ABORTED: &str = "aborted";

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpFault {
    /// The answer's status.
    pub status: StatusCode,
    /// One word for the log and the metrics.
    pub reason: &'static str,
    /// What happened, for a person; contains no secrets.
    pub message: String,
    /// When the sender may retry; set if there was no room.
    pub retry_after: Option<Duration>,
    /// The reason, if a component behind the receiver refused the request.
    pub refused: Option<Reason>,
    /// Headers of the answer, in addition to those that its status requires.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl HttpFault {
    /// A fault with a status, one word for the log, and a message, which is truncated to the maximum length.
    pub fn new(status: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.len() > LONGEST_TEXT {
            let end = (0..=LONGEST_TEXT).rev().find(|&end| message.is_char_boundary(end)).unwrap_or(0);
            message.truncate(end);
            message.push('…');
        }
        Self { status, reason, message, retry_after: None, refused: None, headers: Vec::new() }
    }

    /// The request breaks a rule.
    pub fn malformed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", message)
    }

    /// The request is larger than a limit.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }

    /// The fault as an entry for the log.
    pub fn refusal(&self, peer: Option<IpAddr>) -> Refusal {
        let retry = match (self.retry_after, self.status) {
            (Some(delay), _) => Retry::After(delay),
            // These are about the attempt and not about the request (RFC 9110, 15.5.9 and 15.6; RFC 6585, 4).
            (
                None,
                StatusCode::REQUEST_TIMEOUT
                | StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT,
            ) => Retry::Later,
            (None, _) if self.reason == ABORTED => Retry::Later,
            (None, _) => Retry::Never,
        };
        let reason = self.refused.map_or(self.reason, Reason::as_str);
        Refusal { reason, peer, message: self.message.clone(), retry }
    }

    /// Counts the request as refused by a component behind the receiver, or else as failed in the receiver.
    pub fn count(&self, telemetry: &TransportTelemetry) {
        match self.refused {
            Some(_) => telemetry.refused(ItemCounts::NONE),
            None => telemetry.failed(ItemCounts::NONE),
        }
    }

    /// Counts the request, and logs why it was refused.
    pub(crate) fn count_and_log(&self, telemetry: &TransportTelemetry, peer: Option<IpAddr>) {
        self.count(telemetry);
        telemetry.not_taken(self.refusal(peer));
    }

    /// The answer: this body, plus the headers that the status requires, such as the allowed methods.
    pub fn answer(
        &self,
        content_type: &'static str,
        body: impl Into<Bytes>,
        allowed: &'static str,
    ) -> Response<Full<Bytes>> {
        let mut answer = Response::new(Full::new(body.into()));
        *answer.status_mut() = self.status;
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        let required = match self.status {
            StatusCode::METHOD_NOT_ALLOWED => Some((ALLOW, HeaderValue::from_static(allowed))),
            StatusCode::UNSUPPORTED_MEDIA_TYPE => {
                Some((ACCEPT_ENCODING, HeaderValue::from_static(compression::ACCEPT_ENCODING)))
            }
            _ => None,
        };
        headers.extend(required);
        headers.extend(self.retry_after.map(|delay| (RETRY_AFTER, retry_after(delay))));
        headers.extend(self.headers.iter().cloned());
        answer
    }
}

impl From<Rejected> for HttpFault {
    fn from(rejected: Rejected) -> Self {
        let message = rejected.to_string();
        let fault = match (rejected.retry, rejected.reason) {
            (Retry::Never, Reason::LimitExceeded | Reason::TooLarge) => Self::too_large(message),
            (Retry::Never, Reason::Loop) => Self::new(StatusCode::LOOP_DETECTED, "loop", message),
            (Retry::Never, _) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message),
            _ => Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message),
        };
        let retry_after = match rejected.retry {
            Retry::Never => None,
            Retry::Later => Some(LATER),
            Retry::After(delay) => Some(delay),
        };
        Self { retry_after, refused: Some(rejected.reason), ..fault }
    }
}

impl From<ReadError> for HttpFault {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Body(error) => error.into(),
            ReadError::Rejected(rejected) => rejected.into(),
        }
    }
}

impl From<BodyError> for HttpFault {
    fn from(error: BodyError) -> Self {
        let message = error.to_string();
        match error {
            BodyError::TooLarge { .. } => Self::too_large(message),
            BodyError::TimedOut { .. } => Self::new(StatusCode::REQUEST_TIMEOUT, "too_slow", message),
            BodyError::Broken { .. } => Self::new(StatusCode::BAD_REQUEST, ABORTED, message),
        }
    }
}

impl From<UnpackError> for HttpFault {
    fn from(error: UnpackError) -> Self {
        match error {
            UnpackError::Rejected(rejected) => rejected.into(),
            UnpackError::Decompress(error @ DecompressError::TooLarge { .. }) => Self::too_large(error.to_string()),
            UnpackError::Decompress(error) => Self::malformed(error.to_string()),
        }
    }
}

impl From<CodingError> for HttpFault {
    fn from(error: CodingError) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "compression", error.to_string())
    }
}

/// The value of `Retry-After`: the delay in seconds, rounded up.
pub fn retry_after(delay: Duration) -> HeaderValue {
    let seconds = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
    HeaderValue::from(seconds.max(1))
}

/// A request in progress, which is counted exactly once. If it is dropped before [`Self::finish`], because its sender
/// disconnected, it counts as failed.
#[derive(Debug)]
pub struct RequestTally<'a> {
    telemetry: Option<&'a TransportTelemetry>,
    peer: Option<IpAddr>,
}

impl<'a> RequestTally<'a> {
    /// Starts counting a request of this peer.
    pub fn new(telemetry: &'a TransportTelemetry, peer: Option<IpAddr>) -> Self {
        Self { telemetry: Some(telemetry), peer }
    }

    /// Counts the request by its outcome, and logs why it was refused.
    pub fn finish(self, outcome: Result<ItemCounts, &HttpFault>) {
        self.end(|telemetry, peer| match outcome {
            Ok(items) => telemetry.accepted(items),
            Err(fault) => fault.count_and_log(telemetry, peer),
        });
    }

    /// Counts the request with `count`, which also receives the peer's address.
    pub fn end(mut self, count: impl FnOnce(&TransportTelemetry, Option<IpAddr>)) {
        if let Some(telemetry) = self.telemetry.take() {
            count(telemetry, self.peer);
        }
    }
}

impl Drop for RequestTally<'_> {
    fn drop(&mut self) {
        if let Some(telemetry) = self.telemetry {
            telemetry.failed(ItemCounts::NONE);
            let message = "the sender went away".to_owned();
            telemetry.not_taken(Refusal { reason: ABORTED, peer: self.peer, message, retry: Retry::Later });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the log only says that the sender was told not to send the same again if the status says so, and not
    /// where another attempt may succeed or nobody was there to be told.
    #[test]
    fn what_the_sender_was_told() {
        let told = |fault: HttpFault| fault.refusal(None).retry;
        let fault = |status| HttpFault::new(StatusCode::from_u16(status).unwrap(), "x", "y");
        for status in [408, 429, 502, 503, 504] {
            assert_eq!(told(fault(status)), Retry::Later, "{status}");
        }
        for status in [400, 401, 403, 404, 405, 413, 415, 500, 501, 508] {
            assert_eq!(told(fault(status)), Retry::Never, "{status}");
        }
        assert_eq!(told(HttpFault { retry_after: Some(LATER), ..fault(503) }), Retry::After(LATER));
        let gone = BodyError::Broken { received: 1, source: "reset".into() };
        assert_eq!(told(gone.into()), Retry::Later);
    }
}
