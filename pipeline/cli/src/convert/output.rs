//! Where the converted profiles and spans go.

use std::path::{Path, PathBuf};

use profbridge_codec::Report;
use profbridge_codec::otlp::Encoding;
use profbridge_model::{Quantities, Telemetry, Viewed};
use profbridge_wire::folded::{Folded, Threads};

use super::Tally;
use super::settings::Settings;
use crate::Failure;
use crate::args::ConvertArgs;
use crate::destination::{self, Destination, FORMATS_IN_WORDS, Format, Undecided};
use crate::files::{self, write_file};
use crate::output::{EnvelopeDestination, Envelopes, Otlp, Pprof, View};
use crate::terminal::{self, STANDARD, shown};
use crate::views::flamegraph::Layout;

/// An output of one of the formats.
pub(super) enum Output {
    Sentry(Box<Envelopes>),
    Otlp(Otlp),
    Pprof(Pprof),
    Stacks(Box<Stacks>),
    View(Box<View>),
}

impl Output {
    /// Opens an output, as far as that needs no result yet: finds out whether it can be written, and leaves what is
    /// there as it is.
    pub(super) fn open(arguments: &ConvertArgs, format: Format) -> Result<Self, Failure> {
        let (path, layout) = (arguments.output.clone(), arguments.graph);
        let Settings { processor, transactions, identity, chunk } = Settings::read(&arguments.set, format)?;
        let as_file = format != Format::Sentry || destination::format_of(&path).is_ok();
        if as_file {
            files::check(&path).map_err(|error| Failure::new(shown(&path), &error))?;
        }
        Ok(match format {
            Format::Sentry => {
                let envelopes = Envelopes::open(envelope_destination(path)?, &processor, &identity, chunk)?;
                Self::Sentry(Box::new(envelopes.with_transactions(&transactions)?))
            }
            Format::Otlp => Self::Otlp(Otlp::open(path, &processor, Encoding::Protobuf)?),
            Format::OtlpJson => Self::Otlp(Otlp::open(path, &processor, Encoding::Json)?),
            Format::Pprof => Self::Pprof(Pprof::open(Destination { path, format, layout })),
            Format::Folded => Self::Stacks(Stacks::open(path)),
            Format::Svg | Format::Speedscope | Format::Firefox => {
                Self::View(Box::new(View::open(Destination { path, format, layout })))
            }
        })
    }

    /// Takes telemetry, and counts what the format has no place for.
    pub(super) fn take(
        &mut self,
        telemetry: Telemetry,
        report: &mut Report,
        left_out: &mut Quantities,
    ) -> Result<(), Failure> {
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
            (Self::Pprof(output), telemetry) => {
                *left_out += beside_profiles(&telemetry);
                telemetry.profiles().for_each(|profiles| output.take(profiles, report));
            }
            (Self::Stacks(output), telemetry) => {
                *left_out += beside_profiles(&telemetry);
                telemetry.profiles().for_each(|profiles| output.folded.add(profiles));
            }
            (Self::View(output), telemetry) => {
                *left_out += beside_profiles(&telemetry);
                telemetry.profiles().for_each(|profiles| output.take(profiles, None));
            }
        }
        Ok(())
    }

    /// Why something was left out, and what to do instead.
    pub(super) fn holds(&self) -> &'static str {
        match self {
            Self::Sentry(_) => "envelopes hold everything",
            Self::Otlp(_) => {
                "OTLP has no place for items of envelopes that are neither profiles nor spans\nhint: they stay where \
                 Sentry envelopes are written, `--to sentry`"
            }
            Self::Pprof(_) => {
                "pprof holds profiles alone\nhint: spans have a place in OTLP and in Sentry envelopes, `--to \
                 otlp|otlp-json|sentry`"
            }
            Self::Stacks(_) | Self::View(_) => {
                "stacks are made of profiles alone\nhint: spans have a place in OTLP and in Sentry envelopes, `--to \
                 otlp|otlp-json|sentry`"
            }
        }
    }

    /// Writes what is left and says what was written. `None` where there is nothing to write: what was there before
    /// stays.
    pub(super) fn close(self, tally: &mut Tally) -> Result<Option<String>, Failure> {
        match self {
            Self::Sentry(mut output) => {
                output.close(&mut tally.report)?;
                tally.samples = output.samples;
                Ok(envelopes_written(&output))
            }
            Self::Otlp(mut output) => Ok(output.close(&mut tally.report)?.map(|size| {
                let (quantities, path) = (output.quantities, shown(&output.path));
                format!("wrote {quantities} to {path} ({})", terminal::bytes(size))
            })),
            Self::Pprof(mut output) => {
                output.close(&mut tally.report)?;
                Ok(pprof_written(&output))
            }
            Self::Stacks(output) => output.close(&mut tally.report),
            Self::View(mut output) => Ok(output.close(None, &mut tally.report)?.map(|(what, size)| {
                format!("wrote {what} to {} ({})", shown(&output.destination.path), terminal::bytes(size))
            })),
        }
    }
}

/// What is in telemetry beside profiles.
fn beside_profiles(telemetry: &Telemetry) -> Quantities {
    Quantities { observations: 0, ..telemetry.quantities() }
}

