//! Compares the time sampled in a request with the time that its chunks show in Sentry, by brute force.
//!
//! [`sampled`] sums up the time of each observation of a request, by thread and innermost function. [`shown`]
//! interprets finished chunks as Sentry does: a sample lasts until the next sample of its thread in its chunk, the last
//! one has no duration, and one without frames does not count (observed with `vroomrs` 0.1.24). [`compare`] reports the
//! differences. Nothing here depends on how chunks are made.

use std::collections::{BTreeMap, BTreeSet};

use opentelemetry_proto::tonic::{
    common::v1::any_value::Value,
    profiles::v1development::{Profile, ProfilesDictionary, Sample, ValueType},
};

use crate::ExportProfilesServiceRequest;
use crate::naive::NaiveChunk;

/// A thread, if the producer names one, and a function.
type ThreadFunction = (Option<String>, String);

/// The sampled time.
#[derive(Clone, Debug, Default)]
pub struct SampledTimes {
    /// Nanoseconds by thread and innermost function.
    pub times: BTreeMap<ThreadFunction, u64>,
    /// The longest time of a single observation of each thread.
    pub weights: BTreeMap<Option<String>, u64>,
}

/// The time shown in Sentry.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// Nanoseconds by thread and innermost function; threads that the request does not name are added up.
    pub times: BTreeMap<ThreadFunction, u64>,
    /// The number of chunks that contain a thread; for threads that the request does not name, the sum over all of
    /// them.
    pub parts: BTreeMap<Option<String>, u64>,
    /// The number of samples, whose timestamps are rounded to microseconds.
    pub samples: u64,
}

/// Adds up the times in a request of all profiles with a unit of time or a period.
pub fn sampled(request: &ExportProfilesServiceRequest) -> SampledTimes {
    let mut sampled = SampledTimes::default();
    let Some(dictionary) = &request.dictionary else { return sampled };
    let scopes = request.resource_profiles.iter().flat_map(|resource| &resource.scope_profiles);
    for profile in scopes.flat_map(|scope| &scope.profiles) {
        let Some(unit) = unit(dictionary, profile) else { continue };
        for sample in &profile.samples {
            let thread = thread(dictionary, sample);
            let times = |value: i64| u64::try_from(value).unwrap_or(0).saturating_mul(unit);
            // Without timestamps a sample is one observation, however many values it has.
            let weights: Vec<u64> = match (sample.timestamps_unix_nano.len(), sample.values.len()) {
                (0, _) => vec![sample.values.iter().map(|&value| times(value)).sum()],
                (count, 0) => vec![unit; count],
                _ => sample.values.iter().map(|&value| times(value)).collect(),
            };
            let key = (thread.clone(), tail(&leaf(dictionary, sample)));
            *sampled.times.entry(key).or_default() += weights.iter().sum::<u64>();
            let largest = sampled.weights.entry(thread).or_default();
            *largest = weights.into_iter().fold(*largest, u64::max);
        }
    }
    sampled
}

/// Adds up the times in chunks. `named` contains the threads with their own names; the converter made up all others.
pub fn shown<'a>(chunks: impl IntoIterator<Item = &'a NaiveChunk>, named: &SampledTimes) -> Shown {
    let mut shown = Shown::default();
    for chunk in chunks {
        let mut threads: BTreeMap<&str, Vec<(u64, usize)>> = BTreeMap::new();
        for sample in &chunk.profile.samples {
            let micros = (sample.timestamp * 1e6).round() as u64;
            threads.entry(&sample.thread_id).or_default().push((micros, sample.stack_id));
            shown.samples += 1;
        }
        for (thread, mut samples) in threads {
            samples.sort_by_key(|&(micros, _)| micros);
            let thread = Some(thread.to_owned()).filter(|thread| named.weights.contains_key(&Some(thread.clone())));
            *shown.parts.entry(thread.clone()).or_default() += 1;
            for pair in samples.windows(2) {
                let Some(&leaf) = chunk.profile.stacks[pair[0].1].first() else { continue };
                let function = chunk.profile.frames[leaf].function.as_deref().unwrap_or("");
                *shown.times.entry((thread.clone(), tail(function))).or_default() += (pair[1].0 - pair[0].0) * 1_000;
            }
        }
    }
    shown
}

/// Reports a function in a thread whose shown time differs from the sampled time by more than 2 % of the thread's time
/// plus one weight for each chunk with the thread. `clipped` nanoseconds, which a converter counted as not shown, may
/// be missing.
///
/// # Errors
///
/// The first difference in words.
pub fn compare(sampled: &SampledTimes, shown: &Shown, clipped: u64) -> Result<(), String> {
    let total = |times: &BTreeMap<ThreadFunction, u64>, thread: &Option<String>| -> u64 {
        times.iter().filter(|((of, _), _)| of == thread).map(|(_, time)| time).sum()
    };
    for (thread, weight) in &sampled.weights {
        let expected = total(&sampled.times, thread);
        // Timestamps are rounded, and each observation has two ends.
        let allowed = expected / 50 + weight * shown.parts.get(thread).copied().unwrap_or(1) + 2_000 * shown.samples;
        let differs = |name: &str, expected: u64, found: u64| {
            let wrong = found > expected + allowed || found + allowed + clipped < expected;
            let thread = thread.as_deref().unwrap_or("without a name");
            wrong.then(|| format!("thread {thread}, {name}: {found} ns are shown of {expected}, {allowed} allowed"))
        };
        let keys = sampled.times.keys().chain(shown.times.keys()).filter(|(of, _)| of == thread);
        let time = |times: &BTreeMap<ThreadFunction, u64>, key: &ThreadFunction| times.get(key).copied().unwrap_or(0);
        let each = keys.map(|key| differs(&key.1, time(&sampled.times, key), time(&shown.times, key)));
        let all = differs("all functions", expected, total(&shown.times, thread));
        if let Some(difference) = each.chain([all]).flatten().next() {
            return Err(difference);
        }
    }
    Ok(())
}

