//! Decides whether a trace is kept.
//!
//! The precedence is that of Sentry's tracing guidelines for SDKs ("Sampling"): a decision received with the trace,
//! then the rules (in place of `tracesSampler`), then the parent's decision, then the rate.

use crate::rules::Verdict;

/// The inputs of a decision. `None` means that an input does not decide.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Evidence {
    /// The program's decision for this span, or the decision in the envelope's header.
    pub(crate) explicit: Option<bool>,
    /// Result of the first matching rule.
    pub(crate) rule: Option<Verdict>,
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
    /// The rate by which the trace was drawn, above 0 and below 1; `None` if the decision was not random.
    pub(crate) rate: Option<f64>,
    /// Whether a rule yielded no valid rate, so that the trace is dropped.
    pub(crate) is_invalid: bool,
}

impl Decision {
    const fn certain(kept: bool) -> Self {
        Self { kept, rate: None, is_invalid: false }
    }

    /// Keeps the trace, without a random draw.
    pub(crate) const KEPT: Self = Self::certain(true);
}

impl Evidence {
    /// Makes the decision. `is_drawn` returns whether the trace is in the share that a rate keeps.
    pub(crate) fn decide(self, is_drawn: impl FnOnce(f64) -> bool) -> Decision {
        let by_rate = |rate: f64| {
            if rate <= 0.0 || rate >= 1.0 {
                return Decision::certain(rate >= 1.0);
            }
            Decision { kept: is_drawn(rate), rate: Some(rate), is_invalid: false }
        };
        match self {
            Self { explicit: Some(sampled), .. } => Decision::certain(sampled),
            Self { rule: Some(Verdict::Sampled(sampled)), .. } => Decision::certain(sampled),
            Self { rule: Some(Verdict::Rate(rate)), .. } => by_rate(rate),
            Self { rule: Some(Verdict::Invalid), .. } => Decision { is_invalid: true, ..Decision::certain(false) },
            Self { parent: Some(sampled), .. } => Decision::certain(sampled),
            Self { rate: Some(rate), .. } => by_rate(rate),
            Self { explicit: None, rule: None, parent: None, rate: None } => Decision::KEPT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: of all combinations of what can decide, the first in the order of the guidelines does, and a rate
    /// that another one comes before changes nothing.
    /// rule: tracing-sdk#sampler, tracing-sdk#precedence
    #[test]
    fn precedence() {
        let bools = [None, Some(true), Some(false)];
        let rules = [
            None,
            Some(Verdict::Sampled(true)),
            Some(Verdict::Sampled(false)),
            Some(Verdict::Rate(0.0)),
            Some(Verdict::Rate(0.25)),
            Some(Verdict::Rate(1.0)),
            Some(Verdict::Invalid),
        ];
        let rates = [None, Some(0.0), Some(0.5), Some(1.0)];
        let mut seen = 0;
        for explicit in bools {
            for rule in rules {
                for parent in bools {
                    for rate in rates {
                        for position in [0.1, 0.3, 0.9] {
                            let decision = Evidence { explicit, rule, parent, rate }.decide(|rate| position < rate);
                            // In words of their own: who decides, and the chance that this one gives.
                            let (chance, is_invalid) = if let Some(sampled) = explicit {
                                (f64::from(u8::from(sampled)), false)
                            } else if let Some(rule) = rule {
                                match rule {
                                    Verdict::Sampled(sampled) => (f64::from(u8::from(sampled)), false),
                                    Verdict::Rate(rate) => (rate, false),
                                    Verdict::Invalid => (0.0, true),
                                }
                            } else if let Some(parent) = parent {
                                (f64::from(u8::from(parent)), false)
                            } else {
                                (rate.unwrap_or(1.0), false)
                            };
                            let drawn = (0.0 < chance && chance < 1.0).then_some(chance);
                            let expected = Decision { kept: position < chance, rate: drawn, is_invalid };
                            assert_eq!(decision, expected, "{explicit:?} {rule:?} {parent:?} {rate:?} {position}");
                            seen += 1;
                        }
                    }
                }
            }
        }
        assert_eq!(seen, 3 * 7 * 3 * 4 * 3);
    }
}
