//! CPU per observation in one process: an encoded request to compressed chunks, profbridge against the control.

use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use prost::Message;
use serde_json::json;

use super::{
    Error, calibrator, count,
    ours::{self, Ours},
    pairs,
    pinned::PinnedBlocks,
    procfs,
    report::{Goal, Report},
    statistics,
};
use crate::{
    figures::Figures,
    naive,
    workload::{self, Shape},
};

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Only these shapes
    #[arg(long, value_delimiter = ',', default_values = ["avg", "ruby-deep", "large", "tiny"])]
    shapes: Vec<Shape>,
    /// The codec of what leaves profbridge
    #[arg(long, default_value = "zstd")]
    compression: String,
    /// How it is measured
    #[command(flatten)]
    blocks: PinnedBlocks,
}

fn goal(shape: Shape) -> Option<Goal> {
    match shape {
        Shape::Avg => Some(Goal::AtLeast(6.0)),
        Shape::RubyDeep | Shape::Large => Some(Goal::AtLeast(5.0)),
        Shape::Tiny | Shape::Adversarial => None,
    }
}

/// Repeats `work` for at least `seconds` of CPU time, once at least. Returns nanoseconds per run.
pub(super) fn time(seconds: f64, mut work: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let start = procfs::thread_cpu()?;
    let mut runs = 0;
    let mut batch = 1;
    loop {
        for _ in 0..batch {
            work()?;
        }
        runs += batch;
        let took = procfs::thread_cpu()? - start;
        if took >= Duration::from_secs_f64(seconds) {
            return Ok(took.as_nanos() as f64 / f64::from(runs));
        }
        // So that the clock is read a few times only.
        let share = seconds / took.as_secs_f64().max(1e-6) / 4.0;
        batch = ((f64::from(runs) * share) as u32).clamp(1, 1 << 20);
    }
}

/// Measures, and reports.
///
/// # Errors
/// The paths do not agree, or the CPU time cannot be read.
pub fn run(options: &Options) -> Result<(), Error> {
    if options.blocks.runs_elsewhere()? {
        return Ok(());
    }
    let mut report = Report::new("parts");
    for &shape in &options.shapes {
        measure(options, shape, &mut report)?;
    }
    report.finish(options.blocks.json.as_deref())
}

fn measure(options: &Options, shape: Shape, report: &mut Report) -> Result<(), Error> {
    let request = workload::request(shape);
    let observations = Figures::of(&request).observations as f64;
    let request = Bytes::from(request.encode_to_vec());
    let mut ours = Ours::new(&options.compression)?;
    let now = ours::now();

    let (mine, control) = (ours.run(request.clone(), now)?, naive::run(&request)?);
    let encoding = Some(options.compression.as_str()).filter(|&name| name != "none");
    let active = |encoding, bodies: &mut dyn Iterator<Item = &[u8]>| -> Result<u64, Error> {
        bodies.map(|body| Ok(count::active_samples(&count::decompress(encoding, body)?))).sum()
    };
    let delivered = active(encoding, &mut mine.bodies.iter().map(|body| &body[..]))?;
    let expected = active(Some("gzip"), &mut control.iter().map(|body| &body[..]))?;
    if delivered != expected || mine.lost > 0 {
        return Err(format!("{shape}: profbridge delivers {delivered}, the control {expected}").into());
    }
    let control_bytes: usize = control.iter().map(Vec::len).sum();
    drop(control);

    let calibrate = || Ok(calibrator::nanos()? as f64);
    let per_observation = |nanos: f64| nanos / observations;
    let outcome = {
        let a = || {
            let run = || ours.run(request.clone(), now).map(|prepared| drop(std::hint::black_box(prepared)));
            time(options.blocks.seconds, run).map(per_observation)
        };
        let b = || {
            let run = || naive::run(&request).map(|bodies| drop(std::hint::black_box(bodies)));
            time(options.blocks.seconds, run).map(per_observation)
        };
        pairs::measure(options.blocks.pairs, calibrate, a, b)?
    };
    let name = format!("{shape}, {}", options.compression);
    report.ratio(format!("{name}: CPU per observation, control's by profbridge's"), &outcome, goal(shape));
    let bytes = mine.bytes() as f64 / control_bytes as f64;
    let bytes_goal = (options.compression == "zstd" && shape != Shape::Tiny).then_some(Goal::AtMost(1.10));
    report.figure(format!("{name}: bytes out by the control's"), bytes, "x", bytes_goal);
    report.figure(format!("{name}: profbridge"), outcome.a, "ns/obs", None);
    report.figure(format!("{name}: control (gzip 6)"), outcome.b, "ns/obs", None);
    let parts = stages(options, &mut ours, &request, observations)?;
    for (part, nanos) in &parts {
        report.figure(format!("{name}:   of which {part}"), *nanos, "ns/obs", None);
    }
    report.detail(
        &format!("{name}: bytes"),
        json!({ "wire": request.len(), "profbridge": mine.bytes(), "control": control_bytes, "chunks": mine.bodies.len() }),
    );
    Ok(())
}

/// Nanoseconds per observation of each stage. The compressor works while the JSON is written, so its share is the
/// difference to writing without one.
fn stages(
    options: &Options,
    ours: &mut Ours,
    request: &Bytes,
    observations: f64,
) -> Result<Vec<(&'static str, f64)>, Error> {
    let now = ours::now();
    let plain = Ours::new("none")?;
    let mut rounds: [Vec<f64>; 4] = Default::default();
    for _ in 0..options.blocks.pairs.div_ceil(2) {
        let decode = time(options.blocks.seconds / 2.0, || {
            ours.decode(request.clone()).map(|batch| drop(std::hint::black_box(batch)))
        })?;
        let batch = ours.decode(request.clone())?;
        let cut = time(options.blocks.seconds / 2.0, || {
            drop(std::hint::black_box(ours.cut(batch.clone(), now)));
            Ok(())
        })?;
        let windows = ours.cut(batch, now).telemetry;
        let write = |path: &Ours| {
            time(options.blocks.seconds / 2.0, || {
                let mut prepared = ours::Prepared::default();
                for telemetry in &windows {
                    path.prepare(telemetry, now, &mut prepared);
                }
                drop(std::hint::black_box(prepared));
                Ok(())
            })
        };
        let (written, packed) = (write(&plain)?, write(ours)?);
        for (round, nanos) in rounds.iter_mut().zip([decode, cut, written, packed - written]) {
            round.push(nanos / observations);
        }
    }
    let names = ["decoding", "cutting", "writing JSON", "compressing"];
    Ok(names.into_iter().zip(rounds.iter().map(|round| statistics::median(round))).collect())
}
