//! Finds what threads wait for in system calls on files and sockets, by examining some of them now and then. That costs
//! running threads nothing, see [`Descriptors`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use profbridge_sampler::Descriptors;

use crate::dump::thread_ids;
use crate::views::stacks::clean;

/// How often threads are examined, and how many at most each time, which takes a five-hundredth of a processor.
const PAUSE: Duration = Duration::from_millis(100);
const MOST_THREADS: usize = 64;

/// The most names that are distinguished.
const MOST_NAMES: usize = 1024;

/// How often threads were found to wait for a file or socket, by its name.
#[derive(Debug)]
pub(super) struct Awaited {
    descriptors: Descriptors,
    counts: HashMap<Arc<str>, u64>,
    next_look: Instant,
    /// The threads to examine next, with their processes.
    threads: Vec<(u32, u32)>,
}

impl Awaited {
    pub(super) fn new(now: Instant) -> Self {
        Self { descriptors: Descriptors::default(), counts: HashMap::new(), next_look: now, threads: Vec::new() }
    }

    /// Examines threads of these processes if it is time to.
    pub(super) fn look(&mut self, pids: impl Iterator<Item = u32>, now: Instant) {
        if now < self.next_look {
            return;
        }
        self.next_look = now + PAUSE;
        if self.threads.is_empty() {
            self.threads = pids.flat_map(|pid| thread_ids(pid).map(move |thread| (pid, thread))).collect();
        }
        let rest = self.threads.len().saturating_sub(MOST_THREADS);
        for (pid, thread) in self.threads.drain(rest..) {
            let Some(name) = self.descriptors.awaited_by(pid, thread) else { continue };
            if self.counts.len() < MOST_NAMES || self.counts.contains_key(&name) {
                *self.counts.entry(name).or_default() += 1;
            }
        }
    }

    /// The names with their numbers, the most frequent first.
    pub(super) fn most(&self) -> Vec<(String, u64)> {
        let mut all: Vec<_> = self.counts.iter().map(|(name, count)| (clean(name).into_string(), *count)).collect();
        all.sort_by(|(one, count), (other, than)| than.cmp(count).then_with(|| one.cmp(other)));
        all
    }
}
