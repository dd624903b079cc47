//! Finds the processes of targets that select them by properties.
//!
//! Children are found by listing them often: perf events would report each fork, but may not be permitted.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::control::Control;
use crate::control::attach::{Again, Attempt};
use crate::discover::{Candidate, children, container};
use crate::message::{Detached, ProblemKind, ProcessId, Select, TargetId};

/// The pause between two searches for children of targets' processes: while one of them is younger than [`EARLY`], and
/// later. Children with a shorter life may be missed.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(100));

/// How long a process counts as young: programs usually start others soon after their own start.
const EARLY: Duration = Duration::from_secs(2);

/// After a search the pause is at least this many times as long as the search took.
const SHARE: u32 = 9;

/// Decides when to search for children.
#[derive(Debug)]
pub(super) struct ChildWatch {
    next: Instant,
    /// Until this time one of these processes counts as young.
    young_until: Instant,
    /// Children that belong to no target, or cannot be sampled. They are examined again together with all other
    /// processes.
    passed_over: HashSet<u32>,
}

impl ChildWatch {
    pub(super) fn new(now: Instant) -> Self {
        Self { next: now, young_until: now, passed_over: HashSet::new() }
    }

    /// Records that a process was attached whose children are to be searched for.
    pub(super) fn attached(&mut self, now: Instant) {
        self.next = self.next.min(now + PAUSES.0);
        self.young_until = now + EARLY;
    }

    fn looked(&mut self, now: Instant, took: Duration) {
        let pause = if now < self.young_until { PAUSES.0 } else { PAUSES.1 };
        self.next = now + pause.max(took * SHARE);
    }
}

impl Control {
    /// Whether any target needs a search for processes: by properties, or for children.
    pub(super) fn is_finding(&self) -> bool {
        let finds = |select: &Select| !matches!(select, Select::Pid(_) | Select::Command(_));
        self.targets.values().any(|target| target.settings.subprocesses || finds(&target.select))
    }

    /// When to search for children next; `None` if no attached process may have children that are sampled.
    pub(super) fn next_look_for_children(&self) -> Option<Instant> {
        self.parents().next().is_some().then_some(self.children.next)
    }

    /// The ids of attached processes whose children belong to their targets.
    fn parents(&self) -> impl Iterator<Item = u32> {
        let wanted = |target| self.targets.get(target).is_some_and(|target| target.settings.subprocesses);
        let living = self.attached.values().filter(|attached| attached.ending.is_none());
        living.filter(move |attached| wanted(&attached.target)).map(|attached| attached.pid)
    }

    /// Searches for children of targets' processes, if that is due.
    pub(super) fn look_for_children(&mut self, now: Instant) {
        if self.next_look_for_children().is_none_or(|next| next > now) {
            return;
        }
        let start = Instant::now();
        let mut pids: Vec<u32> = self.parents().flat_map(children).collect();
        pids.retain(|pid| !self.children.passed_over.contains(pid) && !self.is_known(*pid));
        for pid in pids {
            match self.look_at(pid) {
                Some((target, start)) => self.again.push(Again::at_once(target, pid, start)),
                None if !self.is_known(pid) => {
                    self.children.passed_over.insert(pid);
                }
                None => {}
            }
        }
        let end = Instant::now();
        self.children.looked(end, end - start);
    }

    fn is_known(&self, pid: u32) -> bool {
        self.own.is_pid(pid)
            || self.attached.values().any(|attached| attached.pid == pid)
            || self.again.iter().any(|again| again.pid == pid)
    }

    /// Selects processes for this target from now on.
    pub(super) fn find_from_now_on(&mut self, target: TargetId, select: &Select) {
        if let Select::Container(id) = select
            && !container::is_selection(id)
        {
            let message = format!(
                "{id:?} is no container id: at least its first {} hexadecimal digits are needed",
                container::SHORTEST_PREFIX
            );
            self.report(target, None, ProblemKind::Missing, message);
        }
        self.scanner.forget_all();
        self.next_upkeep = std::time::Instant::now();
    }

