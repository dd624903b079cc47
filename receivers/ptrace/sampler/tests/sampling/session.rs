//! Sampling one process with the sampling thread.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use profbridge_sampler::address_space::AddressSpace;
use profbridge_sampler::elf::ObjectCache;
use profbridge_sampler::message::{Batch, Detached, Location, ProblemKind, ProcessId, Settings, Stack, Status};
use profbridge_sampler::process_files::ProcessFiles;
use profbridge_sampler::sampler::{Output, Sampler, SamplerOptions};

use super::target::Target;

const PROCESS: ProcessId = ProcessId(1);

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process that is sampled.
pub(crate) struct Session {
    sampler: Sampler,
    outputs: Receiver<Output>,
    files: Arc<ProcessFiles>,
    space: std::cell::RefCell<Arc<AddressSpace>>,
    report: std::cell::RefCell<Report>,
}

/// What was said.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) batches: Vec<Batch>,
    pub(crate) status: Status,
    pub(crate) gone: Option<Detached>,
}

impl Report {
    fn sum(&self, blocked: Option<bool>) -> u64 {
        let samples = self.batches.iter().flat_map(|batch| &batch.samples);
        let wanted = samples.filter(|sample| blocked.is_none_or(|blocked| blocked == sample.blocked));
        wanted.map(|sample| sample.weight_nano).sum()
    }

    /// The weight of all samples.
    pub(crate) fn weight(&self) -> u64 {
        self.sum(None)
    }

    /// The weight of the samples of blocked threads.
    pub(crate) fn blocked_weight(&self) -> u64 {
        self.sum(Some(true))
    }

    /// All stacks but those that only explain why there is none.
    pub(crate) fn stacks(&self) -> Vec<Vec<Location>> {
        let of = |batch: &Batch| {
            let locations = |stack: &Stack| stack.locations.iter().map(|at| batch.locations[*at as usize]).collect();
            batch.stacks.iter().map(locations).collect::<Vec<Vec<Location>>>()
        };
        let mut stacks: Vec<_> = self.batches.iter().flat_map(of).collect();
        stacks.retain(|stack| stack.iter().all(|location| location.explanation().is_none()));
        stacks
    }

    /// What is the program's of the stacks of a thread, while it was blocked or ran, with their weights; but of those
    /// that only explain why there is none.
    pub(crate) fn program_stacks(&self, thread: u32, blocked: bool) -> Vec<(Vec<Location>, u64)> {
        let of = |batch: &Batch| {
            let samples = batch
                .samples
                .iter()
                .filter(|sample| (batch.threads[sample.thread as usize].id, sample.blocked) == (thread, blocked));
            let stack = |at: u32| batch.stacks[at as usize].locations.iter().map(|at| batch.locations[*at as usize]);
            samples.map(|sample| (stack(sample.stack).collect(), sample.weight_nano)).collect::<Vec<(Vec<_>, u64)>>()
        };
        let mut stacks: Vec<_> = self.batches.iter().flat_map(of).collect();
        stacks.retain(|(stack, _)| stack.iter().all(|location: &Location| location.explanation().is_none()));
        for (stack, _) in &mut stacks {
            stack.retain(|location| !location.is_kernel());
        }
        stacks
    }

    /// Asserts that the samples of each thread stand for all the time that passed, and are in order. A sample is where
    /// it was taken, so that neighbours may overlap or leave a gap; that adds up to nothing.
    pub(crate) fn assert_accounted(&self) {
        let mut threads: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
        for batch in &self.batches {
            assert!(batch.samples.is_sorted_by_key(|sample| sample.time_unix_nano), "{batch:?}");
            for sample in &batch.samples {
                let times = threads.entry(batch.threads[sample.thread as usize].id).or_default();
                times.push((sample.time_unix_nano, sample.weight_nano));
            }
        }
        // What nobody saw of all threads is no time of one.
        threads.remove(&0);
        assert!(!threads.is_empty(), "nothing was sampled");
        // The first sample may begin late and the last end late, by their weights and the jitter of ticks; and for as
        // long as the sampler itself had no processor, which it counts.
        let slack = (8 + self.status.missed_ticks) * self.batches[0].period_nano;
        for (thread, times) in threads {
            let ((first, _), (last, weight)) = (times[0], times[times.len() - 1]);
            let sum: u64 = times.iter().map(|(_, weight)| weight).sum();
            let passed = last + weight - first;
            assert!(sum.abs_diff(passed) <= slack, "{thread}: {sum} ns in samples, {passed} ns passed");
        }
    }

