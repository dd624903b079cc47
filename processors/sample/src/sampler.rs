//! Decides about a trace by one representative span.

use profbridge_engine::component::Outbox;
use profbridge_identity::sampling;
use profbridge_wire::sentry::trace_header::TraceHeader;
use profbridge_wire::spans::SpanView;

use crate::config::Settings;
use crate::decision::{Decision, SamplingEvidence};
use crate::rules::{DecidingSpan, RuleVerdict, SamplingRule};

/// The configured rules and rate.
#[derive(Debug)]
pub(crate) struct TraceSampler {
    rate: Option<f64>,
    rules: Vec<SamplingRule>,
    has_warned: bool,
}

impl TraceSampler {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self { rate: settings.traces_rate, rules: settings.rules.clone(), has_warned: false }
    }

    /// Whether nothing is configured, so that every span is kept.
    pub(crate) fn keeps_all(&self) -> bool {
        self.rate.is_none() && self.rules.is_empty()
    }

    /// Decides by a span. `is_root` is whether it is the root span. `header` is the trace context in the envelope's
    /// header.
    pub(crate) fn decide(
        &mut self,
        view: &SpanView<'_>,
        is_root: bool,
        header: &TraceHeader,
        out: &mut Outbox,
    ) -> Decision {
        if self.keeps_all() {
            return Decision::KEPT;
        }
        let header = &header.of(view.span().trace_id);
        let deciding = DecidingSpan { view, is_root };
        let evidence = SamplingEvidence {
            explicit: view.decision().filter(|_| is_root).or(header.sampled),
            rule: self.rules.iter().find_map(|rule| rule.verdict(deciding)),
            parent: view.parent_decision().filter(|_| is_root),
            rate: self.rate,
        };
        let decision = evidence.decide(|rate| is_drawn(view, header, rate));
        if decision.is_invalid {
            out.note(crate::INVALID_RATES, 1);
            if evidence.rule == Some(RuleVerdict::Invalid) && !self.has_warned {
                self.has_warned = true;
                tracing::warn!(
                    "the attribute that `rate_from` of a rule names has a value that is neither a number from 0 to 1 \
                     nor true or false; the trace is dropped. This is said once, and counted as {}",
                    crate::INVALID_RATES
                );
            }
        }
        decision
    }
}

/// The combined rate of earlier sampling of the trace, if known.
pub(crate) fn rate_before(view: &SpanView<'_>, header: &TraceHeader) -> Option<f64> {
    // What a processor determined, here or in another profbridge, is more recent than the header's rate.
    let changed = view.span().changes.as_ref().and_then(|changes| changes.sample_rate);
    changed
        .or_else(|| view.client_sample_rate())
        .or(header.of(view.span().trace_id).sample_rate)
        .or_else(|| view.sample_rate())
}

/// Whether a rate keeps a trace. The rate is above 0 and below 1.
///
/// Sentry's SDKs draw a random number per trace and keep the trace if the number is below their rate, so the number is
/// compared with the same share of that rate. Without such a number, a hash of the trace id is used, which is
/// independent of earlier sampling.
fn is_drawn(view: &SpanView<'_>, header: &TraceHeader, rate: f64) -> bool {
    match header.sample_rand.or_else(|| view.sample_rand()) {
        Some(number) => number < rate * rate_before(view, header).unwrap_or(1.0),
        None => sampling::trace(view.span().trace_id) < rate,
    }
}
