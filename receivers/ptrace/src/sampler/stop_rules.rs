//! When threads of a process may be stopped at all, so that a debugger can attach at any time.
//!
//! A thread has one tracer: whoever wants to attach to one that is leased is refused. So no process has more than one thread leased at a time and none for more
//! than a hundredth of the time; and where somebody else traces it, or the kernel refuses a stop, nothing of it is asked to stop for a while.
//!
//! There is no clock in here: who asks says what the time is.

use std::time::{Duration, Instant};

/// Nothing is asked to stop for so long after a refusal, or once another tracer was seen.
pub(super) const SILENCE: Duration = Duration::from_secs(5);

/// Leases take at most one of so many parts of the time.
const PARTS: u32 = 100;

/// What may be saved up for leases while there is none.
const MOST_SAVED: Duration = Duration::from_millis(2);

/// What is owed after a lease that took long, at most: five seconds without another one. A thread that waits for a processor stops when it gets one.
const MOST_OWED: Duration = Duration::from_millis(50);

/// The rules for one process.
#[derive(Debug, Clone, Copy)]
pub(super) struct StopRules {
    /// Whether leases are rationed: not where stops were asked for in so many words.
    rationed: bool,
    silent_until: Option<Instant>,
    /// How many threads are leased, and since when there is any.
    leased: u32,
    since: Instant,
    /// What is there for leases, at a moment.
    saved: Duration,
    owed: Duration,
    at: Instant,
}

impl StopRules {
    pub(super) fn new(rationed: bool, now: Instant) -> Self {
        Self { rationed, silent_until: None, leased: 0, since: now, saved: MOST_SAVED, owed: Duration::ZERO, at: now }
    }

    /// Whether threads may be asked to stop one after the other only.
    pub(super) fn is_rationed(&self) -> bool {
        self.rationed
    }

    /// Whether somebody else is to be let in.
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
        self.leased == 0 && self.owed.is_zero() && !self.saved.is_zero()
    }

    /// A thread was asked to stop.
    pub(super) fn asked(&mut self, now: Instant) {
        if self.leased == 0 {
            self.since = now;
        }
        self.leased += 1;
    }

    /// A thread that had been asked to stop was let go, or ended.
    pub(super) fn returned(&mut self, now: Instant) {
        self.leased = self.leased.saturating_sub(1);
        if self.leased > 0 {
            return;
        }
        let took = now.saturating_duration_since(self.since);
        let paid = took.min(self.saved);
        self.saved -= paid;
        self.owed = (self.owed + (took - paid)).min(MOST_OWED);
    }

    /// A stop was refused, or another tracer was seen.
    pub(super) fn be_silent(&mut self, now: Instant) {
        self.silent_until = now.checked_add(SILENCE);
    }
}

#[cfg(test)]
mod tests;