/// What to write: what was asked for, else what the output's ending says.
///
/// # Errors
///
/// Nothing says it, or the two contradict each other.
pub(super) fn format(path: &Path, asked_for: Option<Format>) -> Result<Format, Failure> {
    let said = if path.is_dir() { Ok(Format::Sentry) } else { destination::format_of(path) };
    let standard = path.as_os_str() == STANDARD;
    let refused = |what: &str, hint: &str| Err(Failure(format!("error: {}: {what}\nhint: {hint}", shown(path))));
    match (asked_for, said) {
        (Some(Format::Sentry), Ok(said)) if said != Format::Sentry => refused(
            "`--to sentry` writes envelopes, and the ending says something else",
            "leave `--to` out, or name a folder, or a file that ends with .envelope",
        ),
        (Some(Format::Sentry), _) if standard => {
            refused("envelopes are several files, which cannot go there", "name a folder")
        }
        (Some(asked_for), _) => Ok(asked_for),
        (None, Ok(said)) => Ok(said),
        // A name without an ending is a folder's.
        (None, Err(Undecided::NoEnding)) if !standard => Ok(Format::Sentry),
        (None, Err(undecided @ Undecided::Unknown(_))) => {
            let hint = format!("{}; a name without an ending is a folder, for Sentry envelopes", undecided.hint());
            refused(&undecided.to_string(), &hint)
        }
        (None, Err(undecided)) => refused(&undecided.to_string(), &undecided.hint()),
    }
}

/// Finds out whether envelopes can be written to a path.
fn envelope_destination(path: PathBuf) -> Result<EnvelopeDestination, Failure> {
    match destination::format_of(&path) {
        Ok(format) if !path.is_dir() => {
            Ok(EnvelopeDestination::Files(Destination { path, format, layout: Layout::default() }))
        }
        _ if path.exists() && !path.is_dir() => {
            let hint = format!("name a folder, or a file that ends with .envelope; or add {FORMATS_IN_WORDS}");
            let why = "is no folder, and envelopes are written into one";
            Err(Failure(format!("error: {} {why}\nhint: {hint}", shown(&path))))
        }
        _ => Ok(EnvelopeDestination::Folder(path)),
    }
}

/// Says which pprof profiles were written.
fn pprof_written(output: &Pprof) -> Option<String> {
    let path = shown(&output.destination.path);
    let size = terminal::bytes(output.files.iter().map(|(_, size)| size).sum());
    match output.files.len() {
        0 => None,
        1 => Some(format!("wrote {} observations to {path} ({size})", output.observations)),
        files => Some(format!(
            "wrote {} observations to {files} files, {path} and beside it ({size}): they are of different samples",
            output.observations
        )),
    }
}

/// Says which envelopes were written.
fn envelopes_written(envelopes: &Envelopes) -> Option<String> {
    let Envelopes { files, forwarded, samples, synthesized, transactions_made, containers_made, spans, .. } = envelopes;
    let destination = match envelopes.destination() {
        EnvelopeDestination::Folder(folder) => shown(folder),
        EnvelopeDestination::Files(destination) if files.len() > 1 => {
            format!("{} and beside it", shown(&destination.path))
        }
        EnvelopeDestination::Files(destination) => shown(&destination.path),
    };
    let chunks = files.len() as u64 - forwarded - transactions_made - containers_made;
    let counted = |count: u64, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    let mut parts = Vec::new();
    if chunks > 0 {
        let (chunks, samples) = (counted(chunks, "envelope"), counted(*samples, "sample"));
        parts.push(format!("{chunks} with {samples} ({synthesized} of them synthesized)"));
    }
    let made = [(*transactions_made, "transaction"), (*containers_made, "container")].into_iter();
    let made: Vec<_> = made.filter(|(count, _)| *count > 0).map(|(count, one)| counted(count, one)).collect();
    if !made.is_empty() {
        let of = if parts.is_empty() { "envelopes of " } else { "" };
        parts.push(format!("{of}{} with {}", made.join(" and "), counted(*spans, "span")));
    }
    let came = if *forwarded == 1 { "as it came in" } else { "as they came in" };
    let last = match (&parts[..], forwarded) {
        ([], 0) => return None,
        ([], _) => format!("{}, {came},", counted(*forwarded, "envelope")),
        ([one], 0) => one.clone(),
        ([one, other], 0) => format!("{one} and {other}"),
        (several, _) => format!("{}, and {forwarded} {came},", several.join(", ")),
    };
    Some(format!("wrote {last} to {destination}"))
}

/// Collapsed stacks.
pub(super) struct Stacks {
    path: PathBuf,
    folded: Folded,
}

impl Stacks {
    fn open(path: PathBuf) -> Box<Self> {
        Box::new(Self { path, folded: Folded::new(Threads::Apart).with_states().with_processes() })
    }

    fn close(self, report: &mut Report) -> Result<Option<String>, Failure> {
        report.losses.merge(self.folded.losses());
        report.not_shown.extend(self.folded.not_shown().in_words());
        if self.folded.is_empty() {
            return Ok(None);
        }
        let lines = self.folded.lines().count();
        let size = write_file(&self.path, |file| self.folded.write(file))?;
        let stacks = if lines == 1 { "stack" } else { "stacks" };
        let of = self.folded.shown_type().map_or_else(String::new, |of| format!(" of {of}"));
        Ok(Some(format!("wrote {lines} {stacks}{of} to {} ({})", shown(&self.path), terminal::bytes(size))))
    }
}
