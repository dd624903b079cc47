//! Configuration of `sample`: as written, and checked.

use std::collections::BTreeMap;

use profbridge_engine::config::{ByteSize, Duration, Problem, Problems, Section};
use serde::Deserialize;

use crate::pattern::Pattern;
use crate::rules::{RuleOutcome, SamplingRule};

/// The section as written. Every key is optional.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The share of traces that is kept if nothing else decides, from 0 to 1. Without a rate and without rules, all
    /// traces are kept.
    pub traces_sample_rate: Option<f64>,
    /// Rules that take precedence over the parent and the rate. The first match decides.
    pub traces_rules: Vec<WrittenRule>,
    /// The share of profiling sessions that is kept, from 0 to 1.
    pub profile_session_sample_rate: f64,
    /// Which profiles of a session are kept.
    pub profile_lifecycle: Lifecycle,
    /// How long spans wait for the root span of their process, and how long a decision is stored.
    pub decision_wait: Duration,
    /// How long profiles wait for root spans, and how long the times of root spans are stored.
    pub profile_wait: Duration,
    /// The maximum number of traces that wait or whose decision is stored. Beyond that, the oldest is decided or
    /// dropped early.
    pub max_traces: u32,
    /// Size limit of waiting spans, and separately of waiting profiles. Beyond it, the oldest are decided early.
    pub max_bytes: ByteSize,
}

/// Which profiles of a session are kept (Sentry's profiles specification 2.5.0, "Profile Lifecycle Modes").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifecycle {
    /// All profiles.
    #[default]
    Manual,
    /// Profiles observed while a sampled root span of the process was open.
    Trace,
}

/// A rule as written: conditions, all of which must match, and a result.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WrittenRule {
    /// The name of the root span, with `*` and `?`.
    pub name: Option<String>,
    /// The operation of the root span, with `*` and `?`.
    pub op: Option<String>,
    /// The name of the root span's service, with `*` and `?`.
    pub service: Option<String>,
    /// Attributes of the span or of its resource: keys, and values with `*` and `?`.
    pub attributes: BTreeMap<String, String>,
    /// The parent's decision.
    pub parent_sampled: Option<ParentSampled>,
    /// The share that is kept, from 0 to 1.
    pub sample_rate: Option<f64>,
    /// The attribute whose value is the share to keep, or `true` or `false`.
    pub rate_from: Option<String>,
    /// Whether to keep all matching traces, or none.
    pub sampled: Option<bool>,
}

/// A condition on the parent's decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParentSampled {
    /// The parent was sampled.
    True,
    /// The parent was not sampled.
    False,
    /// There is no parent, or the parent made no decision.
    None,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            traces_sample_rate: None,
            traces_rules: Vec::new(),
            profile_session_sample_rate: 1.0,
            profile_lifecycle: Lifecycle::Manual,
            decision_wait: Duration::from_secs(300),
            profile_wait: Duration::from_secs(90),
            max_traces: 100_000,
            max_bytes: ByteSize::from_mib(64),
        }
    }
}

/// The checked configuration. Times in nanoseconds, sizes in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub(crate) traces_rate: Option<f64>,
    pub(crate) rules: Vec<SamplingRule>,
    pub(crate) session_rate: f64,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) decision_wait: u64,
    pub(crate) profile_wait: u64,
    pub(crate) max_traces: usize,
    pub(crate) max_bytes: u64,
}

/// The longest allowed wait.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// The maximum number of rules, and of attribute conditions per rule: all are checked for every root span.
const MAX_RULES: usize = 1000;
const MAX_ATTRIBUTES: usize = 64;

impl Config {
    /// Checks the section.
    ///
    /// # Errors
    ///
    /// Every broken rule, with its position in `section`.
    pub fn check(&self, section: &Section) -> Result<Settings, Problems> {
        let long = |wait: Duration| wait.is_zero() || wait > MAX_WAIT;
        let mut problems = section.broken_rules(&[
            (self.traces_sample_rate.is_some_and(is_no_rate), "traces_sample_rate", NO_RATE, ""),
            (is_no_rate(self.profile_session_sample_rate), "profile_session_sample_rate", NO_RATE, ""),
            (long(self.decision_wait), "decision_wait", "must be more than 0s and at most 1h", ""),
            (long(self.profile_wait), "profile_wait", "must be more than 0s and at most 1h", ""),
            (self.max_traces == 0, "max_traces", "must be at least 1", ""),
            (self.max_bytes.get() < 4096, "max_bytes", "must be at least 4KiB", ""),
            (self.traces_rules.len() > MAX_RULES, "traces_rules", "at most 1000 rules can be written", ""),
        ]);
        let rules = self.traces_rules.iter().enumerate();
        let rules = rules.filter_map(|(at, rule)| rule.check(section, at, &mut problems)).collect();
        match Problems::new(problems) {
            Some(problems) => Err(problems),
            None => Ok(Settings {
                traces_rate: self.traces_sample_rate,
                rules,
                session_rate: self.profile_session_sample_rate,
                lifecycle: self.profile_lifecycle,
                decision_wait: self.decision_wait.nanos(),
                profile_wait: self.profile_wait.nanos(),
                max_traces: self.max_traces as usize,
                max_bytes: self.max_bytes.get(),
            }),
        }
    }
}

const NO_RATE: &str = "a rate is a number from 0 to 1";

/// Whether a number is not a valid rate. NaN is not one either.
fn is_no_rate(rate: f64) -> bool {
    !(0.0..=1.0).contains(&rate)
}

impl WrittenRule {
    fn check(&self, section: &Section, at: usize, problems: &mut Vec<Problem>) -> Option<SamplingRule> {
        let Self { name, op, service, attributes, parent_sampled, sample_rate, rate_from, sampled } = self;
        let place = |key: &str| format!("traces_rules.{at}{}{key}", if key.is_empty() { "" } else { "." });
        let mut broken = |key: &str, message: &str, hint: &str| {
            problems.push(section.problem(&place(key), message, hint));
        };
        if sample_rate.is_some_and(is_no_rate) {
            broken("sample_rate", NO_RATE, "");
        }
        if rate_from.as_ref().is_some_and(String::is_empty) {
            broken("rate_from", "names no attribute", "");
        }
        if attributes.len() > MAX_ATTRIBUTES {
            broken("attributes", "at most 64 attributes can be asked for", "");
        }
        let outcome = match (sample_rate, rate_from, sampled) {
            (Some(rate), None, None) => RuleOutcome::Rate(*rate),
            (None, Some(attribute), None) => RuleOutcome::RateFrom(attribute.as_str().into()),
            (None, None, Some(sampled)) => RuleOutcome::Sampled(*sampled),
            _ => {
                broken("", "a rule says one of `sample_rate`, `rate_from` and `sampled`", "such as `sample_rate: 0.1`");
                return None;
            }
        };
        let pattern = |text: &Option<String>| text.as_deref().map(Pattern::new);
        Some(SamplingRule {
            name: pattern(name),
            op: pattern(op),
            service: pattern(service),
            attributes: attributes.iter().map(|(key, value)| (key.as_str().into(), Pattern::new(value))).collect(),
            parent: parent_sampled.map(|wanted| match wanted {
                ParentSampled::True => Some(true),
                ParentSampled::False => Some(false),
                ParentSampled::None => None,
            }),
            outcome,
        })
    }
}
