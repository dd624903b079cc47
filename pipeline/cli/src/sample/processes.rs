//! The processes of a run, each with its time: a command that starts another one is not what does the work.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::shares::Side;
use crate::terminal;

/// So many processes have their functions told apart: a run may start any number.
const MOST_WITH_FUNCTIONS: usize = 64;

/// The time of one process.
#[derive(Debug, Default)]
pub(crate) struct ProcessShare {
    /// Its id.
    pub(crate) pid: u32,
    /// Its name and its id.
    pub(crate) label: String,
    /// For how long its threads ran, in nanoseconds.
    pub(crate) running_nano: u64,
    /// For how long its threads were blocked, in nanoseconds.
    pub(crate) waiting_nano: u64,
    /// Where they ran; `None` where there are too many processes.
    pub(crate) running: Option<Side>,
}

/// All of them, in the order in which they were met.
#[derive(Debug, Default)]
pub(crate) struct ProcessShares(Vec<ProcessShare>);

impl ProcessShares {
    /// Where the running time of a process is added as well, by function.
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

    /// The one that ran longest comes first, and of those that did not run the one that waited longest. The programs
    /// that one process executed stand together, the last of them first: the others led to it.
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

    /// What a graph of all of them is called: the one that did the work, and how many there are beside it.
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

    /// Guarantees: the process that ran is named first, however long another one waited for it.
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

    /// Guarantees: a program that a process became is named before the wrappers that executed it, however long these
    /// ran, and they are no further processes; another process that ran longer comes first all the same.
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
