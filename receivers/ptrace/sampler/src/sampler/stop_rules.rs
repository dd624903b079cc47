//! Decides when threads of a process may be stopped at all, so that a debugger can attach at any time.
//!
//! A thread has one tracer: while the sampler stops it, nobody else can attach to it. So at most one thread of a
//! process is asked to stop at a time, and stops take at most one hundredth of the time. If another process traces it,
//! or the kernel refuses a stop, none of its threads is asked to stop for a while.
//!
//! Nothing here reads a clock: the caller passes the time.

use std::time::{Duration, Instant};

/// How long no thread is asked to stop after a refusal, or after another tracer was found.
pub(super) const SILENCE: Duration = Duration::from_secs(5);

/// Stops take at most one part in this many of the time.
const PARTS: u32 = 100;

/// How much time for stops can be saved up while no thread is stopped.
const MOST_SAVED: Duration = Duration::from_millis(2);

/// The largest debt of time after a long stop: it is paid off by five seconds without a stop. A stop is long if the
/// thread has to wait for a processor before it can stop.
const MOST_OWED: Duration = Duration::from_millis(50);

/// The rules for stopping threads of one process.
#[derive(Debug, Clone, Copy)]
pub(super) struct StopRules {
    /// Whether stops are rationed, as with every setting except `stops: always`.
    rationed: bool,
    silent_until: Option<Instant>,
    /// How many threads were asked to stop and are not released yet, and since when there has been at least one.
    pending: u32,
    since: Instant,
    /// The time for stops that was saved up, and the debt, both at the time `at`.
    saved: Duration,
    owed: Duration,
    at: Instant,
}

impl StopRules {
    pub(super) fn new(rationed: bool, now: Instant) -> Self {
        Self { rationed, silent_until: None, pending: 0, since: now, saved: MOST_SAVED, owed: Duration::ZERO, at: now }
    }

    /// Whether threads may be asked to stop only one after the other.
    pub(super) fn is_rationed(&self) -> bool {
        self.rationed
    }

    /// Whether no thread may be stopped now, so that another tracer can attach.
    pub(super) fn is_silent(&self, now: Instant) -> bool {
        self.silent_until.is_some_and(|until| now < until)
    }

    /// Whether a thread may be asked to stop now.
    pub(super) fn may_ask(&mut self, now: Instant) -> bool {
        if self.is_silent(now) {
            return false;
        }
        if !self.rationed {
            return true;
        }
        let earned = now.saturating_duration_since(self.at) / PARTS;
        self.at = self.at.max(now);
        let paid = earned.min(self.owed);
        self.owed -= paid;
        self.saved = (self.saved + (earned - paid)).min(MOST_SAVED);
        self.pending == 0 && self.owed.is_zero() && !self.saved.is_zero()
    }

    /// Called when a thread was asked to stop.
    pub(super) fn asked(&mut self, now: Instant) {
        if self.pending == 0 {
            self.since = now;
        }
        self.pending += 1;
    }

    /// Called when a thread that was asked to stop was released, or ended.
    pub(super) fn stop_ended(&mut self, now: Instant) {
        self.pending = self.pending.saturating_sub(1);
        if self.pending > 0 {
            return;
        }
        let took = now.saturating_duration_since(self.since);
        let paid = took.min(self.saved);
        self.saved -= paid;
        self.owed = (self.owed + (took - paid)).min(MOST_OWED);
    }

    /// Called when a stop was refused, or another tracer was found.
    pub(super) fn pause_stops(&mut self, now: Instant) {
        self.silent_until = now.checked_add(SILENCE);
    }
}

#[cfg(test)]
mod tests;
