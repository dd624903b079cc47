//! The processor `link_spans`: says in a span which profiler saw what its thread did meanwhile.
//!
//! Sentry finds the profile of a span by the profiler, the thread and the time. So of the profiles that pass only that is
//! remembered; spans wait until the profiles of their time have come. See `README.md` for the options and guarantees.

mod background;
mod config;
mod covered;
mod index;
mod namespaces;
mod report;
mod stateless;
mod thread;
mod waiting;

use std::collections::VecDeque;

use profbridge_engine::component::{Held, Now, Outbox, Processor};
use profbridge_engine::config::{Problems, Section};
use profbridge_engine::registry::{Description, ProcessorFactory, SPANS, Warning};
use profbridge_identity::Rules;
use profbridge_model::{Quantities, Telemetry, TelemetryKind};

use self::index::Index;
use self::report::Report;
use self::waiting::{Deciding, Waiting, batches, notes};

pub use self::background::Background;
pub use self::config::{Config, Settings};
pub use self::namespaces::{Answer, Namespaces, OwnIds, Question};

/// How often spans that wait are looked at again while profiles come, in nanoseconds.
const TICK: u64 = 500_000_000;

/// What was observed is remembered for so much longer than spans wait, in nanoseconds: a span is sent at its end, and
/// what began with it may be that much earlier.
const REMEMBERED: u64 = 120_000_000_000;

/// How often what is old is forgotten, in nanoseconds.
const FORGET_EVERY: u64 = 10_000_000_000;

/// Note: processes that were forgotten early, for want of memory.
pub const FORGOTTEN: &str = "profiled_processes_forgotten_early";

/// The processor's entry in the registry.
pub const FACTORY: ProcessorFactory = ProcessorFactory {
    description: Description::processor(
        "link_spans",
        "says in spans which profiler saw what their thread did",
        TelemetryKind::ALL,
    )
    .behind(&["sample", "dedup"])
    .wants(|section| match is_stateless(section) {
        true => SPANS,
        false => &[TelemetryKind::Profiles, TelemetryKind::Spans],
    })
    .warns_of(|section| is_stateless(section).then_some(STATELESS)),
    create,
};

/// What cannot be known without profiles.
const STATELESS: Warning = Warning {
    message: "`stateless` computes profiler ids from the resources of spans alone, so they are wrong for processes whose \
              profiles say more of them: `profbridge.session.id` (the built-in sampler), `process.creation.time`, ids of \
              another PID namespace, or another host or container than the spans",
    hint: "let spans and profiles say the same of their process, such as `container.id` or `host.name` with `process.pid`; or \
           leave `stateless` out in a pipeline that profiles come into",
};

fn is_stateless(section: &Section) -> bool {
    section.extract::<Config>().is_ok_and(|config| config.stateless)
}

fn create(section: &Section, rules: &Rules) -> Result<Box<dyn Processor>, Problems> {
    let settings = section.extract::<Config>()?.check(section)?;
    Ok(Box::new(LinkSpans::new(settings, rules)))
}

/// The processor.
#[derive(Debug)]
pub struct LinkSpans {
    settings: Settings,
    /// Who a process is.
    rules: Rules,
    index: Index,
    namespaces: Box<dyn Namespaces>,
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
    report: Report,
}

impl LinkSpans {
    /// A processor that remembers and holds nothing yet. `rules` say who a process is.
    pub fn new(settings: Settings, rules: &Rules) -> Self {
        Self::with_namespaces(settings, rules, Box::new(Background::default()))
    }

    /// The same, with somebody else who knows ids inside of containers.
    pub fn with_namespaces(settings: Settings, rules: &Rules, namespaces: Box<dyn Namespaces>) -> Self {
        Self {
            settings,
            rules: rules.clone(),
            index: Index::new(rules),
            namespaces,
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            quantities: Quantities::NONE,
            bytes: 0,
            look: None,
            forgot: 0,
            report: Report::default(),
        }
    }

    /// Decides about what waits, as far as that can be done. Whether all is decided.
    fn decide(&mut self, waiting: &mut Waiting, at_last: bool, now: Now, out: &mut Outbox) -> bool {
        let (index, main_thread) = (&self.index, self.settings.main_thread);
        let deciding = Deciding { index, main_thread, now: now.monotonic_nano, at_last };
        waiting.decide(&deciding, &mut self.report, out)
    }

    /// Says what is to be said of the last minute.
    fn say(&mut self, now: Now) {
        if let Some(line) = self.report.line(&self.index, now.monotonic_nano) {
            tracing::warn!("{line}");
        }
    }

