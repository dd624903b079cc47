//! Measures the sampler: its cost compared with other profilers, and whether interpreted functions are named correctly.
//!
//! Targets are the programs of the sampler's own tests (`receivers/ptrace/sampler/tests/targets`). The sampler runs as
//! in production: a separate process, whose owner is this program. Every figure that depends on the machine is compared
//! with one measured in alternation with it: that of an attached sampler that does not sample, or of another profiler.

mod interpreters;
mod peers;
mod reader;
mod session;
mod targets;
mod turns;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::Error;
use crate::report::Report;

/// What to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct SamplerBenchOptions {
    /// Which figures to measure; by default all
    figures: Vec<Which>,
    /// The length of one measurement, in seconds
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// The length of a turn of a comparison, in seconds
    #[arg(long, default_value_t = 1.5)]
    turn: f64,
    /// The number of turns of a comparison
    #[arg(long, default_value_t = 12)]
    turns: usize,
    /// The executable of py-spy; the comparison with it is left out if it does not exist
    #[arg(long, default_value = "py-spy")]
    py_spy: PathBuf,
    /// A Python for `interpreters`; may be given several times; by default the one in `PATH`
    #[arg(long)]
    python: Vec<PathBuf>,
    /// Write the figures as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

impl SamplerBenchOptions {
    fn turn(&self) -> Duration {
        Duration::from_secs_f64(self.turn)
    }
}

/// A group of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// Processor time of the sampler, and ticks that it missed, compared with perf
    Reader,
    /// Processor time and slowdown of a Python program, compared with py-spy and perf
    Peers,
    /// Functions of interpreted programs: how many are named, how many are wrong
    Interpreters,
}

/// Measures and reports.
pub(crate) fn run(options: &SamplerBenchOptions) -> Result<(), Error> {
    let figures = if options.figures.is_empty() { Which::value_variants() } else { &options.figures };
    let programs = targets::Programs::new()?;
    let mut report = Report::new("sampler");
    for which in figures {
        match which {
            Which::Reader => reader::measure(options, &programs, &mut report)?,
            Which::Peers => peers::measure(options, &programs, &mut report)?,
            Which::Interpreters => interpreters::measure(options, &programs, &mut report)?,
        }
    }
    report.finish(options.json.as_deref())
}
