//! The driver: it receives from the sampler and the control socket, manages the sessions, and sends samples when they
//! are due.
//!
//! One task owns all state, so nothing here is locked. It never waits for the pipelines or for names: batches go to
//! [`Delivery`]; names are requested when a batch arrives and used when it is sent.

mod announcers;
mod answers;
mod connection;
mod counted;
mod events;
mod levels;
mod outgoing;
mod remembered;
mod threads;
mod tracked;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use profbridge_engine::intake::Intake;
use profbridge_engine::telemetry::ReceiverTelemetry;
use profbridge_identity::Rules;
use profbridge_net::{LogGate, Shutdown};
use profbridge_sampler::message::{Command, ProcessId, STOP_TIMEOUT, TargetId};
use profbridge_sampler::owner::Notice;
use profbridge_symbolizer::Symbolizer;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout_at};

use self::announcers::Announcers;
use self::levels::Levels;
use self::remembered::Remembered;
use self::tracked::Tracked;
use crate::config::{Settings, TargetSettings};
use crate::control::server::ControlEvent;
use crate::delivery::Delivery;
use crate::lifecycle::{LifecycleChange, LifecycleMode};
use crate::link::{Launch, SamplerLink};
use crate::problems::{BETWEEN_LINES, ReportedProblems};
use crate::record::ProcessLife;
use crate::restarts::Restarts;
use crate::spans::OpenSpans;

/// How long after [`STOP_TIMEOUT`] the last event of a sampler process may arrive.
const LAST_EVENTS: Duration = Duration::from_millis(500);

/// What the driver needs to run.
pub(crate) struct DriverParts {
    pub(crate) id: String,
    pub(crate) intake: Intake,
    pub(crate) host: String,
    /// The rules for a process's identity, which decides the profiler id in its chunks.
    pub(crate) identity: Rules,
    pub(crate) symbolizer: Option<Symbolizer>,
    pub(crate) delivery: Delivery,
    pub(crate) launch: Launch,
    /// The receiver's counters, through which the summaries of its processors can be read.
    pub(crate) telemetry: ReceiverTelemetry,
}

/// The state of a target besides its settings.
#[derive(Debug, Default)]
struct TargetState {
    /// The process of the target's command, as last observed.
    command: Option<ProcessLife>,
    /// Whether the command has ended; then it is not started again.
    ended: bool,
}

pub(crate) struct Driver {
    settings: Settings,
    parts: DriverParts,
    link: Option<SamplerLink>,
    targets: Vec<TargetState>,
    /// The attached processes, and those that have ended but whose samples still wait for names.
    processes: BTreeMap<u64, Tracked>,
    /// The keys in `processes` of the attached ones, by the sampler process's id for them.
    live: HashMap<ProcessId, u64>,
    next: u64,
    /// Sessions that were attached when a sampler process ended.
    remembered: Remembered,
    spans: OpenSpans,
    reported: ReportedProblems,
    full: LogGate,
    restarts: Restarts,
    /// The symbolizer's counters at the last update of the metrics.
    noted: [u64; 2],
    announcers: Announcers,
    levels: Levels,
}

/// What woke the driver.
#[allow(clippy::large_enum_variant, reason = "one is alive at a time")]
enum Woken {
    Shutdown,
    Sampler(Option<Notice>),
    Control(ControlEvent),
    Time,
}

impl Driver {
    pub(crate) fn new(settings: Settings, parts: DriverParts) -> Self {
        let targets = settings.targets.iter().map(|_| TargetState::default()).collect();
        Self {
            settings,
            parts,
            link: None,
            targets,
            processes: BTreeMap::new(),
            live: HashMap::new(),
            next: 0,
            remembered: Remembered::default(),
            spans: OpenSpans::default(),
            reported: ReportedProblems::default(),
            full: LogGate::new(BETWEEN_LINES),
            restarts: Restarts::of_receiver(),
            noted: [0; 2],
            announcers: Announcers::default(),
            levels: Levels::default(),
        }
    }

