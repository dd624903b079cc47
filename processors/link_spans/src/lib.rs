//! The processor `link_spans`: adds to each span the profiler that observed its thread, and to each sample the span it
//! was taken in.
//!
//! Sentry finds the profile of a span by profiler, thread and time, so only these are remembered of the profiles that
//! pass (`index`). Spans wait until the profiles of their time have arrived (`waiting`). In OTLP a sample names its
//! span, so spans are remembered as well (`links`). See `README.md` for the options and guarantees.

mod background;
mod config;
mod deciding;
mod index;
mod links;
mod namespaces;
mod notes;
mod observed_times;
mod report;
mod stateless;
mod thread;
mod waiting;

use std::collections::VecDeque;

use profbridge_engine::component::{Held, Now, Outbox, Processor, Warning};
use profbridge_engine::config::Section;
use profbridge_engine::registry::{Description, ProcessorFactory, SPANS};
use profbridge_identity::Rules;
use profbridge_model::dictionary::Link;
use profbridge_model::{Profiles, Quantities, Telemetry, TelemetryKind};
use profbridge_wire::spans::SpanView;

use self::deciding::SpanDecider;
use self::index::{ForgottenEarly, Index, ThreadOwners};
use self::links::SampleLinks;
use self::report::LinkReport;
use self::waiting::{TracedProgram, WaitingSpans, batches, client};

pub use self::background::Background;
pub use self::config::{Config, Settings};
pub use self::namespaces::{IdsAnswer, IdsQuestion, InnermostIds, Namespaces};

/// How often waiting spans are decided again while profiles arrive, in nanoseconds.
const TICK: u64 = 500_000_000;

/// How much longer observations are remembered than spans wait, in nanoseconds: a span is sent at its end, so its start
/// may be this much earlier.
const REMEMBERED: u64 = 120_000_000_000;

/// Samples that name spans are expected as long as some arrived within this many times the span wait.
const NAMES_EVERY: u64 = 4;

/// How often old entries are forgotten, in nanoseconds.
const FORGET_EVERY: u64 = 10_000_000_000;

/// Note: processes that were forgotten early because memory was short.
pub const FORGOTTEN: &str = "profiled_processes_forgotten_early";

/// Note: spans named by samples that were forgotten early because memory was short.
pub const FORGOTTEN_NAMED: &str = "named_spans_forgotten_early";

/// Note: segments that were forgotten early because memory was short.
pub const FORGOTTEN_SEGMENTS: &str = "segments_forgotten_early";

/// Note: observation times that were ignored as wrong because they are weeks from others of their process, or minutes
/// ahead of them.
pub const TIMES_LEFT_OUT: &str = "profiled_times_left_out";

/// Note: questions about ids inside containers that were postponed because too many already wait for an answer.
pub const ASKED_LATER: &str = "namespace_questions_put_off";

/// All type names of the exporters that always send the links of samples.
const OTLP: [&str; 4] = ["otlp", "otlp_grpc", "otlp_http", "otlphttp"];

/// The exporter type that never sends links of samples: its chunks have no field for them.
const SENTRY: &str = "sentry";

/// The processor's entry in the registry.
pub const FACTORY: ProcessorFactory = ProcessorFactory {
    description: Description::processor(
        "link_spans",
        "says in spans which profiler saw what their thread did, and in samples which span they are of",
        TelemetryKind::ALL,
    )
    .behind(&["sample", "dedup"])
    .wants(|section| match is_stateless(section) {
        true => SPANS,
        false => &[TelemetryKind::Profiles, TelemetryKind::Spans],
    }),
    create: |section, rules| {
        Ok(Box::new(LinkSpans::new(section.extract_checked(|config: Config, section| config.check(section))?, rules)))
    },
};

/// Warns of ids that cannot be known without profiles.
const STATELESS: Warning = Warning {
    message: "`stateless` computes profiler ids from the resources of spans alone, so they are wrong for processes whose \
              profiles say more of them: `profbridge.session.id` (the built-in sampler), `process.creation.time`, ids of \
              another PID namespace, or another host or container than the spans",
    hint: "let spans and profiles say the same of their process, such as `container.id` or `host.name` with `process.pid`; or \
           leave `stateless` out in a pipeline that profiles come into",
};

/// Exported OTLP samples may name their span, but a span arrives only after it has ended, mostly later than the profile
/// of its time.
const NO_WAIT: Warning = Warning {
    message: "`profile_wait` is 0s, so samples leave for an OTLP backend without links to spans that come later",
    hint: "set `profile_wait` to the time that spans come behind the profiles of their time, such as 10s",
};

