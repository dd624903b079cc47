//! The sampler's own counters.

use std::collections::HashMap;

use profbridge_receiver_ptrace::counters::COUNTERS;
use profbridge_sampler::message::{Level, ProcessId, Status};

/// The counters of all processes of a run.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    of: HashMap<ProcessId, Status>,
    gone: Status,
    most_threads: u64,
}

impl Stats {
    /// Stores the newest counters of a process. They are totals, so they replace the previous ones.
    pub(crate) fn update(&mut self, status: Status) {
        self.of.insert(status.process, status);
        self.most_threads = self.most_threads.max(self.threads());
    }

    /// A process ended: its counters are final, and its threads no longer count.
    pub(crate) fn forget(&mut self, process: ProcessId) {
        if let Some(last) = self.of.remove(&process) {
            add(&mut self.gone, last);
        }
    }

    /// The sampler process ended, so the counters of all processes are final.
    pub(crate) fn forget_all(&mut self) {
        (self.gone, self.of) = (self.total(), HashMap::new());
    }

    /// The current number of threads.
    pub(crate) fn threads(&self) -> u64 {
        self.of.values().map(|status| status.threads).sum()
    }

    /// The current number of processes.
    pub(crate) fn processes(&self) -> usize {
        self.of.len()
    }

    /// The highest number of threads at one time.
    pub(crate) fn most_threads(&self) -> u64 {
        self.most_threads
    }

    /// The current rate: that of the slowest process, since each has its budget. `None` while nothing is sampled.
    pub(crate) fn rate_hertz(&self) -> Option<f64> {
        self.of.values().map(|status| status.rate_hertz).filter(|rate| *rate > 0.0).reduce(f64::min)
    }

    /// The sums over all processes. Rate and threads are not summed.
    pub(crate) fn total(&self) -> Status {
        let mut total = self.gone;
        self.of.values().for_each(|status| add(&mut total, *status));
        total
    }
}

/// Adds the counters of one process. The sampler's processor time is a single figure for all processes.
fn add(total: &mut Status, mut status: Status) {
    // The total has the lowest level of all. A process may end, or execute another program, before its level is known.
    total.level = match (total.level, status.level) {
        (Level::Undecided, level) | (level, Level::Undecided) => level,
        (total, level) => total.min(level),
    };
    for (_, counter) in COUNTERS {
        *counter(total) += *counter(&mut status);
    }
    total.observations += status.observations;
    total.lost_observations += status.lost_observations;
    total.longest_stop_nano = total.longest_stop_nano.max(status.longest_stop_nano);
    total.sampler_cpu_nano = total.sampler_cpu_nano.max(status.sampler_cpu_nano);
}

/// The share of complete stacks, in percent; `None` without stacks. Stacks without some callers are not complete.
pub(crate) fn complete_percent(status: &Status) -> Option<f64> {
    (status.observations > 0).then(|| status.complete as f64 * 100.0 / status.observations as f64)
}

/// The number of stacks of which some callers are not known.
pub(crate) fn without_callers(status: &Status) -> u64 {
    status.observations.saturating_sub(status.complete + status.truncated + status.guessed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(process: u64, observations: u64, threads: u64) -> Status {
        Status {
            process: ProcessId(process),
            observations,
            complete: observations,
            threads,
            rate_hertz: 100.0 - process as f64,
            sampler_cpu_nano: 10 * observations,
            longest_stop_nano: observations,
            ..Status::default()
        }
    }

    /// Guarantees: totals of one process replace each other, those of several add up, and an ended process keeps its
    /// counters but has no threads and no rate.
    #[test]
    fn totals() {
        let mut stats = Stats::default();
        assert_eq!(stats.rate_hertz(), None);
        stats.update(status(1, 10, 2));
        stats.update(status(1, 30, 2));
        stats.update(status(2, 5, 7));
        assert_eq!((stats.total().observations, stats.threads(), stats.rate_hertz()), (35, 9, Some(98.0)));
        stats.forget(ProcessId(2));
        stats.forget(ProcessId(2));
        let total = stats.total();
        assert_eq!((total.observations, total.longest_stop_nano, total.sampler_cpu_nano), (35, 30, 300));
        assert_eq!((stats.threads(), stats.most_threads(), stats.rate_hertz()), (2, 9, Some(99.0)));
    }

    /// Guarantees: the level of the total is the lowest of all processes, in any order, ignoring processes whose level
    /// was unknown when they ended.
    #[test]
    fn levels() {
        let with = |process, level| Status { level, ..status(process, 5, 1) };
        let [exec, user, kernel] = [with(1, Level::Undecided), with(2, Level::User), with(3, Level::Kernel)];
        let exec = Status { not_sampled_nano: 80_000_000, ..exec };
        let stopped = with(4, Level::None);
        for (statuses, level) in [
            (vec![exec, kernel], Level::Kernel),
            (vec![kernel, exec], Level::Kernel),
            (vec![user, exec, kernel], Level::User),
            (vec![kernel, user], Level::User),
            (vec![exec], Level::Undecided),
            (vec![kernel, stopped, exec], Level::None),
            (vec![stopped, kernel], Level::None),
        ] {
            let mut stats = Stats::default();
            for status in statuses {
                stats.update(status);
                stats.forget(status.process);
            }
            assert_eq!(stats.total().level, level);
        }
    }

    /// Guarantees: the share of complete stacks refers to all stacks, also those without some callers, and is unknown
    /// without any.
    #[test]
    fn complete() {
        assert_eq!(complete_percent(&Status::default()), None);
        let status = Status { observations: 4, complete: 3, truncated: 1, ..Status::default() };
        assert_eq!((complete_percent(&status), without_callers(&status)), (Some(75.0), 0));
        let status = Status { observations: 5, ..status };
        assert_eq!((complete_percent(&status), without_callers(&status)), (Some(60.0), 1));
    }
}
