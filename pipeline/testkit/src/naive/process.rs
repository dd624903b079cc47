//! Groups samples by process.

use std::{collections::HashMap, rc::Rc};

use opentelemetry_proto::tonic::{
    common::v1::KeyValue,
    profiles::v1development::{Profile, ProfilesDictionary, Sample},
};

use super::{
    NaiveOptions,
    attributes::SampleAttributes,
    identity::{NaiveIdentity, identity},
    kind::{NaiveMeaning, TimeMeasure, meaning},
    timeline::{Observation, spread},
};
use crate::ExportProfilesServiceRequest;

/// The contents of a request for one process.
#[derive(Default)]
pub(super) struct NaiveProcess {
    pub(super) release: Option<String>,
    pub(super) environment: Option<String>,
    pub(super) thread_names: HashMap<String, String>,
    parts: Vec<ProfileShare>,
}

/// A process's samples of one profile.
struct ProfileShare {
    kind: TimeMeasure,
    start: u64,
    duration: u64,
    observations: Vec<Observation>,
    values: Vec<(i32, Option<Rc<str>>, u64)>,
}

impl NaiveProcess {
    /// The observations of the highest kind, and the earliest start and latest end of their profiles.
    pub(super) fn observations(self) -> (Vec<Observation>, u64, u64) {
        let best = self.parts.iter().map(|part| part.kind).max();
        let mut observations = Vec::new();
        let (mut start, mut end) = (u64::MAX, 0);
        for part in self.parts.into_iter().filter(|part| Some(part.kind) == best) {
            let part_end = if part.duration == 0 { u64::MAX } else { part.start.saturating_add(part.duration) };
            (start, end) = (start.min(part.start), end.max(part_end));
            observations.extend(spread(&part.values, part.start, part.duration));
            observations.extend(part.observations);
        }
        let first = observations.iter().map(|observation| observation.timestamp).min().unwrap_or(start);
        (observations, start.min(first), end)
    }
}

/// The processes of a request, in order of their first sample.
pub(super) fn processes(
    request: &ExportProfilesServiceRequest,
    dictionary: &ProfilesDictionary,
    options: &NaiveOptions,
) -> Vec<(NaiveIdentity, NaiveProcess)> {
    let mut found = Found::default();
    for (number, resource_profiles) in request.resource_profiles.iter().enumerate() {
        let resource = resource_profiles.resource.as_ref().map_or(&[][..], |resource| &resource.attributes);
        for profile in resource_profiles.scope_profiles.iter().flat_map(|scope| &scope.profiles) {
            let Some(meaning) = meaning(dictionary, profile, options.off_cpu) else { continue };
            let mut own: Option<usize> = None;
            let mut part_of: HashMap<usize, usize> = HashMap::new();
            for sample in &profile.samples {
                let attributes = attributes(dictionary, resource, profile, sample);
                let process_number = match own {
                    Some(own) if !attributes.sample_names_process() => own,
                    _ => found.process(&attributes, number),
                };
                if !attributes.sample_names_process() {
                    own = Some(process_number);
                }
                let process = &mut found.processes[process_number].1;
                let part = *part_of.entry(process_number).or_insert_with(|| {
                    process.parts.push(ProfileShare::new(profile, &meaning));
                    process.parts.len() - 1
                });
                let thread: Option<Rc<str>> = attributes.text("thread.id").map(Rc::from);
                if let Some(id) = thread.as_deref().filter(|&id| !process.thread_names.contains_key(id))
                    && let Some(name) = attributes.text("thread.name")
                {
                    process.thread_names.insert(id.to_owned(), name);
                }
                process.parts[part].add(sample, thread, &meaning);
            }
        }
    }
    found.processes
}

/// The processes found so far.
#[derive(Default)]
struct Found {
    processes: Vec<(NaiveIdentity, NaiveProcess)>,
    numbers: HashMap<NaiveIdentity, usize>,
}

impl Found {
    /// The number of the process with these attributes.
    fn process(&mut self, attributes: &SampleAttributes<'_>, resource_number: usize) -> usize {
        let identity = identity(attributes, resource_number);
        *self.numbers.entry(identity.clone()).or_insert_with(|| {
            let release = release(attributes);
            let environment = Some(environment(attributes));
            self.processes.push((identity, NaiveProcess { release, environment, ..NaiveProcess::default() }));
            self.processes.len() - 1
        })
    }
}

fn attributes<'a>(
    dictionary: &'a ProfilesDictionary,
    resource: &'a [KeyValue],
    profile: &'a Profile,
    sample: &'a Sample,
) -> SampleAttributes<'a> {
    SampleAttributes { dictionary, resource, profile: &profile.attribute_indices, sample: &sample.attribute_indices }
}

impl ProfileShare {
    fn new(profile: &Profile, meaning: &NaiveMeaning) -> Self {
        Self {
            kind: meaning.kind,
            start: profile.time_unix_nano,
            duration: profile.duration_nano,
            observations: Vec::new(),
            values: Vec::new(),
        }
    }

    fn add(&mut self, sample: &Sample, thread: Option<Rc<str>>, meaning: &NaiveMeaning) {
        let stack = sample.stack_index;
        if sample.timestamps_unix_nano.is_empty() {
            self.values.push((stack, thread, meaning.weight(sample, 0)));
            return;
        }
        for (position, &timestamp) in sample.timestamps_unix_nano.iter().enumerate() {
            let weight = meaning.weight(sample, position);
            self.observations.push(Observation { timestamp, weight, thread: thread.clone(), stack });
        }
    }
}

/// `service.name@service.version`, or `service.name`.
fn release(attributes: &SampleAttributes<'_>) -> Option<String> {
    let name = attributes.text("service.name")?;
    match attributes.text("service.version") {
        Some(version) => Some(format!("{name}@{version}")),
        None => Some(name),
    }
}

/// `deployment.environment.name`, or `production` without it.
fn environment(attributes: &SampleAttributes<'_>) -> String {
    attributes.text("deployment.environment.name").unwrap_or_else(|| "production".to_owned())
}
