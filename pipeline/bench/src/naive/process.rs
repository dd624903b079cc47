//! Samples grouped by the process they belong to.

use std::collections::HashMap;

use opentelemetry_proto::tonic::{
    common::v1::KeyValue,
    profiles::v1development::{Profile, ProfilesDictionary, Sample},
};

use super::{
    Options,
    attributes::Attributes,
    identity::{Identity, identity},
    kind::{Kind, Meaning, meaning},
    timeline::{Observation, spread},
};
use crate::ExportProfilesServiceRequest;

/// What one request says of one process.
#[derive(Default)]
pub(super) struct Process {
    pub(super) release: Option<String>,
    pub(super) environment: Option<String>,
    pub(super) thread_names: HashMap<String, String>,
    parts: Vec<Part>,
}

/// The process's share of one profile.
struct Part {
    kind: Kind,
    start: u64,
    duration: u64,
    observations: Vec<Observation>,
    values: Vec<(i32, Option<String>, u64)>,
}

impl Process {
    /// The observations of the greatest kind, and where they may begin and end.
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
    options: &Options,
) -> Vec<(Identity, Process)> {
    let mut order: Vec<Identity> = Vec::new();
    let mut found: HashMap<Identity, Process> = HashMap::new();
    for (number, resource_profiles) in request.resource_profiles.iter().enumerate() {
        let resource = resource_profiles.resource.as_ref().map_or(&[][..], |resource| &resource.attributes);
        for profile in resource_profiles.scope_profiles.iter().flat_map(|scope| &scope.profiles) {
            let Some(meaning) = meaning(dictionary, profile, options.off_cpu) else { continue };
            let own = identity(&attributes(dictionary, resource, profile, None), number);
            let mut part_of: HashMap<Identity, usize> = HashMap::new();
            for sample in &profile.samples {
                let attributes = attributes(dictionary, resource, profile, Some(sample));
                let identity =
                    if attributes.sample_names_process() { identity(&attributes, number) } else { own.clone() };
                let process = found.entry(identity.clone()).or_insert_with(|| {
                    order.push(identity.clone());
                    Process {
                        release: release(&attributes),
                        environment: Some(environment(&attributes)),
                        ..Process::default()
                    }
                });
                let part = *part_of.entry(identity).or_insert_with(|| {
                    process.parts.push(Part::new(profile, &meaning));
                    process.parts.len() - 1
                });
                let thread = attributes.text("thread.id");
                if let (Some(id), Some(name)) = (&thread, attributes.text("thread.name")) {
                    process.thread_names.insert(id.clone(), name);
                }
                process.parts[part].add(sample, thread, &meaning);
            }
        }
    }
    order.into_iter().filter_map(|identity| found.remove_entry(&identity)).collect()
}

fn attributes<'a>(
    dictionary: &'a ProfilesDictionary,
    resource: &'a [KeyValue],
    profile: &'a Profile,
    sample: Option<&'a Sample>,
) -> Attributes<'a> {
    Attributes {
        dictionary,
        resource,
        profile: &profile.attribute_indices,
        sample: sample.map_or(&[][..], |sample| &sample.attribute_indices),
    }
}

impl Part {
    fn new(profile: &Profile, meaning: &Meaning) -> Self {
        Self {
            kind: meaning.kind,
            start: profile.time_unix_nano,
            duration: profile.duration_nano,
            observations: Vec::new(),
            values: Vec::new(),
        }
    }

    fn add(&mut self, sample: &Sample, thread: Option<String>, meaning: &Meaning) {
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
fn release(attributes: &Attributes<'_>) -> Option<String> {
    let name = attributes.text("service.name")?;
    match attributes.text("service.version") {
        Some(version) => Some(format!("{name}@{version}")),
        None => Some(name),
    }
}

/// `deployment.environment.name`, else `production`.
fn environment(attributes: &Attributes<'_>) -> String {
    attributes.text("deployment.environment.name").unwrap_or_else(|| "production".to_owned())
}
