//! Why a profile could not be read.

use crate::otlp;
use crate::otlp::error::{At, Fault};

/// Why a pprof profile was refused. It is one profile, so it is refused as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is no protobuf message of this kind, or breaks a rule of pprof.
    #[error("malformed pprof profile: {place}{}: {rule}", At(*offset))]
    Malformed {
        /// The place, in the words of `profile.proto`, such as `sample[5].location_id`.
        place: String,
        /// Where in the bytes it was noticed, if it is about bytes.
        offset: Option<usize>,
        /// The rule, and what broke it.
        rule: String,
    },
    /// It is larger or deeper than a limit allows.
    #[error("the pprof profile exceeds a limit: {what}, the limit is {limit}")]
    LimitExceeded {
        /// What was too much.
        what: &'static str,
        /// How much there may be.
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
            // Only OTLP has layouts.
            otlp::DecodeError::UnclearLayout { why, .. } => {
                Self::Malformed { place: "profile".to_owned(), offset: None, rule: why.to_owned() }
            }
        }
    }
}
