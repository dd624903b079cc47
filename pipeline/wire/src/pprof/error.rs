//! Why a pprof profile could not be decoded.

use crate::otlp;
use crate::otlp::error::{At, Fault};

/// The reason why a pprof profile was rejected, always as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The profile is not a valid protobuf message of this kind, or breaks a rule of pprof.
    #[error("malformed pprof profile: {place}{}: {rule}", At(*offset))]
    Malformed {
        /// The path in the terms of `profile.proto`, such as `sample[5].location_id`.
        place: String,
        /// The byte offset, for errors in the encoding.
        offset: Option<usize>,
        /// The rule, and how it is broken.
        rule: String,
    },
    /// The profile is larger or deeper than a limit allows.
    #[error("the pprof profile exceeds a limit: {what}, the limit is {limit}")]
    LimitExceeded {
        /// The quantity that exceeds the limit.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
}

impl From<Fault> for DecodeError {
    fn from(fault: Fault) -> Self {
        otlp::DecodeError::from(fault).into()
    }
}

impl From<otlp::DecodeError> for DecodeError {
    fn from(error: otlp::DecodeError) -> Self {
        match error {
            otlp::DecodeError::Malformed { place, offset, rule } => {
                let place = if place == "request" { "profile".to_owned() } else { place };
                Self::Malformed { place, offset, rule }
            }
            otlp::DecodeError::LimitExceeded { what, limit } => Self::LimitExceeded { what, limit },
            // This cannot happen, because only OTLP has several layouts.
            otlp::DecodeError::UnclearLayout { why, .. } => {
                Self::Malformed { place: "profile".to_owned(), offset: None, rule: why.to_owned() }
            }
        }
    }
}
