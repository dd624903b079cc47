//! The state of a process from when it is attached until it is detached, whether it is sampled or not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::contexts::ProcessContexts;
use super::interpreters::SharedInterpreters;
use crate::address_space::{AddressSpace, History, MapsEntry};
use crate::message::{ProblemKind, ProcessId, Settings, Status};
use crate::os::time;
use crate::perf_map::Growth;
use crate::process_files::{Life, ProcessFiles};

/// The shortest interval between two reads of the maps. It is doubled each time, up to [`LONGEST_RELOAD`]: a starting
/// program loads its libraries within milliseconds, but the maps of a program that keeps compiling code must not be
/// read all the time.
const RELOAD: Duration = Duration::from_millis(8);
const LONGEST_RELOAD: Duration = Duration::from_secs(1);

/// An attached process. While it is sampled, [`Active`](super::active::Active) owns this.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) id: ProcessId,
    pub(super) files: Arc<ProcessFiles>,
    pub(super) spaces: History,
    /// The number of address spaces set so far, by which stacks unwound in an earlier one are recognized.
    pub(super) space_generation: u64,
    pub(super) perf_map: Option<Growth>,
    pub(super) interpreters: SharedInterpreters,
    pub(super) contexts: ProcessContexts,
    pub(super) settings: Settings,
    pub(super) status: Status,
    pub(super) reload: ReloadRequest,
    /// How many stops in a row were refused.
    pub(super) refusals: u64,
    /// The kinds of problems that were reported.
    problems: Vec<ProblemKind>,
}

impl Attached {
    pub(super) fn new(
        id: ProcessId,
        files: Arc<ProcessFiles>,
        space: Arc<AddressSpace>,
        settings: Settings,
        now: Instant,
    ) -> Self {
        let mut interpreters = SharedInterpreters::default();
        if settings.interpreters {
            interpreters.set(space.runtimes());
        }
        let mut contexts = ProcessContexts::default();
        contexts.set_variables(space.variables());
        Self {
            id,
            files,
            spaces: History::new(space, now),
            space_generation: 0,
            perf_map: None,
            interpreters,
            contexts,
            settings,
            status: Status { process: id, rate_hertz: settings.rate_hertz, ..Status::default() },
            reload: ReloadRequest { due: now, interval: RELOAD, wanted: false },
            refusals: 0,
            problems: Vec::new(),
        }
    }

    /// Sets the address space that is valid from a moment on, see [`History::set`].
    pub(super) fn set_space(&mut self, at: Instant, space: Arc<AddressSpace>) {
        self.space_generation += 1;
        if !self.spaces.set(at, Arc::clone(&space)) {
            return;
        }
        if self.settings.interpreters {
            self.interpreters.set(space.runtimes());
        }
        self.contexts.set_variables(space.variables());
    }

    /// Handles a mapping that the kernel has recorded: from its time on, other code may be at its addresses.
    pub(super) fn mapped(&mut self, at: Instant, entry: MapsEntry) {
        if self.spaces.mapped(at, entry) {
            self.space_generation += 1;
            self.reload.want_soon(Instant::now());
        }
    }

    /// Whether the process executes another program than the known one, or its id belongs to another process now.
    pub(super) fn is_another(&self) -> bool {
        match self.files.alive() {
            Life::Same => false,
            Life::Executed => true,
            Life::Exited => self.files.has_successor(),
        }
    }

    /// Whether no problem of this kind was reported before. Marks the kind as reported.
    pub(super) fn is_new(&mut self, problem: ProblemKind) -> bool {
        let new = !self.problems.contains(&problem);
        if new {
            self.problems.push(problem);
        }
        new
    }

    /// The counters of the process, with current values.
    pub(super) fn status(&mut self) -> Status {
        self.status.sampler_cpu_nano = u64::try_from(time::process_cpu().as_nanos()).unwrap_or(u64::MAX);
        self.status
    }
}

/// Decides when the maps of a process are read again.
#[derive(Debug)]
pub(super) struct ReloadRequest {
    due: Instant,
    interval: Duration,
    wanted: bool,
}

impl ReloadRequest {
    /// Requests that the maps are read again.
    pub(super) fn want(&mut self) {
        self.wanted = true;
    }

    /// Requests that the maps are read soon, even if they were just read, because code was replaced.
    fn want_soon(&mut self, now: Instant) {
        self.wanted = true;
        self.interval = RELOAD;
        self.due = self.due.min(now + RELOAD);
    }

    /// Whether the maps have to be read again now. Returns `true` once per request, and not too often.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        if !self.wanted || now < self.due {
            return false;
        }
        self.wanted = false;
        if now > self.due + 2 * LONGEST_RELOAD {
            self.interval = RELOAD;
        }
        self.due = now + self.interval;
        self.interval = (self.interval * 2).min(LONGEST_RELOAD);
        true
    }
}