    /// Searches all processes for those that targets select.
    pub(super) fn find(&mut self) {
        // Without `/proc` no process can be attached either; that error was reported when the first process was
        // attached.
        let Ok(pids) = self.scanner.scan() else { return };
        self.children.passed_over.clear();
        for pid in pids {
            if self.is_known(pid) {
                continue;
            }
            if let Some((target, start)) = self.look_at(pid) {
                self.again.push(Again::at_once(target, pid, start));
            }
        }
    }

    /// Attaches to a process if a target selects it; if several do, the first one counts. If attaching has to be tried
    /// again soon, returns the target and the process's start time.
    pub(super) fn look_at(&mut self, pid: u32) -> Option<(TargetId, u64)> {
        let candidate = Candidate::open(pid)?;
        let target = self.selecting(&candidate)?;
        // If the process may not be examined, attaching to it reports that.
        if self.own.is_program(pid).unwrap_or(false) {
            return None;
        }
        let attempt = self.attach(target, pid, Some(candidate.start_ticks), None);
        (attempt == Attempt::Changing).then_some((target, candidate.start_ticks))
    }

    /// Detaches from a process if it has turned out to be a wrapper of another one that matches as well: a wrapper
    /// runs before the program it wraps.
    pub(super) fn look_at_wrapper(&mut self, process: ProcessId) {
        let Some(attached) = self.attached.get(&process).filter(|attached| attached.ending.is_none()) else {
            return;
        };
        let Some(target) = self.targets.get(&attached.target) else { return };
        if !matches!(target.select, Select::CommandLine(_)) {
            return;
        }
        let Some(candidate) = Candidate::open(attached.pid) else { return };
        if !candidate.is_wrapper(&target.select) || self.parent_target(&candidate).is_some() {
            return;
        }
        if let Some(attached) = self.attached.get_mut(&process) {
            attached.ending = Some(Detached::Asked);
            self.sampler.detach(process);
        }
    }

    /// The target of a process's parent, if it includes child processes.
    fn parent_target(&self, candidate: &Candidate) -> Option<TargetId> {
        let mut parents = self.attached.values().filter(|attached| attached.pid == candidate.parent);
        let parent = parents.find(|attached| attached.ending.is_none())?;
        let target = self.targets.get(&parent.target)?;
        target.settings.subprocesses.then_some(parent.target)
    }

    /// The target that selects a process by its properties, if it differs from the target for which the process was
    /// found: the process has executed another program meanwhile. A process selected by id stays with its target.
    pub(super) fn other_target(&mut self, target: TargetId, pid: u32) -> Option<TargetId> {
        let is_named = match self.targets.get(&target)?.select {
            Select::Pid(named) => named == pid,
            Select::Command(_) => true,
            _ => false,
        };
        let candidate = Candidate::open(pid).filter(|_| !is_named)?;
        self.selecting_by_itself(&candidate).filter(|other| *other != target)
    }

    /// The target that selects a process by its properties, or else the target of its parent.
    fn selecting(&mut self, candidate: &Candidate) -> Option<TargetId> {
        self.selecting_by_itself(candidate).or_else(|| self.parent_target(candidate))
    }

    fn selecting_by_itself(&mut self, candidate: &Candidate) -> Option<TargetId> {
        let mut selecting = self
            .targets
            .iter()
            .filter(|(_, target)| candidate.is_selected(&target.select) && !candidate.is_wrapper(&target.select));
        let (id, target) = selecting.next()?;
        // A target may give the beginning of a container's id, which may fit several containers.
        if let (Select::Container(prefix), Some(container)) = (&target.select, candidate.container()) {
            let (id, prefix) = (*id, prefix.clone());
            let first = self.containers.entry(id).or_insert_with(|| container.to_owned());
            if first != container {
                let message = format!(
                    "{prefix} is the beginning of several containers' ids: {first} is sampled, {container} is not"
                );
                self.report(id, None, ProblemKind::Missing, message);
                return None;
            }
            return Some(id);
        }
        Some(*id)
    }
}
