//! The processes of a run with their times: a command that only starts another one does not do the work.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::shares::Side;
use crate::terminal;

/// At most this many processes have separate functions: a run may start any number.
const MOST_WITH_FUNCTIONS: usize = 64;

/// The time of one process.
#[derive(Debug, Default)]
pub(crate) struct ProcessShare {
    /// Its id.
    pub(crate) pid: u32,
    /// Its name and its id.
    pub(crate) label: String,
    /// How long its threads ran, in nanoseconds.
    pub(crate) running_nano: u64,
    /// How long its threads were blocked, in nanoseconds.
    pub(crate) waiting_nano: u64,
    /// The functions in which they ran; `None` if there are too many processes.
    pub(crate) running: Option<Side>,
}

/// All processes, in the order of their discovery.
#[derive(Debug, Default)]
pub(crate) struct ProcessShares(Vec<ProcessShare>);

impl ProcessShares {
    /// The sums by function for the running time of one process.
    pub(crate) fn running(&mut self, pid: u32, label: &str) -> Option<&mut Side> {
        self.of(pid, label).running.as_mut()
    }

    fn of(&mut self, pid: u32, label: &str) -> &mut ProcessShare {
        let at = self.0.iter().position(|share| share.label == label).unwrap_or_else(|| {
            let running = (self.0.len() < MOST_WITH_FUNCTIONS).then(Side::default);
            self.0.push(ProcessShare { pid, label: label.to_owned(), running, ..ProcessShare::default() });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// Adds time of a process.
    pub(crate) fn add(&mut self, pid: u32, label: &str, running_nano: u64, waiting_nano: u64) {
        let share = self.of(pid, label);
        share.running_nano = share.running_nano.saturating_add(running_nano);
        share.waiting_nano = share.waiting_nano.saturating_add(waiting_nano);
    }

    /// The processes by running time, then by waiting time, both descending. Programs that one process executed stay
    /// together, the last one first, since the others only led to it.
    pub(crate) fn sorted(&self) -> Vec<&ProcessShare> {
        let mut of_pid = HashMap::<u32, (u64, u64)>::new();
        for share in &self.0 {
            let (running, waiting) = of_pid.entry(share.pid).or_default();
            *running = running.saturating_add(share.running_nano);
            *waiting = waiting.saturating_add(share.waiting_nano);
        }
        let mut shares: Vec<(usize, &ProcessShare)> = self.0.iter().enumerate().collect();
        shares.sort_by_key(|(at, share)| (Reverse(of_pid.get(&share.pid)), share.pid, Reverse(*at)));
        shares.into_iter().map(|(_, share)| share).collect()
    }

    /// The title of a graph of all processes: the one that did the work, and the number of others.
    pub(crate) fn title(&self) -> Option<String> {
        let sorted = self.sorted();
        let first = &sorted.first()?.label;
        let others = sorted.chunk_by(|one, next| one.pid == next.pid).count() - 1;
        Some(terminal::with_others(first, others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the process that ran comes first, however long another one waited for it.
    #[test]
    fn the_one_that_works() {
        let mut shares = ProcessShares::default();
        assert_eq!(shares.title(), None);
        shares.add(7, "timeout (pid 7)", 1, 900);
        assert_eq!(shares.title().as_deref(), Some("timeout (pid 7)"));
        shares.add(8, "work (pid 8)", 400, 1);
        shares.add(8, "work (pid 8)", 400, 0);
        assert_eq!(shares.title().as_deref(), Some("work (pid 8) and one more process"));
        shares.add(9, "idle (pid 9)", 0, 1);
        assert_eq!(shares.title().as_deref(), Some("work (pid 8) and 2 more processes"));
        let labels: Vec<&str> = shares.sorted().iter().map(|share| share.label.as_str()).collect();
        assert_eq!(labels, ["work (pid 8)", "timeout (pid 7)", "idle (pid 9)"]);
        assert_eq!((shares.sorted()[0].running_nano, shares.sorted()[0].waiting_nano), (800, 1));
    }

    /// Guarantees: the last program that a process executed comes before its wrappers, however long these ran, and they
    /// do not count as further processes; a different process that ran longer still comes first.
    #[test]
    fn the_program_before_its_wrappers() {
        let mut shares = ProcessShares::default();
        shares.add(7, "env (pid 7)", 10, 0);
        shares.add(7, "bash (pid 7)", 300, 20);
        shares.add(7, "python3.11 (pid 7)", 2, 5_000);
        assert_eq!(shares.title().as_deref(), Some("python3.11 (pid 7)"));
        let labels = |shares: &ProcessShares| shares.sorted().iter().map(|of| of.label.clone()).collect::<Vec<_>>();
        assert_eq!(labels(&shares), ["python3.11 (pid 7)", "bash (pid 7)", "env (pid 7)"]);
        shares.add(8, "worker (pid 8)", 313, 0);
        assert_eq!(labels(&shares), ["worker (pid 8)", "python3.11 (pid 7)", "bash (pid 7)", "env (pid 7)"]);
        assert_eq!(shares.title().as_deref(), Some("worker (pid 8) and one more process"));
    }
}
