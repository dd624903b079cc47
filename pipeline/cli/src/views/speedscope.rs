//! speedscope's file format (speedscope.app `file-format-schema.json`): a `sampled` profile of each thread.
//!
//! It shows one profile at a time and opens the first, so running time comes first and waiting time stands in profiles
//! of its own, behind it each type of values that is no time of threads. Weights are not below zero there, and are put
//! one behind the other: when a sample was taken is its order, and no gap.

use std::io;

use serde::{Serialize, Serializer};

use super::reading::Unit;
use super::timeline::{Observation, Timeline, Track};

/// Where the format is described, as its files say.
const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

/// Writes a timeline. `title` is what the file is called in the viewer.
///
/// # Errors
///
/// What the writer fails with.
pub(crate) fn write(timeline: &mut Timeline, title: &str, out: impl io::Write) -> io::Result<()> {
    timeline.sort();
    let (timeline, tracks) = (&*timeline, timeline.tracks());
    let frames = Each(|| {
        timeline.reading.stacks.functions().map(|(function, line)| {
            let in_source = !function.file.is_empty();
            let file = if in_source { &function.file } else { &function.module };
            Frame { name: &function.name, file, line: line.filter(|_| in_source) }
        })
    });
    let profiles = Each(|| {
        tracks.iter().map(|track| Sampled {
            kind: "sampled",
            name: timeline.name(track),
            unit: match timeline.unit(track) {
                Unit::Nanoseconds => "nanoseconds",
                Unit::Count(_) => "none",
                Unit::Bytes => "bytes",
            },
            start: 0,
            end: track.weight(),
            samples: Each(|| runs(track).map(|run| timeline.reading.stacks.path(run[0].node))),
            weights: Each(|| {
                runs(track).map(|run| run.iter().fold(0u64, |sum, one| sum.saturating_add(one.weight.unsigned_abs())))
            }),
        })
    });
    let exporter = concat!("profbridge@", env!("CARGO_PKG_VERSION"));
    let file = File { schema: SCHEMA, exporter, name: title, active: 0, shared: Shared { frames }, profiles };
    serde_json::to_writer(out, &file).map_err(io::Error::from)
}

/// Observations of the same stack one after another, as one.
fn runs(track: &Track) -> impl Iterator<Item = &[Observation]> {
    track.observations.chunk_by(|one, next| one.node == next.node)
}

#[derive(Serialize)]
struct File<'a, F: Serialize, P: Serialize> {
    #[serde(rename = "$schema")]
    schema: &'a str,
    exporter: &'a str,
    name: &'a str,
    #[serde(rename = "activeProfileIndex")]
    active: u32,
    shared: Shared<F>,
    profiles: P,
}

/// The functions of all profiles.
#[derive(Serialize)]
struct Shared<F: Serialize> {
    frames: F,
}

#[derive(Serialize)]
struct Frame<'a> {
    name: &'a str,
    /// The source file, else the file of the machine code, which the viewer shows behind the name.
    #[serde(skip_serializing_if = "str::is_empty")]
    file: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
struct Sampled<S: Serialize, W: Serialize> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    #[serde(rename = "startValue")]
    start: u64,
    #[serde(rename = "endValue")]
    end: u64,
    samples: S,
    weights: W,
}

/// A list that is never held as a whole.
struct Each<F>(F);

impl<F: Fn() -> I, I: IntoIterator<Item: Serialize>> Serialize for Each<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}
