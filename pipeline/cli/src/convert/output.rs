//! Outputs of a conversion.

use std::path::{Path, PathBuf};

use profbridge_exporter_sentry::SpanMode;

use super::Tally;
use super::settings::Settings;
use crate::Failure;
use crate::args::ConvertArgs;
use crate::destination::{self, Destination, FORMATS_IN_WORDS, Format, Undecided};
use crate::files;
use crate::output::{EnvelopeContents, EnvelopeDestination, Envelopes, Output};
use crate::terminal::{self, STANDARD, counted, shown};
use crate::views::flamegraph::GraphStyle;

/// Opens an output: checks that it is writable, without changing anything that exists.
pub(super) fn open(arguments: &ConvertArgs, format: Format) -> Result<Output, Failure> {
    let (path, graph) = (arguments.output.clone(), arguments.graph);
    let Settings { processor, transactions, identity, chunk, spans } = Settings::read(&arguments.set, format)?;
    let as_file = format != Format::Sentry || destination::format_of(&path).is_ok();
    if as_file {
        files::check(&path).map_err(|error| Failure::new(shown(&path), &error))?;
    }
    if format != Format::Sentry {
        let output = Output::file(Destination { path, format, graph }, false, &processor, title(&arguments.inputs))?;
        return Ok(match output {
            Output::Otlp(otlp) if spans == SpanMode::Otlp => Output::Otlp(Box::new(otlp.for_sentry(chunk))),
            other => other,
        });
    }
    let envelopes = Envelopes::open(envelope_destination(path)?, &processor, &identity, chunk)?;
    Ok(Output::Sentry(Box::new(envelopes.with_spans(spans, &transactions)?)))
}

/// The title of a picture of files that name no process.
pub(super) fn title(inputs: &[PathBuf]) -> String {
    let first = inputs.first().map(|input| shown(input)).unwrap_or_default();
    match inputs.len() {
        0 | 1 => terminal::base_name(&first).to_owned(),
        count => format!("{} and {}", terminal::base_name(&first), counted(count as u64 - 1, "more file")),
    }
}

/// Why an output leaves some data out, and what to do instead.
pub(super) fn holds(output: &Output) -> String {
    let what = match output {
        Output::Sentry(_) => return "envelopes hold everything".to_owned(),
        Output::Otlp(_) => {
            return "OTLP has no place for items of envelopes that are neither profiles nor spans\nhint: they stay where \
                    Sentry envelopes are written, `--to sentry`"
                .to_owned();
        }
        Output::Pprof(_) => "pprof holds profiles alone",
        Output::Stacks(_) | Output::View(_) => "stacks are made of profiles alone",
    };
    format!("{what}\nhint: spans have a place in OTLP and in Sentry envelopes, `--to otlp|otlp-json|sentry`")
}

/// Writes the rest and describes what was written. `None` if there was no data, so that existing files stay.
pub(super) fn close(mut output: Output, tally: &mut Tally) -> Result<Option<String>, Failure> {
    let files = output.close(None, &mut tally.report)?;
    let Some((path, _)) = files.first() else { return Ok(None) };
    let (path, size) = (shown(path), terminal::bytes(files.iter().map(|(_, size)| size).sum()));
    let what = match output {
        Output::Sentry(output) => {
            tally.samples = output.made.samples;
            return Ok(Some(envelopes_written(&output, files.len())));
        }
        Output::Otlp(output) => output.quantities.to_string(),
        Output::Pprof(output) => format!("{} observations", output.observations),
        Output::Stacks(output) => output.holds(),
        Output::View(output) => output.holds,
    };
    Ok(Some(match files.len() {
        1 => format!("wrote {what} to {path} ({size})"),
        files => format!("wrote {what} to {files} files, {path} and beside it ({size}): they are of different samples"),
    }))
}

/// The format: the requested one, or else by the output's extension.
///
/// # Errors
///
/// If neither decides, or they contradict each other.
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
        // A name without an extension is a folder.
        (None, Err(Undecided::NoEnding)) if !standard => Ok(Format::Sentry),
        (None, Err(undecided @ Undecided::Unknown(_))) => {
            let hint = format!("{}; a name without an ending is a folder, for Sentry envelopes", undecided.hint());
            refused(&undecided.to_string(), &hint)
        }
        (None, Err(undecided)) => refused(&undecided.to_string(), &undecided.hint()),
    }
}

/// Checks whether envelopes can be written to a path.
fn envelope_destination(path: PathBuf) -> Result<EnvelopeDestination, Failure> {
    match destination::format_of(&path) {
        Ok(format) if !path.is_dir() => {
            Ok(EnvelopeDestination::Files(Destination { path, format, graph: GraphStyle::default() }))
        }
        _ if path.exists() && !path.is_dir() => {
            let hint = format!("name a folder, or a file that ends with .envelope; or add {FORMATS_IN_WORDS}");
            let why = "is no folder, and envelopes are written into one";
            Err(Failure(format!("error: {} {why}\nhint: {hint}", shown(&path))))
        }
        _ => Ok(EnvelopeDestination::Folder(path)),
    }
}

/// Describes the envelopes that were written.
fn envelopes_written(envelopes: &Envelopes, files: usize) -> String {
    let EnvelopeContents { forwarded, samples, synthesized, transactions, containers, spans } = &envelopes.made;
    let destination = match envelopes.destination() {
        EnvelopeDestination::Folder(folder) => shown(folder),
        EnvelopeDestination::Files(destination) if files > 1 => {
            format!("{} and beside it", shown(&destination.path))
        }
        EnvelopeDestination::Files(destination) => shown(&destination.path),
    };
    let chunks = files as u64 - forwarded - transactions - containers;
    let mut parts = Vec::new();
    if chunks > 0 {
        let (chunks, samples) = (counted(chunks, "envelope"), counted(*samples, "sample"));
        parts.push(format!("{chunks} with {samples} ({synthesized} of them synthesized)"));
    }
    let made = [(*transactions, "transaction"), (*containers, "container")].into_iter();
    let made: Vec<_> = made.filter(|(count, _)| *count > 0).map(|(count, one)| counted(count, one)).collect();
    if !made.is_empty() {
        let of = if parts.is_empty() { "envelopes of " } else { "" };
        parts.push(format!("{of}{} with {}", made.join(" and "), counted(*spans, "span")));
    }
    let came = if *forwarded == 1 { "as it came in" } else { "as they came in" };
    let last = match (&parts[..], forwarded) {
        ([], _) => format!("{}, {came},", counted(*forwarded, "envelope")),
        ([one], 0) => one.clone(),
        ([one, other], 0) => format!("{one} and {other}"),
        (several, _) => format!("{}, and {forwarded} {came},", several.join(", ")),
    };
    format!("wrote {last} to {destination}")
}
