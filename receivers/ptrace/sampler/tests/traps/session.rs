//! A sampler process, and everything that it has sent.

use std::{
    cell::OnceCell,
    collections::BTreeMap,
    sync::LazyLock,
    time::{Duration, Instant},
};

use nix::unistd::Pid;
use profbridge_sampler::{
    message::{
        AttributeValue, Command, Context, Detached, Event, Level, Location, Mapping, Problem, ProblemKind, Process,
        ProcessId, Rights, Sample, Select, Settings, Status, Stops, Target, TargetId, Thread, Trust,
    },
    owner::{Ending, Events, Notice, SamplerProcess, StartOptions},
    perf::open::{KernelOpener, open},
};

use crate::symbols::Symbols;

/// How long an event may take to happen. Only failing tests wait this long.
const PATIENCE: Duration = Duration::from_secs(120);

/// A sample with the data to which it refers.
#[derive(Debug, Clone)]
pub(crate) struct ObservedSample {
    pub(crate) thread: Thread,
    pub(crate) trust: Trust,
    pub(crate) locations: Vec<Location>,
    pub(crate) sample: Sample,
    /// The trace context of the thread.
    pub(crate) context: Option<Context>,
    /// Whether one of the sample's frames is an explanation and not a place in code.
    pub(crate) is_explained: bool,
}

/// Everything that was received about one attached process, from attaching to detaching.
#[derive(Debug)]
pub(crate) struct ObservedLife {
    pub(crate) process: Process,
    pub(crate) mappings: Vec<(Mapping, OnceCell<Symbols>)>,
    pub(crate) samples: Vec<ObservedSample>,
    pub(crate) batches: usize,
    pub(crate) status: Status,
    pub(crate) detached: Option<Detached>,
    pub(crate) period_nano: u64,
    /// The time of frames that are explanations and not places in code, by explanation.
    pub(crate) explained: BTreeMap<&'static str, u64>,
    /// The resources that the process published, in order.
    pub(crate) resources: Vec<Vec<(String, AttributeValue)>>,
    /// The number of perf maps that were received for the process.
    pub(crate) perf_maps: usize,
    /// The samples of each thread: when the first begins, when the last ends, and the total time that they cover.
    times: BTreeMap<u32, [u64; 3]>,
}

impl ObservedLife {
    /// The name of the function at a location: `?` if no symbol covers it, `jit` for code without a file.
    pub(crate) fn name(&self, location: &Location) -> String {
        let Some(index) = location.mapping() else { return "jit".to_owned() };
        let (mapping, symbols) = &self.mappings[index as usize];
        let symbols = symbols.get_or_init(|| {
            mapping.file.as_ref().map_or_else(Symbols::default, |file| Symbols::read(&mut file.try_clone().unwrap()))
        });
        symbols.name(location.address()).unwrap_or("?").to_owned()
    }

    /// The functions of a stack, leaf first.
    pub(crate) fn names(&self, observed: &ObservedSample) -> Vec<String> {
        observed.locations.iter().map(|location| self.name(location)).collect()
    }

    /// The samples with this function anywhere on the stack.
    pub(crate) fn with<'a>(&'a self, function: &'a str) -> impl Iterator<Item = &'a ObservedSample> {
        self.samples
            .iter()
            .filter(move |observed| observed.locations.iter().any(|location| self.name(location) == function))
    }

    /// How often a function was observed.
    pub(crate) fn count(&self, function: &str) -> u32 {
        self.with(function).map(|observed| observed.sample.observations).sum()
    }

    /// The share of time during which a function was on one thread's stack, by weight. If a thread could not be
    /// examined for some ticks, its next sample covers these too.
    pub(crate) fn presence(&self, function: &str) -> f64 {
        let weight: u64 = self.with(function).map(|observed| observed.sample.weight_nano).sum();
        weight as f64 / (self.status.ticks * self.period_nano) as f64
    }

    /// Asserts that the samples of each thread cover all the time that passed. Samples are near the time at which they
    /// were taken, so that neighbours may overlap or leave a gap, but their total is exact.
    pub(crate) fn assert_accounted(&self) {
        // The first sample may begin late and the last one end late, by their weights, by the jitter of ticks, and by
        // the time in which the sampler had no processor, which it counts.
        let slack = (8 + self.status.missed_ticks) * self.period_nano;
        assert!(!self.times.is_empty(), "nothing was sampled");
        for (thread, [begins, ends, weight]) in &self.times {
            let passed = ends - begins;
            assert!(weight.abs_diff(passed) <= slack, "{thread}: {weight} ns in samples, {passed} ns passed");
        }
    }

