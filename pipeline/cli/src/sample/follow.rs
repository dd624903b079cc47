//! Finds the process that does the work for a command: `timeout`, `time`, or a shell with a script, wait for the one
//! process that they start, so this process is sampled as well, under its own name. A process with several children, or
//! one that does more than wait, is not such a wrapper.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use profbridge_sampler::awaited_children;
use profbridge_sampler::message::TargetId;

/// At most this many processes of a run are followed: for a script that starts a thousand programs one after the other,
/// it is not worth reading as many unwind tables.
const MOST: u32 = 64;

/// The maximum length of a chain of wrappers.
const DEPTH: usize = 8;

/// The polling interval, at first and later. Shorter work is not worth following.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(100));

/// How long the first interval applies.
const EARLY: Duration = Duration::from_secs(2);

/// A process that waited this long for several children does nothing else.
const SEVERAL: Duration = Duration::from_secs(1);

/// The processes that are followed.
#[derive(Debug)]
pub(super) struct FollowedProcesses {
    started: Instant,
    next_look: Instant,
    followed: u32,
    sampled: bool,
    targets: HashMap<u32, TargetId>,
    /// The last process of the chain waits for several children: their number, and since when every poll found it so.
    several: Option<(usize, Instant)>,
    hinted: bool,
}

impl FollowedProcesses {
    /// Starts with no process.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            started: now,
            next_look: now,
            followed: 0,
            sampled: false,
            targets: HashMap::new(),
            several: None,
            hinted: false,
        }
    }

    /// The time until the next poll.
    pub(super) fn pause(&self, now: Instant) -> Duration {
        if now.saturating_duration_since(self.started) < EARLY { PAUSES.0 } else { PAUSES.1 }
    }

    /// Polls the state of a command if it is time to. Returns the processes to sample from now on.
    pub(super) fn look(&mut self, command: u32, now: Instant) -> Vec<(TargetId, u32)> {
        if now < self.next_look {
            return Vec::new();
        }
        self.next_look = now + self.pause(now);
        self.find(command, now, awaited_children)
    }

    /// Returns once the number of children that the command, or its descendant, has waited for long enough to report
    /// it.
    pub(super) fn several(&mut self, now: Instant) -> Option<usize> {
        let (count, since) = self.several?;
        let long = now.saturating_duration_since(since) >= SEVERAL && !self.hinted;
        self.hinted |= long;
        long.then_some(count)
    }

    fn find(&mut self, command: u32, now: Instant, children: impl Fn(u32) -> Vec<u32>) -> Vec<(TargetId, u32)> {
        let mut found = Vec::new();
        let mut process = command;
        let before = self.several.take();
        for _ in 0..DEPTH {
            let child = match children(process)[..] {
                [] => break,
                [child] => child,
                ref several => {
                    self.several = Some((several.len(), before.map_or(now, |(_, since)| since)));
                    break;
                }
            };
            if !self.targets.contains_key(&child) {
                if self.followed == MOST {
                    break;
                }
                self.followed += 1;
                // Target 0 is the command itself.
                let target = TargetId(self.followed);
                self.targets.insert(child, target);
                found.push((target, child));
            }
            process = child;
        }
        found
    }

    /// Marks that one of them is sampled: the others may be refused, for example by Yama.
    pub(super) fn found(&mut self) {
        self.sampled = true;
    }

    /// Whether any of them was sampled.
    pub(super) fn any(&self) -> bool {
        self.sampled
    }

    /// The targets that the sampler process may have.
    pub(super) fn targets(&self) -> impl Iterator<Item = TargetId> + use<> {
        (1..=self.followed).map(TargetId)
    }

    /// A process ended, so its id may be reused.
    pub(super) fn ended(&mut self, process: u32) {
        self.targets.remove(&process);
    }

    /// The sampler process was restarted and knows none of them.
    pub(super) fn start_over(&mut self) {
        self.targets.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a chain of wrappers is followed to its end, each process once, and again when its id is reused; a
    /// chain that leads back to itself ends.
    #[test]
    fn chains() {
        let now = Instant::now();
        let mut follow = FollowedProcesses::new(now);
        let chain = |process: u32| match process {
            7 => vec![8],
            8 => vec![9],
            _ => Vec::new(),
        };
        assert_eq!(follow.find(7, now, chain), [(TargetId(1), 8), (TargetId(2), 9)]);
        assert!(!follow.any());
        follow.found();
        assert!(follow.any());
        assert_eq!(follow.find(7, now, chain), []);
        follow.ended(9);
        assert_eq!(follow.find(7, now, chain), [(TargetId(3), 9)]);
        follow.start_over();
        assert_eq!(follow.find(7, now, chain), [(TargetId(4), 8), (TargetId(5), 9)]);
        assert_eq!(follow.find(1, now, |_| vec![1]), [(TargetId(6), 1)]);
    }

    /// Guarantees: of a script that starts programs endlessly only the first ones are followed.
    #[test]
    fn no_more_than_so_many() {
        let now = Instant::now();
        let mut follow = FollowedProcesses::new(now);
        let only = |child: u32| move |process: u32| if process == 7 { vec![child] } else { Vec::new() };
        let found: usize = (100..400).map(|child| follow.find(7, now, only(child)).len()).sum();
        assert_eq!(found, MOST as usize);
    }

    /// Guarantees: a process that waits for several children for a second is reported once, also behind a wrapper; one
    /// that does so only now and then is not.
    #[test]
    fn several_children() {
        let now = Instant::now();
        let mut follow = FollowedProcesses::new(now);
        let behind = |process: u32| if process == 7 { vec![8] } else { vec![10, 11, 12] };
        let at = |milliseconds| now + Duration::from_millis(milliseconds);
        assert_eq!(follow.find(7, at(0), behind), [(TargetId(1), 8)]);
        assert_eq!(follow.several(at(900)), None);
        assert_eq!(follow.find(7, at(900), |_| Vec::new()), []);
        assert_eq!((follow.find(7, at(950), behind).len(), follow.several(at(1100))), (0, None));
        assert_eq!((follow.find(7, at(1800), behind).len(), follow.several(at(1800))), (0, None));
        assert_eq!((follow.find(7, at(1950), behind).len(), follow.several(at(1950))), (0, Some(3)));
        assert_eq!((follow.find(7, at(9000), behind).len(), follow.several(at(9000))), (0, None));
    }
}
