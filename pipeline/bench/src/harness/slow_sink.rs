//! Memory while the sink takes a tenth of what comes.

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use prost::Message;
use serde_json::json;

use super::{
    Error, HELPERS_CORE,
    children::{self, Sink},
    load::Sent,
    procfs,
    report::{Goal, Report},
    statistics,
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
    /// For how long
    #[arg(long, default_value_t = 300.0)]
    seconds: f64,
    /// Requests per second
    #[arg(long, default_value_t = 100.0)]
    rate: f64,
    /// The length of the windows
    #[arg(long, default_value = "60s")]
    window: String,
    /// What the windows may take, in MiB
    #[arg(long, default_value_t = 32)]
    window_mib: u64,
    /// What the queue may take, in MiB
    #[arg(long, default_value_t = 16)]
    queue_mib: u64,
    /// Let senders wait where the queue is full, instead of telling them to come later
    #[arg(long)]
    blocks: bool,
    /// Write the figures as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

/// How long the output of a fast sink is looked at.
const LOOK: f64 = 10.0;

/// Between two looks at the memory.
const SAMPLE: Duration = Duration::from_millis(100);

/// What is left out at the beginning, as a share of the time: queue and windows fill.
const FILLING: f64 = 0.25;

/// What a growth of the memory may be, as a share of it, over the rest of the time.
const FLAT: f64 = 0.05;

/// Measures, and reports.
///
/// # Errors
/// A process does not start, or does not do what it should.
pub fn run(options: &Options) -> Result<(), Error> {
    let folder = tempfile::tempdir()?;
    let now = u64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_nanos())?;
    let mut host = Host::new(options.shape, SEED).starting_at(now);
    let bodies: Vec<Vec<u8>> = (0..12).map(|n| host.report(n).encode_to_vec()).collect();
    let bodies = children::write_bodies(folder.path(), &bodies)?;
    let step = host.window().to_string();
    let setting = Setting {
        window: options.window.clone(),
        window_mib: Some(options.window_mib),
        queue_mib: options.queue_mib,
        blocks: options.blocks,
        ..Setting::default()
    };
    let start = |sink: &Sink, seconds: f64| -> Result<_, Error> {
        let target = Target::profbridge(&options.binary, folder.path(), &setting, sink.address)?;
        let (address, rate, seconds) = (target.address.to_string(), options.rate.to_string(), seconds.to_string());
        let mut arguments = vec!["load", "--target", &address, "--rate", &rate, "--seconds", &seconds];
        arguments.extend(["--window", &step, "--concurrency", "16"]);
        arguments.extend(bodies.iter().map(String::as_str));
        Ok((target, children::start(children::myself(HELPERS_CORE, &arguments)?)?))
    };

    // What leaves when the sink takes all.
    let sink = Sink::start(&["--blind"])?;
    let (target, mut load) = start(&sink, LOOK)?;
    let sent: Sent = load.wait_for("the end of the load", |line| serde_json::from_str(line).ok())?;
    let fast = sink.stats()?;
    drop((target, load, sink));
    let out = fast.bytes as f64 / LOOK;
    if fast.requests == 0 || sent.failed > 0 {
        return Err(format!("nothing arrived at a fast sink: {sent:?}").into());
    }

    let sink = Sink::start(&["--blind", "--rate", &(out / 10.0).to_string()])?;
    let (target, mut load) = start(&sink, options.seconds)?;
    let pid = target.process.pid();
    let begin = Instant::now();
    let mut points = Vec::new();
    while begin.elapsed().as_secs_f64() < options.seconds {
        points.push((begin.elapsed().as_secs_f64(), procfs::memory(pid)?.resident as f64));
        thread::sleep(SAMPLE);
    }
    let sent: Sent = load.wait_for("the end of the load", |line| serde_json::from_str(line).ok())?;
    let stats = sink.stats()?;
    let overflow = target.metric("otelcol_exporter_enqueue_failed_profile_samples")?;

    let peak = procfs::memory(pid)?.peak as f64;
    let rest: Vec<(f64, f64)> = points.iter().copied().filter(|point| point.0 >= options.seconds * FILLING).collect();
    let slope = statistics::slope(&rest);
    let growth = slope * options.seconds * (1.0 - FILLING);
    let usual = statistics::median(&rest.iter().map(|point| point.1).collect::<Vec<_>>());
    let configured = ((options.queue_mib + options.window_mib) << 20) as f64;
    let bound = f64::from(32 << 20) + 2.5 * configured;

    let mut report = Report::new("slow-sink");
    report.figure("peak resident memory", peak / 1e6, "MB", Some(Goal::AtMost(bound / 1e6)));
    report.figure("resident memory, median after it has filled", usual / 1e6, "MB", None);
    report.figure("growth after that, by the median", growth / usual, "x", Some(Goal::AtMost(FLAT)));
    report.figure("slope after that", slope / 1e3, "kB/s", None);
    report.figure("requests taken", sent.acknowledged as f64 / options.seconds, "1/s", None);
    report.figure("requests told to come later", sent.later as f64 / options.seconds, "1/s", None);
    report.figure("bytes that a fast sink gets", out / 1e6, "MB/s", None);
    report.figure("bytes that the slow sink got", stats.bytes as f64 / options.seconds / 1e6, "MB/s", None);
    let seconds: Vec<(f64, f64)> = points.iter().copied().step_by(10).collect();
    report.detail("resident memory", seconds);
    report.detail("requests", json!({ "sent": sent, "sink": stats, "samples_dropped_at_the_queue": overflow }));
    report.finish(options.json.as_deref())
}
