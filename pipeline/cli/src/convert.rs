//! `profbridge convert`: runs the pipeline's code on files.

pub(crate) mod input;
mod output;
pub(crate) mod selection;
mod settings;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use profbridge_codec::EncodingReport;
use profbridge_codec::decode::{DecodeOptions, Findings, decode};
use profbridge_codec::pprof::{LEFT_OUT_ATTRIBUTES, LEFT_OUT_TIMES};
use profbridge_codec::sentry::SPAN_CHANGES_UNWRITTEN;
use profbridge_engine::clock::Clock;
use profbridge_model::Quantities;
use profbridge_wire::folded::CalledBy;
use profbridge_wire::sentry::chunk::CLIPPED_SECONDS;

use crate::Failure;
use crate::args::{ConvertArgs, ReadingArgs};
use crate::destination::{Destination, Format};
use crate::files;
use crate::output::{Output, ViewOutput};
use crate::terminal::{self, Progress, STANDARD, shown};
use crate::views::flamegraph::GraphStyle;

use selection::Selection;

/// What the conversion counted.
#[derive(Debug, Default)]
struct Tally {
    /// What was read.
    read: Quantities,
    /// What the output's format cannot represent.
    left_out: Quantities,
    /// Losses and notes.
    report: EncodingReport,
    /// Findings in the inputs other than telemetry.
    findings: Findings,
    /// Number of samples that were written.
    samples: u64,
}

/// The most errors that are shown individually.
const MOST_SHOWN: usize = 10;

impl Tally {
    /// The time that is not shown, as text. Timestamps of chunks have microseconds, so less than one microsecond per
    /// sample is rounding.
    fn clipped(&self) -> Option<String> {
        let (clipped, rounding) = (self.report.clipped, Duration::from_micros(self.samples));
        let why = "it was sampled, but lies behind the next observation of its thread or the end of the window";
        (clipped > rounding).then(|| format!("{clipped:.1?} of time are not shown: {why}"))
    }

    /// Prints all counts except what was read.
    fn say(&self) {
        for explanation in self.report.losses.explanations() {
            terminal::say(explanation);
        }
        if let Some(error) = &self.report.error {
            terminal::say(format!("not everything could be written: {error}"));
        }
        let Findings { replaced_strings, passed_over, left_out_samples, unused_elements, left_out_references, .. } =
            self.findings;
        for (count, what) in [
            (replaced_strings, "strings not in UTF-8, of which what is not was replaced by U+FFFD"),
            (passed_over, "profiles left out in formats that are not read, such as Android's"),
            (left_out_samples, "samples of V1 profiles left out: idle at the ends of a thread, or a thread's only one"),
            (unused_elements, "stacks, frames and threads of Sentry's profiles that no sample has"),
            (left_out_references, "references to mappings or functions that a pprof profile does not have"),
        ] {
            if count > 0 {
                terminal::say(format!("note: {count} {what}"));
            }
        }
        for (layout, count) in &self.findings.earlier_layouts {
            let what = if *count == 1 { "request is" } else { "requests are" };
            let advice = layout.advice().unwrap_or_default();
            terminal::say(format!(
                "note: {count} {what} in the layout of opentelemetry-proto {}: {advice}",
                layout.name()
            ));
        }
        for (field, count) in &self.findings.left_out {
            terminal::say(format!("note: {field} left out {count} times, it has no place in the current layout"));
        }
        for types in &self.report.not_shown {
            terminal::say(format!("not shown: {types}; `--type` shows it"));
        }
        for timeless in &self.report.timeless {
            terminal::say(format!("no_time_unit: {timeless}"));
        }
        if let Some(clipped) = self.clipped() {
            terminal::say(format!("note: {clipped}"));
        }
        // Clipped time was printed in more detail before.
        for (name, count) in self.report.notes.iter().filter(|(name, _)| *name != CLIPPED_SECONDS) {
            terminal::say(note(name, *count));
        }
    }
}

