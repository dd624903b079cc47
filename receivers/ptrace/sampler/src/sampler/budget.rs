//! The budgets for sampling a process. When one is exceeded, the rate is halved, unless nearly everything was spent on
//! switch records, whose number does not depend on the rate. When there is room again, the rate is doubled.

use std::time::{Duration, Instant};

use crate::message::Settings;
use crate::os::time;

/// The lowest rate is the configured one divided by this.
const MOST: u64 = 64;

/// A stop that takes this long halves the rate at once: the machine is too busy to stop threads.
const LONG_STOP: Duration = Duration::from_millis(5);

/// The rate is raised after this many successive windows below the budget.
const PATIENCE: u32 = 4;

/// The rate is lowered only if at least this share of the processor time depends on the rate.
const HELPING: f64 = 0.25;

/// The budgets of one process.
#[derive(Debug)]
pub(super) struct SamplingBudget {
    max_cpu: f64,
    max_stopped: f64,
    since: Instant,
    cpu: Duration,
    /// The part of `cpu` that does not depend on the rate.
    fixed: Duration,
    longest_stop: Duration,
    stride: u64,
    calm: u32,
}

impl SamplingBudget {
    pub(super) fn new(settings: &Settings, now: Instant) -> Self {
        Self {
            max_cpu: settings.max_cpu,
            max_stopped: settings.max_stopped,
            since: now,
            cpu: Duration::ZERO,
            fixed: Duration::ZERO,
            longest_stop: Duration::ZERO,
            stride: 1,
            calm: 0,
        }
    }

    /// Restarts the current window: the cost of adding many threads at once is not the cost of sampling them.
    pub(super) fn restart(&mut self, now: Instant) {
        self.since = now;
        self.cpu = Duration::ZERO;
        self.fixed = Duration::ZERO;
        self.longest_stop = Duration::ZERO;
    }

    pub(super) fn spend(&mut self, cpu: Duration) {
        self.cpu += cpu;
    }

    /// Adds the cost of switch records, which does not depend on the rate: `threads` is the cost for the threads;
    /// `sampler` is the cost for the sampler, which is also charged as processor time.
    pub(super) fn spend_on_records(&mut self, threads: Duration, sampler: Duration) {
        self.fixed += threads + sampler;
        self.spend(threads);
    }

    pub(super) fn stopped(&mut self, length: Duration) {
        self.longest_stop = self.longest_stop.max(length);
    }

    /// Whether the window is long enough for the rate to change.
    pub(super) fn is_due(&self, now: Instant, window: Duration) -> bool {
        now.saturating_duration_since(self.since) >= window
    }

    /// Returns the new stride: one slot in this many has a tick. `stopped` is how long the thread that was stopped most
    /// in this window was stopped.
    pub(super) fn review(&mut self, now: Instant, stopped: Duration) -> u64 {
        let window = now.saturating_duration_since(self.since).as_secs_f64();
        let spent = self.cpu.as_secs_f64() / window / self.max_cpu;
        let fixed = self.fixed.as_secs_f64() / window / self.max_cpu;
        let held = stopped.as_secs_f64() / window / self.max_stopped;
        let load = spent.max(held);
        let helps = held > 1.0 || spent - fixed > HELPING * spent;
        if (load > 1.0 && helps) || self.longest_stop > LONG_STOP {
            self.stride = (self.stride * 2).min(MOST);
            self.calm = 0;
        } else if (2.0 * spent - fixed).max(2.0 * held) < 0.8 && self.stride > 1 {
            self.calm += 1;
            if self.calm == PATIENCE {
                self.stride /= 2;
                self.calm = 0;
            }
        } else {
            self.calm = 0;
        }
        self.restart(now);
        self.stride
    }
}

/// The sampler's average cost of reading the records of one switch from the rings.
#[derive(Debug, Default)]
pub(super) struct RecordCost {
    spent: Duration,
    switches: u32,
}

impl RecordCost {
    /// The average covers about this many switches.
    const SWITCHES: u32 = 10_000;

    /// Adds the time that it took to read the records of this many switches.
    pub(super) fn note(&mut self, spent: Duration, switches: usize) {
        if switches == 0 {
            return;
        }
        self.spent += spent;
        self.switches = self.switches.saturating_add(u32::try_from(switches).unwrap_or(u32::MAX));
        if self.switches > Self::SWITCHES {
            self.spent /= 2;
            self.switches /= 2;
        }
    }

    /// The average cost of one switch.
    pub(super) fn of_switch(&self) -> Duration {
        self.spent / self.switches.max(1)
    }
}

/// Measures the CPU time that the calling thread uses between calls.
#[derive(Debug, Default)]
pub(super) struct CpuMark(Duration);

impl CpuMark {
    pub(super) fn take(&mut self) -> Duration {
        let now = time::thread_cpu();
        now.saturating_sub(std::mem::replace(&mut self.0, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: each budget lowers the rate when it is exceeded; the rate is raised only after a while with room,
    /// and never falls below its minimum.
    #[test]
    fn rate_follows_cost() {
        let mut now = Instant::now();
        let window = Duration::from_millis(500);
        let settings = Settings { max_cpu: 0.1, max_stopped: 0.02, ..Settings::default() };
        let mut budget = SamplingBudget::new(&settings, now);
        let mut review = |budget: &mut SamplingBudget, cpu: u64, stopped: u64| {
            now += window;
            assert!(budget.is_due(now, window));
            budget.spend(Duration::from_millis(cpu));
            budget.review(now, Duration::from_millis(stopped))
        };
        assert_eq!(review(&mut budget, 49, 9), 1);
        assert_eq!(review(&mut budget, 51, 0), 2);
        assert_eq!(review(&mut budget, 0, 11), 4);
        budget.stopped(Duration::from_millis(6));
        assert_eq!(review(&mut budget, 0, 0), 8);
        assert_eq!(review(&mut budget, 30, 0), 8);
        for expected in [8, 8, 8, 4, 4, 4, 4, 2, 2, 2, 2, 1, 1] {
            assert_eq!(review(&mut budget, 10, 0), expected);
        }
        for _ in 0..20 {
            assert!(review(&mut budget, 500, 0) <= MOST);
        }
        // 45 of 60 % do not depend on the rate, so twice the rate would still be within the budget.
        for expected in [MOST, MOST, MOST, MOST / 2] {
            budget.spend_on_records(Duration::from_millis(12), Duration::from_micros(10_500));
            assert_eq!(review(&mut budget, 18, 0), expected);
        }
        assert_eq!(review(&mut budget, 30, 0), MOST / 2);
        // The budget is exceeded, but little of the cost depends on the rate.
        budget.spend_on_records(Duration::ZERO, Duration::from_millis(50));
        assert_eq!(review(&mut budget, 60, 0), MOST / 2);
        budget.spend_on_records(Duration::ZERO, Duration::from_millis(40));
        assert_eq!(review(&mut budget, 60, 0), MOST);
    }
}
