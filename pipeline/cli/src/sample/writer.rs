//! What is written, in each of the formats.

mod stacks;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use profbridge_codec::Report;
use profbridge_codec::otlp::Encoding;
use profbridge_engine::config::Section;
use profbridge_identity::Rules;
use profbridge_sampler::message::Mode;
use profbridge_wire::sentry::chunk::Settings;

use super::collect::Halves;
use crate::Failure;
use crate::destination::{Destination, Format};
use crate::output::{EnvelopeDestination, Envelopes, Otlp, Pprof, View};
use crate::terminal::shown;
use crate::views::reading::{Given, State};
use stacks::Stacks;

/// How the parts of a run become one: a file has all of it, and the bounds of a pipeline's windows would divide a run
/// of some minutes with a few busy threads. An observation takes 28 bytes, so 1 GiB is a day of four threads; the batch
/// that a window becomes is smaller than 4 GiB.
const MERGE: &str = "{window: 10m, resends: drop, max_observations: 1000000000000, max_bytes: 1GiB}";

/// Takes the profiles of a run, part by part, and makes files of them.
pub(crate) enum Writer {
    /// Collapsed stacks.
    Stacks(Box<Stacks>),
    /// A flame graph, or what another tool's viewer shows.
    View(Box<View>),
    /// One OTLP message.
    Otlp(Box<Otlp>),
    /// A pprof profile of each process.
    Pprof(Box<Pprof>),
    /// An envelope for each chunk.
    Envelopes(Box<Envelopes>),
}

/// What was written.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// The files, each with its size in bytes.
    pub(crate) files: Vec<(PathBuf, u64)>,
    /// What did not get into them, and what else is known of them.
    pub(crate) report: Report,
}

impl Writer {
    /// A writer for a destination. Nothing is written before its end, but for envelopes.
    pub(crate) fn open(destination: &Destination, mode: Mode) -> Result<Self, Failure> {
        // In wall mode threads are sampled whether they run or wait, and the one must not be taken for the other.
        let apart = mode == Mode::Wall;
        let path = destination.path.clone();
        Ok(match destination.format {
            Format::Svg | Format::Speedscope | Format::Firefox => Self::View(Box::new(View::open(destination.clone()))),
            Format::Folded => Self::Stacks(Box::new(Stacks::open(path, apart))),
            Format::Otlp => Self::Otlp(Box::new(Otlp::open(path, &merge()?, Encoding::Protobuf)?)),
            Format::OtlpJson => Self::Otlp(Box::new(Otlp::open(path, &merge()?, Encoding::Json)?)),
            Format::Pprof => Self::Pprof(Box::new(Pprof::merging(destination.clone(), &merge()?)?)),
            Format::Sentry => {
                let destination = EnvelopeDestination::Files(destination.clone());
                // Each part is cut on its own: parts are no longer than a chunk may be.
                let identity = Rules { window: 0, ..Rules::default() };
                let envelopes = Envelopes::open(destination, &Section::defaults(), &identity, Settings::default())?;
                Self::Envelopes(Box::new(envelopes))
            }
        })
    }

    /// Takes a part of the profiles.
    pub(crate) fn take(&mut self, part: &Halves, written: &mut Written) -> Result<(), Failure> {
        match self {
            Self::Stacks(stacks) => stacks.take(part),
            Self::View(view) => {
                for each in &part.each {
                    let halves = [(&each.running, State::Running), (&each.waiting, State::Waiting)];
                    for (half, state) in halves.into_iter().filter_map(|(half, state)| Some((half.as_ref()?, state))) {
                        view.take(half, Some(Given { label: &each.label, state }));
                    }
                }
            }
            Self::Otlp(otlp) => otlp.take(part.whole.clone(), &mut written.report),
            Self::Pprof(pprof) => pprof.take(&part.whole, &mut written.report),
            Self::Envelopes(envelopes) => envelopes.take(part.whole.clone(), &mut written.report)?,
        }
        Ok(())
    }

    /// Writes what is left. `title` is what a graph is called.
    pub(crate) fn close(self, title: &str, written: &mut Written) -> Result<(), Failure> {
        match self {
            Self::Stacks(stacks) => stacks.close(written)?,
            Self::View(mut view) => {
                let closed = view.close(Some(title), &mut written.report)?;
                let (_, size) = closed.ok_or_else(|| nothing(&view.destination.path))?;
                written.files.push((view.destination.path, size));
            }
            Self::Otlp(mut otlp) => {
                let size = otlp.close(&mut written.report)?.ok_or_else(|| nothing(&otlp.path))?;
                written.files.push((otlp.path, size));
            }
            Self::Pprof(mut pprof) => {
                pprof.close(&mut written.report)?;
                written.files.append(&mut pprof.files);
                if written.files.is_empty() {
                    return Err(nothing(&pprof.destination.path));
                }
            }
            Self::Envelopes(mut envelopes) => {
                envelopes.close(&mut written.report)?;
                written.files.append(&mut envelopes.files);
                if let (EnvelopeDestination::Files(destination), true) =
                    (envelopes.destination(), written.files.is_empty())
                {
                    return Err(nothing(&destination.path));
                }
            }
        }
        Ok(())
    }
}

/// The section of the processor that merges.
fn merge() -> Result<Section, Failure> {
    Section::from_yaml(MERGE).map_err(|problems| Failure(problems.to_string()))
}

/// Why a file was not written.
fn nothing(path: &std::path::Path) -> Failure {
    Failure(format!("error: {}: there is not a single sample to write", shown(path)))
}
