//! A batch that is a chunk of somebody's SDK already becomes that chunk again.
//!
//! Everything was decided by whoever made the chunk: which samples there are, which frames are the application's own,
//! what they are called. So nothing of it is decided a second time: the samples are written as they are, without the
//! ends of runs and the halves that [`plan`](super::plan) adds, and of frames, images and threads what
//! [`chunk_reader`](crate::sentry::chunk_reader) kept in attributes. `profbridge_model::whole_chunk` says how a batch
//! is recognised. Names that were found meanwhile, for native frames, are written as well.
//!
//! What Sentry would refuse (no thread with two samples that have frames, more than 66 s, more bytes than it takes) is
//! not written as it is: it is converted like any other batch, which keeps these rules.
//!
//! All of it is taken from OTLP, which anybody may have written, so what is JSON in an attribute is read before it is
//! written. What would make Sentry refuse the chunk is left out and counted.

mod frames;
mod images;

use std::io;

use hashbrown::HashMap;
use uuid::Uuid;

use profbridge_model::{
    AttributeSetId, Dictionary, ProcessWindow, Profile, Profiles, ResourceProfiles, Scope, Value, whole_chunk,
};

use self::frames::Frames;
use super::limits::MAX_CHUNK_NANOS;
use super::report::Notes;
use super::sink::ChunkSink;
use super::write;
use crate::sentry::sampled::measurements::are_valid;

/// The largest chunk that is written as it is, in bytes: what Relay takes, and so what it took before.
pub(super) const MAX_BYTES: usize = crate::sentry::sampled::MAX_BYTES;

/// About the most bytes that one sample takes without its thread's id.
const SAMPLE_BYTES: usize = write::SAMPLE_BYTES;

/// The longest time from the first to the last sample, in seconds.
const MAX_SECONDS: f64 = (MAX_CHUNK_NANOS / super::NANOS) as f64;

/// A time in nanoseconds as it is written, in microseconds.
fn micros(nanos: u64) -> u64 {
    nanos.saturating_add(500) / 1_000
}

/// A time in nanoseconds as it is read again, in seconds.
fn seconds(nanos: u64) -> f64 {
    micros(nanos) as f64 / 1e6
}

/// A batch of one profile that is a whole chunk.
#[derive(Clone, Copy)]
struct Source<'a> {
    batch: &'a Profiles,
    resource: &'a ResourceProfiles,
    scope: &'a Scope,
    profile: &'a Profile,
    platform: &'a str,
}

impl<'a> Source<'a> {
    fn of(batch: &'a Profiles) -> Option<(Self, ProcessWindow)> {
        let [resource] = batch.resources() else { return None };
        let [scope] = &resource.scopes[..] else { return None };
        let [profile] = &scope.profiles[..] else { return None };
        let window = whole_chunk::window(batch, resource, profile)?;
        let dictionary = batch.dictionary();
        let platform = text(dictionary, batch.find(&resource.resource.attributes, "sentry.platform")?)?;
        Some((Self { batch, resource, scope: &scope.scope, profile, platform }, window))
    }

    fn attribute(&self, key: &str) -> Option<&'a str> {
        let value = self.batch.find(&self.resource.resource.attributes, key)?;
        text(self.batch.dictionary(), value).filter(|text| !text.is_empty())
    }
}

fn text<'a>(dictionary: &'a Dictionary, value: &Value) -> Option<&'a str> {
    match value {
        Value::String(id) => Some(dictionary.string(*id)),
        _ => None,
    }
}

/// A sample as it is written, in the order in which it is written: thread by thread, by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sample {
    thread: u32,
    /// In nanoseconds since the Unix epoch.
    time: u64,
    stack: u32,
}

/// A thread of the chunk.
struct Thread<'a> {
    id: String,
    name: Option<&'a str>,
    priority: Option<u32>,
    /// Its samples with frames.
    busy: u64,
}

/// A chunk that can be written as it is.
pub(super) struct Whole<'a> {
    source: Source<'a>,
    window: ProcessWindow,
    samples: Vec<Sample>,
    threads: Vec<Thread<'a>>,
    frames: Frames,
    /// The images and their separators, without the brackets.
    images: Vec<u8>,
    /// The measurements as JSON, where Sentry takes them.
    measurements: Option<&'a str>,
    pub(super) notes: Notes,
    pub(super) billed_nanos: u64,
}

impl<'a> Whole<'a> {
    /// The chunk that a batch is, where it is one, and one that Sentry takes.
    pub(super) fn of(batch: &'a Profiles) -> Option<Self> {
        let (source, window) = Source::of(batch)?;
        let mut notes = Notes::default();
        let (threads, samples, frames) = read(source)?;
        let images = images::write(source.batch, source.profile, frames.mappings(), &mut notes);
        let dictionary = batch.dictionary();
        let measurements = dictionary.find(source.profile.attributes, "sentry.measurements");
        let measurements = measurements.and_then(|value| text(dictionary, value)).filter(|json| *json != "null");
        notes.left_out += u64::from(measurements.is_some_and(|json| !are_valid(json)));
        let measurements = measurements.filter(|json| are_valid(json));
        let mut whole = Self { source, window, samples, threads, frames, images, measurements, notes, billed_nanos: 0 };
        // Relay leaves out threads with fewer than two samples that have frames, and looks at the others' time.
        let kept = whole.samples.iter().filter(|sample| whole.threads[sample.thread as usize].busy >= 2);
        let (first, last) =
            kept.fold((u64::MAX, 0), |(first, last), sample| (first.min(sample.time), last.max(sample.time)));
        whole.billed_nanos = last.checked_sub(first)?;
        // As Relay reads what is written: seconds as doubles.
        if seconds(last) - seconds(first) > MAX_SECONDS {
            return None;
        }
        (whole.estimated_bytes() <= MAX_BYTES).then_some(whole)
    }