    fn running_samples(&self) -> usize {
        let samples = self.batches.iter().flat_map(|batch| &batch.samples);
        samples.filter(|sample| !sample.blocked).count()
    }
}

impl Session {
    pub(crate) fn start(target: &Target, settings: Settings) -> Self {
        Self::with(target, settings, |sampler| sampler.sample(PROCESS, true))
    }

    /// As if the target had not executed anything yet.
    pub(crate) fn start_from_start(target: &Target, settings: Settings) -> Self {
        Self::with(target, settings, |sampler| sampler.sample_from_start(PROCESS))
    }

    fn with(target: &Target, settings: Settings, sample: impl FnOnce(&Sampler)) -> Self {
        let files = Arc::new(ProcessFiles::open(target.pid()).unwrap());
        let space = AddressSpace::load(&*files, None, &mut ObjectCache::default()).unwrap();
        let space = Arc::new(space);
        let (out, outputs) = sync_channel(256);
        let sampler = Sampler::start(SamplerOptions::default(), out, || {}).unwrap();
        sampler.attach(PROCESS, Arc::clone(&files), Arc::clone(&space), settings);
        sample(&sampler);
        Self { sampler, outputs, files, space: std::cell::RefCell::new(space), report: std::cell::RefCell::default() }
    }

    fn take(&self, output: Output) {
        let mut report = self.report.borrow_mut();
        match output {
            Output::Batch(batch) => report.batches.push(batch),
            Output::Status(status) => report.status = status,
            Output::Gone { why, .. } => report.gone = Some(why),
            Output::Functions { .. } => {}
            Output::Reload { .. } => {
                let mut space = self.space.borrow_mut();
                if let Ok(new) = AddressSpace::load(&*self.files, Some(&space), &mut ObjectCache::default()) {
                    *space = Arc::new(new);
                    self.sampler.set_space(PROCESS, Instant::now(), Arc::clone(&space));
                }
            }
            // What a machine permits is none of a test's business, unless it asks.
            Output::Problem { kind: ProblemKind::Events, .. } => {}
            Output::Problem { kind, message, .. } => panic!("{kind:?}: {message}"),
        }
    }

    /// Takes what is said until the condition holds.
    pub(crate) fn until(&self, what: &str, condition: impl Fn(&Report) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !condition(&self.report.borrow()) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.outputs.recv_timeout(left) {
                Ok(output) => self.take(output),
                Err(error) => panic!("waited for {what}: {error}"),
            }
        }
    }

    pub(crate) fn wait_for_running(&self, count: usize) {
        self.until("samples of running threads", |report| report.running_samples() >= count);
    }

    /// The weight of the samples of running threads so far, as far as was said.
    pub(crate) fn running_weight(&self) -> u64 {
        self.report.borrow().sum(Some(false))
    }

    pub(crate) fn until_gone(self) -> Report {
        self.until("the end", |report| report.gone.is_some());
        self.report.into_inner()
    }

    /// The ticks so far, as far as was said: up to a second ago.
    pub(crate) fn ticks(&self) -> u64 {
        while let Ok(output) = self.outputs.try_recv() {
            self.take(output);
        }
        self.report.borrow().status.ticks
    }

    /// Ends.
    pub(crate) fn end(self) -> Report {
        self.sampler.sample(PROCESS, false);
        let gone_before = self.report.borrow().gone.is_some();
        let Self { sampler, outputs, report, .. } = self;
        sampler.stop();
        let mut report = report.into_inner();
        for output in outputs.try_iter() {
            match output {
                Output::Batch(batch) => report.batches.push(batch),
                Output::Status(status) => report.status = status,
                Output::Gone { why, .. } => {
                    assert_eq!(why, Detached::Asked);
                    assert!(!gone_before);
                }
                Output::Reload { .. } | Output::Functions { .. } => {}
                Output::Problem { kind: ProblemKind::Events, .. } => {}
                Output::Problem { kind, message, .. } => panic!("{kind:?}: {message}"),
            }
        }
        report
    }
}
