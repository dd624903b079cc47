//! CPU time per observation in one process, from an encoded request to compressed chunks: profbridge compared with the
//! control.

mod ours;

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use profbridge_testkit::figures::Figures;
use profbridge_testkit::naive;
use profbridge_testkit::thread_time::thread_cpu;
use profbridge_testkit::workload::{self, Shape};
use prost::Message;
use serde_json::json;

use crate::end_to_end::{active_samples, decompress};
use crate::machine::{self, TARGET_CORE};
use crate::report::{Goal, Report};
use crate::{Error, pairs, statistics};
use ours::Ours;

/// What to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct PartsOptions {
    /// The shapes to measure; by default all
    #[arg(long, value_delimiter = ',', default_values = ["avg", "ruby-deep", "large", "tiny"])]
    shapes: Vec<Shape>,
    /// The compression of profbridge's output
    #[arg(long, default_value = "zstd")]
    compression: String,
    /// The number of pairs of blocks
    #[arg(long, default_value_t = 12)]
    pairs: usize,
    /// The minimum length of a block, in seconds
    #[arg(long, default_value_t = 0.4)]
    seconds: f64,
    /// Write the figures as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

fn goal(shape: Shape) -> Option<Goal> {
    match shape {
        Shape::Avg => Some(Goal::AtLeast(6.0)),
        Shape::RubyDeep | Shape::Large => Some(Goal::AtLeast(5.0)),
        Shape::Tiny | Shape::Adversarial => None,
    }
}

/// Repeats `work` for at least `seconds` of CPU time, and at least once. Returns nanoseconds per run.
fn time(seconds: f64, mut work: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let start = thread_cpu()?;
    let mut runs = 0;
    let mut batch = 1;
    loop {
        for _ in 0..batch {
            work()?;
        }
        runs += batch;
        let took = thread_cpu()? - start;
        if took >= Duration::from_secs_f64(seconds) {
            return Ok(took.as_nanos() as f64 / f64::from(runs));
        }
        // The clock is read only about four times per block.
        let share = seconds / took.as_secs_f64().max(1e-6) / 4.0;
        batch = ((f64::from(runs) * share) as u32).clamp(1, 1 << 20);
    }
}

/// Measures and reports.
pub(crate) fn run(options: &PartsOptions) -> Result<(), Error> {
    machine::pin(TARGET_CORE)?;
    let mut report = Report::new("parts");
    for &shape in &options.shapes {
        measure(options, shape, &mut report)?;
    }
    report.finish(options.json.as_deref())
}

fn measure(options: &PartsOptions, shape: Shape, report: &mut Report) -> Result<(), Error> {
    let request = workload::request(shape);
    let observations = Figures::of(&request).observations as f64;
    let request = Bytes::from(request.encode_to_vec());
    let mut ours = Ours::new(&options.compression)?;
    let now = ours::now();

    let (mine, control) = (ours.run(request.clone(), now)?, naive::run(&request)?);
    let encoding = Some(options.compression.as_str()).filter(|&name| name != "none");
    let active = |encoding, bodies: &mut dyn Iterator<Item = &[u8]>| -> Result<u64, Error> {
        bodies.map(|body| Ok(active_samples(&decompress(encoding, body)?))).sum()
    };
    let delivered = active(encoding, &mut mine.bodies.iter().map(|body| &body[..]))?;
    let expected = active(Some("gzip"), &mut control.iter().map(|body| &body[..]))?;
    if delivered != expected || mine.lost > 0 {
        return Err(format!("{shape}: profbridge delivers {delivered}, the control {expected}").into());
    }
    let control_bytes: usize = control.iter().map(Vec::len).sum();
    drop(control);

    let per_observation = |nanos: f64| nanos / observations;
    let outcome = {
        let a = || {
            let run = || ours.run(request.clone(), now).map(|prepared| drop(std::hint::black_box(prepared)));
            time(options.seconds, run).map(per_observation)
        };
        let b = || {
            let run = || naive::run(&request).map(|bodies| drop(std::hint::black_box(bodies)));
            time(options.seconds, run).map(per_observation)
        };
        pairs::measure(options.pairs, machine::calibrate, a, b)?
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

/// Returns the time of each stage in nanoseconds per observation. The compressor runs while the JSON is written, so its
/// time is computed as the difference to writing without compression.
fn stages(
    options: &PartsOptions,
    ours: &mut Ours,
    request: &Bytes,
    observations: f64,
) -> Result<Vec<(&'static str, f64)>, Error> {
    let now = ours::now();
    let plain = Ours::new("none")?;
    let mut rounds: [Vec<f64>; 4] = Default::default();
    for _ in 0..options.pairs.div_ceil(2) {
        let decode = time(options.seconds / 2.0, || {
            ours.decode(request.clone()).map(|batch| drop(std::hint::black_box(batch)))
        })?;
        let batch = ours.decode(request.clone())?;
        let cut = time(options.seconds / 2.0, || {
            drop(std::hint::black_box(ours.cut(batch.clone(), now)));
            Ok(())
        })?;
        let windows = ours.cut(batch, now).telemetry;
        let write = |path: &Ours| {
            time(options.seconds / 2.0, || {
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
