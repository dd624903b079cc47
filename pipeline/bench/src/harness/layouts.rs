//! What a request in an earlier layout of OTLP costs, beside the same data in today's: decoded, and to compressed
//! chunks.

use bytes::Bytes;
use clap::Args;
use prost::Message;

use super::{
    Error, calibrator,
    ours::{self, Ours},
    pairs, parts,
    pinned::PinnedBlocks,
    report::{Goal, Report},
};
use crate::{
    figures::Figures,
    releases::transcode::{as_1_8, as_1_9},
    workload::{self, Shape},
};

/// The most that a request may cost, by the same data in today's layout.
const MOST: f64 = 1.2;

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Only these shapes
    #[arg(long, value_delimiter = ',', default_values = ["avg", "ruby-deep", "tiny"])]
    shapes: Vec<Shape>,
    /// How it is measured
    #[command(flatten)]
    blocks: PinnedBlocks,
}

/// Measures, and reports.
///
/// # Errors
/// A request does not decode, or the CPU time cannot be read.
pub fn run(options: &Options) -> Result<(), Error> {
    if options.blocks.runs_elsewhere()? {
        return Ok(());
    }
    let mut report = Report::new("layouts");
    for &shape in &options.shapes {
        let request = workload::request(shape);
        let observations = Figures::of(&request).observations as f64;
        let current = Bytes::from(request.encode_to_vec());
        for (layout, older) in [("1.9", as_1_9(&request)), ("1.8", as_1_8(&request))] {
            measure(options, &format!("{shape}, {layout}"), [&current, &older.into()], observations, &mut report)?;
        }
    }
    report.finish(options.blocks.json.as_deref())
}

fn measure(
    options: &Options,
    name: &str,
    [current, older]: [&Bytes; 2],
    observations: f64,
    report: &mut Report,
) -> Result<(), Error> {
    let calibrate = || Ok(calibrator::nanos()? as f64);
    let per_observation = |nanos: f64| nanos / observations;
    let ours = Ours::new("zstd")?;
    let decode = |request: &Bytes| {
        let run = || ours.decode(request.clone()).map(|batch| drop(std::hint::black_box(batch)));
        parts::time(options.blocks.seconds, run).map(per_observation)
    };
    let outcome = pairs::measure(options.blocks.pairs, calibrate, || decode(current), || decode(older))?;
    report.ratio(format!("{name}: CPU of decoding, by 1.10's"), &outcome, Some(Goal::AtMost(MOST)));
    report.figure(format!("{name}: decoding"), outcome.b, "ns/obs", None);
    let now = ours::now();
    let chunks = |request: &Bytes| {
        let mut ours = Ours::new("zstd")?;
        let run = || ours.run(request.clone(), now).map(|prepared| drop(std::hint::black_box(prepared)));
        parts::time(options.blocks.seconds, run).map(per_observation)
    };
    let outcome = pairs::measure(options.blocks.pairs, calibrate, || chunks(current), || chunks(older))?;
    report.ratio(format!("{name}: CPU to compressed chunks, by 1.10's"), &outcome, Some(Goal::AtMost(MOST)));
    Ok(())
}
