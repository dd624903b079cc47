//! Whether anybody announces root spans for the targets that are sampled only while one is open.
//!
//! With `profile_lifecycle: trace` a target that nobody announces spans for is never sampled, and nothing else would
//! say so.

use std::collections::HashMap;
use std::time::Duration;

use profbridge_ptrace::message::TargetId;
use tokio::time::Instant;

/// For so long a target may have a process before somebody announces a span for it.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// What is known of a target's announcers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It has had a process since then.
    Waits(Instant),
    /// A span was announced, or it was said that none was.
    Settled,
}

/// The targets that wait for an announcer.
#[derive(Debug, Default)]
pub(super) struct Announcers(HashMap<TargetId, State>);

impl Announcers {
    /// A process of a target was found whose spans decide when it is sampled.
    pub(super) fn found(&mut self, target: TargetId, now: Instant) {
        self.0.entry(target).or_insert(State::Waits(now));
    }

    /// A span was announced for a target, whatever was decided about it.
    pub(super) fn announced(&mut self, target: TargetId) {
        self.0.insert(target, State::Settled);
    }

    /// When the next target has waited for too long.
    pub(super) fn due(&self) -> Option<Instant> {
        let due = |state: &State| match state {
            State::Waits(since) => Some(*since + PATIENCE),
            State::Settled => None,
        };
        self.0.values().filter_map(due).min()
    }

    /// The targets that have waited for too long, each once.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<TargetId> {
        let waits = |(target, state): (&TargetId, &mut State)| match state {
            State::Waits(since) if *since + PATIENCE <= now => {
                *state = State::Settled;
                Some(*target)
            }
            _ => None,
        };
        let mut due: Vec<TargetId> = self.0.iter_mut().filter_map(waits).collect();
        due.sort_unstable();
        due
    }
}
