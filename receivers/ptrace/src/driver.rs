//! The driver: it receives from the sampler and the control socket, keeps the sessions, and sends what is due.
//!
//! One task owns all state, so nothing here is locked. It never waits for the pipelines or for names: batches go to
//! [`Delivery`]; names are requested when a batch arrives and used when it leaves.

mod announcers;
mod answers;
mod command;
mod counted;
mod levels;
mod outgoing;
mod remembered;
mod restart;
mod tracked;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use profbridge_engine::intake::Intake;
use profbridge_model::{Quantities, Reason};
use profbridge_net::Shutdown;
use profbridge_sampler::message::{
    self, Command, Detached, Event, ProblemKind, Process, ProcessId, STOP_TIMEOUT, Select, Target, TargetId,
};
use profbridge_sampler::owner::Gaps;
use profbridge_symbolizer::Symbolizer;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout_at};

use self::announcers::Announcers;
use self::command::CommandProcess;
use self::counted::missing;
use self::levels::Levels;
use self::remembered::{Left, Remembered};
use self::restart::Backoff;
use self::tracked::Tracked;
use crate::config::{Settings, TargetSettings};
use crate::control::server::ControlEvent;
use crate::delivery::Delivery;
use crate::lifecycle::{Lifecycle, Outcome};
use crate::link::{FromSampler, Launch, Link};
use crate::problems::{RateLimit, ReportedProblems};
use crate::resource::{self, ENVIRONMENT};
use crate::session::Session;
use crate::spans::OpenSpans;

/// How many bytes the mappings of one process, and of all together, may take; a location in a later mapping has no file
/// and no name. A program with 65,530 mappings, the kernel's own limit (`vm.max_map_count`), and paths of 60 bytes
/// needs 15 MiB.
const MAX_MAPPINGS: (u64, u64) = (16 << 20, 256 << 20);

/// For how many threads of all processes together the end of their samples is remembered: 20 MiB at most. Further
/// threads have unexplained gaps when a sampler process ends.
const MAX_THREADS: usize = 1 << 18;

/// How much of a message of the sampler process is logged, in characters.
const MAX_SAID: usize = 2048;

/// How much longer than [`STOP_TIMEOUT`] it may take until the last notice of a sampler process has arrived.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What the driver needs to run.
pub(crate) struct Parts {
    pub(crate) id: String,
    pub(crate) intake: Intake,
    pub(crate) host: String,
    pub(crate) symbolizer: Option<Symbolizer>,
    pub(crate) delivery: Delivery,
    pub(crate) launch: Launch,
}

/// What is known of a target besides its settings.
#[derive(Debug, Default)]
struct TargetState {
    /// The process of its command, as it was last seen.
    command: Option<CommandProcess>,
    /// Whether the command has ended: it is not started again.
    ended: bool,
}

/// The driver.
pub(crate) struct Driver {
    settings: Settings,
    parts: Parts,
    link: Option<Link>,
    targets: Vec<TargetState>,
    /// The attached processes, and those that are gone but whose samples still wait for names.
    processes: BTreeMap<u64, Tracked>,
    /// The attached ones, by the number that the sampler process gave them.
    live: HashMap<ProcessId, u64>,
    next: u64,
    /// What is remembered of sessions that were attached when a sampler process ended.
    remembered: Remembered,
    spans: OpenSpans,
    said: ReportedProblems,
    full: RateLimit,
    backoff: Backoff,
    late: u64,
    announcers: Announcers,
    levels: Levels,
}

/// What woke the driver.
enum Woken {
    Shutdown,
    Sampler(Option<FromSampler>),
    Control(ControlEvent),
    Time,
}

