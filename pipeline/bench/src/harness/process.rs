//! CPU per observation through real processes: gRPC in, HTTP out, profbridge's binary against the control's.

use std::{cell::Cell, path::PathBuf};

use clap::Args;
use prost::Message;
use serde_json::json;

use super::{
    Error,
    block::{Length, Side},
    calibrator,
    children::{self, Sink},
    pairs::{self, Outcome},
    report::{Goal, Report},
    sink::Stats,
    target::{Setting, Target},
};
use crate::workload::{Host, SEED, Shape};

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The binary of profbridge
    #[arg(long, default_value = "target/dist/profbridge")]
    binary: PathBuf,
    /// The shape of the requests
    #[arg(long, default_value = "avg")]
    shape: Shape,
    /// The length of the windows
    #[arg(long, default_value = "0s")]
    window: String,
    /// The codec of what leaves profbridge
    #[arg(long, default_value = "zstd")]
    compression: String,
    /// The processors in front of `chunk`, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "dedup")]
    processors: Vec<String>,
    /// Pairs of blocks
    #[arg(long, default_value_t = 8)]
    pairs: usize,
    /// The length of a block
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// What precedes each block, unmeasured
    #[arg(long, default_value_t = 1.5)]
    warm_up: f64,
    /// Measure the control against itself only
    #[arg(long)]
    control_only: bool,
    /// Write the figures as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

/// The blocks' common part.
struct Blocks<'a> {
    options: &'a Options,
    bodies: Vec<String>,
    /// By how much each request is later than the one before, in nanoseconds.
    step: u64,
    /// Blocks so far: each starts later than the one before has ended, in event time.
    number: Cell<u64>,
}

/// More requests than one block sends.
const MOST_REQUESTS: u64 = 100_000;

impl Blocks<'_> {
    fn arguments(&self, target: &Target) -> Vec<String> {
        let number = self.number.replace(self.number.get() + 1);
        let offset = number * MOST_REQUESTS * self.step;
        let target = target.address.to_string();
        let (step, offset) = (self.step.to_string(), offset.to_string());
        let fixed = ["--target", &target, "--window", &step, "--offset", &offset];
        fixed.into_iter().chain(self.bodies.iter().map(String::as_str)).map(str::to_owned).collect()
    }

    /// Sends each body once, and returns what came out.
    fn once(&self, side: &Side) -> Result<Stats, Error> {
        side.once(&self.arguments(&side.target), self.bodies.len())
    }

    /// One block: the CPU time per observation that arrived, in nanoseconds.
    fn block(&self, side: &Side) -> Result<f64, Error> {
        let Options { seconds, warm_up, .. } = *self.options;
        let arrived = side.block(&self.arguments(&side.target), Length { warm_up, seconds })?;
        if arrived.stats.observations == 0 {
            return Err(format!("no observation arrives: {arrived:?}").into());
        }
        Ok(arrived.cpu.as_nanos() as f64 / arrived.stats.observations as f64)
    }

    fn pairs(&self, wanted: usize, a: &Side, b: &Side) -> Result<Outcome, Error> {
        pairs::measure(wanted, calibrator::on_target_core, || self.block(a), || self.block(b))
    }
}

/// Measures, and reports.
///
/// # Errors
/// A process does not start, or does not do what it should.
pub fn run(options: &Options) -> Result<(), Error> {
    let folder = tempfile::tempdir()?;
    let reports = if options.shape == Shape::Large { 1 } else { 12 };
    let now = u64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_nanos())?;
    let mut host = Host::new(options.shape, SEED).starting_at(now);
    let bodies: Vec<Vec<u8>> = (0..reports).map(|n| host.report(n).encode_to_vec()).collect();
    // A window must be filled by a host's successive reports. Without windows it is enough that no two are equal.
    let holds = options.window != "0s";
    let step = if holds { host.window() } else { 1_000_000 };
    let blocks =
        Blocks { options, bodies: children::write_bodies(folder.path(), &bodies)?, step, number: Cell::new(0) };
    let control = Sink::start(&[])?;
    let control = Side { target: Target::control(control.address)?, sink: control };
    let mut report = Report::new("process");
    let shape = options.shape;
    if options.control_only {
        report.ratio(
            format!("{shape}: control against itself"),
            &blocks.pairs(options.pairs, &control, &control)?,
            None,
        );
        return report.finish(options.json.as_deref());
    }

    let setting = Setting {
        window: options.window.clone(),
        processors: options.processors.clone(),
        compression: options.compression.clone(),
        // So little that what waits is no part of a block: the pipeline waits for the sink, as the control's does.
        queue_mib: 4,
        ..Setting::default()
    };
    let ours = Sink::start(&[])?;
    let ours = Side { target: Target::profbridge(&options.binary, folder.path(), &setting, ours.address)?, sink: ours };

    let name = format!("{shape}, window {}, {}", options.window, options.compression);
    if !holds {
        // Both must say the same of the same input, before any figure means anything.
        let (mine, other) = (blocks.once(&ours)?, blocks.once(&control)?);
        if mine.observations != other.observations || mine.observations == 0 {
            return Err(format!("profbridge delivers {mine:?}, the control {other:?}").into());
        }
        report.detail("one round of requests", json!({ "profbridge": mine, "control": other }));
        let bytes = mine.bytes as f64 / other.bytes as f64;
        report.figure(format!("{name}: bytes out by the control's"), bytes, "x", Some(Goal::AtMost(1.10)));
    }
    let goal = (shape == Shape::Avg && !holds && options.compression == "zstd").then_some(Goal::AtLeast(4.0));
    let itself = blocks.pairs((options.pairs / 2).max(2), &ours, &ours)?;
    report.ratio(format!("{name}: profbridge against itself"), &itself, None);
    let outcome = blocks.pairs(options.pairs, &ours, &control)?;
    report.ratio(format!("{name}: CPU per observation, control's by profbridge's"), &outcome, goal);
    report.figure(format!("{name}: profbridge"), outcome.a, "ns/obs", None);
    report.figure(format!("{name}: control"), outcome.b, "ns/obs", None);
    if let Some(dropped) = ours.target.metric("otelcol_exporter_enqueue_failed_profile_samples")?
        && dropped > 0.0
    {
        return Err(format!("the queue overflowed: {dropped} samples were dropped").into());
    }
    report.finish(options.json.as_deref())
}
