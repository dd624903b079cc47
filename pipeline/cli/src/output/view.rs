//! Outputs for people: flame graphs, pages, and files for speedscope and the Firefox Profiler.

use std::io::{self, Write};
use std::path::PathBuf;

use profbridge_codec::EncodingReport;
use profbridge_model::{Quantities, Reason, Telemetry};
use profbridge_wire::folded::CalledBy;

use super::beside_profiles;
use crate::Failure;
use crate::destination::{Destination, Format};
use crate::files::write_file;
use crate::terminal::counted;
use crate::views::reading::Reading;
use crate::views::sums::Sums;
use crate::views::timeline::Timeline;
use crate::views::{firefox, flamegraph, page, speedscope};

/// Collects profiles, and writes them at the end.
pub(crate) struct ViewOutput {
    /// Where to write.
    destination: Destination,
    of: ViewData,
    /// The title of profiles that name no process.
    title: String,
    /// What was written, for messages.
    pub(crate) holds: String,
}

/// Collected data, by format.
enum ViewData {
    Sums(Sums),
    Times(Timeline),
}

impl ViewData {
    fn reading(&mut self) -> &mut Reading {
        match self {
            Self::Sums(sums) => &mut sums.reading,
            Self::Times(timeline) => &mut timeline.reading,
        }
    }
}

impl ViewOutput {
    /// Opens an output that writes only at the end.
    pub(crate) fn open(destination: Destination, called_by: CalledBy, title: String) -> Self {
        let mut of = match destination.format {
            Format::Html | Format::Speedscope | Format::Firefox => ViewData::Times(Timeline::default()),
            _ => ViewData::Sums(Sums::default()),
        };
        let reading = of.reading();
        (reading.called_by, reading.reads_negative) = (called_by, destination.format == Format::Firefox);
        reading.stacks.by_line = destination.graph.lines;
        Self { destination, of, title, holds: String::new() }
    }

    /// Adds telemetry. Returns what has no place in the file: all but profiles, and on a page spans, which it names.
    pub(super) fn take(&mut self, telemetry: &Telemetry) -> Quantities {
        let left_out = beside_profiles(telemetry);
        let timeline = match &mut self.of {
            ViewData::Sums(sums) => {
                telemetry.profiles().for_each(|batch| sums.add(batch));
                return left_out;
            }
            ViewData::Times(timeline) => timeline,
        };
        telemetry.profiles().for_each(|batch| timeline.add(batch));
        if self.destination.format != Format::Html {
            return left_out;
        }
        match telemetry {
            Telemetry::Spans(batch) => timeline.name_spans(batch),
            Telemetry::Envelope(envelope) => envelope.spans().for_each(|batch| timeline.name_spans(batch)),
            _ => {}
        }
        Quantities { spans: 0, ..left_out }
    }

    /// Writes the file, with the title `title` or one derived from the profiles. Returns its path and size in bytes;
    /// `None` if there is no data.
    pub(super) fn close(
        &mut self,
        title: Option<&str>,
        report: &mut EncodingReport,
    ) -> Result<Option<(PathBuf, u64)>, Failure> {
        let path = self.destination.path.clone();
        let size = self.finish(title, report, |write| write_file(&path, |file| write(file)))?;
        Ok(size.map(|size| (path, size)))
    }

    /// The content of the file; `None` if there is no data.
    pub(crate) fn content(&mut self, report: &mut EncodingReport) -> Result<Option<Vec<u8>>, Failure> {
        self.finish(None, report, |write| {
            let mut content = Vec::new();
            write(&mut content).map_err(|error| Failure::new("the page", &error))?;
            Ok(content)
        })
    }

    /// Calls `sink` with a function that writes the content, unless there is no data.
    fn finish<T>(
        &mut self,
        title: Option<&str>,
        report: &mut EncodingReport,
        sink: impl FnOnce(&mut dyn FnMut(&mut dyn Write) -> io::Result<()>) -> Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        let Self { destination: Destination { format, graph, .. }, of, title: fallback, holds } = self;
        let reading = of.reading();
        report.losses.merge(&reading.losses);
        report.not_shown.extend(reading.not_shown.in_words());
        let own = reading.title();
        let title = title.or(own.as_deref()).unwrap_or(fallback);
        match of {
            ViewData::Sums(sums) => {
                let Some(stacks) = sums.stacks() else { return Ok(None) };
                *holds = counted(stacks as u64, "stack") + &sums.types();
                sink(&mut |mut file| flamegraph::draw(sums, title, *graph, &mut file)).map(Some)
            }
            ViewData::Times(timeline) => {
                if timeline.is_empty() {
                    return Ok(None);
                }
                *holds = counted(timeline.tracks().len() as u64, "track");
                let made = (*format == Format::Firefox).then(|| firefox::FirefoxFile::new(timeline, title));
                if let Some(made) = &made {
                    report.losses.add_observations(Reason::LimitExceeded, made.lost);
                    if made.taken == 0 {
                        return Ok(None);
                    }
                }
                sink(&mut |mut file| {
                    match &made {
                        Some(made) => made.write(&mut file)?,
                        None if *format == Format::Html => page::write(timeline, title, *graph, &mut file)?,
                        None => speedscope::write(timeline, title, &mut file)?,
                    }
                    file.write_all(b"\n")
                })
                .map(Some)
            }
        }
    }
}
