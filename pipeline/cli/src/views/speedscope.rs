//! speedscope's file format (speedscope.app `file-format-schema.json`), with a `sampled` profile for each thread.
//!
//! speedscope shows one profile at a time, the first one initially: the running time of all threads by own code, with
//! equal stacks merged. Then come the threads as they were sampled: running time, waiting time as separate profiles,
//! and each type of values that is not thread time. Weights must not be negative. The viewer puts samples one after the
//! other, so their times give only the order, and gaps are not visible. It becomes slow with many samples, so larger
//! profiles are merged as well.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;

use serde::{Serialize, Serializer};

use super::reading::{State, Unit};
use super::stacks::Node;
use super::timeline::{Timeline, Track};

/// The schema's address, required in each file.
const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

/// The most samples that are written in order of time.
const MOST_SAMPLES: usize = 20_000;

/// Writes a timeline. `title` is the file's title in the viewer.
///
/// # Errors
///
/// The error of the writer.
pub(crate) fn write(timeline: &mut Timeline, title: &str, out: impl io::Write) -> io::Result<()> {
    timeline.sort();
    let own = own_code(timeline);
    let (timeline, tracks) = (&*timeline, timeline.tracks());
    let is_merged = tracks.iter().map(|track| runs(track).count()).sum::<usize>() > MOST_SAMPLES;
    let frames = SerializeEach(|| {
        timeline.reading.stacks.functions().enumerate().map(|(number, (function, line))| {
            let in_source = !function.file.is_empty();
            let file = if in_source { &function.file } else { &function.module };
            let name = timeline.reading.stacks.label_of(number as u32);
            SpeedscopeFrame { name, file, line: line.filter(|_| in_source) }
        })
    });
    let own = (!own.is_empty()).then(|| ("own code, all threads".to_owned(), Unit::Nanoseconds, own));
    let raw = tracks.iter().map(|track| {
        let runs = runs(track).collect();
        (timeline.name(track), timeline.unit(track), if is_merged { merged(runs) } else { runs })
    });
    let profiles: Vec<_> = own.into_iter().chain(raw).collect();
    let profiles = SerializeEach(|| {
        profiles.iter().map(|(name, unit, weighed)| SpeedscopeProfile {
            kind: "sampled",
            name,
            unit: match unit {
                Unit::Nanoseconds => "nanoseconds",
                Unit::Count(_) => "none",
                Unit::Bytes => "bytes",
            },
            start: 0,
            end: weighed.iter().fold(0u64, |sum, (_, weight)| sum.saturating_add(*weight)),
            samples: SerializeEach(|| weighed.iter().map(|(node, _)| timeline.reading.stacks.path(*node))),
            weights: SerializeEach(|| weighed.iter().map(|(_, weight)| *weight)),
        })
    });
    let exporter = concat!("profbridge@", env!("CARGO_PKG_VERSION"));
    let file =
        SpeedscopeFile { schema: SCHEMA, exporter, name: title, active: 0, shared: SharedFrames { frames }, profiles };
    serde_json::to_writer(out, &file).map_err(io::Error::from)
}

/// Consecutive observations of the same stack as one.
fn runs(track: &Track) -> impl Iterator<Item = (Node, u64)> {
    let weight = |sum: u64, weight: i64| sum.saturating_add(weight.unsigned_abs());
    let runs = track.observations.chunk_by(|one, next| one.node == next.node);
    runs.map(move |run| (run[0].node, run.iter().fold(0, |sum, one| weight(sum, one.weight))))
}

/// Equal stacks as one, the heaviest first.
fn merged(weighed: Vec<(Node, u64)>) -> Vec<(Node, u64)> {
    let mut sums: HashMap<Node, u64> = HashMap::new();
    for (node, weight) in weighed {
        let sum = sums.entry(node).or_default();
        *sum = sum.saturating_add(weight);
    }
    let mut merged: Vec<_> = sums.into_iter().collect();
    merged.sort_by_key(|&(node, weight)| (Reverse(weight), node));
    merged
}

/// The folded stacks of all running threads.
fn own_code(timeline: &mut Timeline) -> Vec<(Node, u64)> {
    let running = timeline.tracks().into_iter().filter(|track| track.state == State::Running);
    let weighed: Vec<_> = running.flat_map(runs).collect();
    let stacks = &mut timeline.reading.stacks;
    merged(weighed.into_iter().map(|(node, weight)| (stacks.fold(node, false), weight)).collect())
}

#[derive(Serialize)]
struct SpeedscopeFile<'a, F: Serialize, P: Serialize> {
    #[serde(rename = "$schema")]
    schema: &'a str,
    exporter: &'a str,
    name: &'a str,
    #[serde(rename = "activeProfileIndex")]
    active: u32,
    shared: SharedFrames<F>,
    profiles: P,
}

/// The functions of all profiles.
#[derive(Serialize)]
struct SharedFrames<F: Serialize> {
    frames: F,
}

#[derive(Serialize)]
struct SpeedscopeFrame<'a> {
    name: &'a str,
    /// The source file, or else the file of the machine code. The viewer shows it after the name.
    #[serde(skip_serializing_if = "str::is_empty")]
    file: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
struct SpeedscopeProfile<'a, S: Serialize, W: Serialize> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    unit: &'static str,
    #[serde(rename = "startValue")]
    start: u64,
    #[serde(rename = "endValue")]
    end: u64,
    samples: S,
    weights: W,
}

/// A list that is serialized without being in memory as a whole.
struct SerializeEach<F>(F);

impl<F: Fn() -> I, I: IntoIterator<Item: Serialize>> Serialize for SerializeEach<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}
