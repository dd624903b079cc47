//! One life of a process, and its samples on the way out.

use std::mem::size_of;

use profbridge_ptrace::message::{Batch, Location, Mapping, Process, Sample, Stack, Status, Thread};
use tokio::time::Instant;

use crate::assemble::{Attribute, FileMapping, Nameless, Subject};
use crate::lifecycle::Lifecycle;
use crate::session::Session;
use crate::symbols::ProcessNames;

/// A process that is attached, or was.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) process: Process,
    pub(super) session: Session,
    pub(super) lifecycle: Lifecycle,
    pub(super) status: Status,
    pub(super) names: Option<ProcessNames>,
    resource: Vec<Attribute>,
    mappings: Vec<FileMapping>,
    pending: Vec<Batch>,
    pub(super) pending_bytes: u64,
    /// When its samples are due.
    pub(super) due: Instant,
    /// When they are looked at: later, where they wait for names.
    pub(super) look_at: Instant,
    /// Nothing more comes.
    pub(super) ended: bool,
}

impl Tracked {
    pub(super) fn new(
        process: Process,
        session: Session,
        lifecycle: Lifecycle,
        resource: Vec<Attribute>,
        names: Option<ProcessNames>,
        due: Instant,
    ) -> Self {
        Self {
            status: Status { process: process.id, ..Status::default() },
            process,
            session,
            lifecycle,
            names,
            resource,
            mappings: Vec::new(),
            pending: Vec::new(),
            pending_bytes: 0,
            due,
            look_at: due,
            ended: false,
        }
    }

    /// A file is mapped. Beyond the limit its addresses have no mapping.
    pub(super) fn mapping(&mut self, mapping: Mapping, limit: usize) {
        if self.mappings.len() >= limit {
            return;
        }
        self.mappings.push(FileMapping::from(&mapping));
        if let Some(names) = &mut self.names {
            names.mapping(mapping);
        }
    }

    pub(super) fn take(&mut self, batch: Batch, bytes: u64) {
        if let Some(names) = &mut self.names {
            names.ask(&batch);
        }
        self.pending_bytes += bytes;
        self.pending.push(batch);
    }

    /// Nothing more comes: what waits is due.
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

    pub(super) fn subject(&self) -> Subject<'_> {
        let names: &dyn crate::assemble::Names = match &self.names {
            Some(names) => names,
            None => &Nameless,
        };
        Subject { resource: &self.resource, mappings: &self.mappings, names }
    }
}

/// What a batch takes in memory, in bytes.
pub(super) fn size(batch: &Batch) -> u64 {
    let stacks: usize = batch.stacks.iter().map(|stack| size_of::<Stack>() + 4 * stack.locations.len()).sum();
    let bytes = size_of::<Batch>()
        + stacks
        + batch.samples.len() * size_of::<Sample>()
        + batch.locations.len() * size_of::<Location>()
        + batch.threads.len() * (size_of::<Thread>() + 16);
    bytes as u64
}
