//! Creates profiles, runs the processor, and lists the contents of its output.

use std::collections::BTreeMap;

use profbridge_engine::component::{Outbox, Processor, flush_all};
use profbridge_engine::config::Section;
use profbridge_engine::service::ServiceSettings;
use profbridge_model::builder::Any;
use profbridge_model::{Builder, Dictionary, Profile, Profiles, Value};
use profbridge_processor_chunk::{ChunkProcessor, Config};
pub(crate) use profbridge_testkit::{
    SECOND as S, START_UNIX_NANO as T, at, note as noted, process as process_one, sent_profiles as batches,
};

/// The modes: with windows, and without.
pub(crate) const MODES: [&str; 2] = ["window: 60s", "window: 0s"];

/// A processor with these keys of `service.identity` and of its own, in YAML.
pub(crate) fn chunk(identity: &str, yaml: &str) -> ChunkProcessor {
    let service = Section::from_yaml(&format!("identity: {{{identity}}}")).unwrap();
    let rules = ServiceSettings::new(&service).unwrap().identity;
    let section = Section::from_yaml(yaml).unwrap();
    ChunkProcessor::new(Config::read(&section).unwrap().check(&section, &rules).unwrap())
}

/// The visible properties of one observation, wherever its attributes are stored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObservationProperties {
    /// The attributes of resource and sample together.
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) scope: String,
    pub(crate) kind: String,
    pub(crate) period: i64,
    /// The range of the profile, if there is no timestamp.
    pub(crate) range: Option<(u64, u64)>,
    pub(crate) frames: Vec<String>,
    pub(crate) link: Option<[u8; 16]>,
    pub(crate) time: Option<u64>,
    pub(crate) values: Vec<i64>,
}

fn text(dictionary: &Dictionary, value: &Value) -> String {
    match value {
        Value::String(id) => dictionary.string(*id).to_owned(),
        other => format!("{other:?}"),
    }
}

pub(crate) fn seen(batch: &Profiles) -> Vec<ObservationProperties> {
    let dictionary = batch.dictionary();
    let mut all = Vec::new();
    for resource in batch.resources() {
        let resource_attributes = resource.resource.attributes.iter();
        for scope in &resource.scopes {
            for profile in &scope.profiles {
                for sample in batch.samples(profile) {
                    let attributes = resource_attributes
                        .clone()
                        .chain(dictionary.attributes(sample.attributes))
                        .map(|item| (dictionary.string(item.key).to_owned(), text(dictionary, &item.value)))
                        .collect();
                    let frames = dictionary.stack(sample.stack).map(|id| {
                        let lines = id.map(|id| dictionary.lines(dictionary.location(id))).unwrap_or_default();
                        let function = lines.first().and_then(|line| line.function);
                        function.map_or("?", |id| dictionary.string(dictionary.function(id).name)).to_owned()
                    });
                    let seen = ObservationProperties {
                        attributes,
                        scope: dictionary.string(scope.scope.name).to_owned(),
                        kind: dictionary.string(profile.sample_type.kind).to_owned(),
                        period: profile.period,
                        range: None,
                        frames: frames.collect(),
                        link: sample.link.map(|id| dictionary.link(id).trace_id),
                        time: None,
                        values: sample.values().collect(),
                    };
                    if sample.timestamps().len() == 0 {
                        all.push(ObservationProperties {
                            range: Some((profile.time_unix_nano, profile.duration_nano)),
                            ..seen
                        });
                        continue;
                    }
                    let mut values = sample.values().map(|value| vec![value]);
                    for time in sample.timestamps() {
                        all.push(ObservationProperties {
                            time: Some(time),
                            values: values.next().unwrap_or_default(),
                            ..seen.clone()
                        });
                    }
                }
            }
        }
    }
    all
}

/// The times of all observations of a batch.
pub(crate) fn times(batch: &Profiles) -> Vec<u64> {
    seen(batch).into_iter().filter_map(|seen| seen.time).collect()
}

/// A batch with one resource, and one thread with one frame at these times.
pub(crate) fn one(resource: &[(&str, Any<'_>)], times: &[u64]) -> Profiles {
    let mut builder = Builder::new();
    builder.resource(resource);
    builder.on_cpu(20);
    let frame = builder.frame("work", "main.rs", 1);
    let stack = builder.stack(&[frame]);
    let thread = builder.attributes(&[("thread.id", 1.into())]);
    builder.sample(stack, thread, None, times, &[]);
    builder.finish().unwrap()
}

/// The process with this pid on a host.
pub(crate) fn process(pid: i64) -> [(&'static str, Any<'static>); 2] {
    [("host.id", Any::Str("host")), ("process.pid", Any::Int(pid))]
}

/// A batch with one profile that has values without timestamps.
pub(crate) fn ranged(pid: i64, start: u64, duration: u64) -> Profiles {
    let mut builder = Builder::new();
    builder.resource(&process(pid));
    builder.profile(Profile { time_unix_nano: start, duration_nano: duration, ..Profile::default() });
    builder.sample(None, None, None, &[], &[5]);
    builder.finish().unwrap()
}

/// The whole output of a new processor with these settings for a batch, at once and at the end.
pub(crate) fn run(identity: &str, yaml: &str, batch: Profiles) -> Outbox {
    let mut chunk = chunk(identity, yaml);
    let mut out = process_one(&mut chunk, batch, at(0));
    flush_all(&mut chunk, at(0), &mut out);
    out
}

/// The number of observations of each batch.
pub(crate) fn observations(batches: &[Profiles]) -> Vec<u64> {
    batches.iter().map(Profiles::observations).collect()
}

pub(crate) fn flush(chunk: &mut ChunkProcessor) -> Vec<Profiles> {
    let mut out = Outbox::default();
    flush_all(chunk, at(0), &mut out);
    assert!(out.losses.is_none());
    assert_eq!(chunk.held().quantities.total(), 0);
    batches(&out)
}
