//! Measures the sampler: what it costs, what it does to its targets, and how much of their stacks it finds.
//!
//! Targets are the programs of the sampler's own tests (`receivers/ptrace/sampler/tests/targets`), compiled here. The
//! sampler is the real one: its own process, this program being its owner. Every figure that depends on the machine
//! stands beside a control that was measured in turns with it: an attached sampler that does not sample. Where perf can
//! do the same, it stands beside `perf record` as well.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{Error, report::Report};

mod calls;
mod debugger;
mod interpreters;
mod killed;
mod matrix;
mod names;
mod peers;
mod perf;
mod reader;
mod roots;
mod saturated;
mod session;
mod shares;
mod slowdown;
mod stops;
mod switches;
mod targets;
mod turns;

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Which figures; all without any
    figures: Vec<Which>,
    /// How long one measurement takes, in seconds
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// How long a turn of a comparison takes, in seconds
    #[arg(long, default_value_t = 1.5)]
    turn: f64,
    /// How many turns a comparison has
    #[arg(long, default_value_t = 12)]
    turns: usize,
    /// The binary of profbridge, for the comparison with other profilers; without it the library is compared
    #[arg(long)]
    binary: Option<PathBuf>,
    /// py-spy, for the comparison; left out where it is not there
    #[arg(long, default_value = "py-spy")]
    py_spy: PathBuf,
    /// A Python for `interpreters`, may be given several times; without any those of pyenv and /usr/bin/python3
    #[arg(long)]
    python: Vec<PathBuf>,
    /// How many functions that are thrown away are observed of each Python
    #[arg(long, default_value_t = 30_000)]
    thrown_observations: u64,
    /// How long that may take, in seconds
    #[arg(long, default_value_t = 120.0)]
    thrown_seconds: f64,
    /// Write the figures as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A group of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// Long system calls of running threads that are cut or fail
    Calls,
    /// Which functions processor time goes to, against perf
    Shares,
    /// Processor time of the sampler, and ticks that it missed
    Reader,
    /// What events cost a process that is switched very often
    Switches,
    /// Samples that are lost on a saturated machine
    Saturated,
    /// Whether a debugger can attach meanwhile
    Debugger,
    /// How long running threads are stopped where that is chosen
    Stops,
    /// How much slower the target gets
    Slowdown,
    /// Stacks that reach the root, and functions with names
    Roots,
    /// System calls that fail or are shortened
    Matrix,
    /// Targets of samplers that are killed
    Kill,
    /// Beside py-spy and perf
    Peers,
    /// Functions of interpreted programs: how many have names, how many are wrong, and what they cost
    Interpreters,
}

/// Measures, and reports.
///
/// # Errors
/// A target or the sampler cannot be started, or says something unexpected.
pub fn run(options: &Options) -> Result<(), Error> {
    let figures = if options.figures.is_empty() { Which::value_variants().to_vec() } else { options.figures.clone() };
    let programs = targets::Programs::new()?;
    let mut report = Report::new("sampler");
    for which in figures {
        match which {
            Which::Calls => calls::measure(options, &programs, &mut report)?,
            Which::Shares => shares::measure(options, &programs, &mut report)?,
            Which::Reader => reader::measure(options, &programs, &mut report)?,
            Which::Switches => switches::measure(options, &programs, &mut report)?,
            Which::Saturated => saturated::measure(options, &programs, &mut report)?,
            Which::Debugger => debugger::measure(&programs, &mut report)?,
            Which::Stops => stops::measure(options, &programs, &mut report)?,
            Which::Slowdown => slowdown::measure(options, &programs, &mut report)?,
            Which::Roots => roots::measure(options, &programs, &mut report)?,
            Which::Matrix => matrix::measure(options, &programs, &mut report)?,
            Which::Kill => killed::measure(&programs, &mut report)?,
            Which::Peers => peers::measure(options, &programs, &mut report)?,
            Which::Interpreters => interpreters::measure(options, &programs, &mut report)?,
        }
    }
    report.finish(options.json.as_deref())
}

/// Prints what switches cost by events of threads: the part of `switches` that runs once more, without the right to
/// events of processors.
///
/// # Errors
/// As [`run`].
pub fn switches_once(options: &OnceSwitches) -> Result<(), Error> {
    switches::once(options)
}

/// Turns in a process of its own.
#[derive(Args, Clone, Debug)]
pub struct OnceSwitches {
    /// How long a turn takes, in seconds
    turn: f64,
    /// How many turns
    turns: usize,
}

/// Prints the share of missed ticks: the part of `reader` that runs once more, without the right to raise its priority.
///
/// # Errors
/// As [`run`].
pub fn missed_once(options: &OnceOptions) -> Result<(), Error> {
    reader::missed_once(options.pid, options.seconds)
}

/// One measurement in a process of its own.
#[derive(Args, Clone, Debug)]
pub struct OnceOptions {
    /// The target
    pid: u32,
    /// How long
    seconds: f64,
}
