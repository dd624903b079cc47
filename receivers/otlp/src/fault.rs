//! Why a call failed, with the statuses of gRPC and HTTP.

use std::net::IpAddr;
use std::time::Duration;

use ::http::StatusCode;
use profbridge_engine::body::{ReadError, UnpackError};
use profbridge_engine::component::{Rejected, Retry};
use profbridge_engine::telemetry::{ItemCounts, Refusal};
use profbridge_model::Reason;
use profbridge_model::dictionary::Invalid;
use profbridge_net::body::BodyError;
use profbridge_net::compression::{CodingError, DecompressError};
use profbridge_wire::otlp::{DecodeError, Signal};
use tonic::Code;

/// The default delay before a retry. A delay is always sent, because for some codes a missing delay forbids the retry.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The maximum length of an answer's text in bytes. gRPC sends the text twice, both times in headers, and clients
/// accept at least 8 KiB of headers (gRPC `PROTOCOL-HTTP2.md`).
const LONGEST_TEXT: usize = 1024;

/// The kind of a failure. It decides whether the sender may retry (opentelemetry-proto `docs/specification.md`,
/// "Failures" and "Failures 1").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// The request breaks a rule.
    Invalid,
    /// The request is larger than a limit, compressed or not.
    TooLarge,
    /// The request arrived too slowly. A retry may succeed.
    TooSlow,
    /// The sender stopped in the middle of the request.
    Aborted,
    /// The request's content coding is not supported.
    Coding,
    /// The request's format is not supported.
    Format,
    /// The path, service or method does not exist.
    Unknown,
    /// The request is of an unsupported signal: traces, metrics or logs.
    Signal,
    /// The HTTP method is not POST.
    Method,
    /// The request passed through this process before, so forwarding loops.
    Loop,
    /// Memory or a queue is full, or profbridge is shutting down.
    Busy,
    /// The configuration prevents the request from being accepted, or profbridge has a defect.
    Internal,
}

