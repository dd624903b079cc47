//! speedscope's file format (speedscope.app `file-format-schema.json`): a `sampled` profile of each thread.
//!
//! It shows one profile at a time and opens the first, so running time comes first and waiting time stands in profiles
//! of its own, behind it each type of values that is no time of threads. Weights are not below zero there, and are put
//! one behind the other: when a sample was taken is its order, and no gap.

use std::io;

use serde::Serialize;
use serde::ser::{SerializeSeq, SerializeStruct, Serializer};

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
    serde_json::to_writer(out, &File { timeline, tracks: &tracks, title }).map_err(io::Error::from)
}

struct File<'a> {
    timeline: &'a Timeline,
    tracks: &'a [&'a Track],
    title: &'a str,
}

impl Serialize for File<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut file = serializer.serialize_struct("File", 6)?;
        file.serialize_field("$schema", SCHEMA)?;
        file.serialize_field("exporter", concat!("profbridge@", env!("CARGO_PKG_VERSION")))?;
        file.serialize_field("name", self.title)?;
        file.serialize_field("activeProfileIndex", &0)?;
        file.serialize_field("shared", &Shared(self.timeline))?;
        file.serialize_field("profiles", &Profiles(self))?;
        file.end()
    }
}

/// The functions of all profiles.
struct Shared<'a>(&'a Timeline);

#[derive(Serialize)]
struct Frame<'a> {
    name: &'a str,
    /// The source file, else the file of the machine code, which the viewer shows behind the name.
    #[serde(skip_serializing_if = "str::is_empty")]
    file: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

impl Serialize for Shared<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Frames<'a>(&'a Timeline);
        impl Serialize for Frames<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq(self.0.stacks().functions().map(|(function, line)| {
                    let in_source = !function.file.is_empty();
                    let file = if in_source { &function.file } else { &function.module };
                    Frame { name: &function.name, file, line: line.filter(|_| in_source) }
                }))
            }
        }
        let mut shared = serializer.serialize_struct("Shared", 1)?;
        shared.serialize_field("frames", &Frames(self.0))?;
        shared.end()
    }
}

struct Profiles<'a>(&'a File<'a>);

impl Serialize for Profiles<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.tracks.iter().map(|track| Sampled { timeline: self.0.timeline, track }))
    }
}

struct Sampled<'a> {
    timeline: &'a Timeline,
    track: &'a Track,
}

impl Serialize for Sampled<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let unit = match self.timeline.unit(self.track) {
            Unit::Nanoseconds => "nanoseconds",
            Unit::Count(_) => "none",
            Unit::Bytes => "bytes",
        };
        let mut profile = serializer.serialize_struct("Sampled", 7)?;
        profile.serialize_field("type", "sampled")?;
        profile.serialize_field("name", &self.timeline.name(self.track))?;
        profile.serialize_field("unit", unit)?;
        profile.serialize_field("startValue", &0)?;
        profile.serialize_field("endValue", &self.track.weight())?;
        profile.serialize_field("samples", &Samples(self))?;
        profile.serialize_field("weights", &Weights(self.track))?;
        profile.end()
    }
}

/// Observations of the same stack one after another, as one.
fn runs(observations: &[Observation]) -> impl Iterator<Item = &[Observation]> {
    observations.chunk_by(|one, next| one.node == next.node)
}

struct Samples<'a>(&'a Sampled<'a>);

impl Serialize for Samples<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut samples = serializer.serialize_seq(None)?;
        for run in runs(&self.0.track.observations) {
            samples.serialize_element(&self.0.timeline.stacks().path(run[0].node))?;
        }
        samples.end()
    }
}

struct Weights<'a>(&'a Track);

impl Serialize for Weights<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let sum = |run: &[Observation]| run.iter().fold(0u64, |sum, one| sum.saturating_add(one.weight.unsigned_abs()));
        serializer.collect_seq(runs(&self.0.observations).map(sum))
    }
}
