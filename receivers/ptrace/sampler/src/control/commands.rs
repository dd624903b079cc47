//! The commands that were started for targets.

use std::ffi::OsString;

use crate::command::{self, Bond, CommandError};
use crate::control::Control;
use crate::message::{Detached, Event, ProblemKind, TargetId};
use crate::pidfd::PidFd;

/// The exit code that is reported if other code collected the real one.
const UNKNOWN_CODE: i32 = 255;

/// A command that is running, or that has ended and was not reported yet.
#[derive(Debug)]
pub(super) struct StartedCommand {
    pub(super) target: TargetId,
    pub(super) pid: u32,
    pub(super) process: PidFd,
    /// The exit code, once it has ended.
    pub(super) code: Option<i32>,
}

impl Control {
    /// Starts a target's command, and lets it run once everything is ready to sample its first instruction.
    pub(super) fn start_command(&mut self, target: TargetId, words: &[OsString]) {
        match command::start(words, self.inherited, Bond::None) {
            Ok((stopped, process)) => {
                let pid = stopped.pid();
                self.commands.push(StartedCommand { target, pid, process, code: None });
                self.attach_stopped(target, stopped);
            }
            Err(error) => {
                let (kind, message) = match &error {
                    CommandError::Refused => (ProblemKind::Permission, self.powers.explain_command(false)),
                    CommandError::Traced => (ProblemKind::Permission, self.powers.explain_command(true)),
                    error => (ProblemKind::Command, error.to_string()),
                };
                self.report(target, None, kind, message);
                self.outbox.push(Event::CommandEnded { target, code: error.shell_code() });
            }
        }
    }

    /// Collects the exit codes of commands that ended.
    pub(super) fn reap(&mut self) {
        for command in &mut self.commands {
            if command.code.is_none() {
                command.code = command.process.take_status().map(|status| status.shell_code().unwrap_or(UNKNOWN_CODE));
            }
        }
        self.notice_ends();
        self.report_ended_commands();
    }

    /// Reports the commands that ended and whose samples were all sent.
    pub(super) fn report_ended_commands(&mut self) {
        let (attached, outbox) = (&self.attached, &mut self.outbox);
        self.commands.retain(|command| {
            let Some(code) = command.code else { return true };
            if attached.values().any(|attached| attached.pid == command.pid) {
                return true;
            }
            outbox.push(Event::CommandEnded { target: command.target, code });
            false
        });
    }

    /// Detaches from the processes that ended.
    pub(super) fn notice_ends(&mut self) {
        for (id, attached) in &mut self.attached {
            if attached.ending.is_none() && attached.process.ended_within(std::time::Duration::ZERO) {
                attached.ending = Some(Detached::Exited);
                self.sampler.detach(*id);
            }
        }
    }
}
