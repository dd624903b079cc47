//! Detects targets that are sampled only while a root span is open, but for which nobody announces spans.
//!
//! With `profile_lifecycle: trace`, such a target is never sampled, and nothing else would report that.

use std::collections::HashMap;
use std::time::Duration;

use profbridge_sampler::message::TargetId;
use tokio::time::Instant;

/// How long a target may have had a process before a span has to be announced for it.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The targets that have had a process, each with the deadline for its first announced span. The deadline is `None` if
/// a span was announced, or its absence was reported.
#[derive(Debug, Default)]
pub(super) struct Announcers(HashMap<TargetId, Option<Instant>>);

impl Announcers {
    /// Called when a process was found that belongs to a target whose sampling is decided by spans.
    pub(super) fn found(&mut self, target: TargetId, now: Instant) {
        self.0.entry(target).or_insert(Some(now + PATIENCE));
    }

    /// Called when a span was announced for a target, with any decision.
    pub(super) fn announced(&mut self, target: TargetId) {
        self.0.insert(target, None);
    }

    /// The earliest deadline of all targets.
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.values().flatten().min().copied()
    }

    /// The targets that have passed their deadline, each once.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<TargetId> {
        let overdue = self.0.iter_mut().filter_map(|(target, due)| due.take_if(|due| *due <= now).map(|_| *target));
        let mut overdue: Vec<TargetId> = overdue.collect();
        overdue.sort_unstable();
        overdue
    }
}
