//! A run, from its start to the output at its end.

mod finish;
mod show;
mod targets;

use std::collections::{HashMap, HashSet};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use profbridge_engine::clock::Clock;
use profbridge_receiver_ptrace::record::ProcessLife;
use profbridge_sampler::DescendantsTime;
use profbridge_sampler::message::{
    Batch, Detached, Event, Mode, Problem, ProblemKind, Process, ProcessId, Rights, Settings, Stops,
};
use profbridge_sampler::owner::{Gaps, Supervised};
use profbridge_symbolizer::Symbolizer;
use profbridge_wire::folded::CalledBy;

use super::awaited::Awaited;
use super::collect::{Collector, label};
use super::course::{RunState, is_end};
use super::follow::FollowedProcesses;
use super::processes::ChildrenTime;
use super::runtimes::Runtimes;
use super::sampler::{NextEvent, Sampler};
use super::signals::Interrupt;
use super::stats::Stats;
use super::writer::Writer;
use super::{Purpose, RunView};
use crate::Failure;
use crate::args::sampling::Subject;
use crate::destination::Destination;
use crate::terminal::{self, Progress};
use crate::views::flamegraph::GraphStyle;
use crate::views::sums::Sums;

/// The longest pause of a run while nothing happens.
const TICK: Duration = Duration::from_millis(100);

/// How long finding a process may take.
const FINDING: Duration = Duration::from_secs(10);

/// How long finding a process again may take after it executed another program.
const EXECUTING: Duration = Duration::from_secs(2);

/// How long the sampler may take to return its last samples.
const LAST_SAMPLES: Duration = Duration::from_secs(5);

/// How soon a run notices that the sampler is finished with a command that has ended.
const ENDING: Duration = Duration::from_millis(5);

/// What a run is based on.
pub(super) struct Sampling {
    pub(super) sampler: Sampler,
    pub(super) interrupt: Interrupt,
    /// The command to sample, if any, held at its first instruction.
    pub(super) command: Option<Arc<Supervised>>,
    /// The processes to sample, or that of the command; empty if they are selected by name.
    pub(super) pids: Vec<u32>,
}

pub(super) struct Run<'a> {
    subject: &'a Subject,
    settings: Settings,
    sampling: Sampling,
    symbolizer: Symbolizer,
    course: RunState,
    follow: FollowedProcesses,
    gaps: Gaps,
    /// Whether a resource that perf events need was exhausted.
    lacked: bool,
    stats: Stats,
    collector: Collector,
    /// The time of all samples so far, unless a view shows it.
    sums: Sums,
    /// The number of observations so far.
    observations: u64,
    runtimes: Runtimes,
    destination: Option<Destination>,
    /// How a flame graph is drawn, and functions are listed.
    graph: GraphStyle,
    /// Whether the text at the end says how it was sampled.
    verbose: bool,
    writer: Option<Writer>,
    /// The view; without it the result is shown at the end.
    view: Option<Box<dyn RunView>>,
    /// When the view gets the next samples.
    next_part: Instant,
    progress: Option<Progress>,
    title: String,
    /// The processes that were announced so far.
    named: show::AnnouncedProcesses,
    /// Identifies the processes asked for, by id, so that others that reuse these ids are not mistaken for them.
    identities: HashMap<u32, ProcessLife>,
    /// The processor time of the descendants when the processes were found, and their additional time since, as it was
    /// read last: nothing tells it after the end of a process.
    children: HashMap<u32, DescendantsTime>,
    busy_children: HashMap<u32, ChildrenTime>,
    /// When these are looked at next.
    next_look_at_children: Instant,
    /// The files and sockets that threads wait for.
    awaited: Awaited,
    /// When the run began to look for its target.
    started: Instant,
    /// When the sampler got the target.
    watched_since: Instant,
    /// The command, held until the sampler process is ready for it.
    prepared: Option<ProcessId>,
    /// When the first process was attached.
    begun: Option<Instant>,
    /// The value of `begun` in nanoseconds since the Unix epoch.
    begun_unix_nano: u64,
    rights: Rights,
    /// The problems reported so far: those of the process or command itself by text, those of its descendants by kind.
    reported_problems: HashSet<(ProblemKind, Option<String>)>,
}

/// Why sampling ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finish {
    /// There is nothing left to sample.
    Over,
    /// The requested time has passed.
    Duration,
    /// The user pressed Ctrl-C.
    Interrupt,
    /// The sampler process is gone.
    Sampler,
}

impl<'a> Run<'a> {
    /// Which running threads are stopped for sampling.
    pub(super) fn stops(&self) -> Stops {
        self.settings.stops
    }