/// The in-app functions whose time Sentry does not list because they have only one sample in a chunk (observed with
/// `vroomrs` 0.1.24). Functions are distinguished by module, or without one by file; the root frame does not count.
pub fn unlisted(chunk: &NaiveChunk) -> BTreeSet<String> {
    // For each function, the number of samples and the microseconds.
    let mut seen: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
    let mut threads: BTreeMap<&str, Vec<(u64, usize)>> = BTreeMap::new();
    for sample in &chunk.profile.samples {
        let micros = (sample.timestamp * 1e6).round() as u64;
        threads.entry(&sample.thread_id).or_default().push((micros, sample.stack_id));
    }
    for samples in threads.values_mut() {
        samples.sort_by_key(|&(micros, _)| micros);
        for pair in samples.windows(2) {
            let frames = chunk.profile.stacks[pair[0].1].iter().map(|&frame| &chunk.profile.frames[frame]);
            let above_root = chunk.profile.stacks[pair[0].1].len().saturating_sub(1);
            let own = |frame: &&crate::naive::chunk::NaiveFrame| frame.in_app == Some(true) && frame.platform.is_none();
            let Some(frame) = frames.take(above_root).find(own) else { continue };
            let file = || frame.package.as_deref().map(|package| crate::naive::basename(package).to_owned());
            let module = frame.module.clone().or_else(file).unwrap_or_default();
            let function = seen.entry((module, frame.function.clone().unwrap_or_default())).or_default();
            *function = (function.0 + 1, function.1 + pair[1].0 - pair[0].0);
        }
    }
    // Functions with at most a microsecond are irrelevant.
    seen.into_iter()
        .filter(|&(_, (samples, micros))| samples < 2 && micros > 1)
        .map(|((_, function), _)| function)
        .collect()
}

/// The nanoseconds per unit of a value, or of a timestamp without one. Only sample counts are multiplied by the period.
fn unit(dictionary: &ProfilesDictionary, profile: &Profile) -> Option<u64> {
    let nanoseconds = |of: &Option<ValueType>| -> Option<u64> {
        match string(dictionary, of.as_ref()?.unit_strindex) {
            "nanoseconds" => Some(1),
            "microseconds" => Some(1_000),
            "milliseconds" => Some(1_000_000),
            "seconds" => Some(1_000_000_000),
            _ => None,
        }
    };
    let period = || nanoseconds(&profile.period_type)?.checked_mul(u64::try_from(profile.period).ok()?);
    let name = profile.sample_type.as_ref().map_or("", |of| string(dictionary, of.unit_strindex));
    let is_count = matches!(name.trim_matches(['{', '}']), "" | "1" | "count" | "counts" | "sample" | "samples");
    nanoseconds(&profile.sample_type).or_else(|| if is_count { period() } else { None })
}

fn thread(dictionary: &ProfilesDictionary, sample: &Sample) -> Option<String> {
    let attributes =
        sample.attribute_indices.iter().filter_map(|&index| dictionary.attribute_table.get(index as usize));
    let mut ids = attributes.filter(|attribute| string(dictionary, attribute.key_strindex) == "thread.id");
    match ids.next()?.value.as_ref()?.value.as_ref()? {
        Value::IntValue(id) => Some(id.to_string()),
        Value::StringValue(id) => Some(id.clone()),
        _ => None,
    }
}

/// The name of a sample's innermost function, or without one its file in brackets.
fn leaf(dictionary: &ProfilesDictionary, sample: &Sample) -> String {
    let stack = dictionary.stack_table.get(sample.stack_index as usize);
    let location = stack.and_then(|stack| stack.location_indices.first());
    let Some(location) = location.and_then(|&index| dictionary.location_table.get(index as usize)) else {
        return String::new();
    };
    let function = location.lines.first().and_then(|line| dictionary.function_table.get(line.function_index as usize));
    if let Some(function) = function.filter(|function| function.name_strindex != 0) {
        return string(dictionary, function.name_strindex).to_owned();
    }
    let mapping = dictionary.mapping_table.get(location.mapping_index as usize);
    let path = mapping.map_or("", |mapping| string(dictionary, mapping.filename_strindex));
    format!("[{}]", crate::naive::basename(path))
}

/// The last word of a name, without arguments: the function without its module. For code without a name, the file in
/// brackets.
fn tail(name: &str) -> String {
    if let Some((file, _)) = name.strip_prefix('[').and_then(|name| name.split_once(']')) {
        return format!("[{file}]");
    }
    let name = match (name.ends_with(')'), name.rfind('(')) {
        (true, Some(arguments)) => &name[..arguments],
        _ => name,
    };
    let word = name.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
    if word.is_empty() { name.to_owned() } else { word.to_owned() }
}

fn string(dictionary: &ProfilesDictionary, index: i32) -> &str {
    usize::try_from(index).ok().and_then(|index| dictionary.string_table.get(index)).map_or("", String::as_str)
}
