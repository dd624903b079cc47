//! Finds the processes of targets that select them by properties.

use crate::control::Control;
use crate::control::attach::{Again, Attempt};
use crate::discover::{Candidate, container};
use crate::message::{Detached, ProblemKind, ProcessId, Select, TargetId};

impl Control {
    /// Whether there is a target for which processes are looked for.
    pub(super) fn is_finding(&self) -> bool {
        self.targets.values().any(|target| !matches!(target.select, Select::Pid(_) | Select::Command(_)))
    }

    /// Searches for the processes of this target from now on.
    pub(super) fn find_from_now_on(&mut self, target: TargetId, select: &Select) {
        if let Select::Container(id) = select
            && !container::is_selection(id)
        {
            let message = format!(
                "{id:?} is no container id: at least its first {} hexadecimal digits are needed",
                container::SHORTEST_PREFIX
            );
            self.say(target, None, ProblemKind::Missing, message);
        }
        self.scanner.forget_all();
        self.next_upkeep = std::time::Instant::now();
    }

    /// Looks for processes.
    pub(super) fn find(&mut self) {
        // Without `/proc` nothing else works either, which was reported for the first process.
        let Ok(pids) = self.scanner.scan() else { return };
        for pid in pids {
            let known = self.attached.values().any(|attached| attached.pid == pid)
                || self.again.iter().any(|again| again.pid == pid);
            if known || self.own.is_pid(pid) {
                continue;
            }
            if let Some((target, start)) = self.look_at(pid) {
                self.again.push(Again::at_once(target, pid, start));
            }
        }
    }

    /// Attaches to a process if a target selects it: for the first target, if several do. Returns the target and the
    /// process's start if it has to be tried again soon.
    pub(super) fn look_at(&mut self, pid: u32) -> Option<(TargetId, u64)> {
        let candidate = Candidate::open(pid)?;
        let target = self.selecting(&candidate)?;
        // A process that may not be looked at is reported when it is attached to.
        if self.own.is_program(pid).unwrap_or(false) {
            return None;
        }
        let attempt = self.attach(target, pid, Some(candidate.start_ticks), None);
        (attempt == Attempt::Changing).then_some((target, candidate.start_ticks))
    }

    /// Lets go of a process if it has turned out to be the wrapper of another one that matches as well: a wrapper runs
    /// before what it wraps.
    pub(super) fn look_at_wrapper(&mut self, process: ProcessId) {
        let Some(attached) = self.attached.get_mut(&process).filter(|attached| attached.ending.is_none()) else {
            return;
        };
        let Some(target) = self.targets.get(&attached.target) else { return };
        if !matches!(target.select, Select::CommandLine(_)) {
            return;
        }
        if Candidate::open(attached.pid).is_some_and(|candidate| candidate.is_wrapper(&target.select)) {
            attached.ending = Some(Detached::Asked);
            self.sampler.detach(process);
        }
    }

    fn selecting(&mut self, candidate: &Candidate) -> Option<TargetId> {
        let mut selecting = self
            .targets
            .iter()
            .filter(|(_, target)| candidate.is_selected(&target.select) && !candidate.is_wrapper(&target.select));
        let (id, target) = selecting.next()?;
        // A container's id may be abbreviated, and the abbreviation may fit several containers.
        if let (Select::Container(prefix), Some(container)) = (&target.select, candidate.container()) {
            let (id, prefix) = (*id, prefix.clone());
            let first = self.containers.entry(id).or_insert_with(|| container.to_owned());
            if first != container {
                let message = format!(
                    "{prefix} is the beginning of several containers' ids: {first} is sampled, {container} is not"
                );
                self.say(id, None, ProblemKind::Missing, message);
                return None;
            }
            return Some(id);
        }
        Some(*id)
    }
}