fn is_stateless(section: &Section) -> bool {
    section.extract::<Config>().is_ok_and(|config| config.stateless)
}

/// The processor.
#[derive(Debug)]
pub struct LinkSpans {
    settings: Settings,
    /// The rules for the identity of a process.
    rules: Rules,
    index: Index,
    namespaces: Box<dyn Namespaces>,
    /// `None` if no exporter sends links.
    links: Option<SampleLinks>,
    /// In order of arrival.
    waiting: VecDeque<WaitingSpans>,
    /// Decided, but not passed on yet.
    ready: VecDeque<WaitingSpans>,
    quantities: Quantities,
    bytes: u64,
    /// When waiting spans are decided next because profiles arrived; `None` if none have.
    next_retry: Option<u64>,
    /// When old entries were last forgotten.
    last_forget: u64,
    report: LinkReport,
}

impl LinkSpans {
    /// Creates an empty processor. `rules` determine the identity of a process.
    pub fn new(settings: Settings, rules: &Rules) -> Self {
        Self::with_namespaces(settings, rules, Box::new(Background::default()))
    }

    /// Like [`LinkSpans::new`], with another source for the ids inside containers.
    pub fn with_namespaces(settings: Settings, rules: &Rules, namespaces: Box<dyn Namespaces>) -> Self {
        Self {
            links: Some(SampleLinks::new(&settings, rules)),
            index: Index::new(rules, settings.max_index_bytes / 2),
            settings,
            rules: rules.clone(),
            namespaces,
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            quantities: Quantities::NONE,
            bytes: 0,
            next_retry: None,
            last_forget: 0,
            report: LinkReport::default(),
        }
    }

    /// Decides as many waiting spans as possible. Returns whether all are decided.
    fn decide(&mut self, waiting: &mut WaitingSpans, at_last: bool, now: Now, out: &mut Outbox) -> bool {
        let lately = now.monotonic_nano.saturating_sub(self.settings.span_wait.saturating_mul(NAMES_EVERY));
        let mut decider = SpanDecider {
            index: &self.index,
            main_thread: self.settings.main_thread,
            now: now.monotonic_nano,
            at_last,
            may_be_named: self.index.samples_named_spans_since(lately),
            owners: ThreadOwners::default(),
            report: &mut self.report,
            out,
        };
        waiting.decide(&mut decider)
    }

    /// Logs and notes the outcomes of the last minute once they are due.
    fn report_outcomes(&mut self, now: Now, out: &mut Outbox) {
        if self.report.due().is_none_or(|due| due > now.monotonic_nano) {
            return;
        }
        let observations = self.links.as_mut().map(SampleLinks::take_outcomes).unwrap_or_default();
        let mut message = self.report.outcomes(&observations);
        tracing::info!("{message}");
        if let Some(line) = self.report.line(&self.index) {
            tracing::warn!("{line}");
            message = format!("{message}; {line}");
        }
        out.summary = Some(message);
    }

