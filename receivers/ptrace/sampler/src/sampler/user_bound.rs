//! The rule of `stops: user-bound`: where the kernel permits no perf events, a thread may be stopped only if it has
//! spent nearly all of its time in its own code.
//!
//! A stop ends many system calls early that move much data (`dd` wrote a sixteenth of what it was asked to), and it
//! cannot be found out whether a running thread is in such a call. What the kernel tells is how much of a thread's time
//! has gone into system calls so far. A thread that stayed in its own code for two seconds of processor time is rarely
//! in a call when it is stopped. When a stop does end a call early, the thread is not stopped again for a minute.
//!
//! Nothing in here reads a clock or a file: the caller says what was read, and when.

use std::time::{Duration, Instant};

use crate::probe::ProcessorTicks;

/// After this much processor time in its own code a thread may be stopped, in the kernel's clock ticks of 10 ms.
pub(super) const HISTORY: u64 = 200;

/// A thread that spends more than one part in this many of its time in the kernel makes too many calls, or too long
/// ones.
const KERNEL_PARTS: u64 = 50;

/// Stretches of processor time are judged as if they were at least this long, in ticks: the kernel counts whole ticks,
/// so that a single one in the kernel must not decide.
const SHORTEST: u64 = KERNEL_PARTS;

/// How long a thread is not stopped after a stop ended one of its calls early.
pub(super) const AFTER_A_CUT: Duration = Duration::from_secs(60);

/// What is known of one thread.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct UserBound {
    /// The counters at the beginning of the stretch that is judged next, and when they were read last; `None` before
    /// the first reading.
    read: Option<(ProcessorTicks, ProcessorTicks)>,
    verdict: Verdict,
}

/// Whether a thread may be stopped.
#[derive(Debug, Clone, Copy, Default)]
enum Verdict {
    /// Not until it has stayed in its own code for [`HISTORY`].
    #[default]
    Unproven,
    /// It may, because it stays in its own code.
    MayStop,
    /// Not before this moment, because a stop ended one of its calls early.
    BarredUntil(Instant),
}

impl UserBound {
    /// Whether the thread must not be stopped whatever its counters are, so that they need not be read.
    pub(super) fn is_barred(&self, now: Instant) -> bool {
        matches!(self.verdict, Verdict::BarredUntil(until) if now < until)
    }

    /// Notes how much processor time the thread has used by now. Returns whether it may be stopped.
    pub(super) fn saw(&mut self, ticks: ProcessorTicks, now: Instant) -> bool {
        if self.is_barred(now) {
            return false;
        }
        if matches!(self.verdict, Verdict::BarredUntil(_)) {
            // The counters were not read meanwhile, so the stretch before says nothing.
            *self = Self::default();
        }
        let (since, before) = self.read.unwrap_or((ticks, ticks));
        self.read = Some((since, ticks));
        match (used(before, ticks), used(since, ticks)) {
            (Some(_), Some(all)) if all >= HISTORY => {
                *self = Self { read: Some((ticks, ticks)), verdict: Verdict::MayStop };
            }
            (Some(_), Some(_)) => {}
            // It was in the kernel for too long, in the whole stretch or at its end.
            _ => *self = Self { read: Some((ticks, ticks)), verdict: Verdict::Unproven },
        }
        matches!(self.verdict, Verdict::MayStop)
    }

    /// A stop ended a system call of the thread early.
    pub(super) fn cut(&mut self, now: Instant) {
        let until = now.checked_add(AFTER_A_CUT);
        *self = Self { read: None, verdict: until.map_or(Verdict::Unproven, Verdict::BarredUntil) };
    }
}

/// How much processor time a thread used between two readings, in ticks; `None` where it did not stay in its own code,
/// or where a counter went back (because another thread has the id, or because the kernel corrected it).
fn used(from: ProcessorTicks, to: ProcessorTicks) -> Option<u64> {
    let kernel = to.kernel.checked_sub(from.kernel)?;
    let all = to.user.checked_sub(from.user)?.saturating_add(kernel);
    (kernel.saturating_mul(KERNEL_PARTS) <= all.max(SHORTEST)).then_some(all)
}

#[cfg(test)]
mod tests;