    /// The path of the file of a stack's last frame.
    pub(crate) fn root_file(&self, observed: &ObservedSample) -> &str {
        let root = observed.locations.last().and_then(|location| location.mapping());
        root.map_or("", |index| &self.mappings[index as usize].0.path)
    }

    /// Whether a stack ends at the start of a thread: in the program's `_start`, or in the C library.
    pub(crate) fn rooted(&self, observed: &ObservedSample) -> bool {
        let Some(root) = observed.locations.last() else { return false };
        let file = self.root_file(observed).rsplit('/').next().unwrap_or_default();
        self.name(root) == "_start"
            || file.starts_with("libc.so")
            || file.starts_with("libc-")
            || file.starts_with("ld-linux")
    }

    /// The share of the observations of these samples that is complete and ends at the start of a thread.
    pub(crate) fn complete_share<'a>(&self, samples: impl Iterator<Item = &'a ObservedSample>) -> f64 {
        let (mut all, mut complete) = (0, 0);
        for observed in samples {
            let observations = u64::from(observed.sample.observations);
            all += observations;
            let good = matches!(observed.trust, Trust::Complete | Trust::MissingCallers) && self.rooted(observed);
            complete += if good { observations } else { 0 };
        }
        assert!(all > 0, "there are no such samples");
        complete as f64 / all as f64
    }

    /// The share of these samples, whatever their observations, that is complete and ends at the start of a thread: on
    /// a busy machine a late sample covers many ticks.
    pub(crate) fn complete_samples<'a>(&self, samples: impl Iterator<Item = &'a ObservedSample>) -> f64 {
        let good = |observed: &ObservedSample| {
            matches!(observed.trust, Trust::Complete | Trust::MissingCallers) && self.rooted(observed)
        };
        let good: Vec<bool> = samples.map(good).collect();
        assert!(!good.is_empty(), "there are no such samples");
        good.iter().filter(|good| **good).count() as f64 / good.len() as f64
    }

    /// The most frequent stacks, for messages of failing tests.
    pub(crate) fn top(&self) -> String {
        let mut stacks: BTreeMap<String, u32> = BTreeMap::new();
        for observed in &self.samples {
            let stack = format!("{:?} {}", observed.trust, self.names(observed).join(";"));
            *stacks.entry(stack).or_default() += observed.sample.observations;
        }
        let mut stacks: Vec<_> = stacks.into_iter().collect();
        stacks.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        stacks.iter().take(12).map(|(stack, count)| format!("{count:>6} {stack}\n")).collect()
    }
}

/// The events received so far.
#[derive(Debug, Default)]
pub(crate) struct SeenEvents {
    pub(crate) rights: Option<Rights>,
    pub(crate) lives: Vec<ObservedLife>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) ended: Vec<(TargetId, i32)>,
    /// The processes that were detached, in order.
    pub(crate) detached: Vec<(ProcessId, Detached)>,
    /// How the sampler process ended.
    pub(crate) ending: Option<Ending>,
}

impl SeenEvents {
    fn life_mut(&mut self, id: ProcessId) -> &mut ObservedLife {
        let found = self.lives.iter_mut().find(|life| life.process.id == id);
        found.unwrap_or_else(|| panic!("something was said of {id:?}, which was never attached"))
    }

