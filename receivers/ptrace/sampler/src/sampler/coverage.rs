//! Decides what the events of a process cover: each thread by itself, its whole control group, or the whole machine.
//!
//! An event of a thread costs the thread 2.5 microseconds at each context switch. An event of a processor costs 0.06 to
//! 0.08 microseconds, and samples new threads from their start, but it also samples all other processes that it covers:
//! each such sample costs them 20 to 46 microseconds, and is dropped. So the best coverage depends on the process's
//! share of the processor time.

use std::time::Duration;

/// What events cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Coverage {
    /// The threads of the process that run, each by its own event.
    #[default]
    Threads,
    /// The process's control group, by events of processors.
    Group,
    /// The whole machine, by events of processors.
    Machine,
}

/// How processors were used during some time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    /// The length of the measured time.
    pub(super) elapsed: Duration,
    /// The processor time of the process.
    pub(super) own: Duration,
    /// The processor time of the process's control group; `None` if it is in none.
    pub(super) group: Option<Duration>,
    /// The processor time of the whole machine.
    pub(super) machine: Duration,
    /// How many times per second the process's busiest thread was given a processor.
    pub(super) switches: u64,
    /// How many threads the process has.
    pub(super) threads: usize,
}

impl Usage {
    /// Whether the other processes of the machine used less than `times` as much as this process.
    fn others_below(&self, times: u32) -> bool {
        self.machine.saturating_sub(self.own) < self.own * times
    }
}

/// Which coverages are permitted besides that of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Permitted {
    /// Whether the process is in a control group whose events were not refused recently.
    pub(super) group: bool,
    /// Whether the sampler has the right to see everything on the machine, and events of the machine were not refused
    /// recently.
    pub(super) machine: bool,
}

impl Permitted {
    fn has(self, coverage: Coverage) -> bool {
        match coverage {
            Coverage::Threads => true,
            Coverage::Group => self.group,
            Coverage::Machine => self.machine,
        }
    }

    fn without(self, coverage: Coverage) -> Self {
        Self {
            group: self.group && coverage != Coverage::Group,
            machine: self.machine && coverage != Coverage::Machine,
        }
    }
}

/// A process that uses less than one part in this many of a processor is sampled by events of its threads.
const IDLE: u32 = 50;

/// The group is covered if it uses less than this many times as much as the process.
const GROUP: u32 = 4;

/// The whole machine is covered if all other processes together use less than this many times as much as the process.
const OTHERS: u32 = 8;

/// With more threads than this, each with an event on each processor, events of threads would cost too much.
pub(super) const THREADS: usize = 256;

/// If a thread has more switches per second than this, events of threads cost it more than 1 % of a processor.
const SWITCHES: u64 = 4_000;

impl Coverage {
    /// The best coverage for this usage. The current coverage is kept up to twice the limits, so that it does not
    /// change back and forth.
    fn next(self, usage: Usage, permitted: Permitted) -> Self {
        let Usage { elapsed, own, group, switches, .. } = usage;
        if own * IDLE < elapsed {
            return Self::Threads;
        }
        let patience = |coverage| if self == coverage { 2 } else { 1 };
        if permitted.group && group.is_some_and(|group| group < own * GROUP * patience(Self::Group)) {
            return Self::Group;
        }
        let patience = patience(Self::Machine);
        if permitted.machine
            && (usage.others_below(OTHERS * patience) || switches > SWITCHES || usage.threads > THREADS)
        {
            return Self::Machine;
        }
        Self::Threads
    }

    /// The coverage while the usage is not known: the current one; for a command that was just started, the machine,
    /// since its threads may end before they are examined.
    fn unknown(self, started: bool, permitted: Permitted) -> Self {
        let wanted = if started { Self::Machine } else { self };
        if permitted.has(wanted) { wanted } else { Self::Threads }
    }

    /// The next coverage: the best one that can be opened. If one cannot be opened, it counts as not permitted, and the
    /// next best is chosen by its own rules.
    pub(super) fn settle(
        self,
        usage: Option<Usage>,
        started: bool,
        mut permitted: Permitted,
        mut opens: impl FnMut(Self) -> bool,
    ) -> Self {
        loop {
            let wanted = match usage {
                Some(usage) => self.next(usage, permitted),
                None => self.unknown(started, permitted),
            };
            if wanted == Self::Threads || opens(wanted) {
                return wanted;
            }
            permitted = permitted.without(wanted);
        }
    }
}