    fn take(&mut self, telemetry: Telemetry, now: Now, out: &mut Outbox) {
        self.index.know(self.namespaces.answers());
        let deadline = now.monotonic_nano.saturating_add(self.settings.span_wait);
        let mut waiting = Waiting::new(telemetry, deadline, now.monotonic_nano, &mut self.report, out);
        if self.decide(&mut waiting, self.settings.span_wait == 0, now, out) {
            return out.send(waiting.into_telemetry());
        }
        self.quantities += waiting.quantities();
        self.bytes += waiting.bytes();
        self.waiting.push_back(waiting);
        while self.bytes > self.settings.max_bytes && self.let_go_early(now, out) {}
    }

    /// Decides about what has waited for the longest time, so that it goes on next. Whether anything waited.
    fn let_go_early(&mut self, now: Now, out: &mut Outbox) -> bool {
        let Some(mut first) = self.waiting.pop_front() else { return false };
        out.note(notes::EARLY, first.undecided());
        self.decide(&mut first, true, now, out);
        // What is ready is held no longer than the calls last that hand it on.
        self.bytes = self.bytes.saturating_sub(first.bytes());
        self.ready.push_back(first);
        true
    }

    /// Looks at all that waits.
    fn look(&mut self, now: Now, out: &mut Outbox) {
        self.index.know(self.namespaces.answers());
        let mut left = VecDeque::with_capacity(self.waiting.len());
        for mut waiting in std::mem::take(&mut self.waiting) {
            let at_last = waiting.deadline <= now.monotonic_nano;
            if self.decide(&mut waiting, at_last, now, out) {
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
        out.send(ready.into_telemetry());
        true
    }

    fn learn(&mut self, profiles: &profbridge_model::Profiles, now: Now, out: &mut Outbox) {
        self.index.learn(profiles, now.unix_nano, now.monotonic_nano);
        self.index.questions().for_each(|question| self.namespaces.ask(question));
        if now.monotonic_nano.saturating_sub(self.forgot) >= FORGET_EVERY {
            self.forgot = now.monotonic_nano;
            self.index.forget(now.monotonic_nano, self.settings.span_wait.saturating_add(REMEMBERED));
        }
        out.note(FORGOTTEN, self.index.shrink(self.settings.max_index_bytes));
        if !self.waiting.is_empty() {
            self.look = self.look.or(Some(now.monotonic_nano.saturating_add(TICK)));
        }
    }
}

impl Processor for LinkSpans {
    fn fit_memory(&mut self, limit: u64) {
        self.settings.fit_memory(limit);
    }

    fn process(&mut self, telemetry: Telemetry, now: Now, out: &mut Outbox) {
        if self.settings.stateless {
            let mut telemetry = telemetry;
            batches(&mut telemetry).into_iter().for_each(|spans| stateless::link(spans, &self.rules, out));
            return out.send(telemetry);
        }
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
            false => out.send(telemetry),
        }
    }

    fn due(&self) -> Option<u64> {
        if !self.ready.is_empty() {
            return Some(0);
        }
        let first = self.waiting.front().map(|waiting| waiting.deadline);
        let look = self.look.filter(|_| !self.waiting.is_empty());
        first.into_iter().chain(look).chain(self.report.due()).min()
    }

    fn advance(&mut self, now: Now, out: &mut Outbox) {
        if self.ready.is_empty() && self.due().is_some_and(|due| due <= now.monotonic_nano) {
            self.look(now, out);
        }
        self.send_one(out);
        self.say(now);
    }

    fn on_memory_pressure(&mut self, now: Now, out: &mut Outbox) -> bool {
        if self.ready.is_empty() {
            self.let_go_early(now, out);
        }
        self.send_one(out);
        !self.waiting.is_empty() || !self.ready.is_empty()
    }

    fn flush(&mut self, now: Now, out: &mut Outbox) -> bool {
        if self.ready.is_empty()
            && let Some(mut first) = self.waiting.pop_front()
        {
            self.decide(&mut first, true, now, out);
            self.bytes = self.bytes.saturating_sub(first.bytes());
            self.ready.push_back(first);
        }
        self.send_one(out);
        self.say(now);
        // The report at the end says the rest.
        self.report.clear();
        !self.waiting.is_empty() || !self.ready.is_empty()
    }

    fn held(&self) -> Held {
        Held { quantities: self.quantities, bytes: self.bytes + self.index.bytes() }
    }
}
