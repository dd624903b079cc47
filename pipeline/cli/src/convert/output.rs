//! Where the converted profiles and spans go.

use std::io::Write;
use std::path::{Path, PathBuf};

use profbridge_codec::Report;
use profbridge_codec::otlp::Encoding;
use profbridge_model::{Quantities, Telemetry, Viewed};
use profbridge_wire::folded::{Folded, Threads};

use super::Tally;
use super::settings::Settings;
use crate::args::{ConvertArgs, Format};
use crate::destination::{self, Destination};
use crate::files::{self, write_file};
use crate::output::{EnvelopeDestination, Envelopes, Otlp, Pprof};
use crate::terminal::{self, STANDARD, shown};
use crate::{Failure, flamegraph};

/// An output of one of the formats.
pub(super) enum Output {
    Sentry(Box<Envelopes>),
    Otlp(Otlp),
    Pprof(Pprof),
    Stacks(Box<Stacks>),
}

impl Output {
    /// Opens an output, as far as that needs no result yet: finds out whether it can be written, and leaves what is
    /// there as it is.
    pub(super) fn open(arguments: &ConvertArgs) -> Result<Self, Failure> {
        let path = arguments.output.clone();
        let format = format(&path, arguments.to)?;
        let Settings { processor, transactions, identity, chunk } = Settings::read(&arguments.set, format)?;
        let as_file = format != Format::Sentry || destination::format_of(&path).is_some();
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
            Format::Pprof => Self::Pprof(Pprof::open(Destination { path, format: destination::Format::Pprof })),
            Format::Folded => Self::Stacks(Stacks::open(path, false, Threads::Apart)),
            Format::Svg => Self::Stacks(Stacks::open(path, true, Threads::Merged)),
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
            Self::Stacks(_) => {
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
fn format(path: &Path, asked_for: Option<Format>) -> Result<Format, Failure> {
    use destination::Format as File;
    let name = shown(path);
    let said = match destination::format_of(path) {
        _ if path.is_dir() => Some(Format::Sentry),
        Some(File::Svg) => Some(Format::Svg),
        Some(File::Folded) => Some(Format::Folded),
        Some(File::Otlp) => Some(Format::Otlp),
        Some(File::OtlpJson) => Some(Format::OtlpJson),
        Some(File::Pprof) => Some(Format::Pprof),
        Some(File::Envelope) => Some(Format::Sentry),
        None => None,
    };
    let standard = path.as_os_str() == STANDARD;
    let refused = |what: &str, hint: &str| Err(Failure(format!("error: {name}: {what}\nhint: {hint}")));
    match (asked_for, said) {
        (Some(Format::Sentry), Some(said)) if said != Format::Sentry => refused(
            "`--to sentry` writes envelopes, and the ending says something else",
            "leave `--to` out, or name a folder, or a file that ends with .envelope",
        ),
        (Some(Format::Sentry), _) if standard => {
            refused("envelopes are several files, which cannot go there", "name a folder")
        }
        (Some(asked_for), _) => Ok(asked_for),
        (None, Some(said)) => Ok(said),
        (None, None) if standard => refused(
            "it has no ending that says what to write",
            "add `--to otlp`, `--to pprof`, `--to folded` or `--to svg`",
        ),
        // A name without an ending is a folder's.
        (None, None) if path.extension().is_none() => Ok(Format::Sentry),
        (None, None) => {
            let endings = destination::ENDINGS_IN_WORDS;
            let hint = format!("{endings}, or a folder; or add `--to sentry|otlp|otlp-json|pprof|folded|svg`");
            refused("the ending does not say what to write", &hint)
        }
    }
}

/// Finds out whether envelopes can be written to a path.
fn envelope_destination(path: PathBuf) -> Result<EnvelopeDestination, Failure> {
    match destination::format_of(&path) {
        Some(format) if !path.is_dir() => Ok(EnvelopeDestination::Files(Destination { path, format })),
        _ if path.exists() && !path.is_dir() => {
            let hint =
                "name a folder, or a file that ends with .envelope; other formats have `--to otlp|pprof|folded|svg`";
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

/// Collapsed stacks, or a flame graph of them.
pub(super) struct Stacks {
    path: PathBuf,
    graph: bool,
    folded: Folded,
}

impl Stacks {
    fn open(path: PathBuf, graph: bool, threads: Threads) -> Box<Self> {
        Box::new(Self { path, graph, folded: Folded::new(threads) })
    }

    fn close(self, report: &mut Report) -> Result<Option<String>, Failure> {
        report.losses.merge(self.folded.losses());
        if self.folded.is_empty() {
            return Ok(None);
        }
        let mut text = Vec::new();
        self.folded.write(&mut text).map_err(|error| Failure::new("stacks", &error))?;
        let lines = self.folded.lines().count();
        let size = write_file(&self.path, |file| {
            if !self.graph {
                return file.write_all(&text);
            }
            flamegraph::draw(&String::from_utf8_lossy(&text), "profbridge", self.folded.unit(), file)
        })?;
        Ok(Some(format!("wrote {lines} stacks to {} ({})", shown(&self.path), terminal::bytes(size))))
    }
}
