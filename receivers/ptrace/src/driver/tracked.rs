//! One life of a process, and its samples on the way out.

use std::mem::size_of;

use profbridge_identity::Identity;
use profbridge_sampler::message::{
    AttributeValue, Batch, Context, Function, Level, Location, Mapping, Process, Sample, Stack, Status, Thread,
};
use profbridge_sampler::owner::Gaps;
use tokio::time::Instant;

use super::levels::Line;
use crate::assemble::{Attribute, FileMapping, Nameless, Subject};
use crate::lifecycle::{Lifecycle, Outcome};
use crate::resource;
use crate::session::Session;
use crate::symbols::ProcessNames;

/// A process that is or was attached.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) process: Process,
    pub(super) session: Session,
    /// Who it is in its chunks; `None` where its resource cannot be read back.
    pub(super) identity: Option<Identity>,
    lifecycle: Lifecycle,
    /// Whether its profiler has run since it was attached.
    has_run: bool,
    /// Where its samples end, while its profiler runs, and the gaps left by sampler processes that ended.
    pub(super) gaps: Gaps,
    pub(super) status: Status,
    /// The gauge that it is counted in.
    pub(super) counted: Option<Level>,
    /// What the log has said of its running threads.
    pub(super) said_level: Option<Line>,
    pub(super) names: Option<ProcessNames>,
    /// What is known of it from outside.
    described: Vec<Attribute>,
    /// That, and what it shows of itself.
    resource: Vec<Attribute>,
    mappings: Vec<FileMapping>,
    functions: Vec<Function>,
    /// The bytes that its mappings and functions take.
    pub(super) mapping_bytes: u64,
    pending: Vec<Batch>,
    pub(super) pending_bytes: u64,
    /// When its samples are due.
    pub(super) due: Instant,
    /// When they are checked next: later than `due` if they wait for names.
    pub(super) look_at: Instant,
    /// Nothing more comes.
    pub(super) ended: bool,
}

impl Tracked {
    pub(super) fn new(
        process: Process,
        session: Session,
        lifecycle: Lifecycle,
        described: Vec<Attribute>,
        names: Option<ProcessNames>,
        due: Instant,
    ) -> Self {
        Self {
            status: Status { process: process.id, ..Status::default() },
            process,
            session,
            identity: None,
            lifecycle,
            has_run: lifecycle.is_running(),
            gaps: Gaps::default(),
            counted: None,
            said_level: None,
            names,
            resource: described.clone(),
            described,
            mappings: Vec::new(),
            functions: Vec::new(),
            mapping_bytes: 0,
            pending: Vec::new(),
            pending_bytes: 0,
            due,
            look_at: due,
            ended: false,
        }
    }

    /// Takes what it shows of itself in its memory. `thread_attributes` are the keys of its threads' attributes.
    pub(super) fn claims(&mut self, claims: &[(String, AttributeValue)], thread_attributes: &[String]) {
        self.resource = resource::with_claims(&self.described, claims, thread_attributes);
    }

    pub(super) fn resource(&self) -> &[Attribute] {
        &self.resource
    }

    pub(super) fn lifecycle(&self) -> Lifecycle {
        self.lifecycle
    }

    /// The level of its running threads, if it is known and the log has not said it yet.
    pub(super) fn unsaid_level(&self) -> Option<Level> {
        let level = Some(self.status.level).filter(|level| *level != Level::Undecided);
        level.filter(|level| self.said_level.is_none_or(|line| line.level != *level))
    }

