//! The processor `link_spans`: says in a span which profiler saw what its thread did meanwhile, and in a sample of which
//! span it is.
//!
//! Sentry finds the profile of a span by the profiler, the thread and the time. So of the profiles that pass only that is
//! remembered (`index`); spans wait until the profiles of their time have come (`waiting`). In OTLP a sample names its
//! span, so spans are remembered as well (`links`). See `README.md` for the options and guarantees.

mod config;
mod covered;
mod index;
mod links;
mod thread;
mod waiting;

use std::collections::VecDeque;

use profbridge_engine::component::{Held, Now, Outbox, Processor};
use profbridge_engine::config::{Problems, Section};
use profbridge_engine::registry::{Description, ProcessorFactory, Warning};
use profbridge_identity::{Rules, Side};
use profbridge_model::{Profiles, Quantities, Telemetry, TelemetryKind};
use profbridge_wire::spans::SpanView;

use self::index::Index;
use self::links::Links;
use self::waiting::{Deciding, Waiting, notes};

pub use self::config::{Config, Settings};

/// How often spans that wait are looked at again while profiles come, in nanoseconds.
const TICK: u64 = 500_000_000;

/// What was observed is remembered for so much longer than spans wait, in nanoseconds: a span is sent at its end, and
/// what began with it may be that much earlier.
const REMEMBERED: u64 = 120_000_000_000;

/// How often what is old is forgotten, in nanoseconds.
const FORGET_EVERY: u64 = 10_000_000_000;

/// Note: processes that were forgotten early, for want of memory.
pub const FORGOTTEN: &str = "profiled_processes_forgotten_early";

/// The types of exporters that send the links of samples.
const OTLP: [&str; 2] = ["otlp", "otlp_http"];

/// The processor's entry in the registry.
pub const FACTORY: ProcessorFactory = ProcessorFactory {
    description: Description::processor(
        "link_spans",
        "says in spans which profiler saw what their thread did, and in samples which span they are of",
        TelemetryKind::ALL,
    )
    .behind(&["sample", "dedup"])
    .wants(|_| &[TelemetryKind::Profiles, TelemetryKind::Spans])
    .warns(warn),
    create,
};

/// What leaves in OTLP may name its span, and a span comes when it has ended: mostly behind the profile of its time.
fn warn(section: &Section, exporter: &str) -> Option<Warning> {
    let config = section.extract::<Config>().ok()?;
    (config.profile_wait.is_zero() && OTLP.contains(&exporter)).then_some(Warning {
        message: "`profile_wait` is 0s, so samples leave for an OTLP backend without links to spans that come later",
        hint: "set `profile_wait` to the time that spans come behind the profiles of their time, such as 10s",
    })
}

fn create(section: &Section, rules: &Rules) -> Result<Box<dyn Processor>, Problems> {
    let settings = section.extract::<Config>()?.check(section)?;
    Ok(Box::new(LinkSpans::new(settings, rules)))
}

/// The processor.
#[derive(Debug)]
pub struct LinkSpans {
    settings: Settings,
    index: Index,
    links: Links,
    /// In the order in which they came.
    waiting: VecDeque<Waiting>,
    /// Decided, and not handed on yet.
    ready: VecDeque<Waiting>,
    quantities: Quantities,
    bytes: u64,
    /// When what waits is looked at next, since profiles came; `None` while none have.
    look: Option<u64>,
    /// When what is old was forgotten last.
    forgot: u64,
}

impl LinkSpans {
    /// A processor that remembers and holds nothing yet. `rules` say who a process is.
    pub fn new(settings: Settings, rules: &Rules) -> Self {
        Self {
            links: Links::new(&settings, rules),
            settings,
            index: Index::new(rules),
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            quantities: Quantities::NONE,
            bytes: 0,
            look: None,
            forgot: 0,
        }
    }

