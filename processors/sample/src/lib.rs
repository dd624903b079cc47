//! The processor `sample`: decides which traces and profiles are kept, by Sentry's rules for its SDKs.
//!
//! * Spans: a decision received with the trace, then the rules, then the parent's decision, then the rate (Sentry's
//!   tracing guidelines for SDKs, "Sampling"). Traces are selected by their ids, so replicas agree.
//! * Profiles: the rate of sessions, then, in the lifecycle `trace`, the sampled root spans of their process (Sentry's
//!   profiles specification 2.5.0).
//!
//! See `README.md` for the options and guarantees. `profbridge_wire::spans` parses spans of any format, and
//! `profbridge_identity` identifies their processes.

mod buffered;
mod complete;
mod config;
mod decision;
mod envelope;
mod lifecycle;
mod pattern;
mod processes;
mod roots;
mod rules;
mod sampled_out;
mod sampler;
mod sessions;
mod traces;

use profbridge_engine::component::{Held, Now, Outbox, Processor};
use profbridge_engine::config::Section;
use profbridge_engine::registry::{Description, ProcessorFactory, SPANS};
use profbridge_identity::Rules;
use profbridge_model::{Quantities, SpanForm, Spans, Telemetry, TelemetryKind};

use self::complete::Sender;
use self::lifecycle::TraceLifecycle;
use self::processes::ProcessCache;
use self::sampler::TraceSampler;
use self::sessions::Sessions;
use self::traces::{DecisionContext, Traces};

pub use self::config::{Config, Lifecycle, ParentSampled, Settings, WrittenRule};

/// Note: traces dropped because the attribute named by `rate_from` has no valid rate.
pub const INVALID_RATES: &str = "invalid_rates";
/// Note: traces and profiles that were decided early, because a limit was reached or memory was short.
pub const DECIDED_EARLY: &str = "decided_early";
/// Note: traces decided without their root span, which did not arrive in time.
pub const WITHOUT_ROOT: &str = "without_root_span";
/// Note: time ranges with sampled root spans that were dropped from memory early.
pub const FORGOTTEN: &str = "forgotten_root_spans";
/// Note: dropped transactions of Sentry's SDKs. Their spans are counted as well.
pub const TRANSACTIONS: &str = "dropped_transactions";
/// Note: profiles of sample format V1, to which session sampling does not apply.
pub const V1_EXEMPT: &str = "v1_profiles_exempt";

/// The processor's entry in the registry.
pub const FACTORY: ProcessorFactory = ProcessorFactory {
    description: Description::processor(
        "sample",
        "keeps a part of traces and profiles, by Sentry's rules of sampling",
        TelemetryKind::ALL,
    )
    .wants(wants),
    create: |section, identity| {
        Ok(Box::new(SampleProcessor::new(
            &section.extract_checked(|config: Config, section| config.check(section))?,
            identity,
        )))
    },
};

/// In the lifecycle `trace`, the processor needs spans to decide about profiles.
fn wants(section: &Section) -> &'static [TelemetryKind] {
    match section.extract::<Config>() {
        Ok(Config { profile_lifecycle: Lifecycle::Trace, .. }) => SPANS,
        _ => &[],
    }
}

/// The processor.
#[derive(Debug)]
pub struct SampleProcessor {
    sampler: TraceSampler,
    processes: ProcessCache,
    traces: Traces,
    sessions: Sessions,
    /// Set only in the lifecycle `trace`.
    profiles: Option<TraceLifecycle>,
}

impl SampleProcessor {
    /// A processor without any data. `identity` identifies processes.
    pub fn new(settings: &Settings, identity: &Rules) -> Self {
        Self {
            sampler: TraceSampler::new(settings),
            processes: ProcessCache::new(identity),
            traces: Traces::new(settings),
            sessions: Sessions::new(identity, settings.session_rate),
            profiles: (settings.lifecycle == Lifecycle::Trace).then(|| TraceLifecycle::new(settings, identity)),
        }
    }

