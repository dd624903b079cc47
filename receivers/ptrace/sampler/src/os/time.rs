//! The clocks that each tick reads.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// The CPU time of the calling thread.
pub(crate) fn thread_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Now, in nanoseconds since the Unix epoch.
pub(crate) fn unix_nano() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// The current time on both clocks: `Instant` uses the same clock as perf records, but cannot be created from a number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockPair {
    now: Instant,
    monotonic: Duration,
}

impl ClockPair {
    /// Reads both clocks.
    pub(crate) fn now() -> Self {
        let now = Instant::now();
        Self { now, monotonic: clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from) }
    }

    /// Converts a time of CLOCK_MONOTONIC, in nanoseconds.
    pub(crate) fn instant_of(self, nano: u64) -> Instant {
        let Self { now, monotonic } = self;
        let nano = Duration::from_nanos(nano);
        match monotonic.checked_sub(nano) {
            Some(before) => now.checked_sub(before).unwrap_or(now),
            None => now.checked_add(nano.saturating_sub(monotonic)).unwrap_or(now),
        }
    }
}

/// The CPU time of a process in nanoseconds, including ended threads; `None` if there is no such process.
pub(crate) fn cpu_of(pid: u32) -> Option<u64> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?);
    let clock = clock_getcpuclockid(pid).ok()?;
    let time = Duration::from(clock_gettime(clock).ok()?);
    u64::try_from(time.as_nanos()).ok()
}

/// The CPU time of this process.
pub(crate) fn process_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
