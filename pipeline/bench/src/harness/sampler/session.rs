//! A sampler process that samples one process, and what it says.

use std::{
    collections::HashMap,
    thread,
    time::{Duration, Instant},
};

use profbridge_sampler::{
    message::{
        Batch, Command, Event, Function, Location, Mapping, ProcessId, Select, Settings, Status, Target, TargetId,
        Trust,
    },
    owner::{Events, Notice, SamplerProcess, StartOptions},
};

use super::super::{Error, procfs};

/// How long the sampler may take to attach.
const PATIENCE: Duration = Duration::from_secs(20);

/// A stack with all that it was observed with.
pub(super) type Stacks = HashMap<(Trust, Vec<Location>), u64>;

/// A sampler process, attached to one process.
pub(super) struct Session {
    process: SamplerProcess,
    events: Events,
    id: ProcessId,
    /// Its last counters.
    pub(super) status: Status,
    /// The files of the process.
    pub(super) mappings: Vec<Mapping>,
    /// The last counters of each process that it was: one that executes another program is another.
    statuses: HashMap<ProcessId, Status>,
    /// Observations by stack, since the start.
    pub(super) stacks: Stacks,
    /// Processor time by stack, in nanoseconds, since the start.
    pub(super) running: HashMap<Vec<Location>, u64>,
    /// The functions of its interpreters, by their numbers.
    pub(super) functions: Vec<Function>,
    /// What it complained of.
    pub(super) problems: Vec<String>,
}

impl Session {
    /// Starts a sampler process and attaches it. It samples if `at_once`.
    pub(super) fn start(pid: u32, settings: Settings, at_once: bool) -> Result<Self, Error> {
        let (process, events) = SamplerProcess::start(StartOptions::default())?;
        let target = Target {
            id: TargetId(0),
            select: Select::Pid(pid),
            settings,
            environment: Vec::new(),
            thread_attributes: Vec::new(),
            sample_at_once: at_once,
        };
        process.send(Command::Watch(target))?;
        let mut session = Self {
            process,
            events,
            id: ProcessId::default(),
            status: Status::default(),
            mappings: Vec::new(),
            statuses: HashMap::new(),
            stacks: Stacks::new(),
            running: HashMap::new(),
            functions: Vec::new(),
            problems: Vec::new(),
        };
        let end = Instant::now() + PATIENCE;
        while session.id == ProcessId::default() {
            if Instant::now() > end || !session.problems.is_empty() {
                return Err(format!("cannot attach to {pid}: {:?}", session.problems).into());
            }
            session.listen(Duration::from_millis(10))?;
        }
        Ok(session)
    }

    /// Turns sampling on or off.
    pub(super) fn sample(&self, on: bool) -> Result<(), Error> {
        self.process.send(Command::Sample { process: self.id, on })?;
        Ok(())
    }

    /// Forgets what was observed so far.
    pub(super) fn forget(&mut self) {
        self.stacks.clear();
        self.running.clear();
    }

    /// A counter, summed over all processes that the target was.
    pub(super) fn total(&self, counter: fn(&Status) -> u64) -> u64 {
        self.statuses.values().map(counter).sum()
    }

    /// The sampler's process id.
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Takes what the sampler says for so long, and sleeps in between.
    pub(super) fn listen(&mut self, time: Duration) -> Result<(), Error> {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            match self.events.next_within(left) {
                Ok(Notice::Event(event)) => self.take(event),
                Ok(Notice::Ended(ending)) => return Err(format!("the sampler ended: {ending:?}").into()),
                Err(_) => thread::sleep(end.saturating_duration_since(Instant::now())),
            }
        }
        Ok(())
    }

    /// Asks the sampler to end, and takes what is left.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        self.process.send(Command::Stop)?;
        loop {
            match self.events.next_within(PATIENCE)? {
                Notice::Event(event) => self.take(event),
                Notice::Ended(_) => return Ok(()),
            }
        }
    }

    /// Waits until the sampler process is gone, however it ends.
    pub(super) fn wait_for_end(&mut self) -> Result<(), Error> {
        while let Notice::Event(event) = self.events.next_within(PATIENCE)? {
            self.take(event);
        }
        Ok(())
    }

    /// The sampler's processor time so far, and this program's.
    pub(super) fn cpu(&self) -> Result<(Duration, Duration), Error> {
        Ok((procfs::exact_cpu(self.pid())?, procfs::exact_cpu(std::process::id())?))
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Attached(process) => self.id = process.id,
            Event::Mapping(mapping) => self.mappings.push(mapping),
            Event::Batch(batch) => self.count(&batch),
            Event::Functions { functions, .. } => self.functions.extend(functions),
            Event::Status(status) => {
                self.status = status;
                self.statuses.insert(status.process, status);
            }
            Event::Problem(problem) => self.problems.push(problem.message),
            _ => {}
        }
    }

    fn count(&mut self, batch: &Batch) {
        for sample in &batch.samples {
            let stack = &batch.stacks[sample.stack as usize];
            let locations: Vec<_> = stack.locations.iter().map(|&index| batch.locations[index as usize]).collect();
            if !sample.blocked {
                *self.running.entry(locations.clone()).or_default() += sample.weight_nano;
            }
            *self.stacks.entry((stack.trust, locations)).or_default() += u64::from(sample.observations);
        }
    }
}
