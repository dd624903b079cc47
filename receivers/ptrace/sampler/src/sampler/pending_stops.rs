//! The threads that were asked to stop and were not released yet.

use std::time::{Duration, Instant};

use hashbrown::HashMap;

use crate::message::ProcessId;
use crate::probe::SchedStat;

/// The maximum time between the moment when the sampling thread displaces another thread from its processor and its
/// first reading of a clock.
const WAKING: Duration = Duration::from_micros(50);

/// A thread that was asked to stop and was not released yet.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PendingStop {
    pub(super) process: ProcessId,
    /// Whether the thread was blocked, and is stopped for its registers.
    pub(super) blocked: bool,
    /// How many sampling periods the stop covers: more than one if the thread had to wait for its turn.
    pub(super) periods: u64,
    /// The state of the thread when it was asked to stop; `None` if the kernel maintains no such counters.
    pub(super) asked: Option<StopRequest>,
}

/// The state of a thread when it was asked to stop.
#[derive(Debug, Clone, Copy)]
pub(super) struct StopRequest {
    pub(super) sched: SchedStat,
    /// When the sampling thread woke up before it examined the thread.
    pub(super) woken: Instant,
}

impl StopRequest {
    /// Whether the counters at the stop prove that the thread was waiting for a processor, not running, when it was
    /// asked to stop. That it was given a processor since then is no proof, because the sampling thread itself
    /// displaces other threads: the wait must have begun before the sampling thread woke up.
    pub(super) fn was_queued(self, sched: SchedStat, stopped: Instant) -> bool {
        let waited = Duration::from_nanos(sched.wait_nano.saturating_sub(self.sched.wait_nano));
        let since_woken = stopped.saturating_duration_since(self.woken);
        sched.timeslices != self.sched.timeslices && waited > since_woken + WAKING
    }
}

/// Threads that were asked to stop, by their ids.
pub(super) type PendingStops = HashMap<u32, PendingStop, foldhash::fast::FixedState>;

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a stopped thread counts as having waited for a processor only if it was given one since then, and
    /// had waited longer than it could have been displaced by the sampling thread.
    #[test]
    fn queued_threads() {
        let woken = Instant::now();
        let sched = |wait_micros: u64, timeslices| SchedStat { run_nano: 1, wait_nano: wait_micros * 1000, timeslices };
        let asked = StopRequest { sched: sched(1_000, 7), woken };
        let stopped = woken + Duration::from_micros(200);
        for (now, queued) in [
            (sched(1_000, 7), false),
            (sched(9_000, 7), false),
            (sched(1_000, 8), false),
            (sched(1_250, 8), false),
            (sched(1_251, 8), true),
            (sched(9_000, 9), true),
        ] {
            assert_eq!(asked.was_queued(now, stopped), queued, "{now:?}");
        }
    }
}