    /// The processes that were attached, in order.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &Process> {
        self.lives.iter().map(|life| &life.process)
    }

    /// The number of observations of all processes.
    pub(crate) fn observations(&self) -> u64 {
        let samples = self.lives.iter().flat_map(|life| &life.samples);
        samples.map(|observed| u64::from(observed.sample.observations)).sum()
    }

    /// The process that was attached last.
    pub(crate) fn last(&self) -> &ObservedLife {
        self.lives.last().expect("no process was attached")
    }

    /// Whether a problem of this kind was reported.
    pub(crate) fn has(&self, kind: ProblemKind) -> bool {
        self.problems.iter().any(|problem| problem.kind == kind)
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Ready(rights) => self.rights = Some(rights),
            Event::Attached(process) => self.lives.push(ObservedLife {
                status: Status { process: process.id, ..Status::default() },
                process: *process,
                mappings: Vec::new(),
                samples: Vec::new(),
                batches: 0,
                detached: None,
                period_nano: 0,
                explained: BTreeMap::new(),
                resources: Vec::new(),
                perf_maps: 0,
                times: BTreeMap::new(),
            }),
            Event::Mapping(mapping) => {
                let mappings = &mut self.life_mut(mapping.process).mappings;
                assert_eq!(mapping.index as usize, mappings.len(), "mappings come in order and without gaps");
                mappings.push((mapping, OnceCell::new()));
            }
            Event::PerfMap { process, .. } => self.life_mut(process).perf_maps += 1,
            Event::Functions { .. } => {}
            Event::Resource { process, attributes } => self.life_mut(process).resources.push(attributes),
            Event::Batch(batch) => {
                let life = self.life_mut(batch.process);
                assert_eq!(life.detached, None, "samples after the end");
                life.period_nano = batch.period_nano;
                life.batches += 1;
                assert!(batch.samples.is_sorted_by_key(|sample| sample.time_unix_nano), "{:?}", batch.samples);
                for sample in batch.samples {
                    // The time of threads that were never examined belongs to no thread of the process.
                    let thread = batch.threads[sample.thread as usize].id;
                    if thread != 0 {
                        let times = life.times.entry(thread).or_insert([sample.time_unix_nano, 0, 0]);
                        times[1] = sample.time_unix_nano + sample.weight_nano;
                        times[2] += sample.weight_nano;
                    }
                    let stack = &batch.stacks[sample.stack as usize];
                    let mut locations: Vec<Location> =
                        stack.locations.iter().map(|&index| batch.locations[index as usize]).collect();
                    for explanation in locations.iter().filter_map(|location| location.explanation()) {
                        *life.explained.entry(explanation).or_default() += sample.weight_nano;
                    }
                    // Explanations are not part of the stack.
                    let all = locations.len();
                    locations.retain(|location| location.explanation().is_none());
                    if locations.is_empty() {
                        continue;
                    }
                    for index in locations.iter().filter_map(|location| location.mapping()) {
                        assert!(
                            (index as usize) < life.mappings.len(),
                            "a mapping comes before the samples that name it"
                        );
                    }
                    life.samples.push(ObservedSample {
                        thread: batch.threads[sample.thread as usize].clone(),
                        trust: stack.trust,
                        is_explained: locations.len() < all,
                        locations,
                        context: sample.context.map(|context| batch.contexts[context as usize].clone()),
                        sample,
                    });
                }
            }
            Event::Status(status) => self.life_mut(status.process).status = status,
            Event::Problem(problem) => {
                assert_ne!(problem.kind, ProblemKind::Internal, "the sampler failed: {}", problem.message);
                self.problems.push(problem);
            }
            Event::Detached { process, why } => {
                self.life_mut(process).detached = Some(why);
                self.detached.push((process, why));
            }
            Event::CommandEnded { target, code } => self.ended.push((target, code)),
        }
    }
}

/// Settings that sample running threads whatever the kernel permits: without perf events all threads are stopped, not
/// only those that stay in their own code.
pub(crate) fn usual() -> Settings {
    static PERMITTED: LazyLock<bool> =
        LazyLock::new(|| open(&KernelOpener, (std::process::id(), None), 1_000_000, Level::Kernel, true).is_ok());
    Settings { stops: if *PERMITTED { Stops::default() } else { Stops::Always }, ..Settings::default() }
}

/// Settings that stop threads as often as possible.
pub(crate) fn often() -> Settings {
    Settings { rate_hertz: 1000.0, max_cpu: 1.0, max_stopped: 1.0, stops: Stops::Always, ..Settings::default() }
}

/// A target that is sampled at once, without further requests.
pub(crate) fn wanted(select: Select, settings: Settings) -> Target {
    Target {
        id: TargetId(1),
        select,
        settings,
        environment: Vec::new(),
        // No program publishes the first attribute, so that indices of requested and published attributes differ.
        thread_attributes: vec!["absent.key".to_owned(), "test.key".to_owned()],
        sample_at_once: true,
    }
}

/// A sampler process under test.
pub(crate) struct TrapSession {
    pub(crate) process: SamplerProcess,
    events: Events,
    targets: u32,
    pub(crate) seen: SeenEvents,
}