    fn deciding(&self, at_last: bool) -> Deciding<'_> {
        Deciding { index: &self.index, main_thread: self.settings.main_thread, at_last }
    }

    fn take(&mut self, telemetry: Telemetry, now: Now, out: &mut Outbox) {
        let deadline = now.monotonic_nano.saturating_add(self.settings.span_wait);
        let mut see = |view: &SpanView<'_>, side: &Side| self.links.add(view, side, now.monotonic_nano);
        let mut waiting = Waiting::new(telemetry, deadline, &mut see, out);
        self.links.keep_bounds(out);
        if waiting.decide(&self.deciding(self.settings.span_wait == 0), out) {
            return self.send(waiting, out);
        }
        self.quantities += waiting.quantities();
        self.bytes += waiting.bytes();
        self.waiting.push_back(waiting);
        while self.bytes > self.settings.max_bytes && self.let_go_early(out) {}
    }

    /// Decides about what has waited for the longest time, so that it goes on next. Whether anything waited.
    fn decide_first(&mut self, out: &mut Outbox) -> bool {
        let Some(mut first) = self.waiting.pop_front() else { return false };
        first.decide(&self.deciding(true), out);
        // What is ready is held no longer than the calls last that hand it on.
        self.bytes = self.bytes.saturating_sub(first.bytes());
        self.ready.push_back(first);
        true
    }

    /// The same for want of memory.
    fn let_go_early(&mut self, out: &mut Outbox) -> bool {
        out.note(notes::EARLY, self.waiting.front().map_or(0, Waiting::undecided));
        self.decide_first(out)
    }

    /// When spans are to be looked at.
    fn spans_due(&self) -> Option<u64> {
        let first = self.waiting.front().map(|waiting| waiting.deadline);
        first.into_iter().chain(self.look.filter(|_| !self.waiting.is_empty())).min()
    }

    /// Looks at all that waits.
    fn look(&mut self, now: u64, out: &mut Outbox) {
        let mut left = VecDeque::with_capacity(self.waiting.len());
        for mut waiting in std::mem::take(&mut self.waiting) {
            if waiting.decide(&self.deciding(waiting.deadline <= now), out) {
                self.bytes = self.bytes.saturating_sub(waiting.bytes());
                self.ready.push_back(waiting);
            } else {
                left.push_back(waiting);
            }
        }
        self.waiting = left;
        self.look = None;
    }

    fn send_one(&mut self, out: &mut Outbox) -> bool {
        let Some(ready) = self.ready.pop_front() else { return false };
        self.quantities = self.quantities.saturating_sub(ready.quantities());
        self.send(ready, out);
        true
    }

    /// Hands on what is decided. Profiles in it, which came in the same envelope, are linked.
    fn send(&mut self, decided: Waiting, out: &mut Outbox) {
        let mut telemetry = decided.into_telemetry();
        self.links.link(&mut telemetry, &self.index, out);
        out.send(telemetry);
    }

    fn learn(&mut self, profiles: &Profiles, now: Now, out: &mut Outbox) {
        self.index.learn(profiles, now.unix_nano, now.monotonic_nano);
        out.note(FORGOTTEN, self.index.shrink(self.settings.max_index_bytes));
        if !self.waiting.is_empty() {
            self.look = self.look.or(Some(now.monotonic_nano.saturating_add(TICK)));
        }
    }

    /// Forgets once in a while what is too old for what may still come.
    fn forget(&mut self, now: u64, out: &mut Outbox) {
        if now.saturating_sub(self.forgot) < FORGET_EVERY {
            return;
        }
        self.forgot = now;
        let keep = self.settings.span_wait.saturating_add(self.settings.profile_wait).saturating_add(REMEMBERED);
        self.index.forget(now, keep);
        self.links.forget(now.saturating_sub(keep), out);
    }
}

impl Processor for LinkSpans {
    fn fit_memory(&mut self, limit: u64) {
        self.settings.fit_memory(limit);
        self.links.fit_memory(&self.settings);
    }

    fn is_absorbing(&self) -> bool {
        self.links.is_absorbing()
    }

    fn process(&mut self, telemetry: Telemetry, now: Now, out: &mut Outbox) {
        self.forget(now.monotonic_nano, out);
        let mut any_spans = false;
        match &telemetry {
            Telemetry::Profiles(profiles) => self.learn(profiles, now, out),
            Telemetry::Spans(_) => any_spans = true,
            Telemetry::Envelope(envelope) => {
                envelope.profiles().for_each(|profiles| self.learn(profiles, now, out));
                any_spans = envelope.spans().next().is_some();
            }
        }
        match any_spans {
            true => self.take(telemetry, now, out),
            false => self.links.take(telemetry, &self.index, now, out),
        }
    }

    fn due(&self) -> Option<u64> {
        if !self.ready.is_empty() {
            return Some(0);
        }
        self.spans_due().into_iter().chain(self.links.due()).min()
    }

    fn advance(&mut self, now: Now, out: &mut Outbox) {
        if self.ready.is_empty() && self.spans_due().is_some_and(|due| due <= now.monotonic_nano) {
            self.look(now.monotonic_nano, out);
        }
        if !self.send_one(out) {
            self.links.advance(&self.index, now, out);
        }
    }

    fn on_memory_pressure(&mut self, _now: Now, out: &mut Outbox) -> bool {
        if self.ready.is_empty() {
            self.let_go_early(out);
        }
        // All spans, then half of the profiles.
        if !self.send_one(out) {
            return self.links.on_memory_pressure(&self.index, out);
        }
        !self.waiting.is_empty() || !self.ready.is_empty() || self.links.any_wait()
    }

    fn flush(&mut self, now: Now, out: &mut Outbox) -> bool {
        if self.ready.is_empty() {
            self.decide_first(out);
        }
        if !self.send_one(out) {
            self.links.flush(&self.index, now, out);
        }
        !self.waiting.is_empty() || !self.ready.is_empty() || self.links.any_wait()
    }

    fn held(&self) -> Held {
        let quantities = self.quantities + Quantities::observations(self.links.observations());
        Held { quantities, bytes: self.bytes + self.index.bytes() + self.links.bytes() }
    }
}
