//! Fills the time without samples after a sampler process has ended.
//!
//! When a sampler process is killed, the data it has not sent is lost, about the last second. So a thread's gap lasts
//! from the end of its last received sample to the start of its first sample from the next sampler process. In wall
//! mode, where all time of a thread is accounted for, the gap becomes a sample of its own ([`Location::NO_SAMPLER`]).
//! In cpu mode it does not, since it is unknown how long the thread ran during the gap.

use std::collections::HashMap;

use crate::message::{Batch, Location, Mode, Sample, Stack, Trust};

/// The maximum number of threads tracked. If there are more, no gaps are filled.
const MOST_THREADS: usize = 1 << 16;

/// Old threads are removed when there are more than this, and more than twice as many as remained after the last
/// removal.
const FEW_THREADS: usize = 64;

/// Every living thread has a sample within this time, in nanoseconds: batches are sent about once a second.
const RECENT: u64 = 10_000_000_000;

/// The gaps in the samples of threads. They are threads of one process, or of several whose thread ids differ.
#[derive(Debug, Default)]
pub struct Gaps {
    /// The end of each thread's last sample, in nanoseconds since the Unix epoch.
    ends: HashMap<u32, u64>,
    /// The same for threads that have no sample since the last sampler process ended.
    open: HashMap<u32, u64>,
    /// The start of the current gap of all threads.
    since: Option<u64>,
    /// Until this time a thread id is assumed to belong to the same thread; later the kernel may have reused it.
    known_until: u64,
    /// The number of threads that remained after the last removal.
    left: usize,
    total_nano: u64,
    count: u32,
}

impl Gaps {
    /// Starts a gap because the sampler process ended. If nothing had been sampled yet, the gap starts at `begun`.
    pub fn open(&mut self, begun: u64) {
        self.count += 1;
        if self.since.is_none() {
            self.since = Some(self.ends.values().copied().max().unwrap_or(begun));
        }
        self.open.extend(std::mem::take(&mut self.ends));
    }

    /// Forgets all threads, because sampling was paused on request: no gap is filled across the pause.
    pub fn forget(&mut self) {
        *self = Self { total_nano: self.total_nano, count: self.count, ..Self::default() };
    }

    /// The number of threads tracked.
    pub fn threads(&self) -> usize {
        self.ends.len() + self.open.len()
    }

    /// Records the threads of a batch, and adds a sample for each thread whose gap ends in it. If this batch ends the
    /// gap of all threads, returns its length in nanoseconds.
    pub fn fill(&mut self, batch: &mut Batch) -> Option<u64> {
        let mut spans: HashMap<u32, (u64, u64)> = HashMap::new();
        for sample in &batch.samples {
            let end = sample.time_unix_nano.saturating_add(sample.weight_nano);
            let span = spans.entry(sample.thread).or_insert((sample.time_unix_nano, end));
            *span = (span.0.min(sample.time_unix_nano), span.1.max(end));
        }
        let first = spans.values().map(|(start, _)| *start).min()?;
        let ended = self.since.take().map(|since| first.saturating_sub(since));
        if let Some(gap) = ended {
            self.total_nano = self.total_nano.saturating_add(gap);
            self.known_until = first.saturating_add(RECENT);
        } else if first > self.known_until {
            self.open = HashMap::new();
        }
        let mut missing = Vec::new();
        for (&thread, &(start, end)) in &spans {
            let Some(id) = batch.threads.get(thread as usize).map(|thread| thread.id) else { continue };
            let gap = self
                .open
                .remove(&id)
                .filter(|from| batch.mode == Mode::Wall && *from < start && start <= self.known_until);
            if let Some(from) = gap {
                missing.push((thread, from, start - from));
            }
            let known = self.ends.entry(id).or_default();
            *known = end.max(*known);
        }
        add(batch, missing);
        self.forget_old();
        ended
    }

