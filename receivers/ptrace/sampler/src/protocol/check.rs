//! Checks each event against those before: no event may be about a process that is not attached, or a mapping that was
//! not announced.

use std::collections::HashMap;

use super::{MAX_MAPPINGS, MAX_PROCESSES, Violation};
use crate::message::{Batch, Command, Event, Process, ProcessId, TargetId};

/// What was sent and received so far, as far as it decides which events are allowed next.
#[derive(Debug, Default)]
pub struct Checker {
    /// The names of variables that were asked for, by target. A target that is forgotten stays here, since events about
    /// it may be on their way.
    targets: HashMap<TargetId, Vec<String>>,
    /// The number of mappings, by process.
    attached: HashMap<ProcessId, u32>,
    /// The least number that the next process may have.
    next: u64,
    ready: bool,
}

impl Checker {
    /// Notes a command, before it is sent.
    pub fn note(&mut self, command: &Command) {
        if let Command::Watch(target) = command {
            self.targets.insert(target.id, target.environment.clone());
        }
    }

    /// Checks an event, in the order of their arrival.
    ///
    /// # Errors
    ///
    /// The rule that it breaks.
    pub fn check(&mut self, event: &Event) -> Result<(), Violation> {
        if !self.ready && !matches!(event, Event::Ready(_)) {
            return Err(Violation::Nonsense("an event before the sampler is ready"));
        }
        match event {
            Event::Ready(_) if self.ready => Err(Violation::Nonsense("ready for the second time")),
            Event::Ready(_) => {
                self.ready = true;
                Ok(())
            }
            Event::Attached(process) => self.attach(process),
            Event::Mapping(mapping) => {
                let count = self.known_mut(mapping.process)?;
                if mapping.index != *count || *count >= MAX_MAPPINGS {
                    return Err(Violation::Nonsense("a mapping out of order"));
                }
                *count += 1;
                Ok(())
            }
            Event::PerfMap { process, .. } => self.known_mut(*process).map(drop),
            Event::Batch(batch) => self.batch(batch),
            Event::Status(status) => self.known_mut(status.process).map(drop),
            Event::Problem(problem) => self.target(problem.target).map(drop),
            Event::Detached { process, .. } => {
                self.known_mut(*process)?;
                self.attached.remove(process);
                Ok(())
            }
            Event::CommandEnded { target, .. } => self.target(*target).map(drop),
        }
    }

    fn attach(&mut self, process: &Process) -> Result<(), Violation> {
        let asked = self.target(process.target)?;
        if process.environment.iter().any(|(name, _)| !asked.contains(name)) {
            return Err(Violation::Nonsense("a variable of the environment that was not asked for"));
        }
        if process.id.0 < self.next || process.id.0 == u64::MAX {
            return Err(Violation::Nonsense("a process with a number that was used before"));
        }
        if self.attached.len() >= MAX_PROCESSES {
            let (value, limit) = (self.attached.len() as u64 + 1, MAX_PROCESSES as u64);
            return Err(Violation::TooMuch { what: "the number of processes", value, limit });
        }
        self.next = process.id.0 + 1;
        self.attached.insert(process.id, 0);
        Ok(())
    }

    fn batch(&mut self, batch: &Batch) -> Result<(), Violation> {
        let count = *self.known_mut(batch.process)?;
        for mapping in batch.locations.iter().filter_map(|location| location.mapping) {
            if mapping >= count {
                let (index, count) = (u64::from(mapping), u64::from(count));
                return Err(Violation::Dangling { what: "a location's mapping", index, count });
            }
        }
        Ok(())
    }

    fn known_mut(&mut self, process: ProcessId) -> Result<&mut u32, Violation> {
        self.attached.get_mut(&process).ok_or(Violation::UnknownProcess(process.0))
    }

    fn target(&self, target: TargetId) -> Result<&Vec<String>, Violation> {
        self.targets.get(&target).ok_or(Violation::UnknownTarget(target.0))
    }
}