/// What is counted that can occur, by the name of its counter.
const NOTES: [(&str, &str); 18] = [
    ("coalesced_observations", "observations without a sample of their own, since those around them cover their time"),
    ("unnamed_native_frames", "native frames with the name of their file only (the processor `symbolize` finds names)"),
    ("truncated_strings", "names and paths that were shortened to what Sentry takes"),
    ("truncated_stacks", "stacks that were shortened to what Sentry takes"),
    ("left_out_of_chunks", "images and measurements that were left out, since Sentry would refuse their chunk"),
    (
        "frame_patterns_not_applied",
        "patterns of drop_frames and keep_frames that cannot be applied, so that their frames are shown",
    ),
    (
        "shed_span_data",
        "spans and resources that lost attributes, since their transaction was larger than Sentry takes",
    ),
    (
        "invalid_span_values",
        "values of spans that were left out, since Sentry has no form for them (NaN, infinite, nested too deep)",
    ),
    ("truncated_span_texts", "texts of spans that were shortened to what Sentry takes"),
    (LEFT_OUT_TIMES, "samples that lost the times of their observations, for which pprof has no place"),
    (LEFT_OUT_ATTRIBUTES, "attributes that no label of pprof can hold (lists, bytes) and that were left out"),
    (SPAN_CHANGES_UNWRITTEN, "changes of spans that could not be written into the item that the spans came in"),
    (
        profbridge_processor_chunk::WEAK_IDENTITY,
        "observations that name neither process nor instance, so that equal services share a profile (`process.pid` \
         with `host.name`, or `service.instance.id`, tells them apart)",
    ),
    (
        profbridge_processor_chunk::PAYLOAD_REMOVED,
        "profiles without the file that they were made of, which no longer fits them",
    ),
    (
        profbridge_processor_chunk::CLOSED_EARLY,
        "groups that were written in parts, since they are larger than one may be",
    ),
    (
        profbridge_processor_transactions::WITHOUT_ROOT,
        "transactions without a root, whose span is in none of the inputs",
    ),
    (profbridge_processor_transactions::LATE, "transactions of spans that came after the one they belong to"),
    (profbridge_processor_transactions::EQUAL_IDS, "spans with the id of another one of their trace and process"),
];

/// A counter in words.
fn note(name: &str, count: u64) -> String {
    let what = NOTES.iter().find(|(known, _)| *known == name).map_or(name, |(_, what)| what);
    format!("note: {what}: {count}")
}

/// Converts every readable input. Fails at the end if an input was not readable or if there was nothing to write.
pub(crate) fn run(arguments: &ConvertArgs) -> Result<ExitCode, Failure> {
    let format = output::format(&arguments.output, arguments.to).and_then(|format| {
        let why = "has no meaning for what is written; flame graphs and pages have it";
        match arguments.graph.meaningless_for(format) {
            Some(option) => Err(Failure(format!("error: {option} {why}"))),
            None => Ok(format),
        }
    });
    let format = match format {
        Ok(format) => format,
        // An error in the arguments, reported like one in an option.
        Err(Failure(why)) => {
            terminal::say(why);
            return Ok(ExitCode::from(2));
        }
    };
    files::never_replace(arguments.inputs.iter().map(PathBuf::as_path));
    let output = output::open(arguments, format)?;
    read_into(output, &arguments.inputs, &arguments.reading, &arguments.output, output::close)
}

/// The page of all readable inputs. Fails if there is none.
pub(crate) fn page(inputs: &[PathBuf], reading: &ReadingArgs, graph: GraphStyle) -> Result<Vec<u8>, Failure> {
    let path = PathBuf::from("the page");
    let destination = Destination { path: path.clone(), format: Format::Html, graph };
    let output = Output::View(Box::new(ViewOutput::open(destination, CalledBy::Service, output::title(inputs))));
    let mut page = Vec::new();
    read_into(output, inputs, reading, &path, |output, tally| {
        let Output::View(mut view) = output else { return Ok(None) };
        let Some(content) = view.content(&mut tally.report)? else { return Ok(None) };
        page = content;
        Ok(Some(format!("the page shows {}", view.holds)))
    })?;
    Ok(page)
}

