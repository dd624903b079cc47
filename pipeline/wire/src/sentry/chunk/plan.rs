//! Plans the samples of one chunk.
//!
//! Sentry attributes to a sample the time until the next sample of its thread, and nothing to the last one (observed
//! with `vroomrs` 0.1.24, which Sentry uses to read chunks). An observation represents a sampled time, its weight. So a
//! run of observations that are about a weight apart is kept unchanged, and a closing sample with an empty stack marks
//! the end of the run. [`ledger`](super::ledger) tracks the time of each thread and decides which gaps are closed.

use super::ledger::Ledger;
use super::limits::MIN_THREAD_SAMPLES;
use super::observe::Window;
use super::settings::LoneSamples;
use super::stamped::Stamped;
use super::timeline::{RowObservation, key, number, tick};

/// The number of the empty stack, which is the first in every chunk.
pub(super) const IDLE: u32 = 0;

/// One thread's samples in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlannedThread {
    /// The index of the thread's lane in the window.
    pub(super) lane: u32,
    /// The end of the thread's samples in [`ChunkPlan::samples`]; they start at the end of the preceding thread's.
    pub(super) end: usize,
    /// Number of the thread's samples with frames.
    pub(super) busy: u64,
}

/// The samples of one chunk, thread by thread.
#[derive(Debug, Default)]
pub(super) struct ChunkPlan {
    /// Keys of time and stack, with the chunk's stack numbers.
    pub(super) samples: Vec<u64>,
    pub(super) threads: Vec<PlannedThread>,
    /// The window's numbers of the chunk's stacks, without the empty stack, which is the first.
    pub(super) stacks: Vec<u32>,
    /// Number of samples of each of `stacks`.
    pub(super) uses: Vec<u32>,
    /// Number of observations covered by the plan.
    pub(super) observations: u64,
    pub(super) synthesized: u64,
    pub(super) coalesced: u64,
    /// Number of observations dropped because they are alone on their thread.
    pub(super) dropped: u64,
    /// Sampled time that is not shown, in ticks.
    pub(super) clipped: u64,
    /// The times of the first and the last sample.
    pub(super) first: u64,
    pub(super) last: u64,
    numbers: Stamped,
}

