//! One attached process, and its samples that have not been sent yet.

use std::mem::size_of;

use profbridge_identity::Identity;
use profbridge_sampler::message::{Batch, Context, Level, Location, Process, Sample, Stack, Status, Thread};
use profbridge_sampler::owner::Gaps;
use tokio::time::Instant;

use super::levels::LevelLine;
use crate::lifecycle::{LifecycleChange, ProfilerLifecycle};
use crate::record::ProcessRecord;
use crate::session::ProfilerSession;

/// A process that is or was attached.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) process: Process,
    pub(super) session: ProfilerSession,
    /// The process's identity in chunks; `None` if it cannot be derived from its resource.
    pub(super) identity: Option<Identity>,
    lifecycle: ProfilerLifecycle,
    /// Whether the profiler has run since the process was attached.
    has_run: bool,
    /// The end of the process's samples, while its profiler runs, and the gaps left by sampler processes that ended.
    pub(super) gaps: Gaps,
    pub(super) status: Status,
    /// The gauge in which the process is counted.
    pub(super) counted: Option<Level>,
    /// The last log line about the level of the process's running threads.
    pub(super) logged_level: Option<LevelLine>,
    pub(super) record: ProcessRecord,
    pending: Vec<Batch>,
    pub(super) pending_bytes: u64,
    /// When the samples are due.
    pub(super) due: Instant,
    /// When the samples are checked next: later than `due` if they wait for names.
    pub(super) look_at: Instant,
    /// Whether the process has ended, so that no more samples come.
    pub(super) ended: bool,
}

impl Tracked {
    pub(super) fn new(
        process: Process,
        session: ProfilerSession,
        lifecycle: ProfilerLifecycle,
        record: ProcessRecord,
        identity: Option<Identity>,
        gaps: Gaps,
        due: Instant,
    ) -> Self {
        Self {
            status: Status { process: process.id, ..Status::default() },
            process,
            session,
            identity,
            lifecycle,
            has_run: lifecycle.is_running(),
            gaps,
            counted: None,
            logged_level: None,
            record,
            pending: Vec::new(),
            pending_bytes: 0,
            due,
            look_at: due,
            ended: false,
        }
    }

    pub(super) fn lifecycle(&self) -> ProfilerLifecycle {
        self.lifecycle
    }

    /// The level of the process's running threads, if it is known and not logged yet.
    pub(super) fn unlogged_level(&self) -> Option<Level> {
        let level = Some(self.status.level).filter(|level| *level != Level::Undecided);
        level.filter(|level| self.logged_level.is_none_or(|line| line.level != *level))
    }

    /// Applies an event to the lifecycle.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut ProfilerLifecycle) -> LifecycleChange) -> LifecycleChange {
        let outcome = change(&mut self.lifecycle);
        self.has_run |= self.lifecycle.is_running();
        if outcome == LifecycleChange::Stopped {
            self.gaps.forget();
        }
        outcome
    }

    /// Whether the profiler has run since the process was attached: samples taken before a stop may arrive after it.
    pub(super) fn has_run(&self) -> bool {
        self.has_run
    }

    /// Adds samples, and fills gaps left by sampler processes that ended.
    pub(super) fn add_batch(&mut self, mut batch: Batch) {
        // Samples that arrive after a stop were taken before the stop; samples after the next start do not continue
        // them.
        if self.lifecycle.is_running() {
            self.gaps.fill(&mut batch);
        }
        self.record.ask(&batch);
        self.pending_bytes += size(&batch);
        self.pending.push(batch);
    }

    /// Called when no more samples will come: those waiting become due.
    pub(super) fn end(&mut self, now: Instant) {
        self.ended = true;
        self.due = self.due.min(now);
        self.look_at = now;
    }

    pub(super) fn waits_for_names(&mut self) -> bool {
        self.pending.iter().any(|batch| self.record.is_late(batch))
    }

    pub(super) fn take_pending(&mut self) -> Vec<Batch> {
        self.pending_bytes = 0;
        std::mem::take(&mut self.pending)
    }
}

/// The memory used by a batch, in bytes.
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
