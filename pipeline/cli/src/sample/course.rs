//! How a run goes: from what the sampler says to whether it is over.

use std::collections::HashSet;

use profbridge_ptrace::message::{Detached, Event, ProblemKind, ProcessId};

/// The course of a run.
#[derive(Debug, Default)]
pub(crate) struct Course {
    /// Whether a command was started for it.
    with_command: bool,
    attached: HashSet<ProcessId>,
    ever: bool,
    /// The process executed another program and was not found again yet.
    executing: bool,
    code: Option<i32>,
    refused: Option<(ProblemKind, String)>,
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
                self.executing = false;
            }
            Event::Detached { process, why } => {
                self.attached.remove(process);
                self.executing = *why == Detached::Executed;
            }
            Event::Problem(problem) if self.attached.is_empty() && refuses(problem.kind) => {
                self.executing = false;
                self.refused.get_or_insert((problem.kind, problem.message.clone()));
            }
            Event::CommandEnded { code, .. } => self.code = Some(*code),
            _ => {}
        }
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
        self.refused.as_ref().map(|(_, message)| message.as_str())
    }

    /// The command's exit code, once it has ended.
    pub(crate) fn exit_code(&self) -> Option<i32> {
        self.code
    }

    /// Whether the command could not even be started.
    pub(crate) fn never_started(&self) -> bool {
        matches!(self.refused, Some((ProblemKind::Command, _)))
    }

    /// Whether there is nothing left to sample, now and later.
    pub(crate) fn is_over(&self) -> bool {
        if self.is_attached() {
            return false;
        }
        match self.with_command {
            // A command that must not be sampled runs on all the same, and may execute another program that may be.
            true => self.code.is_some() || self.never_started(),
            false => !self.executing && (self.ever || self.refused.is_some()),
        }
    }
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
        | ProblemKind::Events => false,
    }
}

#[cfg(test)]
mod tests {
    use profbridge_ptrace::message::{Problem, Process, TargetId};

    use super::*;

    fn attached(number: u64) -> Event {
        Event::Attached(Box::new(Process {
            id: ProcessId(number),
            target: TargetId(0),
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

    const ENDED: Event = Event::CommandEnded { target: TargetId(0), code: 3 };

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

    /// Guarantees: what makes sampling impossible ends a run of a process, with the reason; what only makes it worse does not.
    #[test]
    fn problems() {
        let missing = course(false, &[problem(ProblemKind::Missing)]);
        assert!(missing.is_over() && !missing.ever_attached());
        assert_eq!(missing.refusal(), Some("Missing"));
        assert!(!course(false, &[problem(ProblemKind::Traced), attached(1)]).is_over());
        assert!(!course(false, &[problem(ProblemKind::Stopped)]).is_over());
        assert_eq!(course(false, &[attached(1), problem(ProblemKind::Internal)]).refusal(), None);
    }

    /// Guarantees: a run of a command ends when the command has ended and all its samples have arrived, or if it could not
    /// be started; a command that must not be sampled is waited for.
    #[test]
    fn a_command() {
        assert!(!course(true, &[attached(1), detached(1, Detached::Exited)]).is_over());
        assert!(!course(true, &[attached(1), ENDED]).is_over());
        let ended = course(true, &[attached(1), ENDED, detached(1, Detached::Exited)]);
        assert!(ended.is_over());
        assert_eq!(ended.exit_code(), Some(3));
        let unstarted = course(true, &[problem(ProblemKind::Command)]);
        assert!(unstarted.is_over() && unstarted.never_started());
        assert!(!course(true, &[problem(ProblemKind::Permission)]).is_over());
        assert!(course(true, &[problem(ProblemKind::Permission), ENDED]).is_over());
    }
}
