//! Runs processors and codecs without a pipeline, and writes their results: shared by `convert`, `sample` and `demo`.

mod envelopes;
mod otlp;
mod pprof;
mod stacks;
mod view;

use std::path::PathBuf;

use profbridge_codec::EncodingReport;
use profbridge_codec::otlp::Encoding;
use profbridge_engine::component::{Now, Outbox, Processor, flush_all, process_all};
use profbridge_engine::config::Section;
use profbridge_engine::registry::ProcessorFactory;
use profbridge_identity::Rules;
use profbridge_model::{Profile, Profiles, Quantities, Telemetry, Viewed};
use profbridge_wire::folded::CalledBy;

use crate::Failure;
use crate::destination::{Destination, Format};

pub(crate) use envelopes::{EnvelopeContents, EnvelopeDestination, Envelopes};
pub(crate) use otlp::{MERGE, OtlpOutput};
pub(crate) use pprof::Pprof;
pub(crate) use stacks::StacksOutput;
pub(crate) use view::ViewOutput;

/// An output in one of the formats.
pub(crate) enum Output {
    /// One envelope per chunk.
    Sentry(Box<Envelopes>),
    /// One OTLP message.
    Otlp(Box<OtlpOutput>),
    /// pprof profiles.
    Pprof(Box<Pprof>),
    /// Collapsed stacks.
    Stacks(Box<StacksOutput>),
    /// A flame graph, or a file for another tool's viewer.
    View(Box<ViewOutput>),
}

impl Output {
    /// Opens an output in any format but Sentry's. The processor `dedup`, with this section, merges what OTLP has, and
    /// what pprof has of a run. `title` is that of pictures of profiles without a process.
    pub(crate) fn file(
        destination: Destination,
        is_of_run: bool,
        dedup: &Section,
        title: String,
    ) -> Result<Self, Failure> {
        let called_by = if is_of_run { CalledBy::Executable } else { CalledBy::Service };
        let encoding = if destination.format == Format::Otlp { Encoding::Protobuf } else { Encoding::Json };
        Ok(match destination.format {
            Format::Otlp | Format::OtlpJson => {
                Self::Otlp(Box::new(OtlpOutput::open(destination.path, dedup, encoding)?))
            }
            Format::Pprof if is_of_run => Self::Pprof(Box::new(Pprof::merging(destination, dedup)?)),
            Format::Pprof => Self::Pprof(Box::new(Pprof::open(destination))),
            Format::Folded => Self::Stacks(Box::new(StacksOutput::open(destination.path, called_by))),
            _ => Self::View(Box::new(ViewOutput::open(destination, called_by, title))),
        })
    }

    /// Adds telemetry, and counts what the format cannot represent.
    pub(crate) fn take(
        &mut self,
        telemetry: Telemetry,
        report: &mut EncodingReport,
        left_out: &mut Quantities,
    ) -> Result<(), Failure> {
        if let Self::Pprof(_) | Self::Stacks(_) = self {
            *left_out += beside_profiles(&telemetry);
        }
        match (self, telemetry) {
            (Self::Sentry(output), Telemetry::Profiles(profiles)) => output.take(profiles, report)?,
            (Self::Sentry(output), Telemetry::Envelope(envelope)) => output.forward(&envelope, report)?,
            (Self::Sentry(output), Telemetry::Spans(spans)) => output.take_spans(spans, report)?,
            (Self::Otlp(output), Telemetry::Profiles(profiles)) => output.take(profiles, report),
            (Self::Otlp(output), Telemetry::Spans(spans)) => output.take_spans(spans, report),
            (Self::Otlp(output), Telemetry::Envelope(envelope)) => {
                *left_out += Quantities::items(envelope.unread_items());
                for view in envelope.views {
                    match view.what {
                        Viewed::Profiles(profiles) => output.take(profiles, report),
                        Viewed::Spans(spans) => output.take_spans(spans, report),
                    }
                }
            }
            (Self::Sentry(_) | Self::Otlp(_), other) => *left_out += other.quantities(),
            (Self::Pprof(output), of) => of.profiles().for_each(|profiles| output.take(profiles, report)),
            (Self::Stacks(output), of) => of.profiles().for_each(|profiles| output.folded.add(profiles)),
            (Self::View(output), of) => *left_out += output.take(&of),
        }
        Ok(())
    }

    /// Writes the rest, and returns the files with their sizes in bytes. Without any data, nothing is written and
    /// existing files stay. `title` overrides the title that is derived from the profiles.
    pub(crate) fn close(
        &mut self,
        title: Option<&str>,
        report: &mut EncodingReport,
    ) -> Result<Vec<(PathBuf, u64)>, Failure> {
        let file = match self {
            Self::Sentry(output) => return output.close(report),
            Self::Pprof(output) => return output.close(report),
            Self::Otlp(output) => output.close(report)?,
            Self::Stacks(output) => output.close(report)?,
            Self::View(output) => output.close(title, report)?,
        };
        Ok(file.into_iter().collect())
    }
}

/// Quantities of telemetry other than profiles.
fn beside_profiles(telemetry: &Telemetry) -> Quantities {
    Quantities { observations: 0, ..telemetry.quantities() }
}

/// A processor without a pipeline. Its clock stands still.
pub(crate) struct Stage(Box<dyn Processor>);

impl Stage {
    /// A processor configured by `section`. `identity` identifies processes.
    pub(crate) fn new(factory: ProcessorFactory, section: &Section, identity: &Rules) -> Result<Self, Failure> {
        (factory.create)(section, identity).map(Self).map_err(|problems| Failure(problems.to_string()))
    }

    /// Processes a batch with the batch's own time as clock, so that old files are not treated as late.
    pub(crate) fn take(&mut self, batch: impl Into<Telemetry>) -> Outbox {
        let batch = batch.into();
        let end = |profile: &Profile| profile.time_unix_nano.saturating_add(profile.duration_nano);
        let ended = match &batch {
            Telemetry::Spans(spans) => spans.spans().iter().map(|span| span.end_unix_nano).max(),
            other => other.profiles().flat_map(Profiles::profiles).map(end).max(),
        };
        let now = Now { monotonic_nano: 0, unix_nano: ended.unwrap_or_default() };
        let mut out = Outbox::default();
        process_all(&mut *self.0, batch, now, &mut out);
        out
    }

    /// The data that is still buffered.
    pub(crate) fn flush(&mut self) -> Outbox {
        let mut out = Outbox::default();
        flush_all(&mut *self.0, Now { monotonic_nano: 0, unix_nano: 0 }, &mut out);
        out
    }
}

/// The profiles in a processor's output.
pub(crate) fn profiles(telemetry: Vec<Telemetry>) -> impl Iterator<Item = Profiles> {
    telemetry.into_iter().filter_map(|telemetry| match telemetry {
        Telemetry::Profiles(profiles) => Some(profiles),
        _ => None,
    })
}
