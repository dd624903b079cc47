//! Assigns the running time of threads that ran too little to be sampled, in processes with many threads.
//!
//! Events of processors take a sample for each period of running time, no matter which threads ran. If thousands of
//! threads run for microseconds at a time, hardly any of them has a sample, and a thread that has one ran for only a
//! small part of the sample's period. So a sample covers the running time of its own thread, and the rest of its period
//! covers threads without samples. The kernel's counters say how long those ran, and the samples of all threads
//! together say in which functions. This time is assigned to an artificial thread, since it is not known which of them
//! executed which function.

use std::time::Instant;

use super::Active;
use super::account::on_wall_clock;
use crate::message::{Location, Sample, Thread, Trust};
use crate::sampler::coverage::THREADS;
use crate::sampler::ledger::{MOST_SCALE, Shares, UNSAMPLED, WhatFollows};
use crate::sampler::states::RunningThreadMethod;

/// The name of the artificial thread.
const POOLED_THREADS: &str = "[threads sampled together]";

/// Running time of all threads together that was not assigned to samples yet.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// How long threads ran without a sample, in nanoseconds.
    pub(super) not_sampled: u64,
    /// The samples of the batch, by index, and for each the part of its period during which its own thread did not run,
    /// in nanoseconds.
    pub(super) left: Vec<(u32, u64)>,
    /// The start of the time to which these values belong.
    since: Option<Instant>,
}

impl Active {
    /// Whether threads without samples share the samples of other threads.
    pub(super) fn is_pooled(&self) -> bool {
        self.threads.len() > THREADS && matches!(self.watch, RunningThreadMethod::Group | RunningThreadMethod::Machine)
    }

    /// Divides the running time of threads without samples among the stacks of the other threads' samples. If the
    /// samples do not suffice, a small remainder is kept for the next batch; a large one, and any at the end, is
    /// reported as not sampled.
    pub(super) fn settle_pool(&mut self, now: Instant, next: WhatFollows) {
        let since = self.pool.since.replace(now).unwrap_or(now);
        let left = std::mem::take(&mut self.pool.left);
        let all = left.iter().fold(0_u64, |sum, (_, nano)| sum.saturating_add(*nano));
        let ran = std::mem::take(&mut self.pool.not_sampled);
        let known = ran.min(all.saturating_mul(MOST_SCALE));
        self.attached.status.pooled_nano += known;
        let mut rest = ran - known;
        if next == WhatFollows::Same && rest < self.event_period().saturating_mul(UNSAMPLED) {
            self.pool.not_sampled = std::mem::take(&mut rest);
        }
        if known + rest == 0 {
            return;
        }
        let mut by_stack: Vec<(u32, u64)> = Vec::new();
        let mut shares = Shares::new(known, all);
        for (sample, nano) in left {
            let (Some(stack), share) = (self.batch.stack_of(sample), shares.next(nano)) else { continue };
            match by_stack.iter_mut().find(|(of, _)| *of == stack) {
                Some((_, sum)) => *sum += share,
                None => by_stack.push((stack, share)),
            }
        }
        if rest > 0 {
            self.attached.status.not_sampled_nano += rest;
            by_stack.push((self.batch.add_stack(Trust::Complete, &[Location::NOT_SAMPLED]), rest));
        }
        let thread = self.batch.add_thread(Thread { name: POOLED_THREADS.to_owned(), ..Thread::default() });
        let mut time_unix_nano = on_wall_clock(self.epoch, since);
        for (stack, weight_nano) in by_stack {
            let sample = Sample { thread, stack, time_unix_nano, weight_nano, observations: 1, ..Sample::default() };
            self.batch.add_sample(sample);
            time_unix_nano = time_unix_nano.saturating_add(weight_nano);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::processors::tests::engine;

    /// Guarantees: running time without samples is divided among the samples of the other threads in proportion to the
    /// unused parts of their periods, up to twice these; a small remainder is kept for the next batch, and at the end
    /// it is reported without a function.
    #[test]
    fn shared_samples() {
        let now = Instant::now();
        let mut engine = engine(std::process::id(), &|| {}, now, false);
        let process = &mut engine.processes[0];
        let mut pooled = |ran, next| {
            let stacks = [1, 2].map(|address| {
                let location = Location::Native { mapping: None, address };
                process.batch.add_stack(Trust::Complete, &[location])
            });
            let samples = [stacks[0], stacks[1], stacks[0]];
            let samples = samples.map(|stack| process.batch.add_sample(Sample { stack, ..Sample::default() }));
            process.pool.not_sampled += ran;
            process.pool.left = samples.into_iter().zip([30, 10, 10]).collect();
            process.settle_pool(now, next);
            let waiting = process.pool.not_sampled;
            let batch = process.batch.take();
            assert!(batch.threads.iter().all(|thread| thread.name == POOLED_THREADS && thread.id == 0));
            let of = |sample: &Sample| {
                let stack = &batch.stacks[sample.stack as usize];
                (batch.locations[stack.locations[0] as usize].address(), sample.weight_nano)
            };
            let mut shares: Vec<_> = batch.samples.iter().map(of).collect();
            shares.sort_unstable();
            (shares, waiting)
        };
        assert_eq!(pooled(0, WhatFollows::Same), (vec![], 0));
        assert_eq!(pooled(25, WhatFollows::Same), (vec![(1, 20), (2, 5)], 0));
        assert_eq!(pooled(107, WhatFollows::Same), (vec![(1, 80), (2, 20)], 7));
        let not_sampled = Location::NOT_SAMPLED.address();
        assert_eq!(pooled(100, WhatFollows::Nothing), (vec![(1, 80), (2, 20), (not_sampled, 7)], 0));
    }
}
