//! A machine with its processes, and the reports of its profiler.

use std::collections::HashMap;

use fastrand::Rng;
use opentelemetry_proto::tonic::{
    common::v1::{InstrumentationScope, KeyValue},
    profiles::v1development::{Line, Mapping, Profile, ResourceProfiles, Sample, ScopeProfiles},
    resource::v1::Resource,
};

use super::{
    adversarial,
    code::{Code, skewed},
    names, schedule,
    shape::{Recipe, Shape},
};
use crate::{
    ExportProfilesServiceRequest, T0,
    dictionary::{Dictionary, Value},
};

/// Number of observations of a thread during each span.
const PER_SPAN: usize = 5;

/// Number of observations between two spans: one observation in twenty is linked.
const BETWEEN_SPANS: usize = 95;

/// A tenth of the stacks changes between reports.
const CHANGING: usize = 10;

/// A fiftieth of the stacks is replaced from one report to the next.
const CHANGED: usize = 50;

/// A machine with a profiler that sends reports.
#[derive(Clone, Debug)]
pub struct Host {
    shape: Shape,
    recipe: Recipe,
    seed: u64,
    start: u64,
    name: String,
    processes: Vec<WorkloadProcess>,
}

#[derive(Clone, Debug)]
struct WorkloadProcess {
    service: String,
    version: String,
    executable: String,
    container: String,
    pid: i64,
    threads: Vec<WorkloadThread>,
    code: Code,
}

#[derive(Clone, Debug)]
struct WorkloadThread {
    id: i64,
    name: String,
    phase: u64,
}

/// One observation: the time, the number of its thread, its stack, and its span.
#[derive(Clone, Copy, Debug)]
struct HostObservation {
    at: u64,
    thread: usize,
    stack: usize,
    span: Option<usize>,
}

impl Host {
    /// Creates a machine of this shape. Its first report starts at [`T0`].
    pub fn new(shape: Shape, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let recipe = shape.recipe();
        let processes = match shape {
            Shape::Adversarial => Vec::new(),
            _ => (0..recipe.processes).map(|number| WorkloadProcess::new(&mut rng, recipe, number)).collect(),
        };
        Self { shape, recipe, seed, start: T0, name: format!("ip-10-{}-{}", rng.u8(..), rng.u8(..)), processes }
    }

    /// Sets the start of the first report, in nanoseconds since the epoch.
    pub fn starting_at(mut self, start: u64) -> Self {
        self.start = start;
        self
    }

    /// The length of a report in nanoseconds: 5 s, and 60 s for [`Shape::Large`].
    pub fn window(&self) -> u64 {
        self.recipe.window
    }

    /// The time between two observations of a running thread, in nanoseconds.
    pub fn period(&self) -> u64 {
        self.recipe.period()
    }

    /// The n-th report. It starts n windows after the host, and nine tenths of its stacks occur in every report.
    pub fn report(&mut self, n: usize) -> ExportProfilesServiceRequest {
        let mut rng = Rng::with_seed(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(n as u64 + 1));
        let begin = n as u64 * self.recipe.window;
        if self.shape == Shape::Adversarial {
            return adversarial::request(&mut rng, self.start + begin, self.period());
        }
        let mut dictionary = Dictionary::new();
        let mut resource_profiles = Vec::new();
        for process in &mut self.processes {
            let stacks = process.active_stacks(&self.recipe, n);
            let seen = process.observe(&mut rng, &self.recipe, begin, &stacks);
            let samples = process.samples(&mut rng, &mut dictionary, self.start, &seen);
            let profile = Profile {
                sample_type: Some(dictionary.value_type("samples", "count")),
                samples,
                time_unix_nano: self.start + begin,
                duration_nano: self.recipe.window,
                period_type: Some(dictionary.value_type("cpu", "nanoseconds")),
                period: self.recipe.period() as i64,
                ..Profile::default()
            };
            resource_profiles.push(process.resource(&self.name, profile));
        }
        ExportProfilesServiceRequest { resource_profiles, dictionary: Some(dictionary.finish()) }
    }
}

