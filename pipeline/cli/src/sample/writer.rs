//! Writes the result in each of the formats.

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use profbridge_codec::EncodingReport;
use profbridge_engine::config::Section;
use profbridge_identity::Rules;
use profbridge_model::{Profiles, Quantities};
use profbridge_wire::sentry::chunk::Settings;

use crate::Failure;
use crate::destination::{Destination, Format};
use crate::output::{EnvelopeDestination, Envelopes, Output};
use crate::terminal::shown;

/// How the parts of a run are merged. A file must contain the whole run, but the usual limits of a pipeline's windows
/// would split a run of some minutes with a few busy threads. An observation takes 28 bytes, so 1 GiB is a day of four
/// threads; a window becomes a batch below 4 GiB.
const MERGE: &str = "{window: 10m, resends: drop, max_observations: 1000000000000, max_bytes: 1GiB}";

/// Writes the profiles of a run to files, part by part.
pub(crate) struct Writer {
    destination: Destination,
    output: Output,
    /// The losses, and other facts about the files.
    pub(crate) report: EncodingReport,
}

impl Writer {
    /// Creates a writer for a destination. Only envelopes are written before the end.
    pub(crate) fn open(destination: Destination) -> Result<Self, Failure> {
        let merge = Section::from_yaml(MERGE).map_err(|problems| Failure(problems.to_string()))?;
        let output = match destination.format {
            Format::Sentry => {
                let files = EnvelopeDestination::Files(destination.clone());
                // Each part is cut separately: parts are no longer than a chunk may be.
                let identity = Rules { window: 0, ..Rules::default() };
                let envelopes = Envelopes::open(files, &Section::defaults(), &identity, Settings::default())?;
                Output::Sentry(Box::new(envelopes))
            }
            _ => Output::file(destination.clone(), true, &merge, String::new())?,
        };
        Ok(Self { destination, output, report: EncodingReport::default() })
    }

    /// Adds a part of the profiles.
    pub(crate) fn take(&mut self, part: &Profiles) -> Result<(), Failure> {
        self.output.take(part.clone().into(), &mut self.report, &mut Quantities::default())
    }

    /// Writes the rest. Returns the files with their sizes. `title` is the title of a graph.
    pub(crate) fn close(&mut self, title: &str) -> Result<Vec<(PathBuf, u64)>, Failure> {
        let files = self.output.close(Some(title), &mut self.report)?;
        if files.is_empty() {
            let path = shown(&self.destination.path);
            return Err(Failure(format!("error: {path}: there is not a single sample to write")));
        }
        Ok(files)
    }
}
