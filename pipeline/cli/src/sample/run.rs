//! A run from its start to what is shown at its end.

mod finish;

use std::process::ExitCode;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use profbridge_ptrace::message::{Command, Event, Problem, ProblemKind, Process, Rights, Settings};
use profbridge_ptrace::owner::{Ending, Events, Notice, SamplerProcess};
use profbridge_symbolize::Symbolizer;

use super::TARGET;
use super::collect::{Collector, Halves};
use super::course::Course;
use super::progress::Look;
use super::shares::{Shares, printable};
use super::signals::Interrupt;
use super::sink::{Sink, Written};
use super::stats::Stats;
use crate::Failure;
use crate::args::sampling::SampleArgs;
use crate::destination::Destination;
use crate::terminal::{self, Progress};

/// How often a run looks at the clock while nothing happens.
const TICK: Duration = Duration::from_millis(100);

/// How long a process may take to be found.
const FINDING: Duration = Duration::from_secs(10);

/// How long a process may take to be found again after it executed another program.
const EXECUTING: Duration = Duration::from_secs(2);

/// How long the sampler may take to hand over its last samples.
const LAST_SAMPLES: Duration = Duration::from_secs(5);

/// What a run stands on.
pub(super) struct Sampling {
    pub(super) sampler: SamplerProcess,
    pub(super) events: Events,
    pub(super) interrupt: Interrupt,
}

/// A run.
pub(super) struct Run<'a> {
    arguments: &'a SampleArgs,
    settings: Settings,
    sampling: Sampling,
    symbolizer: Symbolizer,
    course: Course,
    stats: Stats,
    collector: Collector,
    shares: Shares,
    output: Output,
    progress: Option<Progress>,
    title: String,
    /// When the sampler was told of the target.
    told: Instant,
    /// When the first process was attached.
    begun: Option<Instant>,
    /// Since when the process executes another program.
    executing: Option<Instant>,
    ended: Option<Ending>,
    rights: Rights,
}

/// The files of a run.
#[derive(Default)]
struct Output {
    destination: Option<Destination>,
    sink: Option<Sink>,
    written: Written,
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
    /// A run whose target the sampler knows.
    pub(super) fn new(
        arguments: &'a SampleArgs,
        settings: Settings,
        sampling: Sampling,
        symbolizer: Symbolizer,
    ) -> Self {
        Self {
            arguments,
            settings,
            sampling,
            collector: Collector::new(symbolizer.clone()),
            symbolizer,
            course: Course::new(arguments.pid.is_none()),
            stats: Stats::default(),
            shares: Shares::default(),
            output: Output { destination: arguments.output.clone(), ..Output::default() },
            progress: None,
            title: String::new(),
            told: Instant::now(),
            begun: None,
            executing: None,
            ended: None,
            rights: Rights::default(),
        }
    }

