//! The processes of a run with their times: a command that only starts another one does not do the work.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use crate::terminal;
use crate::views::reading::State;
use crate::views::sums::Sums;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessTime {
    /// Its number in the sums.
    pub(crate) number: u32,
    /// Its id; 0 if unknown.
    pub(crate) pid: u32,
    /// Its name and its id.
    pub(crate) label: String,
    /// How long its threads ran, in nanoseconds.
    pub(crate) running_nano: u64,
    /// How long its threads were blocked, in nanoseconds.
    pub(crate) waiting_nano: u64,
}

/// The processes by running time, then by waiting time, both descending. Programs that one process executed stay
/// together, the last one first, since the others only led to it.
pub(crate) fn process_times(sums: &Sums) -> Vec<ProcessTime> {
    let times = sums.reading.processes.iter().enumerate().map(|(number, process)| {
        let number = number as u32;
        let time = |state| sums.total_of(state, number);
        ProcessTime {
            number,
            pid: process.pid.unwrap_or_default(),
            label: process.label.to_string(),
            running_nano: time(State::Running),
            waiting_nano: time(State::Waiting),
        }
    });
    sorted(times.collect())
}

/// Sorts processes that are in the order of their discovery.
fn sorted(times: Vec<ProcessTime>) -> Vec<ProcessTime> {
    let mut of_pid = HashMap::<u32, (u64, u64)>::new();
    for time in &times {
        let (running, waiting) = of_pid.entry(time.pid).or_default();
        *running = running.saturating_add(time.running_nano);
        *waiting = waiting.saturating_add(time.waiting_nano);
    }
    let mut times = times;
    times.sort_by_key(|time| (Reverse(of_pid.get(&time.pid).copied()), time.pid, Reverse(time.number)));
    times
}

/// The processor time of descendants, and those that used it by id and name, the largest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ChildrenTime {
    pub(crate) time: Duration,
    pub(crate) busy: Vec<(u32, String)>,
}

/// What the descendants of the requested processes used, by the ids of these, without those that were sampled: the work
/// of a wrapper is done in a child that is sampled, whose own children are not.
pub(crate) fn unsampled(
    of: HashMap<u32, ChildrenTime>,
    processes: &[ProcessTime],
    is_sampled: impl Fn(u32) -> bool,
) -> ChildrenTime {
    let sampled = processes.iter().filter(|process| !of.contains_key(&process.pid)).map(|process| process.running_nano);
    let sampled = Duration::from_nanos(sampled.sum());
    let time: Duration = of.values().map(|children| children.time).sum();
    let busy = of.into_values().flat_map(|children| children.busy).filter(|(pid, _)| !is_sampled(*pid));
    ChildrenTime { time: time.saturating_sub(sampled), busy: busy.collect() }
}

/// The title of a graph of all processes: the one that did the work, and the number of others.
pub(crate) fn title(sorted: &[ProcessTime]) -> Option<String> {
    let first = &sorted.first()?.label;
    let others = sorted.chunk_by(|one, next| one.pid == next.pid).count() - 1;
    Some(terminal::with_others(first, others))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes in the order of their discovery: id, name, running and waiting time.
    fn of(times: &[(u32, &str, u64, u64)]) -> Vec<ProcessTime> {
        let time = |(number, &(pid, label, running_nano, waiting_nano)): (usize, &(u32, &str, u64, u64))| ProcessTime {
            number: number as u32,
            pid,
            label: label.to_owned(),
            running_nano,
            waiting_nano,
        };
        sorted(times.iter().enumerate().map(time).collect())
    }

    /// Guarantees: of the time of descendants only what was not sampled counts. So the workers of a program are named
    /// that a wrapper started, and the program, which is sampled as well, is not.
    #[test]
    fn unsampled_children() {
        let named = |pids: &[u32]| pids.iter().map(|&pid| (pid, "work".to_owned())).collect::<Vec<_>>();
        let seconds = Duration::from_secs;
        let children = ChildrenTime { time: seconds(9), busy: named(&[10, 11, 8]) };
        let processes = of(&[(7, "bash", 1_000_000_000, 0), (8, "work", 2_000_000_000, 1)]);
        let left = unsampled(HashMap::from([(7, children)]), &processes, |pid| pid < 9);
        assert_eq!(left, ChildrenTime { time: seconds(7), busy: named(&[10, 11]) });
        assert_eq!(unsampled(HashMap::new(), &processes, |_| true), ChildrenTime::default());
    }

    /// Guarantees: the process that ran comes first, however long another one waited for it. The last program that a
    /// process executed comes before its wrappers, however long these ran, and they do not count as further processes.
    #[test]
    fn the_one_that_works() {
        assert_eq!(title(&[]), None);
        let times = of(&[(7, "timeout", 1, 900), (8, "work", 800, 1), (9, "idle", 0, 1)]);
        let labels = |times: &[ProcessTime]| times.iter().map(|time| time.label.clone()).collect::<Vec<_>>();
        assert_eq!(labels(&times), ["work", "timeout", "idle"]);
        assert_eq!(title(&times).as_deref(), Some("work and 2 more processes"));
        let wrapped = [(7, "env", 10, 0), (7, "bash", 300, 20), (7, "python3.11", 2, 5_000)];
        let times = of(&wrapped);
        assert_eq!(labels(&times), ["python3.11", "bash", "env"]);
        assert_eq!(title(&times).as_deref(), Some("python3.11"));
        let times = of(&[&wrapped[..], &[(8, "worker", 313, 0)]].concat());
        assert_eq!(labels(&times), ["worker", "python3.11", "bash", "env"]);
        assert_eq!(title(&times).as_deref(), Some("worker and one more process"));
    }
}
