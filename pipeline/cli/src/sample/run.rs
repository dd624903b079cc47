//! A run from its start to what is shown at its end.

mod finish;
mod show;
mod targets;

use std::collections::{HashMap, HashSet};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use profbridge_engine::clock::Clock;
use profbridge_receiver_ptrace::record::Life;
use profbridge_sampler::DescendantsTime;
use profbridge_sampler::message::{
    Batch, Detached, Event, Problem, ProblemKind, Process, ProcessId, Rights, Settings, Stops,
};
use profbridge_sampler::owner::{Gaps, Supervised};
use profbridge_symbolizer::Symbolizer;

use super::Purpose;
use super::collect::{Collector, label};
use super::course::{Course, is_end};
use super::follow::Follow;
use super::processes::ProcessShares;
use super::runtimes::Runtimes;
use super::sampler::{Heard, Sampler};
use super::shares::Shares;
use super::signals::Interrupt;
use super::stats::Stats;
use super::writer::Writer;
use crate::Failure;
use crate::args::sampling::Subject;
use crate::destination::Destination;
use crate::terminal::{self, Progress};
use crate::top::Top;
use crate::views::flamegraph::Layout;

/// How often a run looks at the clock while nothing happens.
const TICK: Duration = Duration::from_millis(100);

/// How long a process may take to be found.
const FINDING: Duration = Duration::from_secs(10);

/// How long a process may take to be found again after it executed another program.
const EXECUTING: Duration = Duration::from_secs(2);

/// How long the sampler may take to hand over its last samples.
const LAST_SAMPLES: Duration = Duration::from_secs(5);

/// How soon it is seen that all is said of a command that has ended.
const ENDING: Duration = Duration::from_millis(5);

/// What a run stands on.
pub(super) struct Sampling {
    pub(super) sampler: Sampler,
    pub(super) interrupt: Interrupt,
    /// The command, if it is one that is sampled, held at its first instruction.
    pub(super) command: Option<Arc<Supervised>>,
    /// The processes, or the command's; none where a name says which.
    pub(super) pids: Vec<u32>,
}

/// A run.
pub(super) struct Run<'a> {
    subject: &'a Subject,
    settings: Settings,
    sampling: Sampling,
    symbolizer: Symbolizer,
    course: Course,
    follow: Follow,
    gaps: Gaps,
    /// Whether something was used up that perf events need.
    lacked: bool,
    stats: Stats,
    collector: Collector,
    shares: Shares,
    processes: ProcessShares,
    runtimes: Runtimes,
    destination: Option<Destination>,
    /// How a flame graph is drawn that nobody named a file for.
    layout: Layout,
    writer: Option<Writer>,
    /// What shows the run as it goes; without it there is a result at the end.
    view: Option<Box<Top>>,
    /// When the view gets the samples so far.
    next_part: Instant,
    progress: Option<Progress>,
    title: String,
    /// The processes that were named on the way.
    named: show::Named,
    /// What is known of the processes that were asked for, by their ids, so that others with these ids are not taken
    /// for them.
    identities: HashMap<u32, Life>,
    /// The processor time of what they had started when they were found, and what is known of it at the end.
    children: HashMap<u32, DescendantsTime>,
    busy_children: (Duration, Vec<(u32, String)>),
    /// When the run began to look for its target.
    started: Instant,
    /// When the sampler was told of the target.
    told: Instant,
    /// The command, held until the sampler process is ready for it.
    prepared: Option<ProcessId>,
    /// When the first process was attached.
    begun: Option<Instant>,
    /// The same, in nanoseconds since the Unix epoch.
    begun_unix_nano: u64,
    rights: Rights,
    /// The problems that were said: those of the process or the command itself by their text, those of what it started
    /// by their kind.
    said: HashSet<(ProblemKind, Option<String>)>,
}

/// Why sampling ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finish {
    /// There is nothing left to sample.
    Over,
    /// The time that was asked for has passed.
    Duration,
    /// Somebody pressed Ctrl-C.
    Interrupt,
    /// The sampler process is gone.
    Sampler,
}

impl<'a> Run<'a> {
    /// Which running threads are stopped.
    pub(super) fn stops(&self) -> Stops {
        self.settings.stops
    }

    /// A run whose target the sampler process does not know yet.
    pub(super) fn new(subject: &'a Subject, sampling: Sampling, symbolizer: Symbolizer, purpose: Purpose) -> Self {
        let now = Instant::now();
        let (destination, layout, view) = match purpose {
            Purpose::Result { output, layout } => (output, layout, None),
            Purpose::View(view) => (None, Layout::default(), Some(view)),
        };
        Self {
            subject,
            settings: targets::settings(subject),
            course: Course::new(sampling.command.is_some(), &sampling.pids),
            sampling,
            collector: Collector::new(symbolizer.clone()),
            symbolizer,
            follow: Follow::new(now),
            gaps: Gaps::default(),
            lacked: false,
            stats: Stats::default(),
            shares: Shares::default(),
            processes: ProcessShares::default(),
            runtimes: Runtimes::default(),
            destination,
            layout,
            writer: None,
            view,
            next_part: now,
            progress: None,
            title: String::new(),
            named: show::Named::default(),
            identities: HashMap::new(),
            children: HashMap::new(),
            busy_children: (Duration::ZERO, Vec::new()),
            started: now,
            told: now,
            prepared: None,
            begun: None,
            begun_unix_nano: 0,
            rights: Rights::default(),
            said: HashSet::new(),
        }
    }

