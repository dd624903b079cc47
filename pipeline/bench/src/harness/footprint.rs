//! What the binary costs before it does anything: its size, its start, its memory.

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use clap::Args;

use super::{
    Error, TARGET_CORE, children, procfs,
    report::{Goal, Report},
    statistics,
    target::Setting,
};

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The binary of profbridge
    #[arg(long, default_value = "target/dist/profbridge")]
    binary: PathBuf,
    /// How often it is started
    #[arg(long, default_value_t = 20)]
    starts: usize,
    /// How long it idles before its memory is read
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Write the figures as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A start may take no longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Measures, and reports.
///
/// # Errors
/// The binary does not start.
pub fn run(options: &Options) -> Result<(), Error> {
    let folder = tempfile::tempdir()?;
    let mut report = Report::new("footprint");
    let binary = options.binary.canonicalize()?;
    let size = fs::metadata(&binary)?.len();
    report.figure("binary, stripped", size as f64 / 1e6, "MB", Some(Goal::AtMost(12.0)));

    let mut starts = Vec::new();
    for _ in 0..options.starts {
        starts.push(start(&binary, folder.path(), None)?.0);
    }
    report.figure("start to open port, median", statistics::median(&starts), "ms", Some(Goal::AtMost(25.0)));
    report.figure("start to open port, slowest", statistics::quantile(&starts, 1.0), "ms", None);
    let wait = Duration::from_secs_f64(options.seconds);
    let (_, memory) = start(&binary, folder.path(), Some(wait))?;
    report.figure("idle resident memory", memory.resident as f64 / 1e6, "MB", Some(Goal::AtMost(10.0)));
    report.figure("  of which its own (anonymous)", memory.anonymous as f64 / 1e6, "MB", None);
    report.figure("  peak since its start", memory.peak as f64 / 1e6, "MB", None);
    report.detail("starts in milliseconds", starts);
    report.finish(options.json.as_deref())
}

/// Starts the binary with default windows until its port is open, and longer where its memory is wanted. Returns the
/// milliseconds that the port took, `taskset` included.
fn start(binary: &Path, folder: &Path, idle: Option<Duration>) -> Result<(f64, procfs::Memory), Error> {
    let port = free_port()?;
    let nobody = free_port()?;
    let setting = Setting { window: "60s".to_owned(), otlp: port, ..Setting::default() };
    let config = folder.join("config.yaml");
    fs::write(&config, setting.yaml(nobody)?)?;
    let mut command = children::pinned(TARGET_CORE, binary);
    command.args(["run", "--config"]).arg(&config).current_dir(folder);
    let process = children::start(command)?;
    while TcpStream::connect(port).is_err() {
        if process.started.elapsed() > PATIENCE {
            return Err("the port does not open".into());
        }
        thread::sleep(Duration::from_micros(100));
    }
    let took = process.started.elapsed().as_secs_f64() * 1e3;
    if let Some(idle) = idle {
        let until = Instant::now() + idle;
        thread::sleep(until.saturating_duration_since(Instant::now()));
    }
    Ok((took, procfs::memory(process.pid())?))
}

/// An address that nobody listens on at the moment.
fn free_port() -> Result<SocketAddr, Error> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
