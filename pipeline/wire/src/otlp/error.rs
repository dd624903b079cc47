//! Why a request could not be decoded, made for the answer that a receiver gives.

use std::fmt::{self, Display};

use profbridge_model::dictionary::Invalid;

/// Why a request was refused as a whole. None of these is worth a retry (opentelemetry-proto `docs/specification.md`,
/// "Failures": bad data must not be sent again).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is no protobuf message of this kind, or its dictionary breaks a rule that every profile depends on.
    #[error("malformed request: {place}{}: {rule}", At(*offset))]
    Malformed {
        /// The place, in the words of the protocol, such as `dictionary.location_table[5]`.
        place: String,
        /// Where in the request's bytes it was noticed, if it is about bytes.
        offset: Option<usize>,
        /// The rule, and what broke it.
        rule: String,
    },
    /// It is larger or deeper than a limit allows.
    #[error("the request exceeds a limit: {what}, the limit is {limit}")]
    LimitExceeded {
        /// What was too much.
        what: &'static str,
        /// How much there may be.
        limit: u64,
    },
    /// It fits several layouts of the same message, or parts of it fit different ones.
    #[error("the layout of the request cannot be told: {why}, which leaves those of opentelemetry-proto {candidates}")]
    UnclearLayout {
        /// The layouts, as versions of opentelemetry-proto.
        candidates: String,
        /// What cannot be told apart.
        why: &'static str,
    },
}

/// Prints where in the bytes something is, if that is known.
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

/// A fault on its way up: each message that it passes adds its name in front. Boxed, for it is the rare case.
#[derive(Debug)]
pub(crate) struct Fault(Box<Kind>);

#[derive(Debug)]
enum Kind {
    Wire { place: String, offset: Option<usize>, rule: String },
    Limit { what: &'static str, limit: u64 },
}

/// The result of reading a part of a request.
pub(crate) type Result<T> = std::result::Result<T, Fault>;

impl Fault {
    /// Bytes that break a rule of the encoding.
    #[cold]
    pub(crate) fn wire(offset: usize, rule: impl Into<String>) -> Self {
        Self(Box::new(Kind::Wire { place: String::new(), offset: Some(offset), rule: rule.into() }))
    }

    /// A value that breaks a rule of the protocol.
    #[cold]
    pub(crate) fn value(place: impl Into<String>, rule: impl Into<String>) -> Self {
        Self(Box::new(Kind::Wire { place: place.into(), offset: None, rule: rule.into() }))
    }

    /// More than a limit allows.
    #[cold]
    pub(crate) fn limit(what: &'static str, limit: u64) -> Self {
        Self(Box::new(Kind::Limit { what, limit }))
    }

    /// The same fault, said from further outside.
    #[cold]
    pub(crate) fn within(mut self, outer: impl Display) -> Self {
        if let Kind::Wire { place, .. } = &mut *self.0 {
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
            Kind::Wire { mut place, offset, rule } => {
                if place.is_empty() {
                    place.push_str("request");
                }
                Self::Malformed { place, offset, rule }
            }
            Kind::Limit { what, limit } => Self::LimitExceeded { what, limit },
        }
    }
}
