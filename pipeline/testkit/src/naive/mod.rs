//! The naive control: converts OTLP profiles to Sentry chunks in a straightforward way, without regard to speed.
//!
//! prost decodes the request, owned serde structs represent the chunks, `serde_json::to_vec` writes them, flate2
//! compresses them at level 6. The control follows the rules of profbridge's own converter for the data of the eBPF
//! profiler and pprof, with one function per rule, so its chunks serve as an oracle: compare with [`difference`]. It
//! counts nothing, merges nothing across requests, and skips invalid data.
//!
//! Intentionally omitted: cutting a chunk where its process idles, run-length encoding in wall mode, and all limits.

use std::collections::{BTreeMap, HashMap, HashSet};

use prost::Message;

mod attributes;
mod canonical;
pub mod chunk;
mod encode;
mod frames;
mod identity;
mod images;
mod kind;
mod modules;
mod process;
mod tables;
mod timeline;
pub mod transaction;

use opentelemetry_proto::tonic::profiles::v1development::{Location, ProfilesDictionary};

pub use canonical::{CanonicalSample, attributed_us, canonical, debug_ids, difference};
pub use chunk::NaiveChunk;
pub use encode::{envelope, gzip, json};
pub(crate) use frames::basename;
pub use identity::NaiveIdentity;

use crate::ExportProfilesServiceRequest;
use process::NaiveProcess;
use timeline::{Observation, WINDOW};

/// The options of the conversion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NaiveOptions {
    /// Whether to convert off-CPU profiles.
    pub off_cpu: bool,
    /// The end of the window in nanoseconds since the epoch; by default the end of the process's last profile.
    pub window_end: Option<u64>,
}

/// Any error of [`run`].
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Converts an encoded request to gzipped envelopes, one per chunk.
///
/// # Errors
/// The request does not decode.
pub fn run(request: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let mut envelopes = Vec::new();
    for chunk in convert(&decode(request)?, &NaiveOptions::default()) {
        envelopes.push(gzip(&envelope(&chunk.platform, &json(&chunk)?))?);
    }
    Ok(envelopes)
}

/// Decodes a request with prost.
///
/// # Errors
/// The bytes are not a request.
pub fn decode(request: &[u8]) -> Result<ExportProfilesServiceRequest, prost::DecodeError> {
    ExportProfilesServiceRequest::decode(request)
}

/// The chunks of a request: one per process and minute, in order of the processes' first samples.
pub fn convert(request: &ExportProfilesServiceRequest, options: &NaiveOptions) -> Vec<NaiveChunk> {
    let empty = ProfilesDictionary::default();
    let dictionary = request.dictionary.as_ref().unwrap_or(&empty);
    let source = Source { dictionary, kinds: frames::kinds(dictionary) };
    let mut chunks = Vec::new();
    for (identity, mut process) in process::processes(request, dictionary, options) {
        let about = About {
            profiler_id: identity::profiler_id(&identity),
            release: process.release.take(),
            environment: process.environment.take(),
            thread_names: std::mem::take(&mut process.thread_names),
        };
        chunks.extend(process_chunks(&source, &about, process, options));
    }
    chunks
}

/// The request's tables.
struct Source<'a> {
    dictionary: &'a ProfilesDictionary,
    /// The kind of each location.
    kinds: Vec<frames::CodeKind>,
}

/// The common properties of all chunks of a process.
struct About {
    profiler_id: String,
    release: Option<String>,
    environment: Option<String>,
    thread_names: HashMap<String, String>,
}

fn process_chunks(
    source: &Source<'_>,
    about: &About,
    process: NaiveProcess,
    options: &NaiveOptions,
) -> Vec<NaiveChunk> {
    let (mut observations, start, end) = process.observations();
    timeline::assign_lanes(&mut observations);
    let end = options.window_end.unwrap_or(end);
    timeline::windows(observations, start)
        .into_iter()
        .map(|(begin, observations)| {
            let window_end = begin.saturating_add(WINDOW).min(end);
            chunk(source, about, observations, window_end)
        })
        .collect()
}

fn chunk(source: &Source<'_>, about: &About, observations: Vec<Observation>, window_end: u64) -> NaiveChunk {
    let platform = source.root_platform(&observations);
    let images = images::NaiveImages::place(source.dictionary, &source.used_mappings(&observations));
    let entries = timeline::entries(observations, window_end);
    let first = entries.first().map_or(0, |entry| entry.timestamp);
    NaiveChunk {
        chunk_id: identity::chunk_id(&about.profiler_id, first, entries.len()),
        profiler_id: about.profiler_id.clone(),
        release: about.release.clone(),
        environment: about.environment.clone(),
        client_sdk: chunk::ClientSdk {
            name: "profbridge.rust".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        },
        version: "2".to_owned(),
        debug_meta: chunk::DebugMeta { images: images.list(source.dictionary) },
        profile: tables::tables(source, &images, &platform, &about.thread_names, entries),
        platform,
    }
}

impl Source<'_> {
    /// The platform of most non-native observations; `native` if there are none.
    fn root_platform(&self, observations: &[Observation]) -> String {
        let mut per_stack: HashMap<i32, Option<&'static str>> = HashMap::new();
        let mut votes: BTreeMap<&'static str, usize> = BTreeMap::new();
        for observation in observations {
            let platform = per_stack.entry(observation.stack).or_insert_with(|| self.stack_platform(observation.stack));
            if let Some(platform) = platform {
                *votes.entry(platform).or_default() += 1;
            }
        }
        let winner = votes.into_iter().max_by(|left, right| left.1.cmp(&right.1).then(right.0.cmp(left.0)));
        winner.map_or("native", |(platform, _)| platform).to_owned()
    }

    /// The platform of a stack's innermost non-native frame.
    fn stack_platform(&self, stack: i32) -> Option<&'static str> {
        self.locations(stack).map(|(index, _)| self.kinds[index].platform).find(|&platform| platform != "native")
    }

    /// The mappings of machine addresses in these observations, with the highest address in each.
    fn used_mappings(&self, observations: &[Observation]) -> BTreeMap<i32, u64> {
        let stacks: HashSet<i32> = observations.iter().map(|observation| observation.stack).collect();
        let mut used: BTreeMap<i32, u64> = BTreeMap::new();
        let mut seen = vec![false; self.kinds.len()];
        for (index, location) in stacks.into_iter().flat_map(|stack| self.locations(stack)) {
            if seen[index] {
                continue;
            }
            seen[index] = true;
            if location.mapping_index > 0 && frames::has_machine_address(&self.kinds[index].frame_type) {
                let highest = used.entry(location.mapping_index).or_default();
                *highest = (*highest).max(location.address);
            }
        }
        used
    }

    /// The locations of a stack, leaf first. Invalid indices are skipped.
    fn locations(&self, stack: i32) -> impl Iterator<Item = (usize, &Location)> {
        let stack = usize::try_from(stack).ok().and_then(|stack| self.dictionary.stack_table.get(stack));
        stack.into_iter().flat_map(|stack| &stack.location_indices).filter_map(|&index| {
            let index = usize::try_from(index).ok()?;
            Some((index, self.dictionary.location_table.get(index)?))
        })
    }
}