    /// Creates a run; the sampler process does not know its target yet.
    pub(super) fn new(subject: &'a Subject, sampling: Sampling, symbolizer: Symbolizer, purpose: Purpose) -> Self {
        let now = Instant::now();
        let is_whole_command = sampling.command.is_some() && subject.duration.is_none();
        let (destination, graph, verbose, view) = match purpose {
            Purpose::Result { output, graph, verbose } => (output, graph, verbose, None),
            Purpose::View(view) => (None, GraphStyle::default(), false, Some(view)),
        };
        let mut sums = Sums::named_by(CalledBy::Executable);
        sums.reading.stacks.by_line = graph.lines;
        Self {
            subject,
            settings: targets::settings(subject),
            course: RunState::new(sampling.command.is_some(), &sampling.pids),
            sampling,
            collector: Collector::new(symbolizer.clone(), is_whole_command),
            symbolizer,
            follow: FollowedProcesses::new(now),
            gaps: Gaps::default(),
            lacked: false,
            stats: Stats::default(),
            sums,
            observations: 0,
            runtimes: Runtimes::default(),
            destination,
            graph,
            verbose,
            writer: None,
            view,
            next_part: now,
            progress: None,
            title: String::new(),
            named: show::AnnouncedProcesses::default(),
            identities: HashMap::new(),
            children: HashMap::new(),
            busy_children: HashMap::new(),
            next_look_at_children: now,
            awaited: Awaited::new(now),
            started: now,
            watched_since: now,
            prepared: None,
            begun: None,
            begun_unix_nano: 0,
            rights: Rights::default(),
            reported_problems: HashSet::new(),
        }
    }

