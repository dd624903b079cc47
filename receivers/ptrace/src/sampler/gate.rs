//! Whether a thread may be stopped where the kernel permits no perf events: only if it has spent nearly all of its time in its own code.
//!
//! A stop ends many system calls early that move much data (`dd` wrote a sixteenth of what it was asked to), and nobody can ask a running thread whether it is
//! in one. What the kernel tells is how much of a thread's time went into system calls so far. A thread that stays in its own code for two seconds of processor
//! time is stopped in a call by chance only, and when that happens it is left alone for a minute.
//!
//! There is no clock and no file in here: who asks says what was read, and when.

use std::time::{Duration, Instant};

use crate::probe::ProcessorTicks;

/// A thread has shown that it stays in its own code after so much processor time, in the kernel's clock ticks of 10 ms.
pub(super) const HISTORY: u64 = 200;

/// A thread that spends more than one of so many parts of its time in the kernel makes too many calls, or too long ones.
const KERNEL_PARTS: u64 = 50;

/// A tick in the kernel says nothing about shorter stretches of processor time than this: the kernel counts in whole ticks, and one is the least there is.
const SHORTEST: u64 = KERNEL_PARTS;

/// A thread of which a call was cut is not stopped for so long.
pub(super) const AFTER_A_CUT: Duration = Duration::from_secs(60);

/// What is known of one thread.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Gate {
    /// What had been counted when the stretch began that is judged next, and when it was read last; `None` before anything was read.
    read: Option<(ProcessorTicks, ProcessorTicks)>,
    open: bool,
    shut_until: Option<Instant>,
}

impl Gate {
    /// Whether nothing that could be read would open it now, so that nothing need be read.
    pub(super) fn is_shut(&self, now: Instant) -> bool {
        self.shut_until.is_some_and(|until| now < until)
    }

    /// The thread has used so much processor time by now. Returns whether it may be stopped.
    pub(super) fn saw(&mut self, ticks: ProcessorTicks, now: Instant) -> bool {
        if self.is_shut(now) {
            return false;
        }
        if self.shut_until.take().is_some() {
            // What it did meanwhile is no history: nobody looked.
            self.read = None;
        }
        let (since, before) = self.read.unwrap_or((ticks, ticks));
        self.read = Some((since, ticks));
        match (used(before, ticks), used(since, ticks)) {
            (Some(_), Some(all)) if all >= HISTORY => {
                self.open = true;
                self.read = Some((ticks, ticks));
            }
            (Some(_), Some(_)) => {}
            // It was in the kernel for too long, in the whole stretch or at its end.
            _ => *self = Self { read: Some((ticks, ticks)), ..Self::default() },
        }
        self.open
    }

    /// A stop found that it ended a system call early.
    pub(super) fn cut(&mut self, now: Instant) {
        *self = Self { shut_until: now.checked_add(AFTER_A_CUT), ..Self::default() };
    }
}

/// How much processor time a thread used between two readings, where it stayed in its own code. Counters that go back are those of another thread, or of a
/// kernel that corrects them: what they say is not relied on.
fn used(from: ProcessorTicks, to: ProcessorTicks) -> Option<u64> {
    let kernel = to.kernel.checked_sub(from.kernel)?;
    let all = to.user.checked_sub(from.user)?.saturating_add(kernel);
    (kernel.saturating_mul(KERNEL_PARTS) <= all.max(SHORTEST)).then_some(all)
}

#[cfg(test)]
mod tests;
