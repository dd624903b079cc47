//! Checks each event against the previous ones: no event may be about a process that is not attached, or a mapping
//! that was not announced.

use std::collections::HashMap;

use super::decode::{at_most, points};
use super::{MAX_MAPPINGS, MAX_PROCESSES, Violation};
use crate::message::{Batch, Command, Event, Function, Location, Process, ProcessId, TargetId};
use crate::runtime::{MAX_FOLDERS, MAX_FUNCTIONS, MAX_TEXT};

/// The state, from messages sent and received so far, that decides which events are allowed next.
#[derive(Debug, Default)]
pub struct PacketChecker {
    /// What the owner requested, by target. A removed target stays here, since events about it may still arrive.
    targets: HashMap<TargetId, RequestedData>,
    attached: HashMap<ProcessId, Announced>,
    /// The smallest id that the next process may have.
    next: u64,
    ready: bool,
}

/// The data that the owner requested of the processes of a target.
#[derive(Debug)]
struct RequestedData {
    /// The names of environment variables.
    environment: Vec<String>,
    thread_attributes: u32,
}

/// What the sampler process announced about a process.
#[derive(Debug, Default)]
struct Announced {
    /// The number of thread attributes that were requested.
    thread_attributes: u32,
    mappings: u32,
    functions: u32,
    /// The total size of the names and files of the process's functions, in bytes.
    text: usize,
}

impl PacketChecker {
    /// Records a command, before it is sent.
    pub fn note(&mut self, command: &Command) {
        if let Command::Watch(target) = command {
            let thread_attributes = u32::try_from(target.thread_attributes.len()).unwrap_or(u32::MAX);
            self.targets
                .insert(target.id, RequestedData { environment: target.environment.clone(), thread_attributes });
        }
    }

    /// Checks an event. Events must be checked in the order of their arrival.
    ///
    /// # Errors
    ///
    /// The rule that the event breaks.
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
                let count = &mut self.known_mut(mapping.process)?.mappings;
                if mapping.index != *count || *count >= MAX_MAPPINGS {
                    return Err(Violation::Nonsense("a mapping out of order"));
                }
                *count += 1;
                Ok(())
            }
            Event::PerfMap { process, .. } => self.known_mut(*process).map(drop),
            Event::Resource { process, .. } => self.known_mut(*process).map(drop),
            Event::Functions { process, first, functions } => self.functions(*process, *first, functions),
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
        at_most("the number of variables", process.environment.len(), asked.environment.len())?;
        if process.environment.iter().any(|(name, _)| !asked.environment.contains(name)) {
            return Err(Violation::Nonsense("a variable of the environment that was not asked for"));
        }
        if process.id.0 < self.next || process.id.0 == u64::MAX {
            return Err(Violation::Nonsense("a process with a number that was used before"));
        }
        if self.attached.len() >= MAX_PROCESSES {
            let (value, limit) = (self.attached.len() as u64 + 1, MAX_PROCESSES as u64);
            return Err(Violation::TooMuch { what: "the number of processes", value, limit });
        }
        let thread_attributes = asked.thread_attributes;
        self.next = process.id.0 + 1;
        self.attached.insert(process.id, Announced { thread_attributes, ..Announced::default() });
        Ok(())
    }

    fn batch(&mut self, batch: &Batch) -> Result<(), Violation> {
        let Announced { mappings, functions, thread_attributes, .. } = *self.known_mut(batch.process)?;
        for (key, _) in batch.contexts.iter().flat_map(|context| &context.attributes) {
            points("a context's attribute", *key, thread_attributes as usize)?;
        }
        for location in &batch.locations {
            let (what, index, count) = match *location {
                Location::Native { mapping: None, .. } | Location::Compiled { .. } => continue,
                Location::Native { mapping: Some(index), .. } => ("a location's mapping", index, mappings),
                Location::Interpreted { function, .. } => ("a location's function", function, functions),
            };
            points(what, index, count as usize)?;
        }
        Ok(())
    }

    fn functions(&mut self, process: ProcessId, first: u32, functions: &[Function]) -> Result<(), Violation> {
        let known = self.known_mut(process)?;
        if first != known.functions {
            return Err(Violation::Nonsense("functions out of order"));
        }
        let count = known.functions as usize + functions.len();
        at_most("the number of functions", count, MAX_FUNCTIONS)?;
        let text = known.text + functions.iter().map(Function::text).sum::<usize>();
        at_most("the length of all functions' names", text, MAX_TEXT + MAX_FOLDERS)?;
        (known.functions, known.text) = (count as u32, text);
        Ok(())
    }

    fn known_mut(&mut self, process: ProcessId) -> Result<&mut Announced, Violation> {
        self.attached.get_mut(&process).ok_or(Violation::UnknownProcess(process.0))
    }

    fn target(&self, target: TargetId) -> Result<&RequestedData, Violation> {
        self.targets.get(&target).ok_or(Violation::UnknownTarget(target.0))
    }
}