    /// Samples, writes the result, shows it, and waits for the command.
    pub(super) fn go(mut self) -> Result<ExitCode, Failure> {
        self.watch()?;
        let finish = self.sample();
        // Messages from here on go to the restored terminal.
        if let Some(view) = &mut self.view {
            view.close();
        }
        let elapsed = self.begun.map(|begun| begun.elapsed()).unwrap_or_default();
        // Problems with the result are reported before waiting for the command: they are no reason to end it.
        let shown = finish.and_then(|finish| {
            self.stop_sampling(finish)?;
            self.finish(finish, elapsed)
        });
        if let Err(Failure(why)) = &shown {
            self.say(why);
        }
        let code = self.command_code().map(|code| ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)));
        Ok(match (shown, code) {
            (Ok(()), code) => code.unwrap_or(ExitCode::SUCCESS),
            (Err(_), _) => ExitCode::FAILURE,
        })
    }

    /// Samples until there is a reason to end.
    fn sample(&mut self) -> Result<Finish, Failure> {
        loop {
            if let Some(code) = self.sampling.command.as_ref().and_then(|command| command.exit_code()) {
                self.course.command_ended(code);
            }
            self.lose_patience();
            if self.course.is_over() {
                return Ok(Finish::Over);
            }
            if self.sampling.interrupt.is_wanted() {
                return Ok(Finish::Interrupt);
            }
            // Waiting for the first process of a name takes at most as long as sampling would.
            let since = self.begun.or(self.subject.name.as_ref().map(|_| self.started));
            let left = match (since, self.subject.duration) {
                (Some(since), Some(duration)) => duration.saturating_sub(since.elapsed()),
                _ => TICK,
            };
            if left.is_zero() {
                return Ok(Finish::Duration);
            }
            if !self.handle_next_event(left.min(self.pause()))? {
                return Ok(Finish::Sampler);
            }
            self.look_at_command();
            self.look_at_children();
            if self.settings.mode == Mode::Wall {
                self.awaited.look(self.named.of.keys().copied(), Instant::now(), unix_nano());
            }
            self.cut_for_view();
            self.take_parts(false)?;
            if self.show_progress() {
                return Ok(Finish::Interrupt);
            }
        }
    }

    /// The longest wait for the next message of the sampler process.
    fn pause(&self) -> Duration {
        match &self.sampling.command {
            None => TICK,
            // Its exit status is available in a moment, and its last samples soon after.
            Some(command) if command.ended_within(Duration::ZERO) => ENDING,
            Some(_) => TICK.min(self.follow.pause(Instant::now())),
        }
    }

    /// Gives up on processes that ended without a message. Not for a command: it may well execute a program that cannot
    /// be sampled, and its end ends the run anyway.
    fn lose_patience(&mut self) {
        if self.sampling.command.is_none() {
            self.course.give_up_executing(Instant::now(), EXECUTING);
            if self.watched_since.elapsed() >= FINDING {
                self.course.give_up_finding();
            }
        }
    }

    /// Handles the next message of the sampler process, waiting at most `time`. Returns whether more can follow.
    fn handle_next_event(&mut self, time: Duration) -> Result<bool, Failure> {
        match self.sampling.sampler.next_event(time) {
            NextEvent::Event(event) => self.take(event)?,
            NextEvent::Nothing => {}
            NextEvent::Ended(ending) => self.sampler_ended(ending),
            NextEvent::Started => self.watch()?,
        }
        Ok(self.sampling.sampler.is_hopeful())
    }

    fn take(&mut self, event: Event) -> Result<(), Failure> {
        self.course.handle_event(&event, Instant::now());
        match event {
            // A restarted sampler process has the same rights as the first.
            Event::Ready(rights) => {
                if self.begun.is_none() {
                    self.rights = rights;
                }
            }
            Event::Attached(process) => self.attached(*process)?,
            Event::Mapping(_) | Event::PerfMap { .. } | Event::Functions { .. } | Event::Resource { .. } => {
                self.collector.learn(event);
            }
            Event::Batch(batch) => self.batch(batch),
            Event::Status(status) => {
                self.is_sampled(status.process);
                self.stats.update(status);
            }
            Event::Problem(problem) => self.problem(&problem),
            Event::Detached { process, why } => self.detached(process, why),
            Event::CommandEnded { .. } => {}
        }
        Ok(())
    }

    fn batch(&mut self, mut batch: Batch) {
        if let Some(view) = &mut self.view {
            view.arrived(&batch);
        }
        if let Some(gap) = self.gaps.fill(&mut batch) {
            self.say(&format!("note: sampling goes on; {:.2} s are missing", gap as f64 / 1e9));
        }
        self.awaited.name(&mut batch);
        self.collector.batch(batch);
    }

    fn attached(&mut self, process: Process) -> Result<(), Failure> {
        let pid = process.pid;
        let label = label(&process);
        if self.is_asked_for(&process) {
            if !self.is_the_same(&process) {
                return Ok(());
            }
            if self.begun.is_some() {
                match self.named.of.get(&pid) {
                    None => self.announce_another(pid, &label, ""),
                    Some(before) if *before != label => {
                        let before = before.clone();
                        self.announce(&format!("sampling goes on with {label}, which {before} executed"));
                    }
                    Some(_) => {}
                }
            }
            if !self.settings.subprocesses {
                self.children.entry(pid).or_insert_with(|| DescendantsTime::read(pid));
            }
            if self.title.is_empty() || self.course.is_of_one() {
                self.title.clone_from(&label);
            }
        } else if self.course.is_root(process.target) {
            self.follow.found();
            self.announce_another(pid, &label, ", which was started there");
        } else {
            self.follow.found();
            self.announce_another(pid, &label, ", which the command waits for");
        }
        self.named.of.insert(pid, label);
        self.named.targets.insert(pid, process.target);
        self.sample_command(&process);
        if self.begun.is_none() {
            self.begun = Some(Instant::now());
            self.begun_unix_nano = unix_nano();
            let until = match self.subject.duration {
                Some(duration) => format!("for {} s", duration.as_secs_f64()),
                None => "until it ends".to_owned(),
            };
            let title = &self.title;
            let rate = self.settings.rate_hertz;
            if self.view.is_none() {
                terminal::say(format!("sampling {title} at {rate} Hz {until}; Ctrl-C ends it and writes the result"));
            }
            // A command writes to the same terminal, so a progress line cannot be overwritten.
            self.progress = (self.sampling.command.is_none() && self.view.is_none()).then(Progress::new);
        }
        if let Some(view) = &mut self.view {
            view.attached(&process);
        }
        if let Some(complaint) = self.collector.attached(process) {
            self.say(&complaint);
        }
        if self.writer.is_none() && self.view.is_none() {
            let graph = self.graph;
            let of_process = || Destination { graph, ..Destination::of_process(pid) };
            let destination = self.destination.get_or_insert_with(of_process);
            self.writer = Some(Writer::open(destination.clone())?);
        }
        Ok(())
    }

    fn detached(&mut self, process: ProcessId, why: Detached) {
        if why == Detached::Exited
            && let Some(pid) = self.collector.pid_of(process)
        {
            self.named.of.remove(&pid);
            self.named.targets.remove(&pid);
            self.follow.ended(pid);
        }
        self.stats.forget(process);
    }

    /// Reports a problem. If it leaves nothing to sample, it is reported at the end as the reason of the failure, with
    /// the missing right.
    fn problem(&mut self, problem: &Problem) {
        if self.sampling.command.is_some() && is_end(problem.kind) {
            // The command, or one of its descendants, ended before it could be examined.
            problem.pid.into_iter().for_each(|pid| self.follow.ended(pid));
            return;
        }
        let sampled_for = problem.pid.and_then(|pid| self.named.targets.get(&pid));
        if problem.kind == ProblemKind::Traced && sampled_for.is_some_and(|target| *target != problem.target) {
            // This run already traces it, as a descendant of another of its processes.
            return;
        }
        if self.course.refusal() == Some(&problem.message) && self.course.is_of_one() {
            // The command runs anyway.
            self.release();
            return;
        }
        self.lacked |= problem.kind == ProblemKind::Lack;
        // A restarted sampler process repeats its problems, and each process that a command starts may have the same
        // ones.
        let asked_for = problem.pid.is_none_or(|pid| self.sampling.pids.contains(&pid));
        let news = (self.course.is_root(problem.target) && asked_for).then(|| problem.message.clone());
        if !self.reported_problems.insert((problem.kind, news)) {
            return;
        }
        self.say(&format!("note: {}", problem.message));
        if problem.kind == ProblemKind::Permission {
            self.say_hints();
        }
    }
}

fn unix_nano() -> u64 {
    Clock::system().now().unix_nano
}