    fn accept_spans(&mut self, telemetry: Telemetry, now: Now, out: &mut Outbox) {
        let deadline = now.monotonic_nano.saturating_add(self.settings.span_wait);
        let (links, index, mut segments) = (&mut self.links, &self.index, Vec::new());
        let mut remember = |view: &SpanView<'_>, program: &TracedProgram| {
            let span = view.span();
            if program.runtime.is_segment(span) {
                let link = Link { trace_id: *span.trace_id.bytes(), span_id: *span.span_id.bytes() };
                segments.push((link, view.profiler_id()));
            }
            if let Some(links) = &mut *links {
                links.add(view, program, index, now.monotonic_nano);
            }
        };
        let named = self.index.samples_name_spans();
        let mut waiting =
            WaitingSpans::new(telemetry, deadline, now.monotonic_nano, named, &mut remember, &mut self.report, out);
        if !segments.is_empty() && !self.waiting.is_empty() {
            self.next_retry = self.next_retry.or(Some(now.monotonic_nano.saturating_add(TICK)));
        }
        segments.iter().for_each(|(segment, profiler)| self.index.add_segment(segment, *profiler));
        self.keep_bounds(out);
        if self.decide(&mut waiting, self.settings.span_wait == 0, now, out) {
            return self.send(waiting, out);
        }
        self.quantities += waiting.quantities();
        self.bytes += waiting.bytes();
        self.waiting.push_back(waiting);
        while self.bytes > self.settings.max_bytes && self.decide_early(now, out) {}
    }

    /// Decides the entry that has waited longest, so that it is passed on next. Returns whether anything waited.
    fn decide_oldest(&mut self, now: Now, out: &mut Outbox) -> bool {
        let Some(mut first) = self.waiting.pop_front() else { return false };
        // Ready entries are not counted: they are passed on within the current calls.
        self.bytes = self.bytes.saturating_sub(first.bytes());
        self.decide(&mut first, true, now, out);
        self.ready.push_back(first);
        true
    }

    /// Like `decide_oldest`, because memory is short.
    fn decide_early(&mut self, now: Now, out: &mut Outbox) -> bool {
        out.note(notes::EARLY, self.waiting.front().map_or(0, WaitingSpans::undecided));
        self.decide_oldest(now, out)
    }

    /// When the waiting spans must be decided next.
    fn spans_due(&self) -> Option<u64> {
        let first = self.waiting.front().map(|waiting| waiting.deadline);
        first.into_iter().chain(self.next_retry.filter(|_| !self.waiting.is_empty())).min()
    }

    fn any_wait(&self) -> bool {
        !self.waiting.is_empty() || !self.ready.is_empty() || self.links.as_ref().is_some_and(SampleLinks::any_wait)
    }

    /// Tries to decide everything that waits.
    fn decide_waiting(&mut self, now: Now, out: &mut Outbox) {
        let mut left = VecDeque::with_capacity(self.waiting.len());
        for mut waiting in std::mem::take(&mut self.waiting) {
            let at_last = waiting.deadline <= now.monotonic_nano;
            self.bytes = self.bytes.saturating_sub(waiting.bytes());
            if self.decide(&mut waiting, at_last, now, out) {
                self.ready.push_back(waiting);
            } else {
                self.bytes += waiting.bytes();
                left.push_back(waiting);
            }
        }
        self.waiting = left;
        self.next_retry = None;
    }

    fn send_one(&mut self, out: &mut Outbox) -> bool {
        let Some(ready) = self.ready.pop_front() else { return false };
        self.quantities = self.quantities.saturating_sub(ready.quantities());
        self.send(ready, out);
        true
    }

    /// Passes on decided telemetry. Profiles that arrived in the same envelope are linked first.
    fn send(&mut self, decided: WaitingSpans, out: &mut Outbox) {
        let mut telemetry = decided.into_telemetry();
        if let Some(links) = &mut self.links {
            links.link(&mut telemetry, &self.index, out);
        }
        out.send(telemetry);
    }

    fn learn(&mut self, profiles: &Profiles, now: Now, out: &mut Outbox) {
        self.index.learn(profiles, now.unix_nano, now.monotonic_nano);
        out.note(TIMES_LEFT_OUT, std::mem::take(&mut self.index.times_left_out));
        for question in self.index.questions() {
            if let Err(question) = self.namespaces.ask(question) {
                out.note(ASKED_LATER, 1);
                self.index.ask_again(&question);
            }
        }
        self.keep_bounds(out);
        if !self.waiting.is_empty() {
            self.next_retry = self.next_retry.or(Some(now.monotonic_nano.saturating_add(TICK)));
        }
    }

    /// Forgets the oldest entries if the memory for profiles and spans is used up. Each side may use what the other
    /// leaves, and half of the memory in any case.
    fn keep_bounds(&mut self, out: &mut Outbox) {
        let max = self.settings.max_index_bytes;
        let of_spans = self.links.as_ref().map_or(0, SampleLinks::remembered_bytes);
        if self.index.bytes() + of_spans > max {
            self.index.shrink(max - of_spans.min(max / 2));
            if let Some(links) = &mut self.links {
                links.shrink(max.saturating_sub(self.index.bytes()), out);
            }
        }
        let ForgottenEarly { processes, named_spans, segments } = std::mem::take(&mut self.index.forgotten);
        out.note(FORGOTTEN, processes);
        out.note(FORGOTTEN_NAMED, named_spans);
        out.note(FORGOTTEN_SEGMENTS, segments);
    }

    /// From time to time forgets entries that are too old to match later arrivals.
    fn forget(&mut self, now: u64) {
        if now.saturating_sub(self.last_forget) < FORGET_EVERY {
            return;
        }
        self.last_forget = now;
        let keep = self.settings.span_wait.saturating_add(self.settings.profile_wait).saturating_add(REMEMBERED);
        self.index.forget(now, keep);
        if let Some(links) = &mut self.links {
            links.forget(now.saturating_sub(keep));
        }
    }
}