    /// Removes threads that are gone.
    fn forget_old(&mut self) {
        if self.ends.len() <= FEW_THREADS.max(2 * self.left) {
            return;
        }
        let newest = self.ends.values().copied().max().unwrap_or_default();
        self.ends.retain(|_, end| newest.saturating_sub(*end) < RECENT);
        if self.ends.len() > MOST_THREADS {
            self.ends.clear();
        }
        self.left = self.ends.len();
        self.ends.shrink_to(2 * self.left);
    }

    /// How many times the sampler process ended.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The total time without samples, in nanoseconds, if sampling ends at `now`.
    pub fn total_nano(&self, now: u64) -> u64 {
        self.total_nano + self.since.map_or(0, |since| now.saturating_sub(since))
    }
}

/// Adds samples for gaps (thread, start and length of each). These samples come first because they are the oldest.
fn add(batch: &mut Batch, missing: Vec<(u32, u64, u64)>) {
    if missing.is_empty() {
        return;
    }
    let index = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let (location, stack) = (index(batch.locations.len()), index(batch.stacks.len()));
    batch.locations.push(Location::NO_SAMPLER);
    batch.stacks.push(Stack { trust: Trust::Complete, locations: vec![location] });
    let sample = |(thread, time_unix_nano, weight_nano)| Sample {
        thread,
        stack,
        context: None,
        time_unix_nano,
        weight_nano,
        observations: 1,
        blocked: true,
    };
    batch.samples.splice(0..0, missing.into_iter().map(sample));
}

#[cfg(test)]
mod tests {
    use crate::message::Thread;

    use super::*;

    fn batch(mode: Mode, samples: &[(u32, u64, u64)]) -> Batch {
        let threads = [7, 8, 9].map(|id| Thread { id, ..Thread::default() }).to_vec();
        let sample = |&(thread, time_unix_nano, weight_nano): &(u32, u64, u64)| Sample {
            thread,
            time_unix_nano,
            weight_nano,
            observations: 1,
            ..Sample::default()
        };
        Batch {
            mode,
            threads,
            locations: vec![Location::default()],
            stacks: vec![Stack { trust: Trust::Complete, locations: vec![0] }],
            samples: samples.iter().map(sample).collect(),
            ..Batch::default()
        }
    }

    /// The gaps in a batch: thread, start, length.
    fn gaps_in(batch: &Batch) -> Vec<(u32, u64, u64)> {
        let is_gap = |sample: &&Sample| {
            batch.stacks[sample.stack as usize]
                .locations
                .iter()
                .any(|at| batch.locations[*at as usize] == Location::NO_SAMPLER)
        };
        let mut found: Vec<_> = batch
            .samples
            .iter()
            .filter(is_gap)
            .map(|sample| (sample.thread, sample.time_unix_nano, sample.weight_nano))
            .collect();
        found.sort_unstable();
        found
    }

    /// Guarantees: each thread that was sampled before and after the gap gets a sample for it, so that its time adds
    /// up; a thread that started or ended meanwhile gets none. The gap of the whole run lasts from the last sample of
    /// any thread to the first sample from the next sampler process.
    #[test]
    fn between_two_sampler_processes() {
        let mut gaps = Gaps::default();
        let mut before = batch(Mode::Wall, &[(0, 100, 10), (1, 50, 70), (0, 110, 5)]);
        assert_eq!(gaps.fill(&mut before), None);
        assert_eq!((gaps_in(&before), gaps.count(), gaps.total_nano(1000)), (vec![], 0, 0));
        gaps.open(1);
        assert_eq!((gaps.count(), gaps.total_nano(220)), (1, 100));
        let mut after = batch(Mode::Wall, &[(0, 200, 10), (0, 210, 10), (2, 205, 1)]);
        assert_eq!(gaps.fill(&mut after), Some(80));
        assert_eq!(gaps_in(&after), [(0, 115, 85)]);
        assert_eq!(after.samples[0].time_unix_nano, 115, "times of a thread ascend");
        let mut later = batch(Mode::Wall, &[(1, 230, 10)]);
        gaps.fill(&mut later);
        assert_eq!(gaps_in(&later), [(1, 120, 110)]);
        let mut another = batch(Mode::Wall, &[(0, 240 + 2 * RECENT, 10)]);
        gaps.open(1);
        gaps.fill(&mut batch(Mode::Wall, &[(1, 250, 10)]));
        gaps.fill(&mut another);
        assert_eq!(gaps_in(&another), [], "an id that comes again much later is another thread's");
        assert_eq!(gaps.total_nano(1000), 80 + 10);
    }