/// Reads every readable input into an output for `path`, and closes that. Says what was found.
fn read_into(
    mut output: Output,
    inputs: &[PathBuf],
    reading: &ReadingArgs,
    path: &Path,
    close: impl FnOnce(Output, &mut Tally) -> Result<Option<String>, Failure>,
) -> Result<ExitCode, Failure> {
    let start = Instant::now();
    let mut tally = Tally::default();
    let mut progress = Progress::new();
    let mut unreadable = Vec::new();
    let mut selection = Selection::new(reading.kind.clone(), reading.at, Clock::system().now().unix_nano);
    let limit = usize::try_from(reading.limit_mib.saturating_mul(1 << 20)).unwrap_or(usize::MAX);
    let options = DecodeOptions { limit, counted: reading.counted.into() };
    for (position, input) in inputs.iter().enumerate() {
        let place = format!("{} of {}: {}", position + 1, inputs.len(), shown(input));
        progress.show(&place);
        // An error of the output is fatal, unlike one of an input.
        let mut unwritable = None;
        let Tally { read: sum, left_out, report, findings, .. } = &mut tally;
        let outcome = input::read(input, limit).and_then(|bytes| {
            let read = decode(&shown(input), bytes, options, findings, |telemetry| {
                *sum += telemetry.quantities();
                if let Some(telemetry) = selection.take(telemetry, report).filter(|_| unwritable.is_none()) {
                    unwritable = output.take(telemetry, report, left_out).err();
                }
                progress.show(format!("{place}: {sum}"));
            });
            read.map_err(|refused| Failure(format!("error: {refused}")))
        });
        if let Some(failure) = unwritable {
            return Err(failure);
        }
        if let Err(Failure(why)) = outcome {
            unreadable.push(why);
        }
    }
    let holds = output::holds(&output);
    selection.say(&mut tally.report);
    let written = selection.check().and_then(|()| close(output, &mut tally));
    drop(progress);
    let Findings { refused, losses, .. } = &tally.findings;
    for refusal in refused.iter().take(MOST_SHOWN) {
        terminal::say(format!("refused: {refusal}"));
    }
    if refused.len() > MOST_SHOWN {
        terminal::say(format!("refused: {} more", refused.len() - MOST_SHOWN));
    }
    tally.read += losses.total();
    tally.report.losses.merge(losses);
    for why in &unreadable {
        terminal::say(why);
    }
    terminal::say(format!(
        "read {} from {} of {} files in {:.1} s",
        tally.read,
        inputs.len() - unreadable.len(),
        inputs.len(),
        start.elapsed().as_secs_f64(),
    ));
    tally.say();
    if !tally.left_out.is_none() {
        terminal::say(format!("left out {}: {holds}", tally.left_out));
    }
    match written? {
        // The result itself is on standard output.
        Some(wrote) if path.as_os_str() == STANDARD => {
            terminal::say(terminal::written(path, || wrote));
        }
        Some(written) => {
            terminal::result(written);
        }
        None => return Err(Failure(nothing(&tally, path, unreadable.len() == inputs.len()))),
    }
    Ok(if unreadable.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Why nothing was written.
fn nothing(tally: &Tally, path: &Path, are_unreadable: bool) -> String {
    let why = if are_unreadable {
        "no input could be read"
    } else if tally.read.observations == 0 && tally.read.spans == 0 {
        "there is not a single observation or span in what was read"
    } else if tally.report.losses.total().is_none() && tally.left_out.is_none() {
        "the weights of all that was read are zero"
    } else {
        "nothing of what was read could be converted; the lines above say why"
    };
    format!("error: nothing was written to {}: {why}", shown(path))
}

#[cfg(test)]
mod tests {
    use profbridge_wire::sentry::chunk::{ConversionReport, Notes};
    use profbridge_wire::sentry::transaction;

    use super::*;

    /// Guarantees: whatever is counted for chunks and transactions is said in words and not by the counter's name.
    #[test]
    fn counters_in_words() {
        let notes = Notes {
            unnamed_frames: 1,
            truncated_strings: 1,
            truncated_stacks: 1,
            clipped_nanos: 1,
            left_out: 1,
            frame_patterns: 1,
        };
        let of_chunks = ConversionReport { coalesced: 1, notes, clipped_seconds: 1, ..ConversionReport::default() };
        let of_spans = transaction::Notes { shed_data: 1, invalid_values: 1, truncated_texts: 1 };
        let all = of_chunks.counts().chain(of_spans.counts()).filter(|(name, _)| *name != CLIPPED_SECONDS);
        for (name, count) in all {
            assert!(!note(name, count).contains(name), "{name}");
        }
        assert_eq!(note("truncated_stacks", 7), "note: stacks that were shortened to what Sentry takes: 7");
    }
}
