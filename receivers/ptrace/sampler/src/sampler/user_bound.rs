//! The rule of `stops: user-bound`: if the kernel permits no perf events, a thread may be stopped only if it has spent
//! nearly all of its time in its own code.
//!
//! Many system calls that transfer much data return early if their thread is stopped (`dd` wrote a sixteenth of the
//! requested amount), and it is not possible to find out whether a running thread is in such a call. But the kernel
//! reports how much time a thread has spent in system calls so far. A thread that stayed in its own code for two
//! seconds of processor time is rarely in a call when it is stopped. If a stop does end a call early, the thread is not
//! stopped again for a minute.
//!
//! Nothing here reads a clock or a file: the caller passes the readings and the time.

use std::time::{Duration, Instant};

use crate::probe::ProcessorTicks;

/// A thread may be stopped after this much processor time in its own code, in the kernel's clock ticks of 10 ms.
pub(super) const HISTORY: u64 = 200;

/// A thread that spends more than one part in this many of its time in the kernel makes too many calls, or calls that
/// take too long.
const KERNEL_PARTS: u64 = 50;

/// Spans of CPU time shorter than this, in ticks, are judged as if they were this long. The kernel counts whole ticks,
/// so a single tick in the kernel must not decide.
const SHORTEST: u64 = KERNEL_PARTS;

/// How long a thread is not stopped after a stop ended one of its calls early.
pub(super) const AFTER_A_CUT: Duration = Duration::from_secs(60);

/// The CPU time history of one thread.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct UserBound {
    /// The counters at the beginning of the current span, and at the last reading; `None` before the first reading.
    read: Option<(ProcessorTicks, ProcessorTicks)>,
    verdict: StopVerdict,
}

/// Whether a thread may be stopped.
#[derive(Debug, Clone, Copy, Default)]
enum StopVerdict {
    /// Not until the thread has stayed in its own code for [`HISTORY`].
    #[default]
    Unproven,
    /// The thread may be stopped, because it stays in its own code.
    MayStop,
    /// Not before this moment, because a stop ended one of the thread's system calls early.
    BarredUntil(Instant),
}

impl UserBound {
    /// Whether the thread must not be stopped now whatever its counters are, so that they need not be read.
    pub(super) fn is_barred(&self, now: Instant) -> bool {
        matches!(self.verdict, StopVerdict::BarredUntil(until) if now < until)
    }

    /// Adds a reading of the thread's CPU time. Returns whether the thread may be stopped.
    pub(super) fn note_ticks(&mut self, ticks: ProcessorTicks, now: Instant) -> bool {
        if self.is_barred(now) {
            return false;
        }
        if matches!(self.verdict, StopVerdict::BarredUntil(_)) {
            // The counters were not read meanwhile, so the earlier history is of no use.
            *self = Self::default();
        }
        let (since, before) = self.read.unwrap_or((ticks, ticks));
        self.read = Some((since, ticks));
        match (used(before, ticks), used(since, ticks)) {
            (Some(_), Some(all)) if all >= HISTORY => {
                *self = Self { read: Some((ticks, ticks)), verdict: StopVerdict::MayStop };
            }
            (Some(_), Some(_)) => {}
            // The thread was in the kernel for too long, either over the whole span or at its end.
            _ => *self = Self { read: Some((ticks, ticks)), verdict: StopVerdict::Unproven },
        }
        matches!(self.verdict, StopVerdict::MayStop)
    }

    /// Called when a stop ended a system call of the thread early.
    pub(super) fn cut(&mut self, now: Instant) {
        let until = now.checked_add(AFTER_A_CUT);
        *self = Self { read: None, verdict: until.map_or(StopVerdict::Unproven, StopVerdict::BarredUntil) };
    }
}

/// The processor time that a thread used between two readings, in ticks. `None` if the thread did not stay in its own
/// code, or if a counter decreased (because another thread has the id now, or because the kernel corrected it).
fn used(from: ProcessorTicks, to: ProcessorTicks) -> Option<u64> {
    let kernel = to.kernel.checked_sub(from.kernel)?;
    let all = to.user.checked_sub(from.user)?.saturating_add(kernel);
    (kernel.saturating_mul(KERNEL_PARTS) <= all.max(SHORTEST)).then_some(all)
}

#[cfg(test)]
mod tests;
