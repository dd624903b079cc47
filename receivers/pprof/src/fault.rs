//! Why a profile was not taken, with the status of the answer.

use std::net::IpAddr;
use std::time::Duration;

use http::StatusCode;
use profbridge_engine::body::{ReadError, UnpackError};
use profbridge_engine::component::{Rejected, Retry};
use profbridge_engine::telemetry::Refusal;
use profbridge_model::Reason;
use profbridge_net::body::BodyError;
use profbridge_net::compression::{CodingError, DecompressError};
use profbridge_wire::pprof::DecodeError;

/// When a sender that was refused for want of room may come back.
const LATER: Duration = Duration::from_secs(2);

/// The longest text in an answer, in bytes.
const LONGEST_TEXT: usize = 512;

/// Why a profile was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The answer's status.
    pub(crate) status: StatusCode,
    /// One word for the log and the metrics.
    pub(crate) reason: &'static str,
    /// What happened, for a person.
    pub(crate) message: String,
    /// When the sender may come back; set where there was no room.
    pub(crate) retry_after: Option<Duration>,
    /// What refused it behind the receiver.
    pub(crate) refused: Option<Reason>,
}

impl Fault {
    pub(crate) fn new(status: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.len() > LONGEST_TEXT {
            let end = (0..=LONGEST_TEXT).rev().find(|&end| message.is_char_boundary(end)).unwrap_or(0);
            message.truncate(end);
            message.push('…');
        }
        Self { status, reason, message, retry_after: None, refused: None }
    }

    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", message)
    }

    pub(crate) fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the profile could not be read, see profbridge's log")
    }

    fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }

    /// What the log says of it.
    pub(crate) fn refusal(&self, peer: Option<IpAddr>) -> Refusal {
        let retry = self.retry_after.map_or(Retry::Never, Retry::After);
        let reason = self.refused.map_or(self.reason, Reason::as_str);
        Refusal { reason, peer, message: self.message.clone(), retry }
    }
}

impl From<Rejected> for Fault {
    fn from(rejected: Rejected) -> Self {
        let message = rejected.to_string();
        let fault = match (rejected.retry, rejected.reason) {
            (Retry::Never, Reason::LimitExceeded | Reason::TooLarge) => Self::too_large(message),
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

impl From<ReadError> for Fault {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::TooLarge { limit } => Self::too_large(format!("the body is larger than {limit} bytes")),
            ReadError::Rejected(rejected) => rejected.into(),
            ReadError::Body(error) => {
                let message = error.to_string();
                match error {
                    BodyError::TooLarge { .. } => Self::too_large(message),
                    BodyError::TimedOut { .. } => Self::new(StatusCode::REQUEST_TIMEOUT, "too_slow", message),
                    BodyError::Broken { .. } => Self::new(StatusCode::BAD_REQUEST, "aborted", message),
                }
            }
        }
    }
}

impl From<UnpackError> for Fault {
    fn from(error: UnpackError) -> Self {
        match error {
            UnpackError::Rejected(rejected) => rejected.into(),
            UnpackError::Decompress(error @ DecompressError::TooLarge { .. }) => Self::too_large(error.to_string()),
            UnpackError::Decompress(error) => Self::malformed(error.to_string()),
        }
    }
}

impl From<CodingError> for Fault {
    fn from(error: CodingError) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "compression", error.to_string())
    }
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::LimitExceeded { .. } => Self::too_large(error.to_string()),
            DecodeError::Malformed { .. } => Self::malformed(error.to_string()),
        }
    }
}
