//! A sampler process attached to one process, and its events.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use profbridge_sampler::message::{
    Batch, Command, Event, Function, Location, Mapping, ProcessId, Select, Settings, Status, Target, TargetId,
};
use profbridge_sampler::owner::{Events, Notice, SamplerProcess, StartOptions};

use crate::{Error, machine};

/// How long the sampler may take to attach.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a session runs before it is measured, to exclude one-time work (unwind tables, the first stacks, the first
/// use of each function).
pub(super) const WARM_UP: Duration = Duration::from_millis(1500);

/// A sampler process, attached to one process.
pub(super) struct Session {
    process: SamplerProcess,
    events: Events,
    id: ProcessId,
    /// The last counters that the sampler reported.
    pub(super) status: Status,
    /// The mapped files of the process.
    pub(super) mappings: Vec<Mapping>,
    /// The number of observations and the processor time in nanoseconds, by stack, since the start.
    pub(super) stacks: HashMap<Vec<Location>, (u64, u64)>,
    functions: Vec<Function>,
    problems: Vec<String>,
}

impl Session {
    /// Starts a sampler process and attaches it. If `at_once`, it starts to sample immediately.
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
            stacks: HashMap::new(),
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

    /// Samples a process for `time`, after a warm-up. Also returns the counters at the beginning.
    pub(super) fn sampled(pid: u32, settings: Settings, time: Duration) -> Result<(Self, Status), Error> {
        let mut session = Self::start(pid, settings, true)?;
        session.listen(WARM_UP)?;
        session.stacks.clear();
        let before = session.status;
        session.listen(time)?;
        Ok((session, before))
    }

    /// Turns sampling on or off.
    pub(super) fn sample(&self, on: bool) -> Result<(), Error> {
        self.process.send(Command::Sample { process: self.id, on })?;
        Ok(())
    }

    /// Handles the sampler's events for `time`, and sleeps in between.
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

    /// The processor time of the sampler during [`Self::listen`], in percent of a core.
    pub(super) fn cpu(&mut self, time: Duration) -> Result<f64, Error> {
        cpu(self.process.pid(), || self.listen(time))
    }

    /// The interpreted functions of a stack, innermost first.
    pub(super) fn functions<'a>(&'a self, stack: &'a [Location]) -> impl Iterator<Item = &'a str> {
        stack.iter().filter_map(|location| {
            let Location::Interpreted { function, .. } = location else { return None };
            Some(self.functions.get(*function as usize)?.name.as_str())
        })
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Attached(process) => self.id = process.id,
            Event::Mapping(mapping) => self.mappings.push(mapping),
            Event::Batch(batch) => self.count(&batch),
            Event::Functions { functions, .. } => self.functions.extend(functions),
            Event::Status(status) => self.status = status,
            Event::Problem(problem) => self.problems.push(problem.message),
            _ => {}
        }
    }

    fn count(&mut self, batch: &Batch) {
        for sample in &batch.samples {
            let stack = &batch.stacks[sample.stack as usize];
            let locations = stack.locations.iter().map(|&index| batch.locations[index as usize]).collect();
            let (observations, running) = self.stacks.entry(locations).or_default();
            *observations += u64::from(sample.observations);
            *running += if sample.blocked { 0 } else { sample.weight_nano };
        }
    }
}

/// The processor time of a process and its children during `work`, in percent of a core.
pub(super) fn cpu(pid: u32, work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
    let (before, started) = (machine::exact_cpu(pid)?, Instant::now());
    work()?;
    Ok(100.0 * (machine::exact_cpu(pid)? - before).as_secs_f64() / started.elapsed().as_secs_f64())
}
