//! Describes one sampled process: its resource, its files, its functions and their names.

use std::mem::size_of;

use profbridge_sampler::message::{Batch, Event, Function, Mapping, Process, ProcessId};

use crate::assemble::{AssembledProcess, Attribute, Nameless, SymbolNames};
use crate::resource::with_claims;
use crate::symbols::ProcessNames;

/// Identifies a process, and distinguishes it from a later one with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessLife {
    /// The process id.
    pub pid: u32,
    start_unix_nano: u64,
    exec_id: u64,
}

impl ProcessLife {
    /// The identity of a process.
    #[must_use]
    pub fn from_process(process: &Process) -> Self {
        Self { pid: process.pid, start_unix_nano: process.start_unix_nano, exec_id: process.exec_id }
    }

    /// Whether two descriptions are of the same process. It may execute another program, which changes its exec id but
    /// not its start time; and setting the wall clock changes the computed start time but not the exec id. The start
    /// time is computed from a clock of 10 ms and the boot time.
    #[must_use]
    pub fn is_same(self, other: Self) -> bool {
        let started_together = self.start_unix_nano.abs_diff(other.start_unix_nano) < 1_000_000_000;
        self.pid == other.pid && (started_together || self.exec_id == other.exec_id)
    }
}

/// A process as profiles describe it, from the sampler process's events other than samples.
#[derive(Debug)]
pub struct ProcessRecord {
    /// The attributes observed by profbridge.
    described: Vec<Attribute>,
    /// The described attributes, and those from the context that the process publishes.
    resource: Vec<Attribute>,
    mappings: Vec<Mapping>,
    functions: Vec<Function>,
    names: Option<ProcessNames>,
    bytes: u64,
}

impl ProcessRecord {
    /// Creates the description of a process with these attributes; `thread_attributes` are the keys of its thread
    /// attributes. Without `names`, no names are looked up.
    #[must_use]
    pub fn new(described: Vec<Attribute>, names: Option<ProcessNames>, thread_attributes: &[String]) -> Self {
        let resource = with_claims(&described, &[], thread_attributes);
        Self { described, resource, mappings: Vec::new(), functions: Vec::new(), names, bytes: 0 }
    }

    /// The process to which an event belongs; `None` for events that [`learn`](Self::learn) does not handle.
    #[must_use]
    pub fn described_by(event: &Event) -> Option<ProcessId> {
        match event {
            Event::Mapping(mapping) => Some(mapping.process),
            Event::PerfMap { process, .. } | Event::Functions { process, .. } | Event::Resource { process, .. } => {
                Some(*process)
            }
            _ => None,
        }
    }

    /// Stores the data of an event. `left` is the remaining room in bytes. A mapping or function that does not fit is
    /// left out, and so are all later ones of its kind: then addresses in the file have no mapping, and the function
    /// has no name. Returns how many mappings or functions were left out.
    pub fn learn(&mut self, event: Event, mut left: u64, thread_attributes: &[String]) -> u64 {
        let mut omitted = 0;
        match event {
            Event::Mapping(mut mapping) => {
                // The mapping's path is stored here and again with its names.
                let build_id = mapping.build_id.as_ref().map_or(0, Vec::len);
                let bytes = (2 * size_of::<Mapping>() + 2 * mapping.path.len() + build_id) as u64;
                // Mappings are found by their index, so none may follow one that is missing.
                if bytes > left || mapping.index as usize != self.mappings.len() {
                    return 1;
                }
                self.bytes += bytes;
                let file = mapping.file.take();
                if let Some(names) = &mut self.names {
                    names.mapping(&mapping.path, file);
                }
                self.mappings.push(mapping);
            }
            Event::Functions { first, functions, .. } => {
                for (number, function) in (first as usize..).zip(functions) {
                    let bytes = (size_of::<Function>() + function.text()) as u64;
                    // Functions are found by their number, so none may follow one that is missing.
                    if bytes > left || number != self.functions.len() {
                        omitted += 1;
                        continue;
                    }
                    left -= bytes;
                    self.bytes += bytes;
                    self.functions.push(function);
                }
            }
            Event::PerfMap { file, .. } => {
                if let Some(names) = &mut self.names {
                    names.perf_map(file);
                }
            }
            Event::Resource { attributes, .. } => {
                self.resource = with_claims(&self.described, &attributes, thread_attributes);
            }
            _ => {}
        }
        omitted
    }

    /// The size of the stored mappings and functions, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The attributes of the process's resource.
    #[must_use]
    pub fn resource(&self) -> &[Attribute] {
        &self.resource
    }

    /// The files mapped into the process, without descriptors.
    #[must_use]
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// Requests the names of all locations of a batch.
    pub fn ask(&mut self, batch: &Batch) {
        if let Some(names) = &mut self.names {
            names.ask(batch);
        }
    }

    /// Whether the symbolizer may still find more names for a batch. Names that it refused are requested again.
    pub fn is_late(&mut self, batch: &Batch) -> bool {
        self.names.as_mut().is_some_and(|names| names.is_late(batch))
    }

    /// The data of the process for an [`Assembler`](crate::assemble::Assembler).
    #[must_use]
    pub fn subject<'a>(&'a self, thread_attributes: &'a [String]) -> AssembledProcess<'a> {
        let Self { resource, mappings, functions, names, .. } = self;
        let names = names.as_ref().map_or(&Nameless as &dyn SymbolNames, |names| names);
        AssembledProcess { resource, mappings, functions, thread_attributes, names }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a process is still the same after it executed another program, or after the clock and so its start
    /// time changed; a process that differs in both, or has another id, is another one.
    #[test]
    fn lives() {
        let is = |pid, start_unix_nano, exec_id| ProcessLife { pid, start_unix_nano, exec_id };
        let first = is(7, 5_000_000_000, 1);
        assert!(first.is_same(is(7, 5_010_000_000, 2)));
        assert!(first.is_same(is(7, 900_000_000_000, 1)));
        assert!(!first.is_same(is(7, 7_000_000_000, 2)));
        assert!(!first.is_same(is(8, 5_000_000_000, 1)));
    }
}
