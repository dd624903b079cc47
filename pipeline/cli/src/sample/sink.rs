//! What is written, in each of the formats.

mod envelopes;
mod stacks;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use profbridge_model::Losses;
use profbridge_ptrace::message::Mode;

use super::collect::Halves;
use crate::Failure;
use crate::convert::{Otlp, Tally};
use crate::destination::{Destination, Format};
use crate::terminal::shown;
use envelopes::Envelopes;
use stacks::Stacks;

/// Takes the profiles of a run, part by part, and makes files of them.
pub(crate) enum Sink {
    /// Collapsed stacks, or a flame graph of them.
    Stacks(Box<Stacks>),
    /// One OTLP message.
    Otlp(Box<Otlp>),
    /// An envelope for each chunk.
    Envelopes(Box<Envelopes>),
}

/// What was written.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// The files, each with its size in bytes.
    pub(crate) files: Vec<(PathBuf, u64)>,
    /// What did not get into them, in observations.
    pub(crate) losses: Losses,
}

impl Sink {
    /// A sink for a destination. Nothing is written before its end, but for envelopes.
    pub(crate) fn open(destination: &Destination, mode: Mode) -> Result<Self, Failure> {
        // In wall mode threads are sampled whether they run or wait, and the one must not be taken for the other.
        let apart = mode == Mode::Wall;
        let path = destination.path.clone();
        Ok(match destination.format {
            Format::Svg => Self::Stacks(Box::new(Stacks::graph(path, apart))),
            Format::Folded => Self::Stacks(Box::new(Stacks::text(path, apart))),
            Format::Otlp => Self::Otlp(Box::new(Otlp::new(path)?)),
            Format::Envelope => Self::Envelopes(Box::new(Envelopes::open(destination.clone())?)),
        })
    }

    /// Takes a part of the profiles.
    pub(crate) fn take(&mut self, part: &Halves, written: &mut Written) -> Result<(), Failure> {
        match self {
            Self::Stacks(stacks) => stacks.take(part),
            Self::Otlp(otlp) => {
                let mut tally = Tally::default();
                otlp.merge(part.whole.clone(), &mut tally);
                written.losses.merge(&tally.losses);
            }
            Self::Envelopes(envelopes) => envelopes.take(&part.whole, written)?,
        }
        Ok(())
    }

    /// Writes what is left. `title` is what a graph is called.
    pub(crate) fn close(self, title: &str, written: &mut Written) -> Result<(), Failure> {
        match self {
            Self::Stacks(stacks) => stacks.close(title, written),
            Self::Otlp(otlp) => {
                let mut tally = Tally::default();
                let path = otlp.path().to_owned();
                let file = otlp.write(&mut tally);
                written.losses.merge(&tally.losses);
                let file = file?.ok_or_else(|| nothing(&path))?;
                written.files.push((file.path, file.size));
                Ok(())
            }
            Self::Envelopes(envelopes) => envelopes.close(written),
        }
    }
}

/// Why a file was not written.
fn nothing(path: &std::path::Path) -> Failure {
    Failure(format!("error: {}: there is not a single sample to write", shown(path)))
}