/// Whether these profiles come from a Sentry V1 profile, which belongs to a transaction.
fn is_of_transaction(profiles: &Profiles) -> bool {
    let mut of_first = profiles.profiles().next().into_iter();
    of_first.any(|profile| profiles.dictionary().find(profile.attributes, "sentry.transaction.id").is_some())
}

impl Processor for LinkSpans {
    fn fit_memory(&mut self, limit: u64) {
        self.settings.fit_memory(limit);
        self.index.share = self.settings.max_index_bytes / 2;
        if let Some(links) = &mut self.links {
            links.fit_memory(&self.settings);
        }
    }

    fn goes_to(&mut self, exporters: &[&str], profiles_come: bool) -> Option<Warning> {
        if exporters.iter().all(|exporter| *exporter == SENTRY) {
            self.links = None;
        }
        if self.settings.stateless {
            return Some(STATELESS);
        }
        let to_otlp = profiles_come && exporters.iter().any(|exporter| OTLP.contains(exporter));
        (self.settings.profile_wait == 0 && to_otlp).then_some(NO_WAIT)
    }

    fn is_absorbing(&self) -> bool {
        self.links.as_ref().is_some_and(SampleLinks::is_absorbing)
    }

    fn process(&mut self, telemetry: Telemetry, now: Now, out: &mut Outbox) {
        if self.settings.stateless {
            let mut telemetry = telemetry;
            let client = client(&telemetry).process;
            let link = |spans| stateless::link(spans, client.as_ref(), &self.rules, out);
            batches(&mut telemetry).into_iter().for_each(link);
            return out.send(telemetry);
        }
        self.forget(now.monotonic_nano);
        let mut any_spans = false;
        match &telemetry {
            Telemetry::Profiles(profiles) => self.learn(profiles, now, out),
            Telemetry::Spans(_) => any_spans = true,
            Telemetry::Envelope(envelope) => {
                // A V1 profile is sent with its transaction and has no profiler id. If it is converted to a chunk
                // later, that conversion adds the profiler id to the transaction.
                let is_chunk = |profiles: &&Profiles| !is_of_transaction(profiles);
                envelope.profiles().filter(is_chunk).for_each(|profiles| self.learn(profiles, now, out));
                any_spans = envelope.spans().next().is_some();
            }
            _ => {}
        }
        self.index.apply_answers(self.namespaces.answers());
        match &mut self.links {
            _ if any_spans => self.accept_spans(telemetry, now, out),
            Some(links) => links.accept(telemetry, &self.index, now, out),
            None => out.send(telemetry),
        }
    }

    fn due(&self) -> Option<u64> {
        if !self.ready.is_empty() {
            return Some(0);
        }
        self.spans_due()
            .into_iter()
            .chain(self.links.as_ref().and_then(SampleLinks::due))
            .chain(self.report.due())
            .min()
    }

    fn advance(&mut self, now: Now, out: &mut Outbox) {
        self.index.apply_answers(self.namespaces.answers());
        if self.ready.is_empty() && self.spans_due().is_some_and(|due| due <= now.monotonic_nano) {
            self.decide_waiting(now, out);
        }
        if !self.send_one(out)
            && let Some(links) = &mut self.links
        {
            links.advance(&self.index, now, out);
        }
        self.report_outcomes(now, out);
    }

    fn on_memory_pressure(&mut self, now: Now, out: &mut Outbox) -> bool {
        if self.ready.is_empty() {
            self.decide_early(now, out);
        }
        // First all spans, then half of the profiles.
        if !self.send_one(out) {
            return self.links.as_mut().is_some_and(|links| links.on_memory_pressure(&self.index, out));
        }
        self.any_wait()
    }

    fn flush(&mut self, now: Now, out: &mut Outbox) -> bool {
        self.index.apply_answers(self.namespaces.answers());
        if self.ready.is_empty() {
            self.decide_oldest(now, out);
        }
        if !self.send_one(out)
            && let Some(links) = &mut self.links
        {
            links.flush(&self.index, now, out);
        }
        self.report_outcomes(now, out);
        // The final report covers the remaining outcomes.
        self.report.clear();
        self.any_wait()
    }

    fn held(&self) -> Held {
        let (observations, bytes) = self.links.as_ref().map_or((0, 0), |links| (links.observations(), links.bytes()));
        let quantities = self.quantities + Quantities::observations(observations);
        Held { quantities, bytes: self.bytes + self.index.bytes() + bytes }
    }
}