    /// Samples, writes, shows, and waits for the command.
    pub(super) fn go(mut self) -> Result<ExitCode, Failure> {
        self.watch()?;
        let finish = self.sample();
        // What is said from here on is said on the terminal as it was.
        if let Some(view) = &mut self.view {
            view.close();
        }
        let elapsed = self.begun.map(|begun| begun.elapsed()).unwrap_or_default();
        // What goes wrong with the result is said before the command is waited for: it is not ended for that.
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
            // The first process of a name is waited for no longer than it would be sampled.
            let since = self.begun.or(self.subject.name.as_ref().map(|_| self.started));
            let left = match (since, self.subject.duration) {
                (Some(since), Some(duration)) => duration.saturating_sub(since.elapsed()),
                _ => TICK,
            };
            if left.is_zero() {
                return Ok(Finish::Duration);
            }
            if !self.hear(left.min(self.pause()))? {
                return Ok(Finish::Sampler);
            }
            self.look_at_command();
            self.cut_for_view();
            self.take_parts(false)?;
            if self.show_progress() {
                return Ok(Finish::Interrupt);
            }
        }
    }

    /// How long may be waited for what the sampler process says.
    fn pause(&self) -> Duration {
        match &self.sampling.command {
            None => TICK,
            // Its status is known in a moment, and its last samples soon.
            Some(command) if command.ended_within(Duration::ZERO) => ENDING,
            Some(_) => TICK.min(self.follow.pause(Instant::now())),
        }
    }

    /// Gives up the processes that ended without being seen to. With a command its end is the end; it may well execute
    /// something that cannot be sampled.
    fn lose_patience(&mut self) {
        if self.sampling.command.is_none() {
            self.course.give_up_executing(Instant::now(), EXECUTING);
            if self.told.elapsed() >= FINDING {
                self.course.give_up_finding();
            }
        }
    }

    /// Hears what the sampler process says next, for some time; returns whether there is one, or will be.
    fn hear(&mut self, time: Duration) -> Result<bool, Failure> {
        match self.sampling.sampler.hear(time) {
            Heard::Event(event) => self.take(event)?,
            Heard::Nothing => {}
            Heard::Ended(ending) => self.sampler_ended(ending),
            Heard::Started => self.watch()?,
        }
        Ok(self.sampling.sampler.is_hopeful())
    }

    fn take(&mut self, event: Event) -> Result<(), Failure> {
        self.course.hear(&event, Instant::now());
        match event {
            // What it may do is no other than what the first one might.
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
        if let Some(gap) = self.gaps.fill(&mut batch) {
            self.say(&format!("note: sampling goes on; {:.2} s are missing", gap as f64 / 1e9));
        }
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
                    None => self.say(&format!("sampling {label} as well")),
                    Some(before) if *before != label => {
                        let before = before.clone();
                        self.say(&format!("sampling goes on with {label}, which {before} executed"));
                    }
                    Some(_) => {}
                }
            }
            if !self.subject.subprocesses {
                self.children.entry(pid).or_insert_with(|| DescendantsTime::read(pid));
            }
            if self.title.is_empty() || self.course.is_of_one() {
                self.title.clone_from(&label);
            }
        } else if self.course.is_root(process.target) {
            self.follow.found();
            if self.named.is_worth_saying(pid) {
                self.say(&format!("sampling {label} as well, which was started there"));
            }
        } else {
            self.follow.found();
            self.say(&format!("sampling {label} as well, which the command waits for"));
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
            // A command writes on the same terminal, which leaves no line to write over.
            self.progress = (self.sampling.command.is_none() && self.view.is_none()).then(Progress::new);
        }
        if let Some(complaint) = self.collector.attached(process) {
            self.say(&complaint);
        }
        if self.writer.is_none() && self.view.is_none() {
            let layout = self.layout;
            let of_process = || Destination { layout, ..Destination::of_process(pid) };
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

    /// Problems that leave nothing to sample are said at the end, as the reason of a failure; they say themselves
    /// what right is missing.
    fn problem(&mut self, problem: &Problem) {
        if self.sampling.command.is_some() && is_end(problem.kind) {
            // The command, or what it started, has ended before it could be looked at.
            problem.pid.into_iter().for_each(|pid| self.follow.ended(pid));
            return;
        }
        let sampled_for = problem.pid.and_then(|pid| self.named.targets.get(&pid));
        if problem.kind == ProblemKind::Traced && sampled_for.is_some_and(|target| *target != problem.target) {
            // By this run, as what another of its processes started.
            return;
        }
        if self.course.refusal() == Some(&problem.message) && self.course.is_of_one() {
            // It runs all the same.
            self.release();
            return;
        }
        self.lacked |= problem.kind == ProblemKind::Lack;
        // Each sampler process says it anew, and of each process that a command starts.
        let asked_for = problem.pid.is_none_or(|pid| self.sampling.pids.contains(&pid));
        let news = (self.course.is_root(problem.target) && asked_for).then(|| problem.message.clone());
        if !self.said.insert((problem.kind, news)) {
            return;
        }
        self.say(&format!("note: {}", problem.message));
        if problem.kind == ProblemKind::Permission {
            self.say_hints();
        }
    }
}

/// The wall clock, in nanoseconds since the Unix epoch.
fn unix_nano() -> u64 {
    Clock::system().now().unix_nano
}