    /// Runs until the shutdown, and then until all batches were passed to the delivery.
    pub(crate) async fn run(
        mut self,
        link: SamplerLink,
        mut control: mpsc::Receiver<ControlEvent>,
        mut shutdown: Shutdown,
    ) {
        self.levels.publish(&self.parts.intake);
        self.connect(link);
        let mut controlled = true;
        loop {
            let due = self.due();
            let woken = tokio::select! {
                () = shutdown.wait() => Woken::Shutdown,
                notice = next_notice(&mut self.link) => Woken::Sampler(notice),
                event = control.recv(), if controlled => match event {
                    Some(event) => Woken::Control(event),
                    None => { controlled = false; continue }
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => Woken::Time,
            };
            match woken {
                Woken::Shutdown => break,
                Woken::Sampler(Some(Notice::Event(event))) => self.event(event),
                Woken::Sampler(Some(Notice::Ended(ending))) => self.sampler_ended(&ending.to_string()),
                Woken::Sampler(None) => self.sampler_ended("its channel closed"),
                Woken::Control(event) => self.control(event),
                Woken::Time => self.time(),
            }
        }
        drop(control);
        self.stop().await;
    }

    /// The time of the next scheduled work.
    fn due(&self) -> Option<Instant> {
        let exports = self.processes.values().map(|process| process.look_at).min();
        let restart = self.restarts.due().filter(|_| self.link.is_none());
        exports.into_iter().chain(restart).chain(self.announcers.due()).chain(self.levels.due()).min()
    }

    fn time(&mut self) {
        let now = Instant::now();
        if self.link.is_none() && self.restarts.due().is_some_and(|due| due <= now) {
            self.restart(now);
        }
        let due: Vec<u64> =
            self.processes.iter().filter(|(_, process)| process.look_at <= now).map(|(&number, _)| number).collect();
        for number in due {
            self.look_at(number, now);
        }
        for target in self.announcers.take_due(now) {
            self.warn_of_silence(target);
        }
        if self.levels.due().is_some_and(|due| due <= now) {
            self.log_levels();
        }
        self.note_symbols();
    }

    /// Logs that a target is not sampled because nobody announces spans for it.
    fn warn_of_silence(&self, target: TargetId) {
        let socket = self.settings.control.as_ref().map(|control| control.socket.display().to_string());
        tracing::warn!(
            "{}: nothing of {} is sampled: with profile_lifecycle: trace it is sampled while a sampled root span is open, and nobody \
             has announced one in {} s: have the program announce its spans at {} (see the receiver's page, Control), or set \
             profile_lifecycle: manual",
            self.parts.id,
            self.name(target),
            announcers::PATIENCE.as_secs(),
            socket.unwrap_or_default().escape_debug()
        );
    }

    fn name(&self, target: TargetId) -> &str {
        self.settings.targets.get(target.0 as usize).map_or("", |target| &target.name)
    }

    /// Sends the sampler process the change if a lifecycle has switched a process on or off. Returns whether it has.
    fn apply(&mut self, number: u64, outcome: LifecycleChange) -> bool {
        let on = match outcome {
            LifecycleChange::Started => true,
            LifecycleChange::Stopped => false,
            LifecycleChange::Nothing(_) => return false,
        };
        self.count_level(number);
        if let Some(id) = self.processes.get(&number).map(|process| process.process.id) {
            self.send_command(Command::Sample { process: id, on });
        }
        true
    }

    /// Stops the sampler process, receives its remaining events, and sends everything with the names that are known.
    async fn stop(&mut self) {
        self.send_command(Command::Stop);
        let deadline = Instant::now() + STOP_TIMEOUT + LAST_EVENTS;
        // Without a sampler process there are no events to wait for.
        while self.link.is_some() {
            let Ok(Some(Notice::Event(event))) = timeout_at(deadline, next_notice(&mut self.link)).await else { break };
            self.event(event);
        }
        self.link = None;
        let numbers: Vec<u64> = self.processes.keys().copied().collect();
        for number in numbers {
            self.export(number);
        }
        self.note_symbols();
        self.processes.clear();
    }
}

/// The next event of the sampler process; waits forever if there is no sampler process.
async fn next_notice(link: &mut Option<SamplerLink>) -> Option<Notice> {
    match link {
        Some(link) => link.notices.recv().await,
        None => std::future::pending().await,
    }
}

/// Whether a target's processes are sampled from their first instruction on: only if no lifecycle has to decide first.
fn sampled_at_once(target: &TargetSettings) -> bool {
    target.lifecycle == LifecycleMode::Manual && target.start_on_launch && target.session_sample_rate >= 1.0
}

/// How many bytes may wait for the pipelines: with names, and with divided runs, a batch is larger than the sampler's,
/// whose limit is `max_pending_bytes` itself.
pub(crate) fn delivery_limit(settings: &Settings) -> u64 {
    settings.max_pending_bytes.saturating_mul(2)
}

#[cfg(test)]
mod tests;