impl FaultKind {
    /// One word for the log, the gRPC status, and the HTTP status.
    fn answers(self) -> (&'static str, Code, StatusCode) {
        match self {
            FaultKind::Invalid => ("malformed", Code::InvalidArgument, StatusCode::BAD_REQUEST),
            FaultKind::TooLarge => ("too_large", Code::ResourceExhausted, StatusCode::PAYLOAD_TOO_LARGE),
            // Not 408, which would lose data: OTLP clients retry only 429, 502, 503 and 504. google.rpc's code.proto
            // maps DEADLINE_EXCEEDED to 504.
            FaultKind::TooSlow => ("too_slow", Code::DeadlineExceeded, StatusCode::GATEWAY_TIMEOUT),
            FaultKind::Aborted => ("aborted", Code::Cancelled, StatusCode::BAD_REQUEST),
            FaultKind::Coding => ("compression", Code::Unimplemented, StatusCode::UNSUPPORTED_MEDIA_TYPE),
            FaultKind::Format => ("format", Code::InvalidArgument, StatusCode::UNSUPPORTED_MEDIA_TYPE),
            FaultKind::Unknown => ("unknown_path", Code::Unimplemented, StatusCode::NOT_FOUND),
            FaultKind::Signal => ("other_signal", Code::Unimplemented, StatusCode::NOT_FOUND),
            FaultKind::Method => ("method", Code::Unimplemented, StatusCode::METHOD_NOT_ALLOWED),
            FaultKind::Loop => ("loop", Code::InvalidArgument, StatusCode::LOOP_DETECTED),
            FaultKind::Busy => ("busy", Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE),
            FaultKind::Internal => ("internal", Code::Internal, StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

/// A signal of OpenTelemetry that is not accepted here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnsupportedSignal {
    /// The signal's name in the plural.
    pub(crate) name: &'static str,
    /// The environment variable with an SDK's endpoint for the signal (opentelemetry-specification
    /// `specification/protocol/exporter.md`).
    pub(crate) variable: &'static str,
}

impl UnsupportedSignal {
    /// The signal of an OTLP/HTTP path or an OTLP/gRPC service.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let known = [
            ("/v1/traces", "opentelemetry.proto.collector.trace.", "traces", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
            ("/v1/metrics", "opentelemetry.proto.collector.metrics.", "metrics", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"),
            ("/v1/logs", "opentelemetry.proto.collector.logs.", "logs", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"),
        ];
        let found = known.into_iter().find(|(http, grpc, ..)| path == *http || path.starts_with(grpc));
        found.map(|(_, _, name, variable)| Self { name, variable })
    }
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallFault {
    pub(crate) kind: FaultKind,
    /// An explanation for a person.
    pub(crate) message: String,
    /// The place in the request, and the rule that is broken there.
    pub(crate) violation: Option<Invalid>,
    /// The delay before a retry; set exactly for [`FaultKind::Busy`].
    pub(crate) retry_after: Option<Duration>,
    /// The reason if something behind the receiver refused the request: the memory budget, a pipeline or a full queue.
    pub(crate) refused: Option<Reason>,
    /// The number of items that are lost, if they could be counted.
    pub(crate) items: ItemCounts,
}

impl CallFault {
    pub(crate) fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        let message = shortened(message.into());
        Self { kind, message, violation: None, retry_after: None, refused: None, items: ItemCounts::NONE }
    }

    /// The request breaks a rule at this place.
    pub(crate) fn invalid(place: impl Into<String>, rule: impl Into<String>) -> Self {
        let (place, rule) = (shortened(place.into()), shortened(rule.into()));
        let message = shortened(format!("{place}: {rule}"));
        Self { violation: Some(Invalid { place, rule }), ..Self::new(FaultKind::Invalid, message) }
    }

    /// A fault that allows a retry, because memory or a queue is full.
    pub(crate) fn later(message: String) -> Self {
        Self { retry_after: Some(RETRY_DELAY), ..Self::new(FaultKind::Busy, message) }
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        Self::new(FaultKind::TooLarge, format!("the request is larger than the limit of {limit} bytes"))
    }

    /// The signal is not accepted here. If `OTEL_EXPORTER_OTLP_ENDPOINT` names this receiver, an SDK sends all signals
    /// here and would lose the others, so the message names the variable to set.
    pub(crate) fn another_signal(signal: UnsupportedSignal, what: &str, accepted: &[&str]) -> Self {
        let UnsupportedSignal { name, variable } = signal;
        let takes = accepted.join(" and ");
        let pipeline = match Signal::find(|names| names.name == name) {
            Some(_) => format!(", or name this receiver in a pipeline called `{name}`"),
            None => String::new(),
        };
        let message = format!(
            "{what}: this receiver takes {takes} and no other signal; set {variable} to where {name} go, or \
             OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT to this receiver instead of OTEL_EXPORTER_OTLP_ENDPOINT, which means every \
             signal; or let profbridge hand {name} on with `forward_unsupported`{pipeline}"
        );
        Self::new(FaultKind::Signal, message)
    }

    /// The fault as a log entry.
    pub(crate) fn refusal(&self, peer: Option<IpAddr>) -> Refusal {
        let reason = self.refused.map_or_else(|| self.kind.answers().0, Reason::as_str);
        let retry = match (self.retry_after, self.kind) {
            (Some(delay), _) => Retry::After(delay),
            (None, FaultKind::TooSlow | FaultKind::Aborted) => Retry::Later,
            (None, _) => Retry::Never,
        };
        Refusal { reason, peer, message: self.message.clone(), retry }
    }

    /// The gRPC status.
    pub(crate) fn code(&self) -> Code {
        self.kind.answers().1
    }

    /// The HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        self.kind.answers().2
    }
}

impl From<Rejected> for CallFault {
    fn from(rejected: Rejected) -> Self {
        let kind = match (rejected.retry, rejected.reason) {
            (Retry::Later | Retry::After(_), _) => FaultKind::Busy,
            (Retry::Never, Reason::Malformed) => FaultKind::Invalid,
            (Retry::Never, Reason::Loop) => FaultKind::Loop,
            (Retry::Never, Reason::LimitExceeded | Reason::TooLarge) => FaultKind::TooLarge,
            (Retry::Never, _) => FaultKind::Internal,
        };
        let retry_after = match rejected.retry {
            Retry::Never => None,
            Retry::Later => Some(RETRY_DELAY),
            Retry::After(delay) => Some(delay),
        };
        Self { retry_after, refused: Some(rejected.reason), ..Self::new(kind, rejected.to_string()) }
    }
}

impl From<ReadError> for CallFault {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Body(error) => error.into(),
            ReadError::Rejected(rejected) => rejected.into(),
        }
    }
}

impl From<UnpackError> for CallFault {
    fn from(error: UnpackError) -> Self {
        match error {
            UnpackError::Rejected(rejected) => rejected.into(),
            UnpackError::Decompress(error @ DecompressError::TooLarge { .. }) => {
                Self::new(FaultKind::TooLarge, error.to_string())
            }
            UnpackError::Decompress(error) => Self::invalid("request", error.to_string()),
        }
    }
}

impl From<BodyError> for CallFault {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge { limit } => Self::too_large(limit),
            BodyError::TimedOut { .. } => Self::new(FaultKind::TooSlow, error.to_string()),
            BodyError::Broken { .. } => Self::new(FaultKind::Aborted, error.to_string()),
        }
    }
}

impl From<CodingError> for CallFault {
    fn from(error: CodingError) -> Self {
        Self::new(FaultKind::Coding, error.to_string())
    }
}

impl From<DecodeError> for CallFault {
    fn from(error: DecodeError) -> Self {
        let message = error.to_string();
        match error {
            DecodeError::Malformed { place, offset, rule } => {
                let rule = offset.map_or(rule.clone(), |offset| format!("{rule} (at byte {offset})"));
                Self { message: shortened(message), ..Self::invalid(place, rule) }
            }
            DecodeError::LimitExceeded { .. } => Self::new(FaultKind::TooLarge, message),
            DecodeError::UnclearLayout { .. } => {
                Self { message: shortened(message.clone()), ..Self::invalid("request", message) }
            }
        }
    }
}

/// The text, truncated to the maximum length.
pub(crate) fn shortened(mut text: String) -> String {
    if text.len() > LONGEST_TEXT {
        let end = (0..=LONGEST_TEXT).rev().find(|&end| text.is_char_boundary(end));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a text that is too long for headers is cut between characters, and a short one stays.
    /// rule: otlp#answer-size
    #[test]
    fn texts_are_bounded() {
        assert_eq!(shortened("short".to_owned()), "short");
        let long = shortened("é".repeat(LONGEST_TEXT));
        assert!(long.len() <= LONGEST_TEXT + 3 && long.starts_with("éé") && long.ends_with("é…"), "{long}");
        let fault = CallFault::invalid("x".repeat(9_000), "y".repeat(9_000));
        let violation = fault.violation.unwrap();
        assert!([fault.message, violation.place, violation.rule].iter().all(|text| text.len() < 1_100));
    }
}
