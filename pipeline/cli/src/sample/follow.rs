//! What a command started to do the work: `timeout`, `time`, or a shell with a script, wait for the one process that
//! they start, and that one is sampled as well, under its own name. Whoever has several children, or does something
//! beside waiting, is no such wrapper.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use profbridge_sampler::awaited_child;
use profbridge_sampler::message::TargetId;

/// So many processes of a run are followed: a script that starts a thousand programs one after the other is not worth
/// as many readings of unwind tables.
const MOST: u32 = 64;

/// So long may a chain of wrappers be.
const DEPTH: usize = 8;

/// How often is looked, at first and later. Work that takes less is not worth it.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(100));

/// For how long it is the first of them.
const EARLY: Duration = Duration::from_secs(2);

/// The processes that are followed.
#[derive(Debug)]
pub(super) struct Follow {
    started: Instant,
    next_look: Instant,
    followed: u32,
    sampled: bool,
    targets: HashMap<u32, TargetId>,
}

impl Follow {
    /// None yet.
    pub(super) fn new(now: Instant) -> Self {
        Self { started: now, next_look: now, followed: 0, sampled: false, targets: HashMap::new() }
    }

    /// When is looked next.
    pub(super) fn pause(&self, now: Instant) -> Duration {
        if now.saturating_duration_since(self.started) < EARLY { PAUSES.0 } else { PAUSES.1 }
    }

    /// Looks at what a command does, if it is time to. Returns the processes that are to be sampled from now on.
    pub(super) fn look(&mut self, command: u32, now: Instant) -> Vec<(TargetId, u32)> {
        if now < self.next_look {
            return Vec::new();
        }
        self.next_look = now + self.pause(now);
        self.find(command, awaited_child)
    }

    fn find(&mut self, command: u32, child_of: impl Fn(u32) -> Option<u32>) -> Vec<(TargetId, u32)> {
        let mut found = Vec::new();
        let mut process = command;
        for _ in 0..DEPTH {
            let Some(child) = child_of(process) else { break };
            if !self.targets.contains_key(&child) {
                if self.followed == MOST {
                    break;
                }
                self.followed += 1;
                // The command itself is the first target.
                let target = TargetId(self.followed);
                self.targets.insert(child, target);
                found.push((target, child));
            }
            process = child;
        }
        found
    }

    /// One of them is sampled: the others may be refused, as by Yama.
    pub(super) fn found(&mut self) {
        self.sampled = true;
    }

    /// Whether any of them was sampled.
    pub(super) fn any(&self) -> bool {
        self.sampled
    }

    /// The targets that the sampler process may know.
    pub(super) fn targets(&self) -> impl Iterator<Item = TargetId> + use<> {
        (1..=self.followed).map(TargetId)
    }

    /// A process ended: its id may come again.
    pub(super) fn ended(&mut self, process: u32) {
        self.targets.remove(&process);
    }

    /// The sampler process knows none of them any more.
    pub(super) fn start_over(&mut self) {
        self.targets.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: what a chain of wrappers leads to is followed, each process once, and again when its id comes again;
    /// a chain that leads back to itself ends.
    #[test]
    fn chains() {
        let mut follow = Follow::new(Instant::now());
        let chain = |process: u32| match process {
            7 => Some(8),
            8 => Some(9),
            _ => None,
        };
        assert_eq!(follow.find(7, chain), [(TargetId(1), 8), (TargetId(2), 9)]);
        assert!(!follow.any());
        follow.found();
        assert!(follow.any());
        assert_eq!(follow.find(7, chain), []);
        follow.ended(9);
        assert_eq!(follow.find(7, chain), [(TargetId(3), 9)]);
        follow.start_over();
        assert_eq!(follow.find(7, chain), [(TargetId(4), 8), (TargetId(5), 9)]);
        assert_eq!(follow.find(1, |_| Some(1)), [(TargetId(6), 1)]);
    }

    /// Guarantees: of a script that starts programs without end only the first ones are followed.
    #[test]
    fn no_more_than_so_many() {
        let mut follow = Follow::new(Instant::now());
        let found: usize =
            (100..400).map(|child| follow.find(7, |process| (process == 7).then_some(child)).len()).sum();
        assert_eq!(found, MOST as usize);
    }
}
