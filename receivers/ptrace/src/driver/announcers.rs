//! Notices targets that are sampled only while a root span is open, but for which nobody announces spans.
//!
//! With `profile_lifecycle: trace`, such a target is never sampled, and nothing else would report that.

use std::collections::HashMap;
use std::time::Duration;

use profbridge_sampler::message::TargetId;
use tokio::time::Instant;

/// How long a target may have had a process before a span has to be announced for it.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Whether a span was announced for a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Announcement {
    /// It has had a process since this moment, and no span was announced.
    AwaitedSince(Instant),
    /// A span was announced, or the missing announcement was reported.
    Settled,
}

/// The targets that wait for an announcer.
#[derive(Debug, Default)]
pub(super) struct Announcers(HashMap<TargetId, Announcement>);

impl Announcers {
    /// A process was found of a target whose sampling is decided by spans.
    pub(super) fn found(&mut self, target: TargetId, now: Instant) {
        self.0.entry(target).or_insert(Announcement::AwaitedSince(now));
    }

    /// A span was announced for a target, with whatever decision.
    pub(super) fn announced(&mut self, target: TargetId) {
        self.0.insert(target, Announcement::Settled);
    }

    /// When the next target will have waited for too long.
    pub(super) fn due(&self) -> Option<Instant> {
        let due = |state: &Announcement| match state {
            Announcement::AwaitedSince(since) => Some(*since + PATIENCE),
            Announcement::Settled => None,
        };
        self.0.values().filter_map(due).min()
    }

    /// The targets that have waited for too long, each once.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<TargetId> {
        let waits = |(target, state): (&TargetId, &mut Announcement)| match state {
            Announcement::AwaitedSince(since) if *since + PATIENCE <= now => {
                *state = Announcement::Settled;
                Some(*target)
            }
            _ => None,
        };
        let mut due: Vec<TargetId> = self.0.iter_mut().filter_map(waits).collect();
        due.sort_unstable();
        due
    }
}
