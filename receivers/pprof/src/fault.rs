//! The reasons for refusing a profile, with the status of the answer.

use http::StatusCode;
use profbridge_wire::foreign;
use profbridge_wire::pprof::DecodeError;

pub(crate) use profbridge_engine::http_fault::HttpFault as Fault;

pub(crate) fn internal() -> Fault {
    Fault::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the profile could not be read, see profbridge's log")
}

/// The fault of a profile that cannot be decoded. If the profile has another known format, the message names that
/// format.
pub(crate) fn unreadable(error: &DecodeError, profile: &[u8]) -> Fault {
    match error {
        DecodeError::LimitExceeded { .. } => Fault::too_large(error.to_string()),
        DecodeError::Malformed { .. } if profile.is_empty() => Fault::malformed("the profile is empty"),
        DecodeError::Malformed { .. } => Fault::malformed(match foreign::name(profile) {
            Some((what, way)) => format!("it is {what}, and no pprof profile: {way}"),
            None => error.to_string(),
        }),
    }
}