impl WorkloadProcess {
    fn new(rng: &mut Rng, recipe: Recipe, number: usize) -> Self {
        let runtime = recipe.runtimes[number % recipe.runtimes.len()];
        let service = names::service(rng);
        let executable = runtime.executable(&service);
        let pid = rng.i64(300..90_000);
        let threads = (0..recipe.threads)
            .map(|thread| WorkloadThread {
                id: pid + thread as i64,
                name: names::thread(rng, thread),
                phase: rng.u64(..recipe.period()),
            })
            .collect();
        let code = Code::new(recipe, runtime, &executable, rng.u64(..));
        let version = format!("{}.{}.{}", rng.u8(1..9), rng.u8(..40), rng.u8(..20));
        Self { service, version, executable, container: names::hex(rng, 32), pid, threads, code }
    }

    /// The stacks that occur in report `n`.
    fn active_stacks(&mut self, recipe: &Recipe, n: usize) -> Vec<usize> {
        let stable = recipe.stacks - recipe.stacks / CHANGING;
        let shift = n * (recipe.stacks / CHANGED);
        self.code.grow(recipe.stacks + shift);
        (0..stable).chain(stable + shift..recipe.stacks + shift).collect()
    }

    /// The observations of the process from `begin` (nanoseconds from the host's start) on. Every active stack is
    /// observed at least once.
    fn observe(&self, rng: &mut Rng, recipe: &Recipe, begin: u64, stacks: &[usize]) -> Vec<HostObservation> {
        let window = begin..begin + recipe.window;
        let times: Vec<Vec<u64>> = self
            .threads
            .iter()
            .map(|thread| schedule::observations(rng, window.clone(), recipe.period(), thread.phase))
            .collect();
        let mut left = times.iter().map(Vec::len).sum::<usize>() as f64;
        let mut unseen = stacks.to_vec();
        rng.shuffle(&mut unseen);
        let mut spans = Spans::default();
        let mut seen = Vec::new();
        for (thread, times) in times.into_iter().enumerate() {
            let mut last = None;
            for at in times {
                let fresh = unseen.len() as f64 / (left * (1.0 - recipe.repeats)).max(1.0);
                left -= 1.0;
                let stack = match last.filter(|_| rng.f64() < recipe.repeats) {
                    Some(last) => last,
                    None if rng.f64() < fresh => unseen.pop().unwrap_or(0),
                    None => stacks[popular(rng, stacks.len(), recipe.skew)],
                };
                last = Some(stack);
                seen.push(HostObservation { at, thread, stack, span: spans.next() });
            }
            spans.end();
        }
        seen
    }

    /// Merges observations of equal stack, thread and span into one sample, in order of first appearance.
    fn samples(&self, rng: &mut Rng, dictionary: &mut Dictionary, start: u64, seen: &[HostObservation]) -> Vec<Sample> {
        let mut tables = Tables { process: self, dictionary, locations: HashMap::new(), stacks: HashMap::new() };
        let mut links: HashMap<usize, i32> = HashMap::new();
        let mut by_identity: HashMap<(usize, usize, Option<usize>), usize> = HashMap::new();
        let mut samples: Vec<Sample> = Vec::new();
        let mut in_time = seen.to_vec();
        in_time.sort_by_key(|seen| (seen.at, seen.thread));
        for seen in in_time {
            let position = *by_identity.entry((seen.stack, seen.thread, seen.span)).or_insert_with(|| {
                let thread = &self.threads[seen.thread];
                let link_index = seen.span.map_or(0, |span| {
                    *links.entry(span).or_insert_with(|| {
                        let (mut trace, mut id) = ([0; 16], [0; 8]);
                        rng.fill(&mut trace);
                        rng.fill(&mut id);
                        tables.dictionary.link(trace, id)
                    })
                });
                samples.push(Sample {
                    stack_index: tables.stack(seen.stack),
                    attribute_indices: vec![
                        tables.dictionary.attribute("thread.name", thread.name.as_str()),
                        tables.dictionary.attribute("thread.id", thread.id),
                    ],
                    link_index,
                    ..Sample::default()
                });
                samples.len() - 1
            });
            samples[position].timestamps_unix_nano.push(start + seen.at);
        }
        samples
    }