/// The processor time used by all processes of the machine, from `/proc/stat` (proc_stat(5)), with this many clock
/// ticks per second.
pub(super) fn machine_cpu(stat: &str, ticks_per_second: u64) -> Option<Duration> {
    let mut fields = stat.strip_prefix("cpu ")?.lines().next()?.split_ascii_whitespace().map(str::parse::<u64>);
    let mut next = || fields.next()?.ok();
    // The two omitted fields are idle time and idle time with pending disk input or output.
    let (user, nice, system, _, _, hard, soft) = (next()?, next()?, next()?, next()?, next()?, next()?, next()?);
    let ticks = [user, nice, system, hard, soft].into_iter().fold(0, u64::saturating_add);
    Some(Duration::from_millis(ticks.saturating_mul(1000) / ticks_per_second.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    const ALL: Permitted = Permitted { group: true, machine: true };

    fn usage(own: f64, group: Option<f64>, machine: f64, switches: u64) -> Usage {
        let elapsed = seconds(1.0);
        let (own, group, machine) = (seconds(own), group.map(seconds), seconds(machine));
        Usage { elapsed, own, group, machine, switches, threads: 1 }
    }

    /// Guarantees: a process that uses most of a group or a machine is sampled by events of that group or machine; a
    /// process with a small share is sampled by events of its threads, unless the threads have too many switches or are
    /// too many.
    #[test]
    fn by_share() {
        let from_threads =
            |own, group, machine, switches| Coverage::Threads.next(usage(own, group, machine, switches), ALL);
        assert_eq!(from_threads(1.0, Some(1.1), 1.2, 0), Coverage::Group);
        assert_eq!(from_threads(1.0, Some(4.5), 5.0, 0), Coverage::Machine);
        assert_eq!(from_threads(1.0, None, 8.9, 0), Coverage::Machine);
        assert_eq!(from_threads(1.0, None, 9.1, 0), Coverage::Threads);
        assert_eq!(from_threads(1.0, Some(20.0), 30.0, 4_001), Coverage::Machine);
        assert_eq!(from_threads(0.0, Some(0.0), 0.0, 9_999), Coverage::Threads);
        let many = Usage { threads: THREADS + 1, ..usage(1.0, None, 30.0, 0) };
        assert_eq!(Coverage::Threads.next(many, ALL), Coverage::Machine);
    }

    /// Guarantees: the coverage does not change because other processes briefly use a little more.
    #[test]
    fn no_flapping() {
        assert_eq!(Coverage::Group.next(usage(1.0, Some(7.9), 50.0, 0), ALL), Coverage::Group);
        assert_eq!(Coverage::Group.next(usage(1.0, Some(8.1), 50.0, 0), ALL), Coverage::Threads);
        assert_eq!(Coverage::Machine.next(usage(1.0, None, 16.9, 0), ALL), Coverage::Machine);
        assert_eq!(Coverage::Machine.next(usage(1.0, None, 17.1, 0), ALL), Coverage::Threads);
    }

    /// Guarantees: a coverage that cannot be opened is replaced by the next one whose rules are fulfilled: the group by
    /// the machine, and the machine by threads. No coverage is tried twice, or without permission.
    #[test]
    fn what_opens() {
        let (busy, crowded) = (usage(1.0, Some(1.1), 1.2, 0), usage(1.0, Some(1.1), 50.0, 0));
        let (group, machine, threads) = (Coverage::Group, Coverage::Machine, Coverage::Threads);
        let without = |coverage| ALL.without(coverage);
        for (from, usage, started, permitted, opening, asked, settled) in [
            (threads, Some(busy), false, ALL, &[group, machine][..], &[group][..], group),
            (threads, Some(busy), false, ALL, &[machine], &[group, machine], machine),
            (threads, Some(busy), false, without(group), &[machine], &[machine], machine),
            (threads, Some(busy), false, ALL, &[], &[group, machine], threads),
            (threads, Some(crowded), false, ALL, &[machine], &[group], threads),
            (threads, Some(busy), false, without(group).without(machine), &[machine], &[], threads),
            (threads, None, false, ALL, &[machine], &[], threads),
            (threads, None, true, ALL, &[machine], &[machine], machine),
            (threads, None, true, without(machine), &[group, machine], &[], threads),
            (group, None, false, without(group), &[group], &[], threads),
            // The second decision for a command whose group's events cannot be opened.
            (machine, Some(busy), false, ALL, &[machine], &[group, machine], machine),
        ] {
            let mut tried = Vec::new();
            let opens = |coverage| {
                tried.push(coverage);
                opening.contains(&coverage)
            };
            let what = (from, usage, started, permitted, opening);
            assert_eq!(from.settle(usage, started, permitted, opens), settled, "{what:?}");
            assert_eq!(tried, asked, "{what:?}");
        }
    }

    /// Guarantees: the time of a machine is the time during which its processors were not idle, converted from clock
    /// ticks; malformed text gives none.
    #[test]
    fn machines() {
        let stat = "cpu  100 20 30 4000 500 6 7 800 9 10\ncpu0 1 2 3\n";
        assert_eq!(machine_cpu(stat, 100), Some(Duration::from_millis(1630)));
        for nonsense in ["", "cpu", "cpu 1 2 3", "cpu  1 2 3 4 5 6 x", "cpu0 1 2 3 4 5 6 7"] {
            assert_eq!(machine_cpu(nonsense, 100), None, "{nonsense}");
        }
        let this = std::fs::read_to_string("/proc/stat").unwrap();
        assert!(machine_cpu(&this, 100).unwrap() > Duration::ZERO);
    }
}
