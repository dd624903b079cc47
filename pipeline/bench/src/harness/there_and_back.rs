//! CPU per observation in one process: chunks as SDKs send them to encoded OTLP and back, profbridge against the
//! control.

use clap::Args;
use profbridge_wire::otlp::{self, EncodeOptions, Limits};
use profbridge_wire::sentry::chunk::{Collected, Converter, Settings};
use profbridge_wire::sentry::chunk_reader;

use super::parts::time;
use super::{
    Error, calibrator, pairs,
    pinned::PinnedBlocks,
    report::{Goal, Report},
};
use crate::{
    naive::{self, Chunk},
    workload::{self, Shape},
};

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Only the chunks of these shapes
    #[arg(long, value_delimiter = ',', default_values = ["avg", "ruby-deep", "large"])]
    shapes: Vec<Shape>,
    /// How it is measured
    #[command(flatten)]
    blocks: PinnedBlocks,
}

/// Measures, and reports.
///
/// # Errors
/// The paths do not agree, or the CPU time cannot be read.
pub fn run(options: &Options) -> Result<(), Error> {
    if options.blocks.runs_elsewhere()? {
        return Ok(());
    }
    let mut report = Report::new("there-and-back");
    for &shape in &options.shapes {
        measure(options, shape, &mut report)?;
    }
    report.finish(options.blocks.json.as_deref())
}

/// profbridge's way to OTLP.
///
/// # Errors
/// The chunk is not read.
pub fn to_otlp(json: &[u8]) -> Result<Vec<u8>, Error> {
    Ok(otlp::encode(&chunk_reader::read(json)?, &EncodeOptions::default()))
}

/// profbridge's way back.
///
/// # Errors
/// The request is not read, or does not become one chunk.
pub fn from_otlp(converter: &mut Converter, request: Vec<u8>) -> Result<Vec<u8>, Error> {
    let batch = otlp::decode(request.into(), &Limits::default())?.profiles;
    let mut collected = Collected::default();
    converter.convert(&batch, &mut collected);
    let (json, _) = collected.chunks.pop().ok_or("no chunk")?;
    Ok(json)
}

fn measure(options: &Options, shape: Shape, report: &mut Report) -> Result<(), Error> {
    let chunks = naive::convert(&workload::request(shape), &naive::Options::default());
    let observations = chunks.iter().map(|chunk| chunk.profile.samples.len()).sum::<usize>() as f64;
    let chunks = chunks.iter().map(naive::json).collect::<Result<Vec<_>, _>>()?;
    let mut converter = Converter::new(Settings::default());
    for json in &chunks {
        let before: Chunk = serde_json::from_slice(json)?;
        let own: Chunk = serde_json::from_slice(&from_otlp(&mut converter, to_otlp(json)?)?)?;
        let control: Chunk = serde_json::from_slice(&naive::otlp::from_otlp(&naive::otlp::to_otlp(json)?)?)?;
        for after in [own, control] {
            if let Some(difference) = naive::difference(&before, &after) {
                return Err(format!("{shape}: a chunk does not come back: {difference}").into());
            }
        }
    }
    let calibrate = || Ok(calibrator::nanos()? as f64);
    let mut there: [Vec<Vec<u8>>; 2] = Default::default();
    for json in &chunks {
        there[0].push(to_otlp(json)?);
        there[1].push(naive::otlp::to_otlp(json)?);
    }
    let per_observation = |nanos: f64| nanos / observations;
    let to = pairs::measure(
        options.blocks.pairs,
        calibrate,
        || time(options.blocks.seconds, || each(&chunks, to_otlp)).map(per_observation),
        || time(options.blocks.seconds, || each(&chunks, naive::otlp::to_otlp)).map(per_observation),
    )?;
    let back = pairs::measure(
        options.blocks.pairs,
        calibrate,
        || {
            let run = || each(&there[0], |request| from_otlp(&mut converter, request.to_vec()));
            time(options.blocks.seconds, run).map(per_observation)
        },
        || time(options.blocks.seconds, || each(&there[1], naive::otlp::from_otlp)).map(per_observation),
    )?;
    for (way, outcome) in [("chunk to OTLP", to), ("OTLP to chunk", back)] {
        report.ratio(
            format!("{shape}, {way}: CPU per observation, control's by profbridge's"),
            &outcome,
            Some(Goal::AtLeast(2.0)),
        );
        report.figure(format!("{shape}, {way}: profbridge"), outcome.a, "ns/obs", None);
        report.figure(format!("{shape}, {way}: control"), outcome.b, "ns/obs", None);
    }
    Ok(())
}

fn each(inputs: &[Vec<u8>], mut work: impl FnMut(&[u8]) -> Result<Vec<u8>, Error>) -> Result<(), Error> {
    for input in inputs {
        drop(std::hint::black_box(work(input)?));
    }
    Ok(())
}
