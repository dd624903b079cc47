//! Why a profile was not taken, with the status of the answer.

use http::StatusCode;
use profbridge_wire::pprof::DecodeError;

pub(crate) use profbridge_engine::http_fault::HttpFault as Fault;

pub(crate) fn internal() -> Fault {
    Fault::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the profile could not be read, see profbridge's log")
}

/// The profile cannot be read.
pub(crate) fn unreadable(error: &DecodeError) -> Fault {
    match error {
        DecodeError::LimitExceeded { .. } => Fault::too_large(error.to_string()),
        DecodeError::Malformed { .. } => Fault::malformed(error.to_string()),
    }
}
