//! Decides whether a trace is kept.
//!
//! The order of precedence is that of Sentry's tracing guidelines for SDKs ("Sampling"): a decision received with the
//! trace, then the rules (in place of `tracesSampler`), then the parent's decision, then the rate.

use crate::rules::RuleVerdict;

/// The inputs of a decision. An input that is `None` does not decide.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct SamplingEvidence {
    /// The program's decision for this span, or the decision in the envelope's header.
    pub(crate) explicit: Option<bool>,
    /// Result of the first matching rule.
    pub(crate) rule: Option<RuleVerdict>,
    /// The parent's decision.
    pub(crate) parent: Option<bool>,
    /// The configured rate, from 0 to 1.
    pub(crate) rate: Option<f64>,
}

/// The outcome.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Decision {
    /// Whether the trace is kept.
    pub(crate) kept: bool,
    /// The rate at which the trace was randomly kept or dropped, above 0 and below 1; `None` if the decision was not
    /// random.
    pub(crate) rate: Option<f64>,
    /// Whether a rule has no valid rate for the trace, so that the trace is dropped.
    pub(crate) is_invalid: bool,
}

impl Decision {
    const fn certain(kept: bool) -> Self {
        Self { kept, rate: None, is_invalid: false }
    }

    /// The decision to keep the trace, without a random draw.
    pub(crate) const KEPT: Self = Self::certain(true);
}

impl SamplingEvidence {
    /// Makes the decision. `is_drawn` returns whether a rate keeps the trace.
    pub(crate) fn decide(self, is_drawn: impl FnOnce(f64) -> bool) -> Decision {
        let by_rate = |rate: f64| {
            if rate <= 0.0 || rate >= 1.0 {
                return Decision::certain(rate >= 1.0);
            }
            Decision { kept: is_drawn(rate), rate: Some(rate), is_invalid: false }
        };
        match self {
            Self { explicit: Some(sampled), .. } => Decision::certain(sampled),
            Self { rule: Some(RuleVerdict::Sampled(sampled)), .. } => Decision::certain(sampled),
            Self { rule: Some(RuleVerdict::Rate(rate)), .. } => by_rate(rate),
            Self { rule: Some(RuleVerdict::Invalid), .. } => Decision { is_invalid: true, ..Decision::certain(false) },
            Self { parent: Some(sampled), .. } => Decision::certain(sampled),
            Self { rate: Some(rate), .. } => by_rate(rate),
            Self { explicit: None, rule: None, parent: None, rate: None } => Decision::KEPT,
        }
    }
}
