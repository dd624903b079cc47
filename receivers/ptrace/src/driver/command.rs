//! Recognizes the process of a command again after its sampler process was replaced.

use profbridge_sampler::message::Process;

/// The process of a command.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommandProcess {
    pub(super) pid: u32,
    start_unix_nano: u64,
    exec_id: u64,
}

impl CommandProcess {
    pub(super) fn of(process: &Process) -> Self {
        Self { pid: process.pid, start_unix_nano: process.start_unix_nano, exec_id: process.exec_id }
    }

    /// Whether two descriptions are of the same process. A command may execute another program, which changes its exec
    /// id but not its start; and the computed start moves with the wall clock, which does not change the exec id. The
    /// start is computed from a clock of 10 ms and the time of the boot.
    pub(super) fn is_same(self, other: Self) -> bool {
        let started_together = self.start_unix_nano.abs_diff(other.start_unix_nano) < 1_000_000_000;
        self.pid == other.pid && (started_together || self.exec_id == other.exec_id)
    }
}