    pub(super) fn estimated_bytes(&self) -> usize {
        let id = |sample: &Sample| SAMPLE_BYTES + self.threads[sample.thread as usize].id.len();
        let samples: usize = self.samples.iter().map(id).sum();
        let names = self.threads.iter().map(|thread| thread.id.len() + thread.name.map_or(0, str::len) + 48);
        let measurements = self.measurements.map_or(0, str::len);
        samples + names.sum::<usize>() + self.frames.bytes() + self.images.len() + measurements + 1024
    }

    pub(super) fn platform(&self) -> &'a str {
        self.source.platform
    }

    pub(super) fn window(&self) -> &ProcessWindow {
        &self.window
    }

    pub(super) fn release(&self) -> Option<String> {
        let version = || self.source.attribute("service.version");
        let own = self.source.attribute("sentry.release").map(str::to_owned);
        own.or_else(|| match (self.source.attribute("service.name")?, version()) {
            (name, Some(version)) => Some(format!("{name}@{version}")),
            (name, None) => Some(name.to_owned()),
        })
    }

    pub(super) fn environment(&self) -> Option<&'a str> {
        self.source.attribute("deployment.environment.name")
    }

    pub(super) fn samples(&self) -> u64 {
        self.samples.len() as u64
    }

    /// Writes the chunk to an open sink. Returns its id and its size in bytes.
    ///
    /// # Errors
    ///
    /// The sink's.
    pub(super) fn write(&self, buffer: &mut Vec<u8>, sink: &mut dyn ChunkSink) -> io::Result<(Uuid, u64)> {
        let dictionary = self.source.batch.dictionary();
        let sdk = (dictionary.string(self.source.scope.name), dictionary.string(self.source.scope.version));
        let release = self.release();
        let threads = self.threads.iter().map(|thread| write::Thread {
            id: &thread.id,
            name: thread.name.map(str::as_bytes),
            priority: thread.priority,
        });
        let threads: Vec<write::Thread<'_>> = threads.collect();
        let parts = write::Parts {
            platform: self.source.platform,
            // Relay refuses a chunk without one.
            sdk: if sdk.0.is_empty() { write::SDK } else { sdk },
            profiler_id: self.window.profiler_id,
            release: release.as_deref(),
            environment: self.environment(),
            measurements: self.measurements,
            stack_count: self.frames.stack_count(),
            stacks: &self.frames.stacks,
            frames: &self.frames.text,
            images: &self.images,
            threads: &threads,
            // None where it was none, as OTLP has it.
            id: self.source.profile.profile_id.map(Uuid::from_bytes),
            notes: None,
        };
        let of_threads = self.samples.chunk_by(|one, other| one.thread == other.thread).map(|samples| {
            let id = samples.first().map_or("", |sample| &self.threads[sample.thread as usize].id);
            (id, samples.iter().map(|sample| (sample.stack, micros(sample.time))))
        });
        write::write(parts, of_threads, buffer, sink)
    }
}

/// The threads, the samples in order, and the frames; `None` where a sample has no thread, or there is too much of it.
fn read(source: Source<'_>) -> Option<(Vec<Thread<'_>>, Vec<Sample>, Frames)> {
    let dictionary = source.batch.dictionary();
    let mut frames = Frames::default();
    let mut threads: Vec<Thread<'_>> = Vec::new();
    let mut by_set: HashMap<AttributeSetId, u32> = HashMap::default();
    let mut by_id: HashMap<String, u32> = HashMap::default();
    let mut samples = Vec::new();
    for sample in source.batch.samples(source.profile) {
        let set = sample.attributes?;
        let thread = match by_set.get(&set) {
            Some(&thread) => thread,
            None => {
                let found = thread_of(dictionary, set)?;
                let thread = *by_id.entry(found.id.clone()).or_insert(threads.len() as u32);
                if thread as usize == threads.len() {
                    threads.push(found);
                }
                by_set.insert(set, thread);
                thread
            }
        };
        let stack = frames.stack(dictionary, sample.stack)?;
        let busy = u64::from(!frames.is_idle(stack)) * sample.observations();
        threads[thread as usize].busy += busy;
        samples.extend(sample.timestamps().map(|time| Sample { thread, time, stack }));
    }
    samples.sort_unstable();
    Some((threads, samples, frames))
}

fn thread_of(dictionary: &Dictionary, set: AttributeSetId) -> Option<Thread<'_>> {
    let (mut id, mut name, mut priority) = (None, None, None);
    for attribute in dictionary.attributes(Some(set)) {
        match (dictionary.string_bytes(attribute.key), &attribute.value) {
            (b"thread.id", Value::Int(number)) => id = Some(number.to_string()),
            (b"thread.id", Value::String(text)) => id = Some(dictionary.string(*text).to_owned()),
            (b"thread.name", Value::String(text)) => name = Some(dictionary.string(*text)),
            (b"sentry.thread.priority", Value::Int(number)) => priority = u32::try_from(*number).ok(),
            _ => {}
        }
    }
    Some(Thread { id: id?, name, priority, busy: 0 })
}
