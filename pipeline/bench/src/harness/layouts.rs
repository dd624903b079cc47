//! What a request in an earlier layout of OTLP costs, beside the same data in today's: decoded, and to compressed
//! chunks.

use std::{env, path::PathBuf, process::Stdio};

use bytes::Bytes;
use clap::Args;
use prost::Message;

use super::{
    Error, TARGET_CORE, calibrator, children,
    ours::{self, Ours},
    pairs, parts,
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
    /// Pairs of blocks
    #[arg(long, default_value_t = 12)]
    pairs: usize,
    /// The least length of a block
    #[arg(long, default_value_t = 0.4)]
    seconds: f64,
    /// Write the figures as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Set in the process that measures, which has a core of its own
    #[arg(long, hide = true)]
    pinned: bool,
}

/// Measures, and reports.
///
/// # Errors
/// A request does not decode, or the CPU time cannot be read.
pub fn run(options: &Options) -> Result<(), Error> {
    if !options.pinned {
        let mut command = children::pinned(TARGET_CORE, env::current_exe()?);
        let status = command.args(env::args_os().skip(1)).arg("--pinned").stdout(Stdio::inherit()).status()?;
        return if status.success() { Ok(()) } else { Err(format!("the measuring process failed: {status}").into()) };
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
    report.finish(options.json.as_deref())
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
        parts::time(options.seconds, run).map(per_observation)
    };
    let outcome = pairs::measure(options.pairs, calibrate, || decode(current), || decode(older))?;
    report.ratio(format!("{name}: CPU of decoding, by 1.10's"), &outcome, Some(Goal::AtMost(MOST)));
    report.figure(format!("{name}: decoding"), outcome.b, "ns/obs", None);
    let now = ours::now();
    let chunks = |request: &Bytes| {
        let mut ours = Ours::new("zstd")?;
        let run = || ours.run(request.clone(), now).map(|prepared| drop(std::hint::black_box(prepared)));
        parts::time(options.seconds, run).map(per_observation)
    };
    let outcome = pairs::measure(options.pairs, calibrate, || chunks(current), || chunks(older))?;
    report.ratio(format!("{name}: CPU to compressed chunks, by 1.10's"), &outcome, Some(Goal::AtMost(MOST)));
    Ok(())
}