    fn resource(&self, host: &str, profile: Profile) -> ResourceProfiles {
        let attribute = |key: &str, value: Value| KeyValue {
            key: key.to_owned(),
            value: Some(value.into()),
            ..KeyValue::default()
        };
        let text = |key: &str, value: &str| attribute(key, Value::from(value));
        let attributes = vec![
            text("service.name", &self.service),
            text("service.version", &self.version),
            text("deployment.environment.name", "production"),
            text("container.id", &self.container),
            attribute("process.pid", Value::Int(self.pid)),
            text("process.executable.name", crate::naive::basename(&self.executable)),
            text("process.executable.path", &self.executable),
            text("host.name", host),
        ];
        let scope = InstrumentationScope { name: "go.opentelemetry.io/ebpf-profiler".to_owned(), ..Default::default() };
        let schema_url = "https://opentelemetry.io/schemas/1.37.0".to_owned();
        ResourceProfiles {
            resource: Some(Resource { attributes, ..Resource::default() }),
            scope_profiles: vec![ScopeProfiles {
                scope: Some(scope),
                profiles: vec![profile],
                schema_url: schema_url.clone(),
            }],
            schema_url,
        }
    }
}

/// The indices of a process's code in the dictionary.
struct Tables<'a> {
    process: &'a WorkloadProcess,
    dictionary: &'a mut Dictionary,
    locations: HashMap<usize, i32>,
    stacks: HashMap<usize, i32>,
}

impl Tables<'_> {
    fn stack(&mut self, stack: usize) -> i32 {
        if let Some(&index) = self.stacks.get(&stack) {
            return index;
        }
        let process = self.process;
        let locations = process.code.stacks[stack].iter().map(|&location| self.location(location)).collect();
        let index = self.dictionary.stack(locations);
        self.stacks.insert(stack, index);
        index
    }

    fn location(&mut self, number: usize) -> i32 {
        if let Some(&index) = self.locations.get(&number) {
            return index;
        }
        let code = &self.process.code;
        let location = &code.locations[number];
        let mapping = match location.binary {
            Some(binary) => {
                let binary = &code.binaries[binary];
                let attribute_indices = vec![
                    self.dictionary.attribute("process.executable.build_id.gnu", binary.gnu_id.as_str()),
                    self.dictionary.attribute("process.executable.build_id.htlhash", binary.htlhash.as_str()),
                ];
                let filename_strindex = self.dictionary.string(&binary.file);
                self.dictionary.mapping(Mapping {
                    memory_start: binary.range.start,
                    memory_limit: binary.range.end,
                    file_offset: binary.range.start & 0xf_ffff,
                    filename_strindex,
                    attribute_indices,
                })
            }
            None => 0,
        };
        let mut lines = Vec::with_capacity(location.lines.len());
        for &(function, line) in &location.lines {
            let function = &code.functions[function];
            let function_index = self.dictionary.function(&function.name, &function.file);
            lines.push(Line { function_index, line, column: 0 });
        }
        let attributes = vec![self.dictionary.attribute("profile.frame.type", location.frame_type)];
        let index = self.dictionary.location(mapping, location.address, lines, attributes);
        self.locations.insert(number, index);
        index
    }
}

/// Decides which observations are during a span: [`PER_SPAN`] consecutive ones of a thread after every
/// [`BETWEEN_SPANS`].
#[derive(Default)]
struct Spans {
    number: usize,
    inside: usize,
    outside: usize,
}

impl Spans {
    fn next(&mut self) -> Option<usize> {
        if self.inside == 0 && self.outside < BETWEEN_SPANS {
            self.outside += 1;
            return None;
        }
        self.inside += 1;
        let span = self.number;
        if self.inside == PER_SPAN {
            self.end();
        }
        Some(span)
    }

    /// Ends the current span, because no span continues in another thread.
    fn end(&mut self) {
        if self.inside > 0 {
            (self.number, self.inside, self.outside) = (self.number + 1, 0, 0);
        }
    }
}

/// A rank below `len` with a probability proportional to rank^-skew (skew other than 1).
fn popular(rng: &mut Rng, len: usize, skew: f64) -> usize {
    if (skew - 1.0).abs() < 1e-9 {
        return skewed(rng, len, 2.0);
    }
    let power = 1.0 - skew;
    let rank = (((len as f64).powf(power) - 1.0) * rng.f64() + 1.0).powf(1.0 / power);
    (rank as usize).saturating_sub(1).min(len.saturating_sub(1))
}
