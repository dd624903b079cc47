//! The rules of the configuration: what Sentry's SDKs call `tracesSampler`, without a program.
//!
//! A rule has conditions on a root span and says a rate, or yes or no. The first one whose conditions hold decides. Of
//! a trace whose root span is not known only the resource is: a rule that asks for more of it does not fit.

use profbridge_wire::spans::{SpanValue, SpanView};

use crate::pattern::Pattern;

/// A checked rule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rule {
    pub(crate) name: Option<Pattern>,
    pub(crate) op: Option<Pattern>,
    pub(crate) service: Option<Pattern>,
    pub(crate) attributes: Vec<(Box<str>, Pattern)>,
    /// The decision that the parent must have made, or that it must have made none.
    pub(crate) parent: Option<Option<bool>>,
    pub(crate) outcome: Outcome,
}

/// What a rule says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// A part is kept: from 0 to 1.
    Rate(f64),
    /// All are kept, or none.
    Sampled(bool),
    /// What this attribute of the span says. A span without it does not fit the rule.
    RateFrom(Box<str>),
}

/// What a rule said of a span.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Verdict {
    /// A part is kept: from 0 to 1.
    Rate(f64),
    /// It is kept, or not.
    Sampled(bool),
    /// The attribute that says the rate says none.
    Invalid,
}

/// A span by which is decided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) view: &'a SpanView<'a>,
    /// Whether it is the root span. Another one stands for its trace in what it says of its resource.
    pub(crate) is_root: bool,
}

impl<'a> Asked<'a> {
    fn attribute(&self, key: &str) -> Option<SpanValue<'a>> {
        let own = self.is_root.then(|| self.view.attribute(key)).flatten();
        own.or_else(|| self.view.resource_attribute(key))
    }

    fn service(&self) -> Option<String> {
        if self.is_root {
            return self.view.service_name();
        }
        self.view.resource_attribute("service.name").and_then(SpanValue::into_text)
    }
}

impl Rule {
    /// What the rule says of a span; `None` where a condition does not hold.
    pub(crate) fn ask(&self, asked: Asked<'_>) -> Option<Verdict> {
        let Self { name, op, service, attributes, parent, outcome } = self;
        let of_root = |wanted: &Option<Pattern>, found: &dyn Fn() -> Option<String>| {
            wanted.as_ref().is_none_or(|wanted| asked.is_root && found().is_some_and(|found| wanted.matches(&found)))
        };
        let fits = of_root(name, &|| Some(asked.view.name()))
            && of_root(op, &|| asked.view.op())
            && parent.is_none_or(|wanted| asked.is_root && asked.view.parent_decision() == wanted)
            && service.as_ref().is_none_or(|wanted| asked.service().is_some_and(|found| wanted.matches(&found)))
            && attributes
                .iter()
                .all(|(key, wanted)| asked.attribute(key).is_some_and(|found| wanted.matches(&found.to_text())));
        if !fits {
            return None;
        }
        match outcome {
            Outcome::Rate(rate) => Some(Verdict::Rate(*rate)),
            Outcome::Sampled(sampled) => Some(Verdict::Sampled(*sampled)),
            Outcome::RateFrom(key) => {
                let value = asked.attribute(key)?;
                let rate = value.number().filter(|rate| (0.0..=1.0).contains(rate));
                Some(match (value.bool(), rate) {
                    (Some(sampled), _) => Verdict::Sampled(sampled),
                    (None, Some(rate)) => Verdict::Rate(rate),
                    (None, None) => Verdict::Invalid,
                })
            }
        }
    }
}
