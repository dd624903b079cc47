//! The configured rules, which replace the `tracesSampler` function of Sentry's SDKs.
//!
//! A rule has conditions on a root span, and its result is a rate, or to keep all or none. The first matching rule
//! decides. If the root span is unknown, only the resource is known, and its name in a container of spans; rules with
//! other conditions do not match.

use profbridge_wire::spans::{SpanValue, SpanView};

use crate::pattern::Pattern;

/// A checked rule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SamplingRule {
    pub(crate) name: Option<Pattern>,
    pub(crate) op: Option<Pattern>,
    pub(crate) service: Option<Pattern>,
    pub(crate) attributes: Vec<(Box<str>, Pattern)>,
    /// The decision that the parent must have made; `Some(None)` requires that the parent made none.
    pub(crate) parent: Option<Option<bool>>,
    pub(crate) outcome: RuleOutcome,
}

/// The result that a rule defines.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RuleOutcome {
    /// Keeps this share, from 0 to 1.
    Rate(f64),
    /// Keeps all, or none.
    Sampled(bool),
    /// Keeps the share in the value of this attribute of the span. A span without the attribute does not match.
    RateFrom(Box<str>),
}

/// The result of a rule for one span.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum RuleVerdict {
    /// Keep this share, from 0 to 1.
    Rate(f64),
    /// Keep the span, or drop it.
    Sampled(bool),
    /// The attribute has no valid rate.
    Invalid,
}

/// The span by which a trace is decided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecidingSpan<'a> {
    pub(crate) view: &'a SpanView<'a>,
    /// Whether this is the root span. If not, only its resource is used, and what it says of its root.
    pub(crate) is_root: bool,
}

impl<'a> DecidingSpan<'a> {
    fn attribute(&self, key: &str) -> Option<SpanValue<'a>> {
        let own = self.is_root.then(|| self.view.attribute(key)).flatten();
        own.or_else(|| self.view.resource_attribute(key))
    }

    fn name(&self) -> Option<String> {
        if self.is_root { Some(self.view.name()) } else { self.view.segment_name() }
    }

    fn service(&self) -> Option<String> {
        if self.is_root {
            return self.view.service_name();
        }
        self.view.resource_attribute("service.name").and_then(SpanValue::into_text)
    }
}

impl SamplingRule {
    /// Applies the rule to a span; `None` if a condition does not match.
    pub(crate) fn verdict(&self, span: DecidingSpan<'_>) -> Option<RuleVerdict> {
        let Self { name, op, service, attributes, parent, outcome } = self;
        let is = |wanted: &Option<Pattern>, found: &dyn Fn() -> Option<String>| {
            wanted.as_ref().is_none_or(|wanted| found().is_some_and(|found| wanted.matches(&found)))
        };
        let fits = is(name, &|| span.name())
            && is(op, &|| span.view.op().filter(|_| span.is_root))
            && parent.is_none_or(|wanted| span.is_root && span.view.parent_decision() == wanted)
            && is(service, &|| span.service())
            && attributes
                .iter()
                .all(|(key, wanted)| span.attribute(key).is_some_and(|found| wanted.matches(&found.to_text())));
        if !fits {
            return None;
        }
        match outcome {
            RuleOutcome::Rate(rate) => Some(RuleVerdict::Rate(*rate)),
            RuleOutcome::Sampled(sampled) => Some(RuleVerdict::Sampled(*sampled)),
            RuleOutcome::RateFrom(key) => {
                let value = span.attribute(key)?;
                let rate = value.number().filter(|rate| (0.0..=1.0).contains(rate));
                Some(match (value.bool(), rate) {
                    (Some(sampled), _) => RuleVerdict::Sampled(sampled),
                    (None, Some(rate)) => RuleVerdict::Rate(rate),
                    (None, None) => RuleVerdict::Invalid,
                })
            }
        }
    }
}
