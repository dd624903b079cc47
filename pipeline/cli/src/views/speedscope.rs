//! speedscope's file format (speedscope.app `file-format-schema.json`), with a `sampled` profile for each thread.
//!
//! speedscope shows one profile at a time, the first one initially. So running time comes first, then waiting time as
//! separate profiles, then each type of values that is not thread time. Weights must not be negative. The viewer puts
//! samples one after the other, so their times give only the order, and gaps are not visible.

use std::io;

use serde::{Serialize, Serializer};

use super::reading::Unit;
use super::timeline::{Observation, Timeline, Track};

/// The schema's address, required in each file.
const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

/// Writes a timeline. `title` is the file's title in the viewer.
///
/// # Errors
///
/// The error of the writer.
pub(crate) fn write(timeline: &mut Timeline, title: &str, out: impl io::Write) -> io::Result<()> {
    timeline.sort();
    let (timeline, tracks) = (&*timeline, timeline.tracks());
    let frames = SerializeEach(|| {
        timeline.reading.stacks.functions().map(|(function, line)| {
            let in_source = !function.file.is_empty();
            let file = if in_source { &function.file } else { &function.module };
            Frame { name: &function.name, file, line: line.filter(|_| in_source) }
        })
    });
    let profiles = SerializeEach(|| {
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
            samples: SerializeEach(|| runs(track).map(|run| timeline.reading.stacks.path(run[0].node))),
            weights: SerializeEach(|| {
                runs(track).map(|run| run.iter().fold(0u64, |sum, one| sum.saturating_add(one.weight.unsigned_abs())))
            }),
        })
    });
    let exporter = concat!("profbridge@", env!("CARGO_PKG_VERSION"));
    let file = File { schema: SCHEMA, exporter, name: title, active: 0, shared: Shared { frames }, profiles };
    serde_json::to_writer(out, &file).map_err(io::Error::from)
}

/// Groups consecutive observations of the same stack.
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
    /// The source file, or else the file of the machine code. The viewer shows it after the name.
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

/// A list that is serialized without being in memory as a whole.
struct SerializeEach<F>(F);

impl<F: Fn() -> I, I: IntoIterator<Item: Serialize>> Serialize for SerializeEach<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}
