//! How a run goes: from what the sampler says to whether it is over.

use std::collections::HashSet;

use profbridge_sampler::message::{Detached, Event, ProblemKind, ProcessId};

use super::TARGET;

/// The course of a run.
#[derive(Debug, Default)]
pub(crate) struct Course {
    /// Whether a command was started for it.
    with_command: bool,
    attached: HashSet<ProcessId>,
    /// Those of them that are the process or command itself, and not what a command started.
    own: HashSet<ProcessId>,
    ever: bool,
    /// The process executed another program and was not found again yet.
    executing: bool,
    /// The sampler process ended, and another one has not found the process yet.
    searching: bool,
    code: Option<i32>,
    refused: Option<String>,
}

impl Course {
    /// A run that has not begun.
    pub(crate) fn new(with_command: bool) -> Self {
        Self { with_command, ..Self::default() }
    }

    /// Takes note of what the sampler said.
    pub(crate) fn hear(&mut self, event: &Event) {
        match event {
            Event::Attached(process) => {
                self.attached.insert(process.id);
                self.ever = true;
                if process.target == TARGET {
                    self.own.insert(process.id);
                    (self.executing, self.searching) = (false, false);
                }
            }
            Event::Detached { process, why } => {
                self.attached.remove(process);
                if self.own.remove(process) {
                    self.executing = *why == Detached::Executed;
                }
            }
            // Its end is known better by the one who started it.
            Event::Problem(problem) if self.with_command && is_end(problem.kind) => {}
            Event::Problem(problem) if self.own.is_empty() && problem.target == TARGET && refuses(problem.kind) => {
                (self.executing, self.searching) = (false, false);
                self.refused.get_or_insert_with(|| problem.message.clone());
            }
            _ => {}
        }
    }

    /// The command ended with this code.
    pub(crate) fn command_ended(&mut self, code: i32) {
        self.code = Some(code);
    }

    /// The sampler process ended, and another one will look for the process.
    pub(crate) fn lose(&mut self) {
        self.attached.clear();
        self.own.clear();
        (self.executing, self.searching) = (false, true);
    }

    /// Whether a process is being sampled.
    pub(crate) fn is_attached(&self) -> bool {
        !self.attached.is_empty()
    }

    /// Whether any process was ever sampled.
    pub(crate) fn ever_attached(&self) -> bool {
        self.ever
    }

    /// Whether a process is executing another program: it is found again at once, unless it ends.
    pub(crate) fn is_executing(&self) -> bool {
        self.executing
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
        if !self.own.is_empty() {
            return false;
        }
        match self.with_command {
            // A command that must not be sampled runs on all the same, and may execute another program that may be.
            // What it started and left behind is not waited for.
            true => self.code.is_some(),
            false => !self.executing && !self.searching && (self.ever || self.refused.is_some()),
        }
    }
}

/// Whether a process with such a problem has ended.
pub(crate) fn is_end(kind: ProblemKind) -> bool {
    matches!(kind, ProblemKind::Missing | ProblemKind::Zombie)
}

/// Whether a process with such a problem is not sampled at all.
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
mod tests {
    use profbridge_sampler::message::{Problem, Process, TargetId};

    use super::*;

    fn attached(number: u64) -> Event {
        attached_for(TARGET, number)
    }

    fn attached_for(target: TargetId, number: u64) -> Event {
        Event::Attached(Box::new(Process {
            id: ProcessId(number),
            target,
            pid: 7,
            namespace_pid: 7,
            start_unix_nano: 1,
            exec_id: number,
            executable: "/srv/app".to_owned(),
            arguments: Vec::new(),
            user: 0,
            control_group: None,
            container: None,
            environment: Vec::new(),
            root: None,
        }))
    }

    fn detached(number: u64, why: Detached) -> Event {
        Event::Detached { process: ProcessId(number), why }
    }

    fn problem(kind: ProblemKind) -> Event {
        Event::Problem(Problem { target: TargetId(0), pid: None, kind, message: format!("{kind:?}") })
    }

    fn course(with_command: bool, events: &[Event]) -> Course {
        let mut course = Course::new(with_command);
        events.iter().for_each(|event| course.hear(event));
        course
    }

    /// Guarantees: a run of a process ends with the process, and not where it executes another program.
    #[test]
    fn a_process() {
        assert!(!course(false, &[]).is_over());
        assert!(!course(false, &[attached(1)]).is_over());
        assert!(course(false, &[attached(1), detached(1, Detached::Exited)]).is_over());
        let executes = course(false, &[attached(1), detached(1, Detached::Executed)]);
        assert!(executes.is_executing() && !executes.is_over());
        let again = [attached(1), detached(1, Detached::Executed), attached(2)];
        assert!(course(false, &again).is_attached() && !course(false, &again).is_executing());
        let lost = [attached(1), detached(1, Detached::Executed), problem(ProblemKind::Permission)];
        assert!(course(false, &lost).is_over());
    }

    /// Guarantees: what makes sampling impossible ends a run of a process, with the reason; what only makes it worse
    /// does not.
    #[test]
    fn problems() {
        let missing = course(false, &[problem(ProblemKind::Missing)]);
        assert!(missing.is_over() && !missing.ever_attached());
        assert_eq!(missing.refusal(), Some("Missing"));
        assert!(!course(false, &[problem(ProblemKind::Traced), attached(1)]).is_over());
        assert!(!course(false, &[problem(ProblemKind::Stopped)]).is_over());
        assert_eq!(course(false, &[attached(1), problem(ProblemKind::Internal)]).refusal(), None);
    }

    /// Guarantees: a run of a command ends when the command has ended and all its samples have arrived; a command that
    /// must not be sampled is waited for, and what the command started and left behind is not.
    #[test]
    fn a_command() {
        assert!(!course(true, &[attached(1), detached(1, Detached::Exited)]).is_over());
        let mut running = course(true, &[attached(1)]);
        running.command_ended(3);
        assert!(!running.is_over());
        running.hear(&attached_for(TargetId(1), 2));
        running.hear(&detached(1, Detached::Exited));
        assert!(running.is_over() && running.is_attached());
        assert_eq!(running.exit_code(), Some(3));
        let mut refused = course(true, &[problem(ProblemKind::Permission)]);
        assert!(!refused.is_over());
        refused.command_ended(0);
        assert!(refused.is_over());
        let ended = course(true, &[problem(ProblemKind::Missing), problem(ProblemKind::Zombie)]);
        assert_eq!(ended.refusal(), None, "a command that ends before it is looked at is no failure");
    }

    /// Guarantees: what becomes of a process that a command started says nothing about the command.
    #[test]
    fn what_a_command_started() {
        let other = attached_for(TargetId(1), 2);
        let events = [attached(1), other, detached(2, Detached::Executed)];
        assert!(!course(true, &events).is_executing());
        let missing = Problem { target: TargetId(1), pid: None, kind: ProblemKind::Missing, message: String::new() };
        assert_eq!(course(true, &[Event::Problem(missing)]).refusal(), None);
    }

    /// Guarantees: a run of a process goes on when the sampler process ended, until another one says that the process
    /// is gone.
    #[test]
    fn without_a_sampler_process() {
        let mut lost = course(false, &[attached(1)]);
        lost.lose();
        assert!(!lost.is_over() && !lost.is_attached());
        let mut found = course(false, &[attached(1)]);
        found.lose();
        found.hear(&attached(2));
        assert!(!found.is_over());
        found.hear(&detached(2, Detached::Exited));
        assert!(found.is_over());
        lost.hear(&problem(ProblemKind::Missing));
        assert!(lost.is_over());
    }
}
