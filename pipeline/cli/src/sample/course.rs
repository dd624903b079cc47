//! The progress of a run: derives from the sampler's events whether it is over.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use profbridge_sampler::message::{Detached, Event, Problem, ProblemKind, Process, ProcessId, TargetId};

/// The progress of a run.
#[derive(Debug, Default)]
pub(crate) struct RunState {
    /// Whether the run started a command.
    with_command: bool,
    /// The requested processes, by target number. Processes that a command waits for have higher numbers.
    roots: Vec<Root>,
    attached: HashSet<ProcessId>,
    /// The attached processes that belong to the roots, by id.
    own: HashMap<ProcessId, u32>,
    ever: bool,
    /// Processes that executed another program and were not found again yet, with the time when they did.
    executing: HashMap<u32, Instant>,
    code: Option<i32>,
    refused: Option<String>,
}

/// A requested process, or all processes of a name.
#[derive(Debug)]
struct Root {
    /// `None` for a name.
    pid: Option<u32>,
    state: RootState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RootState {
    /// Being looked for.
    Awaited,
    /// Found.
    Met,
    /// Ended, or cannot be sampled.
    Gone,
}

impl RunState {
    /// A run that has not started, of these processes; if the list is empty, of all processes with a name.
    pub(crate) fn new(with_command: bool, pids: &[u32]) -> Self {
        let root = |pid| Root { pid, state: RootState::Awaited };
        let mut roots: Vec<Root> = pids.iter().map(|pid| root(Some(*pid))).collect();
        if roots.is_empty() {
            roots.push(root(None));
        }
        Self { with_command, roots, ..Self::default() }
    }

    /// Handles an event of the sampler.
    pub(crate) fn handle_event(&mut self, event: &Event, now: Instant) {
        match event {
            Event::Attached(process) => self.found(process),
            Event::Detached { process, why } => {
                self.attached.remove(process);
                let Some(pid) = self.own.remove(process) else { return };
                if *why == Detached::Executed {
                    self.executing.insert(pid, now);
                }
            }
            // The exit status of the command shows its end more reliably. Processes of a name may still appear later.
            Event::Problem(problem) if (self.with_command || self.is_of_a_name()) && is_end(problem.kind) => {}
            Event::Problem(problem) if refuses(problem.kind) => self.refuse(problem),
            _ => {}
        }
    }

    fn found(&mut self, process: &Process) {
        self.attached.insert(process.id);
        self.ever = true;
        if !self.is_root(process.target) {
            return;
        }
        self.own.insert(process.id, process.pid);
        self.executing.remove(&process.pid);
        // It may have been found as a descendant of another one.
        for (number, root) in self.roots.iter_mut().enumerate() {
            let named = root.pid.is_none() && process.target.0 as usize == number;
            if named || root.pid == Some(process.pid) {
                root.state = RootState::Met;
            }
        }
    }

    fn refuse(&mut self, problem: &Problem) {
        if let Some(pid) = problem.pid {
            self.executing.remove(&pid);
        }
        let Some(root) = self.roots.get_mut(problem.target.0 as usize) else { return };
        let meant = root.pid.is_none() || problem.pid.is_none() || problem.pid == root.pid;
        let there = self.own.values().any(|pid| root.pid.is_none_or(|root| root == *pid));
        if meant && !there {
            root.state = RootState::Gone;
            self.refused.get_or_insert_with(|| problem.message.clone());
        }
    }

    /// Whether a target was requested, in contrast to a process that a command waits for.
    pub(crate) fn is_root(&self, target: TargetId) -> bool {
        (target.0 as usize) < self.roots.len()
    }

    /// The requested targets with their processes, unless they have ended.
    pub(crate) fn roots(&self) -> impl Iterator<Item = (TargetId, Option<u32>)> {
        let living = (0..).zip(&self.roots).filter(|(_, root)| root.state != RootState::Gone);
        living.map(|(number, root)| (TargetId(number), root.pid))
    }

    /// Whether a single process or a command was requested.
    pub(crate) fn is_of_one(&self) -> bool {
        matches!(self.roots[..], [Root { pid: Some(_), .. }])
    }

    /// Whether processes of a name were requested.
    fn is_of_a_name(&self) -> bool {
        matches!(self.roots[..], [Root { pid: None, .. }])
    }

    pub(crate) fn command_ended(&mut self, code: i32) {
        self.code = Some(code);
    }

    /// The sampler process ended, and its successor will look for the remaining processes.
    pub(crate) fn lose(&mut self) {
        for root in &mut self.roots {
            let there = |pid: u32| self.executing.contains_key(&pid) || self.own.values().any(|own| *own == pid);
            root.state = match (root.state, root.pid) {
                (RootState::Met, Some(pid)) if !self.with_command && !there(pid) => RootState::Gone,
                (RootState::Met, _) => RootState::Awaited,
                (state, _) => state,
            };
        }
        self.attached.clear();
        self.own.clear();
        self.executing.clear();
    }

    /// Whether a process is being sampled.
    pub(crate) fn is_attached(&self) -> bool {
        !self.attached.is_empty()
    }

    /// Whether any process was ever sampled.
    pub(crate) fn ever_attached(&self) -> bool {
        self.ever
    }

    /// Gives up processes that have been executing another program for too long: they ended meanwhile.
    pub(crate) fn give_up_executing(&mut self, now: Instant, patience: Duration) {
        self.executing.retain(|_, since| now.saturating_duration_since(*since) < patience);
    }

    /// Gives up processes that were not found. The first process of a name may appear at any time.
    pub(crate) fn give_up_finding(&mut self) {
        let ever = self.ever;
        let given_up = |root: &&mut Root| root.state == RootState::Awaited && (root.pid.is_some() || ever);
        self.roots.iter_mut().filter(given_up).for_each(|root| root.state = RootState::Gone);
    }

    /// Why no process can be sampled.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// The command's exit code, once it has ended.
    pub(crate) fn exit_code(&self) -> Option<i32> {
        self.code
    }

    /// Whether there is nothing left to sample, now and later.
    pub(crate) fn is_over(&self) -> bool {
        if self.with_command {
            // A command that must not be sampled runs anyway, and may execute another program that can be. Its
            // background processes are not waited for.
            let own = self.roots[0].pid;
            return self.code.is_some() && !self.own.values().any(|pid| Some(*pid) == own);
        }
        let awaited = self.roots.iter().any(|root| root.state == RootState::Awaited);
        self.own.is_empty() && self.executing.is_empty() && !awaited
    }
}

/// Whether this problem means that the process has ended.
pub(crate) fn is_end(kind: ProblemKind) -> bool {
    matches!(kind, ProblemKind::Missing | ProblemKind::Zombie)
}

/// Whether this problem means that the process is not sampled at all.
fn refuses(kind: ProblemKind) -> bool {
    match kind {
        ProblemKind::Missing
        | ProblemKind::Permission
        | ProblemKind::Architecture
        | ProblemKind::Zombie
        | ProblemKind::Command
        | ProblemKind::TooMany
        | ProblemKind::Internal => true,
        ProblemKind::Traced
        | ProblemKind::Stopped
        | ProblemKind::Frozen
        | ProblemKind::Malformed
        | ProblemKind::Events
        | ProblemKind::CutCall
        | ProblemKind::Lack => false,
    }
}

#[cfg(test)]
mod tests;