    /// Applies an event to the lifecycle.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Lifecycle) -> Outcome) -> Outcome {
        let outcome = change(&mut self.lifecycle);
        self.has_run |= self.lifecycle.is_running();
        if outcome == Outcome::Stopped {
            self.gaps.forget();
        }
        outcome
    }

    /// Whether its profiler runs, or has run since it was attached: samples taken before a stop may arrive after it.
    pub(super) fn has_run(&self) -> bool {
        self.has_run
    }

    /// Adds a mapped file. One that takes more than `left` bytes is left out with all later ones, and their addresses
    /// have no mapping. Returns whether it was added.
    pub(super) fn mapping(&mut self, mapping: Mapping, left: u64) -> bool {
        let bytes = mapping_size(&mapping);
        // Mappings are found by their index, so none may follow one that is missing.
        if bytes > left || mapping.index as usize != self.mappings.len() {
            return false;
        }
        self.mapping_bytes += bytes;
        self.mappings.push(FileMapping::from(&mapping));
        if let Some(names) = &mut self.names {
            names.mapping(mapping);
        }
        true
    }

    /// Adds functions that an interpreter runs. Those that take more than `left` bytes are left out with all later
    /// ones, and have no names. Returns how many were left out.
    pub(super) fn functions(&mut self, first: u32, functions: Vec<Function>, mut left: u64) -> u64 {
        let mut omitted = 0;
        for (number, function) in (first as usize..).zip(functions) {
            let bytes = (size_of::<Function>() + function.text()) as u64;
            // Functions are found by their number, so none may follow one that is missing.
            if bytes > left || number != self.functions.len() {
                omitted += 1;
                continue;
            }
            left -= bytes;
            self.mapping_bytes += bytes;
            self.functions.push(function);
        }
        omitted
    }

    /// Adds samples, and fills gaps left by sampler processes that ended.
    pub(super) fn take(&mut self, mut batch: Batch) {
        // Samples that arrive after a stop were taken before it; those after the next start do not continue them.
        if self.lifecycle.is_running() {
            self.gaps.fill(&mut batch);
        }
        if let Some(names) = &mut self.names {
            names.ask(&batch);
        }
        self.pending_bytes += size(&batch);
        self.pending.push(batch);
    }

    /// Nothing more will come: what waits is due now.
    pub(super) fn end(&mut self, now: Instant) {
        self.ended = true;
        self.due = self.due.min(now);
        self.look_at = now;
    }

    pub(super) fn waits_for_names(&mut self) -> bool {
        let Some(names) = &mut self.names else { return false };
        self.pending.iter().any(|batch| names.is_late(batch))
    }

    pub(super) fn take_pending(&mut self) -> Vec<Batch> {
        self.pending_bytes = 0;
        std::mem::take(&mut self.pending)
    }

    pub(super) fn subject<'a>(&'a self, thread_attributes: &'a [String]) -> Subject<'a> {
        let names: &dyn crate::assemble::Names = match &self.names {
            Some(names) => names,
            None => &Nameless,
        };
        Subject {
            resource: &self.resource,
            mappings: &self.mappings,
            functions: &self.functions,
            thread_attributes,
            names,
        }
    }
}

/// How much memory a mapping takes, in bytes: its path is stored here and with its names.
fn mapping_size(mapping: &Mapping) -> u64 {
    let build_id = mapping.build_id.as_ref().map_or(0, Vec::len);
    (2 * size_of::<FileMapping>() + 2 * mapping.path.len() + build_id) as u64
}

/// How much memory a batch takes, in bytes.
pub(super) fn size(batch: &Batch) -> u64 {
    let stacks: usize = batch.stacks.iter().map(|stack| size_of::<Stack>() + 4 * stack.locations.len()).sum();
    let attributes = batch.contexts.iter().flat_map(|context| &context.attributes);
    let attributes: usize = attributes.map(|(_, value)| size_of::<(u32, String)>() + value.len()).sum();
    let bytes = size_of::<Batch>()
        + stacks
        + attributes
        + batch.contexts.len() * size_of::<Context>()
        + batch.samples.len() * size_of::<Sample>()
        + batch.locations.len() * size_of::<Location>()
        + batch.threads.len() * (size_of::<Thread>() + 16);
    bytes as u64
}