    fn take_spans(&mut self, mut spans: Spans, now: Now, out: &mut Outbox) {
        // There is nothing to decide, and no profile needs the times of root spans.
        if self.sampler.keeps_all() && self.profiles.is_none() {
            return out.send(spans);
        }
        let Self { sampler, processes, traces, profiles, .. } = self;
        let waits = !sampler.keeps_all()
            && spans.form() == SpanForm::Otlp
            && spans.client.is_none()
            && spans.spans().iter().all(|span| span.segment.is_none());
        let mut context = DecisionContext { sampler, processes, lifecycle: profiles.as_mut() };
        if waits {
            return traces.process(spans, &mut context, now, out);
        }
        let client = spans.client.as_deref().map_or(0, processes::client);
        let sender = Sender { client, ..Sender::default() };
        let sampled_out = complete::decide(&mut spans, &sender, traces, &mut context, now, out);
        sampled_out.report(&spans, out);
        if !spans.is_empty() {
            out.send(spans);
        }
    }
}

impl Processor for SampleProcessor {
    fn fit_memory(&mut self, limit: u64) {
        self.traces.fit_memory(limit);
        if let Some(profiles) = &mut self.profiles {
            profiles.fit_memory(limit);
        }
    }

    fn is_absorbing(&self) -> bool {
        self.traces.is_absorbing() || self.profiles.as_ref().is_some_and(TraceLifecycle::is_over_full)
    }

    fn process(&mut self, telemetry: Telemetry, now: Now, out: &mut Outbox) {
        match telemetry {
            Telemetry::Spans(spans) => self.take_spans(spans, now, out),
            Telemetry::Profiles(profiles) => {
                let Some(profiles) = self.sessions.filter(profiles, now, out) else { return };
                match &mut self.profiles {
                    Some(waiting) => waiting.take(profiles, now),
                    None => out.send(profiles),
                }
            }
            Telemetry::Envelope(envelope) => {
                let Self { sampler, processes, traces, sessions, profiles } = self;
                let mut context = DecisionContext { sampler, processes, lifecycle: profiles.as_mut() };
                envelope::sample(envelope, traces, &mut context, sessions, now, out);
            }
            other => out.send(other),
        }
    }

    fn due(&self) -> Option<u64> {
        let profiles = self.profiles.as_ref().and_then(TraceLifecycle::due);
        self.traces.due().into_iter().chain(profiles).min()
    }

    fn advance(&mut self, now: Now, out: &mut Outbox) {
        let before = out.telemetry.len();
        self.traces.advance(now, &mut self.sampler, out);
        // A call sends at most one batch.
        if let Some(profiles) = self.profiles.as_mut().filter(|_| out.telemetry.len() == before) {
            profiles.advance(now, out);
        }
    }

    fn on_memory_pressure(&mut self, now: Now, out: &mut Outbox) -> bool {
        let before = out.telemetry.len();
        let more = self.traces.on_memory_pressure(now, &mut self.sampler, out);
        match &mut self.profiles {
            Some(profiles) if out.telemetry.len() == before => profiles.release(now, out) || more,
            Some(profiles) => profiles.observations() > 0 || more,
            None => more,
        }
    }

    fn flush(&mut self, now: Now, out: &mut Outbox) -> bool {
        let before = out.telemetry.len();
        if self.traces.flush(now, &mut self.sampler, out) {
            return true;
        }
        match &mut self.profiles {
            Some(_) if out.telemetry.len() > before => true,
            Some(profiles) => profiles.release(now, out),
            None => false,
        }
    }

    fn held(&self) -> Held {
        let profiles = self.profiles.as_ref();
        Held {
            quantities: Quantities {
                spans: self.traces.spans(),
                ..Quantities::observations(profiles.map_or(0, TraceLifecycle::observations))
            },
            bytes: self.traces.bytes() + self.processes.bytes() as u64 + profiles.map_or(0, TraceLifecycle::bytes),
        }
    }
}