    /// Guarantees: in cpu mode no sample is made for the gap, but the gap of the run is still reported.
    #[test]
    fn on_the_processor() {
        let mut gaps = Gaps::default();
        gaps.fill(&mut batch(Mode::Cpu, &[(0, 100, 10)]));
        gaps.open(1);
        let mut after = batch(Mode::Cpu, &[(0, 200, 10)]);
        gaps.fill(&mut after);
        assert!(gaps_in(&after).is_empty());
        assert_eq!(gaps.total_nano(1000), 90);
    }

    /// Guarantees: if a sampler process ends before it sent anything, the gap begins at the start; if two end in a row,
    /// there is one gap; if none follows, the gap lasts to the end.
    #[test]
    fn ends_of_the_run() {
        let mut gaps = Gaps::default();
        gaps.open(40);
        gaps.open(40);
        gaps.fill(&mut batch(Mode::Wall, &[(0, 100, 10)]));
        assert_eq!((gaps.count(), gaps.total_nano(1000)), (2, 60));
        gaps.open(40);
        assert_eq!((gaps.count(), gaps.total_nano(1000)), (3, 60 + 890));
    }

    /// Guarantees: no gap is filled across a requested pause of sampling, whether a sampler process ended before or
    /// during it.
    #[test]
    fn not_across_a_pause() {
        for ended_before in [false, true] {
            let mut gaps = Gaps::default();
            gaps.fill(&mut batch(Mode::Wall, &[(0, 100, 10)]));
            if ended_before {
                gaps.open(1);
            }
            gaps.forget();
            if !ended_before {
                gaps.open(1);
            }
            let mut after = batch(Mode::Wall, &[(0, 200, 10)]);
            gaps.fill(&mut after);
            assert_eq!(gaps_in(&after), []);
            gaps.open(1);
            let mut next = batch(Mode::Wall, &[(0, 230, 10)]);
            gaps.fill(&mut next);
            assert_eq!(gaps_in(&next), [(0, 210, 20)], "the next gap is one again");
        }
    }

    /// Guarantees: if many threads start and end, those that may still be alive are tracked, and never more than the
    /// limit.
    #[test]
    fn threads_that_come_and_go() {
        let mut gaps = Gaps::default();
        let second = |second: u64, ids: std::ops::Range<u32>| Batch {
            samples: (0..ids.len() as u32)
                .map(|thread| Sample {
                    thread,
                    time_unix_nano: second * 1_000_000_000,
                    weight_nano: 1,
                    ..Sample::default()
                })
                .collect(),
            threads: ids.map(|id| Thread { id, ..Thread::default() }).collect(),
            ..Batch::default()
        };
        for number in 0..1000 {
            gaps.fill(&mut second(u64::from(number), number * 100..(number + 1) * 100));
        }
        assert!((1000..=2500).contains(&gaps.threads()), "{}", gaps.threads());
        gaps.open(1);
        gaps.fill(&mut second(1000, 0..1));
        gaps.fill(&mut second(1011, 0..1));
        assert_eq!(gaps.threads(), 1, "those that did not come again are gone");
        gaps.fill(&mut second(1011, 1..2 * MOST_THREADS as u32));
        assert!(gaps.threads() <= MOST_THREADS, "{}", gaps.threads());
    }
}
