//! The most memory that one large request takes, by its size on the wire.

use std::{fs, io::Write, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use prost::Message;
use serde::{Deserialize, Serialize};

use super::{
    Error, HELPERS_CORE, TARGET_CORE,
    children::{self, Sink},
    load::Sent,
    ours::{self, Ours},
    procfs,
    report::{Goal, Report},
    target::{Setting, Target},
};
use crate::{
    naive,
    workload::{Host, SEED, Shape},
};

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The binary of profbridge
    #[arg(long, default_value = "target/dist/profbridge")]
    binary: PathBuf,
    /// The shape of the request
    #[arg(long, default_value = "large")]
    shape: Shape,
    /// Requests of that shape, one after the other, each to a fresh process
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Measure with windows of 60 s as well, which takes two minutes
    #[arg(long)]
    windows: bool,
    /// Write the figures as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A path through this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// profbridge's.
    Ours,
    /// The control's.
    Control,
}

/// One conversion of a file in a process of its own.
#[derive(Args, Clone, Debug)]
pub struct OnceOptions {
    /// Whose path
    way: Way,
    /// The encoded request
    input: PathBuf,
}

/// The memory of one conversion, in bytes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Once {
    /// The most that was resident beyond what was before the request was read.
    peak: u64,
    /// The size of what came out.
    out: u64,
}

/// Converts a file and prints [`Once`] as JSON.
///
/// # Errors
/// The file cannot be read or converted.
pub fn once(options: &OnceOptions) -> Result<(), Error> {
    let pid = std::process::id();
    let mut path = Ours::new("zstd")?;
    procfs::reset_peak(pid)?;
    let before = procfs::memory(pid)?.resident;
    let request = fs::read(&options.input)?;
    let out = match options.way {
        Way::Ours => {
            let batch = path.decode(request.into())?;
            let mut out = 0;
            for telemetry in path.cut(batch, ours::now()).telemetry {
                // What is finished leaves, as it does to a sink that keeps up.
                let mut prepared = ours::Prepared::default();
                path.prepare(&telemetry, ours::now(), &mut prepared);
                out += prepared.bytes();
            }
            out
        }
        Way::Control => naive::run(&request)?.iter().map(Vec::len).sum(),
    };
    let peak = procfs::memory(pid)?.peak.saturating_sub(before);
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&Once { peak, out: out as u64 })?)?;
    Ok(())
}

/// Measures, and reports.
///
/// # Errors
/// A process does not start, or does not do what it should.
pub fn run(options: &Options) -> Result<(), Error> {
    let folder = tempfile::tempdir()?;
    let mut report = Report::new("memory");
    let Options { shape, .. } = options;
    let now = u64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_nanos())?;
    let mut host = Host::new(*shape, SEED);
    host = host.clone().starting_at(now - host.window());
    let body = host.report(0).encode_to_vec();
    let wire = body.len() as f64;
    let small = Host::new(Shape::Tiny, SEED).starting_at(now).report(0).encode_to_vec();
    let files = children::write_bodies(folder.path(), &[body, small])?;
    let file = &files[0];
    report.figure(format!("{shape}: request"), wire / 1e6, "MB", None);

    let goal = Some(Goal::AtMost(2.0));
    let mut windows = vec!["0s"];
    windows.extend(options.windows.then_some("60s"));
    for window in windows {
        let setting = Setting { window: window.to_owned(), ..Setting::default() };
        let mut worst: (f64, f64) = (0.0, 0.0);
        for _ in 0..if window == "0s" { options.runs } else { 1 } {
            let (idle, peak) = one_request(options, &setting, folder.path(), &files)?;
            worst = if peak - idle > worst.1 - worst.0 { (idle, peak) } else { worst };
        }
        let name = format!("{shape}, window {window}");
        report.figure(
            format!("{name}: peak of the binary beyond idle, by wire size"),
            (worst.1 - worst.0) / wire,
            "x",
            goal,
        );
        report.figure(format!("{name}: idle before it"), worst.0 / 1e6, "MB", None);
        report.figure(format!("{name}: peak"), worst.1 / 1e6, "MB", None);
    }
    for (way, name, goal) in [("ours", "profbridge", goal), ("control", "control", None)] {
        let once: Once = children::ask(TARGET_CORE, &["convert-once", way, file])?;
        report.figure(
            format!("{shape}, in process: {name}, body included, by wire size"),
            once.peak as f64 / wire,
            "x",
            goal,
        );
    }
    report.finish(options.json.as_deref())
}

/// What a fresh process has resident before a request, and at most while it handles it, in bytes.
fn one_request(
    options: &Options,
    setting: &Setting,
    folder: &std::path::Path,
    files: &[String],
) -> Result<(f64, f64), Error> {
    let sink = Sink::start(&["--blind"])?;
    let target = Target::profbridge(&options.binary, folder, setting, sink.address)?;
    let pid = target.process.pid();
    let address = target.address.to_string();
    let send = |file: &str| -> Result<(), Error> {
        let arguments = ["load", "--target", &address, "--count", "1", "--seconds", "60", file];
        let sent: Sent = children::ask(HELPERS_CORE, &arguments)?;
        if sent.acknowledged == 1 { Ok(()) } else { Err(format!("the request was not taken: {sent:?}").into()) }
    };
    // A first small request brings the program's own pages into memory, which are not the large one's.
    send(&files[1])?;
    std::thread::sleep(Duration::from_secs(1));
    let idle = procfs::memory(pid)?.resident;
    send(&files[0])?;
    // With windows of a minute nothing comes for as long, and the close of the windows is part of the figure.
    let quiet = if setting.window == "0s" { 2 } else { 80 };
    let stats = sink.settle(Duration::from_secs(quiet), Duration::from_secs(240))?;
    if stats.requests < 2 {
        return Err("not everything arrived".into());
    }
    Ok((idle as f64, procfs::memory(pid)?.peak as f64))
}
