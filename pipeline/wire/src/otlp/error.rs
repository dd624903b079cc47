//! Why a request could not be decoded, in the form of a receiver's response.

use std::fmt::{self, Display};

use profbridge_model::dictionary::Invalid;

/// Why a request was rejected as a whole. None of these is worth a retry (opentelemetry-proto `docs/specification.md`,
/// "Failures": bad data must not be sent again).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The request is not a valid protobuf message of this kind, or its dictionary breaks a rule that every profile
    /// depends on.
    #[error("malformed request: {place}{}: {rule}", At(*offset))]
    Malformed {
        /// The path in the protocol's terms, such as `dictionary.location_table[5]`.
        place: String,
        /// The byte offset in the request, for errors in the encoding.
        offset: Option<usize>,
        /// The rule, and how it is broken.
        rule: String,
    },
    /// The request is larger or deeper than a limit allows.
    #[error("the request exceeds a limit: {what}, the limit is {limit}")]
    LimitExceeded {
        /// The quantity that exceeds the limit.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The request fits several layouts of the message, or its parts fit different ones.
    #[error("the layout of the request cannot be told: {why}, which leaves those of opentelemetry-proto {candidates}")]
    UnclearLayout {
        /// The possible layouts, as versions of opentelemetry-proto.
        candidates: String,
        /// What is ambiguous.
        why: &'static str,
    },
}

/// Formats a byte offset, if it is known.
pub(crate) struct At(pub(crate) Option<usize>);

impl Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(offset) => write!(f, " (at byte {offset})"),
            None => Ok(()),
        }
    }
}

impl From<Invalid> for DecodeError {
    fn from(invalid: Invalid) -> Self {
        Self::Malformed { place: invalid.place, offset: None, rule: invalid.rule }
    }
}

/// An error that is being returned: each enclosing message prepends its name to the path. Boxed because errors are
/// rare.
#[derive(Debug)]
pub(crate) struct Fault(Box<FaultKind>);

#[derive(Debug)]
enum FaultKind {
    Wire { place: String, offset: Option<usize>, rule: String },
    Limit { what: &'static str, limit: u64 },
}

/// The result of reading a part of a request.
pub(crate) type Result<T> = std::result::Result<T, Fault>;

impl Fault {
    /// Bytes that break a rule of the encoding.
    #[cold]
    pub(crate) fn wire(offset: usize, rule: impl Into<String>) -> Self {
        Self(Box::new(FaultKind::Wire { place: String::new(), offset: Some(offset), rule: rule.into() }))
    }

    /// A value that breaks a rule of the protocol.
    #[cold]
    pub(crate) fn value(place: impl Into<String>, rule: impl Into<String>) -> Self {
        Self(Box::new(FaultKind::Wire { place: place.into(), offset: None, rule: rule.into() }))
    }

    /// A limit is exceeded.
    #[cold]
    pub(crate) fn limit(what: &'static str, limit: u64) -> Self {
        Self(Box::new(FaultKind::Limit { what, limit }))
    }

    /// Prepends an outer part of the path to the error.
    #[cold]
    pub(crate) fn within(mut self, outer: impl Display) -> Self {
        if let FaultKind::Wire { place, .. } = &mut *self.0 {
            *place = match place.as_str() {
                "" => outer.to_string(),
                inner => format!("{outer}.{inner}"),
            };
        }
        self
    }
}

impl From<Fault> for DecodeError {
    fn from(fault: Fault) -> Self {
        match *fault.0 {
            FaultKind::Wire { mut place, offset, rule } => {
                if place.is_empty() {
                    place.push_str("request");
                }
                Self::Malformed { place, offset, rule }
            }
            FaultKind::Limit { what, limit } => Self::LimitExceeded { what, limit },
        }
    }
}