impl TrapSession {
    /// Starts a sampler process, and waits until it is ready.
    pub(crate) fn start() -> Self {
        Self::start_with(false)
    }

    /// Like [`TrapSession::start`]; with `commands`, the sampler process can start commands.
    pub(crate) fn start_with(commands: bool) -> Self {
        // Tests examine the last events too, so the sampler's shutdown must not be cut short on a busy machine.
        let options = StartOptions { commands, stop_timeout: PATIENCE, ..StartOptions::default() };
        let (process, events) = SamplerProcess::start(options).expect("the sampler process starts");
        let mut session = Self { process, events, targets: 0, seen: SeenEvents::default() };
        session.until("ready", |seen| seen.rights.is_some());
        session
    }

    /// Starts a session that samples one process with the usual settings.
    pub(crate) fn of(pid: u32) -> Self {
        Self::with(pid, usual())
    }

    /// Starts a session that samples one process with these settings.
    pub(crate) fn with(pid: u32, settings: Settings) -> Self {
        let mut session = Self::start();
        session.watch(Select::Pid(pid), settings);
        session
    }

    /// Watches a target; processes that match are sampled at once.
    pub(crate) fn watch(&mut self, select: Select, settings: Settings) -> TargetId {
        self.watch_target(wanted(select, settings))
    }

    /// Watches a target under the next number, counted from 1.
    pub(crate) fn watch_target(&mut self, target: Target) -> TargetId {
        self.targets += 1;
        let id = TargetId(self.targets);
        self.send(Command::Watch(Target { id, ..target }));
        id
    }

    /// The sampler's process id.
    pub(crate) fn sampler(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.process.pid()).unwrap())
    }

    /// Sends a command to the sampler process.
    pub(crate) fn send(&self, command: Command) {
        self.process.send(command).expect("the sampler process listens");
    }

    /// Receives events until a condition holds.
    pub(crate) fn until(&mut self, what: &str, mut so: impl FnMut(&SeenEvents) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !so(&self.seen) {
            assert!(self.seen.ending.is_none(), "the sampler process ended before: {what}: {:?}", self.seen.ending);
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.next(left) {
                let life = self.seen.lives.last();
                panic!(
                    "did not happen: {what}; problems: {:?}; {:?}; detached: {:?}; stacks:\n{}",
                    self.seen.problems,
                    life.map(|life| &life.status),
                    life.map(|life| life.detached),
                    life.map(ObservedLife::top).unwrap_or_default(),
                );
            }
        }
    }

    /// Receives events for this long.
    pub(crate) fn listen(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            if !self.next(left) && self.seen.ending.is_some() {
                break;
            }
        }
    }

    /// Receives one event, if it arrives in time.
    fn next(&mut self, wait: Duration) -> bool {
        match self.events.next_within(wait) {
            Ok(Notice::Event(event)) => {
                self.seen.take(event);
                true
            }
            Ok(Notice::Ended(ending)) => {
                assert!(!matches!(ending, Ending::Misbehaved(_)), "{ending:?}");
                self.seen.ending = Some(ending);
                true
            }
            Err(_) => false,
        }
    }

    /// Receives events until the process has had this many more ticks.
    pub(crate) fn ticks(&mut self, count: u64) {
        let before = self.seen.lives.last().map_or(0, |life| life.status.ticks);
        self.until("ticks", |seen| seen.lives.last().is_some_and(|life| life.status.ticks >= before + count));
    }

    /// Receives events until a function was observed this often.
    pub(crate) fn observe(&mut self, function: &str, count: u32) {
        self.until(&format!("{count} observations of {function}"), |seen| {
            seen.lives.last().is_some_and(|life| life.count(function) >= count)
        });
    }

    /// Receives events until there is a problem of this kind, and returns its message.
    pub(crate) fn problem(&mut self, kind: ProblemKind) -> String {
        self.until("a problem", |seen| seen.has(kind));
        self.seen.problems.iter().find(|problem| problem.kind == kind).unwrap().message.clone()
    }

    /// Stops the sampler process, and returns everything that it sent.
    pub(crate) fn finish(mut self) -> SeenEvents {
        self.send(Command::Stop);
        self.until("the end of the sampler process", |seen| seen.ending.is_some());
        assert_eq!(self.seen.ending, Some(Ending::Stopped));
        assert!(self.events.next().is_none(), "something was said after the end");
        self.seen
    }
}
