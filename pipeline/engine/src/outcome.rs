//! How something ends that one part does for another: what a sender, an exporter or whoever starts a component is told.

use std::time::Duration;

use profbridge_model::{Quantities, Reason};

/// Why a pipeline did not take telemetry.
///
/// A receiver translates it into its protocol: `Later` into "try again" (OTLP: UNAVAILABLE with RetryInfo, or 503 with
/// Retry-After), `Never` into a refusal that the sender does not repeat.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{component}: {reason}: {message}")]
pub struct Rejected {
    /// The component that refused, by its id in the configuration.
    pub component: String,
    /// Why: also the label of the metric.
    pub reason: Reason,
    /// Whether sending the same again can help.
    pub retry: Retry,
    /// What happened, for a person; holds no secrets.
    pub message: String,
}

/// Whether sending the same again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// The same input always has the same result.
    Never,
    /// It can help, at the caller's pace.
    Later,
    /// It can help, but not before this has passed.
    After(Duration),
}

/// Why a component could not start, for a person. Names what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub String);

/// What a destination said to a request that it took.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Accepted {
    /// What it refused all the same (OTLP's partial success).
    pub rejected: Quantities,
    /// What it said about them, or a warning.
    pub message: Option<String>,
    /// The time for which the destination will send a bill, where it bills by time.
    pub billed: Duration,
    /// What else is to be counted, by name; see [`Prepared::notes`](crate::component::Prepared::notes).
    pub notes: Vec<(&'static str, u64)>,
}

/// Why one attempt to send a request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SendError {
    /// Whether another attempt can help.
    pub retry: Retry,
    /// The reason to count if there is none, or they are used up.
    pub reason: Reason,
    /// What happened, for a person; holds no secrets.
    pub message: String,
}