    /// Samples, writes, shows, and waits for the command.
    pub(super) fn go(mut self) -> Result<ExitCode, Failure> {
        let finish = self.sample()?;
        let elapsed = self.begun.map(|begun| begun.elapsed()).unwrap_or_default();
        if finish != Finish::Over {
            self.stop_sampling(finish)?;
        }
        // What goes wrong with the result is said after the command was waited for.
        let shown = self.finish(finish, elapsed);
        if let Err(Failure(why)) = &shown {
            self.say(why);
        }
        let code = self.command_code()?.map(|code| ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)));
        self.end_sampler();
        Ok(match (shown, code) {
            (Ok(()), Some(code)) => code,
            (Ok(()), None) => ExitCode::SUCCESS,
            (Err(_), Some(code)) if self.course.never_started() => code,
            (Err(_), _) => ExitCode::FAILURE,
        })
    }

    /// Samples until there is a reason to end.
    fn sample(&mut self) -> Result<Finish, Failure> {
        loop {
            if self.course.is_over() || self.is_lost() {
                return Ok(Finish::Over);
            }
            if self.sampling.interrupt.is_wanted() {
                return Ok(Finish::Interrupt);
            }
            let left = match (self.begun, self.arguments.duration) {
                (Some(begun), Some(duration)) => duration.saturating_sub(begun.elapsed()),
                _ => TICK,
            };
            if left.is_zero() {
                return Ok(Finish::Duration);
            }
            if !self.hear(left.min(TICK))? {
                return Ok(Finish::Sampler);
            }
            self.take_parts(false)?;
            self.show_progress();
        }
    }

    /// Whether a process ended without being seen to.
    fn is_lost(&self) -> bool {
        let executing = self.executing.is_some_and(|since| since.elapsed() >= EXECUTING);
        let never_found = self.begun.is_none() && self.arguments.pid.is_some() && self.told.elapsed() >= FINDING;
        executing || never_found
    }

    /// Hears what the sampler says next, for some time; returns whether it is still there.
    fn hear(&mut self, time: Duration) -> Result<bool, Failure> {
        match self.sampling.events.next_within(time) {
            Ok(Notice::Event(event)) => self.take(event)?,
            Ok(Notice::Ended(ending)) => {
                self.ended = Some(ending);
                return Ok(false);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(false),
        }
        Ok(true)
    }

    fn take(&mut self, event: Event) -> Result<(), Failure> {
        self.course.hear(&event);
        match event {
            Event::Ready(rights) => self.rights = rights,
            Event::Attached(process) => self.attached(*process)?,
            Event::Mapping(mapping) => self.collector.mapping(mapping),
            Event::PerfMap { process, file } => self.collector.perf_map(process, file),
            Event::Batch(batch) => self.collector.batch(batch),
            Event::Status(status) => self.stats.update(status),
            Event::Problem(problem) => self.problem(&problem),
            Event::Detached { process, .. } => self.stats.forget(process),
            Event::CommandEnded { .. } => {}
        }
        // With a command its end is the end; it may well execute something that cannot be sampled.
        let executes = self.course.is_executing() && self.arguments.pid.is_some();
        self.executing = executes.then(|| self.executing.unwrap_or_else(Instant::now));
        Ok(())
    }

    fn attached(&mut self, process: Process) -> Result<(), Failure> {
        let name = process.executable.rsplit('/').next().unwrap_or_default();
        self.title = printable(&format!("{name} (pid {})", process.pid)).into();
        let pid = process.pid;
        if self.begun.is_none() {
            self.begun = Some(Instant::now());
            let until = match self.arguments.duration {
                Some(duration) => format!("for {} s", duration.as_secs_f64()),
                None => "until it ends".to_owned(),
            };
            let title = &self.title;
            let rate = self.settings.rate_hertz;
            terminal::say(format!("sampling {title} at {rate} Hz {until}; Ctrl-C ends it and writes the result"));
            // A command writes on the same terminal, which leaves no line to write over.
            self.progress = self.arguments.pid.is_some().then(Progress::new);
        }
        if let Some(complaint) = self.collector.attached(process) {
            self.say(&complaint);
        }
        if self.output.sink.is_none() {
            let destination = self.output.destination.get_or_insert_with(|| Destination::of_process(pid));
            self.output.sink = Some(Sink::open(destination, &self.title, self.settings.mode)?);
        }
        Ok(())
    }

    /// Problems that leave nothing to sample are said at the end, as the reason of a failure; they say themselves
    /// what right is missing.
    fn problem(&mut self, problem: &Problem) {
        if self.course.refusal() == Some(&problem.message) {
            return;
        }
        self.say(&format!("note: {}", problem.message));
        if problem.kind == ProblemKind::Permission {
            self.say_hints();
        }
    }

    fn say_hints(&mut self) {
        for hint in std::mem::take(&mut self.rights.hints) {
            self.say(&format!("hint: {hint}"));
        }
    }

    /// Says something on a line of its own. Part of it may have been made up by the target.
    fn say(&mut self, text: &str) {
        let shown = self.progress.take().is_some();
        text.lines().for_each(|line| terminal::say(printable(line)));
        self.progress = shown.then(Progress::new);
    }

    fn show_progress(&mut self) {
        let (Some(progress), Some(begun)) = (&mut self.progress, self.begun) else { return };
        progress.show(Look {
            title: &self.title,
            elapsed: begun.elapsed(),
            duration: self.arguments.duration,
            status: self.stats.total(),
            threads: self.stats.threads(),
            rate_hertz: self.stats.rate_hertz(),
        });
    }

    /// Lets go of what is sampled and hears the last samples of it.
    fn stop_sampling(&mut self, finish: Finish) -> Result<(), Failure> {
        if finish == Finish::Sampler {
            return Ok(());
        }
        // A command that was started for the target runs on, and its end is told all the same.
        self.sampling.sampler.send(Command::Unwatch(TARGET)).map_err(|error| Failure::new("the sampler", &error))?;
        let deadline = Instant::now() + LAST_SAMPLES;
        while self.course.is_attached() && Instant::now() < deadline {
            if !self.hear(TICK)? {
                break;
            }
        }
        Ok(())
    }

    /// Adds up and writes the parts that have their names; all of them where `give_up`.
    fn take_parts(&mut self, give_up: bool) -> Result<(), Failure> {
        for part in self.collector.ready(give_up) {
            let halves = self.collector.assemble(&part).map_err(|error| Failure::new("the samples", &error))?;
            self.take_halves(&halves)?;
        }
        Ok(())
    }

    fn take_halves(&mut self, halves: &Halves) -> Result<(), Failure> {
        if let Some(running) = &halves.running {
            self.shares.add(running, false);
        }
        if let Some(waiting) = &halves.waiting {
            self.shares.add(waiting, true);
        }
        self.output.written.losses.add(profbridge_model::Reason::Malformed, halves.malformed);
        match &mut self.output.sink {
            Some(sink) => sink.take(halves, &mut self.output.written),
            None => Ok(()),
        }
    }
}
