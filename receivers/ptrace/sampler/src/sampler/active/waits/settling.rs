//! Turns the recorded waits of a thread into samples.

use std::time::Instant;

use super::stack::{ReadStack, WaitStack};
use crate::message::{Location, Sample, Trust};
use crate::probe::SchedStat;
use crate::sampler::active::Active;
use crate::sampler::ledger::{TimeSource, WhatFollows};
use crate::sampler::timeline::{Cause, WaitObservation, condense};

/// The maximum number of observations of short waits of a thread in one batch.
const MOST_SHORT: usize = 32;

/// If a process has more threads than this, the minimum length of a wait that becomes its own observation grows with
/// the number of threads.
const MANY_THREADS: usize = 64;

/// If a process has more threads than this, the waits of one thread at one place are added up for each batch.
const SUMMED_THREADS: usize = 1024;

/// If a process has more threads than this, each batch compares the counters of only this many threads with their
/// records, in rotation.
const COMPARED: usize = 256;

impl Active {
    /// Divides the time of a recorded thread up to now among its samples: by its records if they are complete,
    /// otherwise by the kernel's counters.
    pub(in crate::sampler::active) fn settle_recorded(&mut self, index: usize, now: Instant, next: WhatFollows) {
        let is_compared = next != WhatFollows::Same || self.is_compared(index);
        let thread = &mut self.threads[index];
        let Some(recording) = &mut thread.recording else { return };
        let mut counters = None;
        if is_compared {
            counters = thread.files.schedstat(self.attached.files.task()).ok();
            thread.sched = counters.unwrap_or(thread.sched);
        }
        let recorded = recording.timeline.settle(now, counters);
        let mut waits = recorded.waits;
        let until = recorded.ended.unwrap_or(now);
        let ended_unseen = is_compared && counters.is_none() && recorded.ended.is_none();
        let basis = if recorded.is_whole && !ended_unseen {
            TimeSource::Records { began: recorded.began, ended: recorded.ended.is_some() }
        } else {
            // The places of blocked waits are right even if the records are incomplete.
            let preempted = waits.last().filter(|wait| wait.cause == Cause::Preempted && !wait.ended);
            let preempted_nano = preempted.map_or(0, |wait| wait.nano);
            waits.retain(|wait| wait.cause == Cause::Blocked && wait.place.is_some());
            TimeSource::Counters { preempted_nano }
        };
        if !self.attached.interpreters.is_empty() {
            recording.frames.complete(&mut waits);
        }
        recording.fill_contexts(&mut waits);
        let long = self.long_wait();
        for observation in condense(waits, long, MOST_SHORT) {
            self.add_wait(index, observation);
        }
        match basis {
            TimeSource::Records { .. } => self.settle(index, until, counters, next, basis),
            TimeSource::Counters { .. } => {
                let counters = self.counters(index, counters);
                let next = if counters.is_some() { next } else { WhatFollows::Nothing };
                self.settle(index, now, counters, next, basis);
            }
        }
    }

    /// The minimum length, in nanoseconds, of a wait that becomes its own observation. In a process with thousands of
    /// threads, only a wait as long as the batch does.
    fn long_wait(&self) -> u64 {
        let threads = self.threads.len();
        if threads > SUMMED_THREADS {
            return u64::try_from(self.flush_interval().as_nanos()).unwrap_or(u64::MAX);
        }
        self.event_period() / 2 * (1 + threads / MANY_THREADS) as u64
    }

    /// Whether the counters of this thread are compared with its records in this batch.
    fn is_compared(&mut self, index: usize) -> bool {
        let number = self.threads.len();
        if index == 0 {
            self.waits.compared = (self.waits.compared + COMPARED) % number.max(1);
        }
        number <= COMPARED || (index + number - self.waits.compared) % number < COMPARED
    }

    fn counters(&mut self, index: usize, known: Option<SchedStat>) -> Option<SchedStat> {
        let task = self.attached.files.task();
        known.or_else(|| self.threads[index].files.schedstat(task).ok())
    }

    fn add_wait(&mut self, index: usize, observation: WaitObservation<WaitStack>) {
        let WaitObservation { place, cause, at, nano } = observation;
        let waits_for_processor = cause == Cause::Preempted;
        let top = if waits_for_processor { Location::WAITING_FOR_PROCESSOR } else { Location::WAITING_NOT_SEEN };
        let observations = u32::try_from(nano / self.event_period()).unwrap_or(u32::MAX).max(1);
        // Short waits for a processor are added up and moved in time. So their times do not show which trace context
        // the thread had.
        let is_moved = waits_for_processor && nano < self.event_period();
        let worked = |process: &mut Self, found: &ReadStack| {
            found.worked.as_ref().filter(|_| !is_moved).and_then(|worked| process.worked(worked, true))
        };
        let (stack, context) = match &place {
            None => {
                self.attached.status.not_placed_nano += nano;
                (self.batch.add_stack(Trust::Complete, &[top]), None)
            }
            Some(WaitStack(found)) if waits_for_processor => {
                let locations: Vec<_> = std::iter::once(top).chain(found.locations.iter().copied()).collect();
                (self.batch.add_stack(found.trust, &locations), worked(self, found))
            }
            Some(WaitStack(found)) => {
                let stack = self.batch.present(found.entry.get()).unwrap_or_else(|| {
                    let stack = self.batch.add_stack(found.trust, &found.locations);
                    found.entry.set(Some(self.batch.entry(stack)));
                    stack
                });
                (stack, worked(self, found))
            }
        };
        let sample = Sample { context, observations, ..self.sample(index, stack, at, 0, true) };
        let sample = self.batch.add_sample(sample);
        self.threads[index].ledger.waited(sample, at, nano);
        // The properties of the stack are counted once; the observation is counted once for each period that the sample
        // covers.
        let mut more = u64::from(observations);
        if let Some(WaitStack(found)) = &place {
            self.observed(found.trust, &found.named);
            more -= 1;
        }
        let trust = place.map_or(Trust::Complete, |WaitStack(found)| found.trust);
        let status = &mut self.attached.status;
        status.contexts += if context.is_some() { more } else { 0 };
        status.count(trust, more);
    }
}
