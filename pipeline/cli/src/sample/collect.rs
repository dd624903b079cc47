//! Collects the sampler's events: processes, their files, and the samples of each time range.
//!
//! Symbols are read after sampling, so that reading does not disturb the measurement. A long run is split into parts
//! that fit one Sentry chunk each; a part waits for its names while sampling continues.

mod part;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use profbridge_receiver_ptrace::ServiceNames;
use profbridge_receiver_ptrace::record::ProcessRecord;
use profbridge_receiver_ptrace::resource::{describe, host_name};
use profbridge_receiver_ptrace::session::ProfilerSession;
use profbridge_receiver_ptrace::symbols::ProcessNames;
use profbridge_sampler::message::{Batch, Event, Process, ProcessId};
use profbridge_symbolizer::Symbolizer;

use crate::terminal::base_name;
use crate::views::stacks::clean;
use crate::views::sums::WHOLE_COMMAND;

pub(crate) use part::{Part, PartProfiles};

/// The length of a part. Sentry takes chunks of up to 66 seconds; samples of blocked threads reach beyond the part's
/// end.
const PART: Duration = Duration::from_secs(45);

/// A part with this many samples ends early.
const MOST_SAMPLES: usize = 1 << 19;

/// One process, from when it was found.
#[derive(Debug)]
struct Tracked {
    pid: u32,
    label: String,
    record: ProcessRecord,
}

/// The label of a process if there may be several: its program and its id.
pub(crate) fn label(process: &Process) -> String {
    let name = base_name(&process.executable);
    clean(&format!("{name} (pid {})", process.pid)).into()
}

/// Everything known about the processes of a run.
#[derive(Debug)]
pub(crate) struct Collector {
    symbolizer: Symbolizer,
    host: String,
    /// Further attributes of each process.
    attributes: Vec<(String, String)>,
    processes: Vec<Tracked>,
    places: HashMap<ProcessId, usize>,
    open: BTreeMap<usize, Vec<Batch>>,
    /// The time of the first sample in the open part, in nanoseconds since the Unix epoch.
    begins: Option<u64>,
    /// The number of samples in it.
    samples: usize,
    /// When the last batch arrived.
    arrived: Instant,
    waiting: Vec<Part>,
}

impl Collector {
    /// Creates an empty collector. The run may be that of a command from its start to its end.
    pub(crate) fn new(symbolizer: Symbolizer, is_whole_command: bool) -> Self {
        let attribute = || (WHOLE_COMMAND.to_owned(), "true".to_owned());
        Self {
            symbolizer,
            host: host_name(),
            attributes: is_whole_command.then(attribute).into_iter().collect(),
            processes: Vec::new(),
            places: HashMap::new(),
            open: BTreeMap::new(),
            begins: None,
            samples: 0,
            arrived: Instant::now(),
            waiting: Vec::new(),
        }
    }

    /// Adds a process. Returns a complaint about its environment, if any.
    pub(crate) fn attached(&mut self, process: Process) -> Option<String> {
        let session = ProfilerSession::of(&self.host, &process, 1.0);
        let described = describe(&self.host, &process, &ServiceNames::default(), session, &self.attributes);
        let number = self.processes.len();
        self.places.insert(process.id, number);
        let label = label(&process);
        let names = ProcessNames::new(self.symbolizer.clone(), number as u64, process.root);
        self.processes.push(Tracked {
            pid: process.pid,
            label,
            record: ProcessRecord::new(described.attributes, Some(names), &[]),
        });
        described.complaint
    }

    /// The sampler process ended, and its successor numbers processes anew.
    pub(crate) fn sampler_ended(&mut self) {
        self.places.clear();
    }

    /// The system's id of a process.
    pub(crate) fn pid_of(&self, id: ProcessId) -> Option<u32> {
        self.processes.get(*self.places.get(&id)?).map(|process| process.pid)
    }

    /// Adds a description of a process from the sampler.
    pub(crate) fn learn(&mut self, event: Event) {
        let place = ProcessRecord::described_by(&event).and_then(|process| self.places.get(&process));
        if let Some(process) = place.and_then(|&place| self.processes.get_mut(place)) {
            process.record.learn(event, u64::MAX, &[]);
        }
    }

    /// Adds samples. Ends the open part first if it is long enough.
    pub(crate) fn batch(&mut self, batch: Batch) {
        let begins = batch.samples.iter().map(|sample| sample.time_unix_nano).min();
        // The process is unknown.
        let (Some(begins), Some(&place)) = (begins, self.places.get(&batch.process)) else { return };
        let long = |start: u64| u128::from(begins.saturating_sub(start)) >= PART.as_nanos();
        if self.begins.is_some_and(long) || self.samples >= MOST_SAMPLES {
            self.cut();
        }
        self.begins.get_or_insert(begins);
        self.samples += batch.samples.len();
        self.arrived = Instant::now();
        self.open.entry(place).or_default().push(batch);
    }

    /// Whether no samples are left to return.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.waiting.is_empty()
    }

    /// Ends the open part and requests its names.
    pub(crate) fn cut(&mut self) {
        if self.open.is_empty() {
            return;
        }
        (self.begins, self.samples) = (None, 0);
        let of = std::mem::take(&mut self.open);
        for (&place, batches) in &of {
            batches.iter().for_each(|batch| self.processes[place].record.ask(batch));
        }
        self.waiting.push(Part { of, arrived: self.arrived });
    }

    /// Whether all available names were found for the finished parts.
    pub(crate) fn are_named(&mut self) -> bool {
        // No short circuit: every part is asked.
        !self.waiting.iter().fold(false, |late, part| is_late(&mut self.processes, part) | late)
    }

    /// The finished parts that have all available names, in order. `give_up` returns all finished parts.
    pub(crate) fn ready(&mut self, give_up: bool) -> Vec<Part> {
        let mut ready = 0;
        // Most calls find nothing ready, so single addresses are not checked while any request is pending.
        while let Some(part) = self.waiting.get(ready)
            && (give_up || self.symbolizer.waiting() == 0 && !is_late(&mut self.processes, part))
        {
            ready += 1;
        }
        self.waiting.drain(..ready).collect()
    }

    /// Assembles a part.
    ///
    /// # Errors
    ///
    /// It is larger than 4 GiB.
    pub(crate) fn assemble(&self, part: &Part) -> Result<PartProfiles, profbridge_model::dictionary::Invalid> {
        part.assemble(&self.processes)
    }
}

/// Repeats requests that were refused because too many were pending. Returns whether a name may still arrive.
fn is_late(processes: &mut [Tracked], part: &Part) -> bool {
    let batches = part.of.iter().flat_map(|(&place, batches)| batches.iter().map(move |batch| (place, batch)));
    // No short circuit: every batch is asked.
    batches.fold(false, |late, (place, batch)| processes[place].record.is_late(batch) | late)
}
