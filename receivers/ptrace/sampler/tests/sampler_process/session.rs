//! An owner for tests: collects the events that it receives, and waits for those that a test expects.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command as Program, Stdio};
use std::time::{Duration, Instant};

use profbridge_sampler::message::{
    Batch, Command, Detached, Event, Mapping, Problem, ProblemKind, Process, ProcessId, Select, Settings, Status,
    Target, TargetId,
};
use profbridge_sampler::{Ending, Events, Notice, SamplerProcess, StartOptions};

/// How long a test waits for something that should come at once, before it fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// A sampler process, and everything that it said.
pub(crate) struct Session {
    pub(crate) sampler: SamplerProcess,
    events: Events,
    pub(crate) processes: Vec<Process>,
    pub(crate) mappings: Vec<Mapping>,
    pub(crate) batches: Vec<Batch>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) detached: Vec<(ProcessId, Detached)>,
    pub(crate) codes: Vec<(TargetId, i32)>,
    pub(crate) statuses: Vec<Status>,
    pub(crate) perf_maps: usize,
    pub(crate) ending: Option<Ending>,
}

impl Session {
    /// Starts a sampler process.
    pub(crate) fn start() -> Self {
        // How long it may take to end is for the tests of that, and on a busy machine it may take longer.
        let options = StartOptions { commands: true, stop_timeout: PATIENCE, ..StartOptions::default() };
        let (sampler, mut events) = SamplerProcess::start(options).unwrap();
        let first = events.next();
        assert!(matches!(first, Some(Notice::Event(Event::Ready(_)))), "{first:?}");
        Self {
            sampler,
            events,
            processes: Vec::new(),
            mappings: Vec::new(),
            batches: Vec::new(),
            problems: Vec::new(),
            detached: Vec::new(),
            codes: Vec::new(),
            statuses: Vec::new(),
            perf_maps: 0,
            ending: None,
        }
    }

    /// Watches a target from its first moment.
    pub(crate) fn watch(&self, number: u32, select: Select) {
        self.watch_with(number, select, &[], Settings::default());
    }

    /// Watches a target.
    pub(crate) fn watch_with(&self, number: u32, select: Select, environment: &[&str], settings: Settings) {
        let environment = environment.iter().map(|name| (*name).to_owned()).collect();
        let target = Target {
            id: TargetId(number),
            select,
            settings,
            environment,
            thread_attributes: Vec::new(),
            sample_at_once: true,
        };
        self.sampler.send(Command::Watch(target)).unwrap();
    }

    /// Listens until something holds.
    pub(crate) fn wait(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.events.next_within(left) {
                Ok(notice) => self.keep(notice),
                Err(error) => panic!("{what}: {error}; problems {:?}, ending {:?}", self.problems, self.ending),
            }
        }
    }

    fn keep(&mut self, notice: Notice) {
        match notice {
            Notice::Ended(ending) => self.ending = Some(ending),
            Notice::Event(Event::Ready(_)) => panic!("ready twice"),
            Notice::Event(Event::Attached(process)) => self.processes.push(*process),
            Notice::Event(Event::Mapping(mapping)) => self.mappings.push(mapping),
            Notice::Event(Event::PerfMap { .. }) => self.perf_maps += 1,
            Notice::Event(Event::Functions { .. } | Event::Resource { .. }) => {}
            Notice::Event(Event::Batch(batch)) => self.batches.push(batch),
            Notice::Event(Event::Status(status)) => self.statuses.push(status),
            Notice::Event(Event::Problem(problem)) => self.problems.push(problem),
            Notice::Event(Event::Detached { process, why }) => self.detached.push((process, why)),
            Notice::Event(Event::CommandEnded { target, code }) => self.codes.push((target, code)),
        }
    }

    /// The observations so far.
    pub(crate) fn observations(&self) -> u64 {
        self.batches.iter().flat_map(|batch| &batch.samples).map(|sample| u64::from(sample.observations)).sum()
    }

    /// Waits for a kind of problem and returns its message.
    pub(crate) fn problem(&mut self, kind: ProblemKind) -> String {
        self.wait("a problem", |session| session.problems.iter().any(|problem| problem.kind == kind));
        self.problems.iter().find(|problem| problem.kind == kind).unwrap().message.clone()
    }

    /// Stops the sampler and hears it out.
    pub(crate) fn stop(mut self) -> Self {
        self.sampler.send(Command::Stop).unwrap();
        self.wait("the end", |session| session.ending.is_some());
        assert_eq!(self.ending, Some(Ending::Stopped));
        assert!(self.events.next().is_none());
        self
    }
}

/// A program that runs until it is dropped.
pub(crate) struct RunningProgram {
    pub(crate) child: Child,
}

impl RunningProgram {
    /// A shell script; returns when it printed its first line.
    pub(crate) fn shell(script: &str) -> Self {
        Self::start(Program::new("/bin/sh").args(["-c", script]))
    }

    /// A program; returns when it printed its first line.
    pub(crate) fn start(program: &mut Program) -> Self {
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { child }
    }

    /// Writes to its standard input.
    pub(crate) fn write(&mut self, text: &str) {
        std::io::Write::write_all(self.child.stdin.as_mut().unwrap(), text.as_bytes()).unwrap();
    }

    /// A shell that computes for ever.
    pub(crate) fn busy() -> Self {
        Self::shell("echo ready; while :; do :; done")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a state.
    pub(crate) fn wait_for_state(&self, wanted: (char, u32)) {
        let deadline = Instant::now() + PATIENCE;
        while self.state() != wanted {
            assert!(Instant::now() < deadline, "its state is {:?}, and not {wanted:?}", self.state());
            std::thread::yield_now();
        }
    }

    /// The state letter, and who traces it.
    pub(crate) fn state(&self) -> (char, u32) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        (value("State:").chars().next().unwrap(), value("TracerPid:").parse().unwrap())
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