impl Driver {
    pub(crate) fn new(settings: Settings, parts: Parts) -> Self {
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
            said: ReportedProblems::default(),
            full: RateLimit::default(),
            backoff: Backoff::default(),
            late: 0,
            announcers: Announcers::default(),
            levels: Levels::default(),
        }
    }

    /// Runs until the shutdown, and then until everything is handed to the delivery.
    pub(crate) async fn run(mut self, link: Link, mut control: mpsc::Receiver<ControlEvent>, mut shutdown: Shutdown) {
        self.levels.tell(&self.parts.intake);
        self.connect(link);
        let mut controlled = true;
        loop {
            let due = self.due();
            let woken = tokio::select! {
                () = shutdown.wait() => Woken::Shutdown,
                heard = hear(&mut self.link) => Woken::Sampler(heard),
                heard = control.recv(), if controlled => match heard {
                    Some(heard) => Woken::Control(heard),
                    None => { controlled = false; continue }
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => Woken::Time,
            };
            match woken {
                Woken::Shutdown => break,
                Woken::Sampler(Some(FromSampler::Event(event))) => self.event(*event),
                Woken::Sampler(Some(FromSampler::Ended(how))) => self.sampler_ended(how),
                Woken::Sampler(None) => self.sampler_ended(Some("its channel closed".to_owned())),
                Woken::Control(heard) => self.control(heard),
                Woken::Time => self.time(),
            }
        }
        drop(control);
        self.stop().await;
    }

    /// When the next thing has to be done by the clock.
    fn due(&self) -> Option<Instant> {
        let exports = self.processes.values().map(|process| process.look_at).min();
        let restart = self.backoff.due().filter(|_| self.link.is_none());
        exports.into_iter().chain(restart).chain(self.announcers.due()).chain(self.levels.due()).min()
    }

    fn time(&mut self) {
        let now = Instant::now();
        if self.link.is_none() && self.backoff.due().is_some_and(|due| due <= now) {
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
            self.say_levels();
        }
        self.note_late();
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

    // ---- the sampler process

    fn connect(&mut self, link: Link) {
        self.link = Some(link);
        self.backoff.started(Instant::now());
        for index in 0..self.settings.targets.len() {
            if let Some(target) = self.watch(index) {
                self.tell(Command::Watch(target));
            }
        }
    }

    /// What the sampler process has to look for. A command is started only once: later sampler processes are told its
    /// process id.
    fn watch(&self, index: usize) -> Option<Target> {
        let (target, state) = (&self.settings.targets[index], &self.targets[index]);
        let select = match (&target.select, state) {
            (Select::Command(_), TargetState { ended: true, .. }) => return None,
            (Select::Command(_), TargetState { command: Some(known), .. }) => Select::Pid(known.pid),
            (select, _) => select.clone(),
        };
        Some(Target {
            id: TargetId(index as u32),
            select,
            settings: target.sampling,
            environment: ENVIRONMENT.map(str::to_owned).to_vec(),
            sample_at_once: sampled_at_once(target),
        })
    }

    fn tell(&mut self, command: Command) {
        let Some(link) = &self.link else { return };
        if link.commands.try_send(command).is_err() {
            // Thousands of commands are unread, so the sampler process hangs. Dropping the link ends it, and no more is
            // received from it.
            self.link = None;
            self.sampler_ended(Some("it does not listen".to_owned()));
        }
    }

    fn sampler_ended(&mut self, how: Option<String>) {
        self.link = None;
        let now = Instant::now();
        let how = how.unwrap_or_else(|| "it stopped".to_owned());
        let pause = self.backoff.ended(now);
        tracing::error!("{}: the sampler process is gone, another one starts in {pause:?}: {how}", self.parts.id);
        self.parts.intake.note("sampler_restarts", 1);
        for (_, number) in std::mem::take(&mut self.live) {
            if let Some(process) = self.processes.get_mut(&number) {
                self.remembered.put(process.session.id, Left::behind(process));
                process.end(now);
            }
            self.count_level(number);
        }
    }

    fn restart(&mut self, now: Instant) {
        match (self.parts.launch)() {
            Ok(link) => self.connect(link),
            Err(error) => {
                let pause = self.backoff.ended(now);
                tracing::error!(
                    "{}: the sampler process cannot start, next attempt in {pause:?}: {error}",
                    self.parts.id
                );
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Ready(rights) => {
                for hint in rights.hints {
                    if self.said.is_news(("hint", &hint)) {
                        tracing::warn!("{}: {}", self.parts.id, one_line(&hint));
                    }
                }
            }
            Event::Attached(process) => self.attached(*process),
            Event::Mapping(mapping) => self.mapping(mapping),
            Event::PerfMap { process, file } => {
                if let Some(names) = self.find(process).and_then(|process| process.names.as_mut()) {
                    names.perf_map(file);
                }
            }
            Event::Batch(batch) => self.batch(batch),
            Event::Status(status) => self.status(status),
            Event::Problem(problem) => self.problem(&problem),
            Event::Detached { process, why } => self.detached(process, why),
            Event::CommandEnded { target, code } => {
                if let Some(state) = self.targets.get_mut(target.0 as usize) {
                    state.ended = true;
                    tracing::info!("{}: the command of {} ended with code {code}", self.parts.id, self.name(target));
                }
            }
        }
    }

    fn find(&mut self, process: ProcessId) -> Option<&mut Tracked> {
        self.processes.get_mut(self.live.get(&process)?)
    }

    fn name(&self, target: TargetId) -> &str {
        self.settings.targets.get(target.0 as usize).map_or("", |target| &target.name)
    }

    fn attached(&mut self, mut process: Process) {
        let index = process.target.0 as usize;
        let Some(target) = self.settings.targets.get(index) else { return };
        if matches!(target.select, Select::Command(_)) {
            let is = CommandProcess::of(&process);
            match self.targets[index].command {
                // The process id of the command was reused before this sampler process found it.
                Some(known) if !known.is_same(is) => {
                    self.targets[index].ended = true;
                    return self.tell(Command::Unwatch(process.target));
                }
                _ => self.targets[index].command = Some(is),
            }
        }
        let target = &self.settings.targets[index];
        let session = Session::of(&self.parts.host, &process, target.session_sample_rate);
        let open = self.spans.sampled(process.target, process.pid);
        let mut lifecycle = Lifecycle::launch(target.lifecycle, session.sampled, target.start_on_launch, open);
        let mut gaps = Gaps::default();
        if let Some(mut left) = self.remembered.take(session.id) {
            // Spans may have started and ended in between.
            left.spans_changed(open);
            (lifecycle, gaps) = (left.lifecycle, left.gaps);
        }
        if target.lifecycle == crate::lifecycle::Mode::Trace && session.sampled {
            if open > 0 {
                self.announcers.announced(process.target);
            }
            self.announcers.found(process.target, Instant::now());
        }
        let described = resource::describe(&self.parts.host, &process, &target.names, session, &self.settings.insert);
        if let Some(complaint) = described.complaint
            && self.said.is_news(("environment", process.target, &complaint))
        {
            tracing::warn!("{}: process {} of {}: {complaint}", self.parts.id, process.pid, target.name);
        }
        let state = match (lifecycle.is_running(), session.sampled) {
            (true, _) => "it is sampled",
            (false, true) => "it is not sampled until it is told so",
            (false, false) => "its session is not sampled (profile_session_sample_rate)",
        };
        tracing::info!(
            "{}: process {} ({}) belongs to {}: {state}",
            self.parts.id,
            process.pid,
            process.executable.escape_debug(),
            target.name
        );
        let at_once = sampled_at_once(target);
        self.next += 1;
        let (id, number, root) = (process.id, self.next, process.root.take());
        let names = self.parts.symbolizer.clone();
        let names = names.map(|symbolizer| crate::symbols::ProcessNames::new(symbolizer, number, root));
        let running = lifecycle.is_running();
        let due = Instant::now() + self.settings.export_interval;
        let mut tracked = Tracked::new(process, session, lifecycle, described.attributes, names, due);
        tracked.gaps = gaps;
        self.processes.insert(number, tracked);
        self.live.insert(id, number);
        self.count_level(number);
        if running != at_once {
            self.tell(Command::Sample { process: id, on: running });
        }
    }

    /// A file is mapped into a process.
    fn mapping(&mut self, mapping: message::Mapping) {
        let all: u64 = self.processes.values().map(|process| process.mapping_bytes).sum();
        let Some(process) = self.find(mapping.process) else { return };
        let left = MAX_MAPPINGS.0.saturating_sub(process.mapping_bytes).min(MAX_MAPPINGS.1.saturating_sub(all));
        if !process.mapping(mapping, left) {
            self.parts.intake.note("sampler_mappings_left_out", 1);
        }
    }

    fn batch(&mut self, batch: message::Batch) {
        // A process that is sampled from its first moment may have been stopped by hand before its sampler process was
        // replaced. Samples that were taken before the new one knew are not wanted.
        if self.find(batch.process).is_some_and(|process| !process.has_run()) {
            return self.parts.intake.note("sampler_unwanted_samples", batch.samples.len() as u64);
        }
        let waiting: u64 = self.processes.values().map(|process| process.pending_bytes).sum();
        let waiting = waiting + self.parts.delivery.waiting();
        let limit = self.settings.max_pending_bytes;
        let observations = batch.samples.len() as u64;
        if waiting + tracked::size(&batch) > limit {
            self.parts.intake.refused(Reason::QueueFull, Quantities::observations(observations));
            if self.full.is_due(Instant::now()) {
                tracing::warn!(
                    "{}: samples are lost, since {limit} bytes wait for names and pipelines already: see max_pending_bytes",
                    self.parts.id
                );
            }
            return;
        }
        let Some(&number) = self.live.get(&batch.process) else {
            // It was let go of when its sampler process ended, and sends nothing since.
            return self.parts.intake.refused(Reason::Internal, Quantities::observations(observations));
        };
        let Some(process) = self.processes.get_mut(&number) else { return };
        process.take(batch);
        // A process with many samples must not take the room of the others.
        if process.pending_bytes > limit / 4 {
            self.export(number);
        }
        let threads: usize = self.processes.values().map(|process| process.gaps.threads()).sum();
        self.remembered.keep_threads(MAX_THREADS.saturating_sub(threads));
        if threads > MAX_THREADS
            && let Some(process) = self.processes.get_mut(&number)
        {
            process.gaps.forget();
        }
    }

    fn problem(&mut self, problem: &message::Problem) {
        if !self.said.is_news((problem.target, problem.pid, problem.kind, &problem.message)) {
            return;
        }
        let (id, name) = (&self.parts.id, self.name(problem.target));
        let message = one_line(&problem.message);
        match (problem.kind, problem.pid) {
            (ProblemKind::Internal, Some(pid)) => tracing::error!("{id}: process {pid} of {name}: {message}"),
            (ProblemKind::Internal, None) => tracing::error!("{id}: {name}: {message}"),
            (_, Some(pid)) => tracing::warn!("{id}: process {pid} of {name}: {message}"),
            (_, None) => tracing::warn!("{id}: {name}: {message}"),
        }
    }

    fn detached(&mut self, process: ProcessId, why: Detached) {
        let Some(number) = self.live.remove(&process) else { return };
        let Some(tracked) = self.processes.get_mut(&number) else { return };
        tracked.end(Instant::now());
        let (pid, target) = (tracked.process.pid, tracked.process.target);
        let why = match why {
            Detached::Exited => "ended",
            Detached::Executed => "executed another program",
            Detached::Asked => "was let go",
            Detached::Failed => "cannot be sampled any more",
        };
        let stops = self.settings.targets.get(target.0 as usize).map(|target| target.sampling.stops);
        let missing = missing(&tracked.status, stops.unwrap_or_default());
        let level = tracked.unsaid_level().map(|level| self.describe(target, level));
        let level = level.map(|level| format!("; its running threads were {level}")).unwrap_or_default();
        tracing::info!("{}: process {pid} of {} {why}{level}{missing}", self.parts.id, self.name(target));
        self.count_level(number);
    }

    /// Tells the sampler process if a lifecycle has switched a process on or off. Returns whether it has.
    fn apply(&mut self, number: u64, outcome: Outcome) -> bool {
        let on = match outcome {
            Outcome::Started => true,
            Outcome::Stopped => false,
            Outcome::Nothing(_) => return false,
        };
        self.count_level(number);
        if let Some(id) = self.processes.get(&number).map(|process| process.process.id) {
            self.tell(Command::Sample { process: id, on });
        }
        true
    }

    /// Stops the sampler process, receives the rest, and sends everything with the names that are known.
    async fn stop(&mut self) {
        self.tell(Command::Stop);
        let deadline = Instant::now() + STOP_TIMEOUT + LAST_WORDS;
        // Without a sampler process there is nothing to wait for.
        while self.link.is_some() {
            let Ok(Some(FromSampler::Event(event))) = timeout_at(deadline, hear(&mut self.link)).await else { break };
            self.event(*event);
        }
        self.link = None;
        let numbers: Vec<u64> = self.processes.keys().copied().collect();
        for number in numbers {
            self.export(number);
        }
        self.note_late();
        self.processes.clear();
    }
}

/// The next notice of the sampler process; waits for ever if there is none.
async fn hear(link: &mut Option<Link>) -> Option<FromSampler> {
    match link {
        Some(link) => link.heard.recv().await,
        None => std::future::pending().await,
    }
}

/// Text of the sampler process, made safe for the log: a target may have taken the sampler over.
fn one_line(text: &str) -> String {
    text.chars().take(MAX_SAID).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Whether a target's processes are sampled from their first instruction on: only if no lifecycle has to decide first.
fn sampled_at_once(target: &TargetSettings) -> bool {
    target.lifecycle == crate::lifecycle::Mode::Manual && target.start_on_launch && target.session_sample_rate >= 1.0
}

/// How many bytes may wait for the pipelines: with names, and with runs divided, a batch is larger than the sampler's,
/// whose bound is `max_pending_bytes` itself.
pub(crate) fn delivery_limit(settings: &Settings) -> u64 {
    settings.max_pending_bytes.saturating_mul(2)
}

#[cfg(test)]
mod tests;
