//! What threads wait for in system calls on files and sockets: some of them are looked at now and then. That costs
//! running threads nothing, see [`Descriptors`].

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use profbridge_sampler::Descriptors;
use profbridge_sampler::message::{Batch, Context};

use crate::dump::thread_ids;
use crate::views::stacks::clean;

/// How often threads are looked at, and at how many at most: a five-hundredth of a processor.
const PAUSE: Duration = Duration::from_millis(100);
const MOST_THREADS: usize = 64;

/// The most names that are distinguished.
const MOST_NAMES: usize = 1024;

/// For how long it is known when a thread was found to wait: samples of waits arrive later.
const KEPT: Duration = Duration::from_secs(60);

/// How often threads were found to wait for a file or socket, by its name.
#[derive(Debug)]
pub(super) struct Awaited {
    descriptors: Descriptors,
    counts: HashMap<Arc<str>, u64>,
    next_look: Instant,
    /// The threads that are looked at next, with their processes.
    threads: Vec<(u32, u32)>,
    /// What each thread was found to wait for and when, in nanoseconds since the Unix epoch.
    found: HashMap<u32, VecDeque<(u64, Arc<str>)>>,
}

impl Awaited {
    /// Nothing yet.
    pub(super) fn new(now: Instant) -> Self {
        let (descriptors, counts, threads, found) = Default::default();
        Self { descriptors, counts, next_look: now, threads, found }
    }

    /// Looks at threads of these processes if it is time to.
    pub(super) fn look(&mut self, pids: impl Iterator<Item = u32>, now: Instant, unix_nano: u64) {
        if now < self.next_look {
            return;
        }
        self.next_look = now + PAUSE;
        if self.threads.is_empty() {
            self.threads = pids.flat_map(|pid| thread_ids(pid).map(move |thread| (pid, thread))).collect();
            let is_old = |time: u64| u128::from(unix_nano.saturating_sub(time)) > KEPT.as_nanos();
            self.found.retain(|_, looks| {
                looks.retain(|(time, _)| !is_old(*time));
                !looks.is_empty()
            });
        }
        let rest = self.threads.len().saturating_sub(MOST_THREADS);
        for (pid, thread) in self.threads.drain(rest..) {
            let Some(name) = self.descriptors.awaited_by(pid, thread) else { continue };
            if self.counts.len() < MOST_NAMES || self.counts.contains_key(&name) {
                *self.counts.entry(Arc::clone(&name)).or_default() += 1;
                self.found.entry(thread).or_default().push_back((unix_nano, name));
            }
        }
    }

    /// Names what threads were found to wait for during the samples of a batch, as attributes with the number 0.
    pub(super) fn name(&self, batch: &mut Batch) {
        let Batch { threads, contexts, samples, .. } = batch;
        for sample in samples.iter_mut().filter(|sample| sample.blocked) {
            let thread = threads.get(sample.thread as usize);
            let Some(looks) = thread.and_then(|thread| self.found.get(&thread.id)) else { continue };
            let (start, end) = (sample.time_unix_nano, sample.time_unix_nano.saturating_add(sample.weight_nano));
            let first = looks.partition_point(|(time, _)| *time < start);
            let Some((_, name)) = looks.get(first).filter(|(time, _)| *time < end) else { continue };
            let link = sample.context.and_then(|at| contexts.get(at as usize)).and_then(|context| context.link);
            let context = Context { link, attributes: vec![(0, name.to_string())] };
            let at = contexts.iter().position(|known| *known == context).unwrap_or(contexts.len());
            if at == contexts.len() {
                contexts.push(context);
            }
            sample.context = Some(at as u32);
        }
    }

    /// The names with their numbers, the most frequent first.
    pub(super) fn most(&self) -> Vec<(String, u64)> {
        let mut all: Vec<_> = self.counts.iter().map(|(name, count)| (clean(name).into_string(), *count)).collect();
        all.sort_by(|(one, count), (other, than)| than.cmp(count).then_with(|| one.cmp(other)));
        all
    }
}

#[cfg(test)]
mod tests {
    use profbridge_sampler::message::{Sample, SpanLink, Thread};

    use super::*;

    /// Guarantees: a sample of a wait is named by what its thread was found to wait for during it, and keeps its span;
    /// others are not.
    #[test]
    fn names() {
        let mut awaited = Awaited::new(Instant::now());
        awaited.found.insert(7, [(150, "pipe".into()), (250, "socket".into())].into());
        let sample = |thread, time_unix_nano, blocked| {
            let (weight_nano, observations) = (60, 1);
            Sample { thread, stack: 0, context: Some(0), time_unix_nano, weight_nano, observations, blocked }
        };
        let link = Some(SpanLink { trace_id: [1; 16], span_id: [2; 8] });
        let mut batch = Batch {
            threads: [7, 8].map(|id| Thread { id, ..Thread::default() }).to_vec(),
            contexts: vec![Context { link, attributes: Vec::new() }],
            samples: vec![
                sample(0, 100, true),
                sample(0, 160, true),
                sample(0, 220, false),
                sample(1, 100, true),
                sample(0, 220, true),
            ],
            ..Batch::default()
        };
        awaited.name(&mut batch);
        let contexts = batch.samples.iter().map(|sample| &batch.contexts[sample.context.unwrap() as usize]);
        let names: Vec<&str> = contexts.map(|of| of.attributes.first().map_or("", |(_, name)| name)).collect();
        assert_eq!(names, ["pipe", "", "", "", "socket"]);
        assert!(batch.contexts.iter().all(|context| context.link == link));
    }
}
