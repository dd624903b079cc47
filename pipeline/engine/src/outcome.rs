//! Outcomes that one part of the engine reports to another: to a sender, an exporter, or the code that starts
//! components.

use std::time::Duration;

use profbridge_model::{Loss, Quantities, Reason};

/// Why a pipeline refused telemetry.
///
/// A receiver translates it into its protocol: `Later` into "try again" (OTLP: UNAVAILABLE with RetryInfo, or 503 with
/// Retry-After), `Never` into a refusal that the sender does not retry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{component}: {reason}: {message}")]
pub struct Rejected {
    /// The component that refused, by its id in the configuration.
    pub component: String,
    /// The reason, which is also the label of the metric.
    pub reason: Reason,
    /// Whether the sender should retry.
    pub retry: Retry,
    /// What happened, for a person; contains no secrets.
    pub message: String,
}

/// Whether a retry can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// The same input always fails.
    Never,
    /// A retry can help, at the caller's pace.
    Later,
    /// A retry can help, but not before this time has passed.
    After(Duration),
}

/// Why a component could not start, for a person, with advice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub String);

/// A destination's answer to an accepted request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Accepted {
    /// The part that is lost nevertheless: what the destination rejected (OTLP's partial success), or those of several
    /// posts that failed for good.
    pub losses: Vec<Loss>,
    /// The destination's message about the lost part, or a warning.
    pub message: Option<String>,
    /// The time that the destination will bill, if it bills by time.
    pub billed: Duration,
    /// Further counts by name; see [`Prepared::notes`](crate::component::Prepared::notes).
    pub notes: Vec<(&'static str, u64)>,
}

impl Accepted {
    /// The sum of the losses.
    pub fn lost(&self) -> Quantities {
        self.losses.iter().map(|loss| loss.quantities).sum()
    }
}

/// Why one attempt to send a request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SendError {
    /// Whether another attempt can help.
    pub retry: Retry,
    /// The reason to count if there is no further attempt.
    pub reason: Reason,
    /// What happened, for a person; contains no secrets.
    pub message: String,
}