impl ChunkPlan {
    /// Heap size in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        self.samples.capacity() * size_of::<u64>()
            + self.threads.capacity() * size_of::<PlannedThread>()
            + (self.stacks.capacity() + self.uses.capacity()) * size_of::<u32>()
            + self.numbers.heap_bytes()
    }

    /// Starts a chunk.
    pub(super) fn begin(&mut self, window_stacks: usize) {
        self.samples.clear();
        self.threads.clear();
        self.stacks.clear();
        self.uses.clear();
        self.numbers.begin(window_stacks);
        (self.observations, self.synthesized, self.coalesced, self.dropped) = (0, 0, 0, 0);
        self.clipped = 0;
        (self.first, self.last) = (u64::MAX, 0);
    }

    /// Adds a thread's observations, sorted by time. No sample is later than `end`: the window's end, or the thread's
    /// next observation if that is in another chunk.
    pub(super) fn thread(&mut self, lane: u32, keys: &[u64], window: &Window, end: u64, lone: LoneSamples) {
        let (Some(&first), Some(&last)) = (keys.first(), keys.last()) else { return };
        let seen = window.seen.as_slice();
        let observations = window.observations(keys);
        self.observations += observations;
        self.synthesized += keys.len() as u64 - observations;
        if keys.len() == 1 && lone == LoneSamples::Drop {
            self.dropped += observations;
            self.synthesized -= 1 - observations;
            return;
        }
        let start = self.samples.len();
        let mut ledger = Ledger::default();
        let idle = match keys {
            [lone] => self.lone(*lone, seen, end),
            _ => self.run(keys, seen, &mut ledger),
        };
        let RowObservation { weight, exact, .. } = seen[number(last)];
        let until = tick(last) + ledger.last(weight, exact);
        let closed = until.min(end);
        self.clipped = self.clipped.saturating_add(ledger.clipped + (until - closed));
        self.samples.push(key(closed, IDLE));
        self.synthesized += 1;
        self.first = self.first.min(tick(first));
        self.last = self.last.max(closed);
        let written = (self.samples.len() - start) as u64;
        self.threads.push(PlannedThread { lane, end: self.samples.len(), busy: written - idle - 1 });
    }

    /// Adds a thread of a preserved chunk, see [`Window::read_kept`]. Relay drops threads with fewer than two samples
    /// with frames, and only checks the time of the others.
    pub(super) fn kept(&mut self, lane: u32, keys: &[u64]) {
        let mut busy = 0;
        for &observed in keys {
            let stack = (number(observed) as u32).checked_sub(1).map_or(IDLE, |stack| self.stack(stack));
            busy += u64::from(stack != IDLE);
            self.samples.push(key(tick(observed), stack));
        }
        if let (Some(&first), Some(&last), true) = (keys.first(), keys.last(), busy >= MIN_THREAD_SAMPLES) {
            (self.first, self.last) = (self.first.min(tick(first)), self.last.max(tick(last)));
        }
        self.observations += keys.len() as u64;
        self.threads.push(PlannedThread { lane, end: self.samples.len(), busy });
    }

    /// Plans a single observation as two samples that share its time, since Relay drops a thread with fewer than two
    /// samples with frames (getsentry/relay `relay-profiling/src/sample/v2.rs`).
    fn lone(&mut self, observation: u64, seen: &[RowObservation], end: u64) -> u64 {
        let (at, seen) = (tick(observation), seen[number(observation)]);
        let closed = (at + seen.weight).min(end);
        let stack = self.stack(seen.stack);
        self.samples.push(key(at, stack));
        let stack = self.stack(seen.stack);
        self.samples.push(key(at + (closed - at) / 2, stack));
        self.synthesized += 1;
        0
    }

    /// Plans the samples of a thread except for the last closing sample. Returns the number of idle samples.
    fn run(&mut self, keys: &[u64], seen: &[RowObservation], ledger: &mut Ledger) -> u64 {
        let mut idle = 0;
        // Whether the preceding observation belongs to the same run and has the same stack.
        let mut continues = false;
        let mut current = keys.first().map(|&first| (tick(first), seen[number(first)]));
        for next in keys.iter().skip(1).map(|&next| Some((tick(next), seen[number(next)]))).chain([None]) {
            let Some((at, what)) = current else { break };
            let closed = next.and_then(|(then, _)| ledger.gap(what.weight, then - at, what.exact));
            let same = closed.is_none() && next.is_some_and(|(_, next)| next.stack == what.stack);
            if continues && same && what.wall {
                // The thread is waiting: the samples at both ends of the run are enough.
                self.coalesced += 1;
            } else {
                let stack = self.stack(what.stack);
                self.samples.push(key(at, stack));
            }
            if let Some(owned) = closed {
                self.samples.push(key(at + owned, IDLE));
                self.synthesized += 1;
                idle += 1;
            }
            continues = same;
            current = next;
        }
        idle
    }

    /// Converts a stack number of the window to one of the chunk.
    #[inline]
    fn stack(&mut self, stack: u32) -> u32 {
        let number = match self.numbers.get(stack as usize) {
            Some(number) => number,
            None => {
                self.stacks.push(stack);
                self.uses.push(0);
                let number = self.stacks.len() as u32;
                self.numbers.set(stack as usize, number);
                number
            }
        };
        self.uses[number as usize - 1] += 1;
        number
    }

    /// Splits the only sample of each of these stacks, indexed from the chunk's first, into two that share its time.
    pub(super) fn halve(&mut self, stacks: &[bool]) {
        // The last sample of a thread is the closing one and has no frames, so a split sample always has a successor.
        let is_halved = |sample: u64, next: u64| {
            let stack = number(sample).checked_sub(1).and_then(|stack| stacks.get(stack));
            stack == Some(&true) && tick(next) - tick(sample) >= 2
        };
        let halved = self.samples.windows(2).filter(|pair| is_halved(pair[0], pair[1])).count();
        let mut from = self.samples.len();
        let mut to = from + halved;
        self.samples.resize(to, 0);
        for thread in (0..self.threads.len()).rev() {
            let start = thread.checked_sub(1).map_or(0, |before| self.threads[before].end);
            self.threads[thread].end = to;
            for at in (start..from).rev() {
                let sample = self.samples[at];
                if at + 1 < from && is_halved(sample, self.samples[to]) {
                    let middle = tick(sample) + (tick(self.samples[to]) - tick(sample)) / 2;
                    to -= 1;
                    self.samples[to] = key(middle, number(sample) as u32);
                    self.threads[thread].busy += 1;
                }
                to -= 1;
                self.samples[to] = sample;
            }
            from = start;
        }
        self.synthesized += halved as u64;
    }
}
