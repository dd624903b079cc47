//! The command line: what was written. What it means is decided by each command.

pub(crate) mod sampling;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use profbridge_wire::folded::CountUnit;

use crate::destination::Format;
use crate::views::flamegraph::GraphStyle;

/// What help says at its end. The page of the command line (`README.md` of this crate) has the same table.
const AFTER_HELP: &str = "\
Without a command, profbridge runs with ./config.yaml: `profbridge run --config config.yaml`.

Exit status:
  0    what was asked for was done
  1    it was not: something could not be read, written, started or sent, or failed; standard error
       says why
  2    the command line is wrong
  130  a second signal ended it at once; what it held is lost
`profbridge sample -- COMMAND` and `top -- COMMAND` hand on the command's status, 128 + N where \
signal N ended it, 127 where there is no such command, 126 where it cannot be started.";

/// Bridges profiles from where they are made (OpenTelemetry profilers) to where they are read (Sentry, OTLP backends).
#[derive(Debug, Parser)]
#[command(name = "profbridge", version, max_term_width = 100, subcommand_required = false)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the pipelines until SIGTERM or Ctrl-C, then drain them.
    Run(ConfigArgs),
    /// Check a configuration and say everything that is wrong with it. Touches neither network nor disk.
    Validate(ConfigArgs),
    /// Print the effective configuration: defaults, files and --set merged, secrets redacted.
    Config(ConfigArgs),
    /// List the receivers, processors and exporters in this binary.
    Components,
    /// Send a generated but realistic profile through the running pipeline, or through one of its own.
    Demo(DemoArgs),
    /// Convert files of profiles and spans: OTLP protobuf and JSON, pprof, Sentry envelopes, collapsed stacks, gzipped
    /// or not.
    Convert(ConvertArgs),
    /// Look at files of profiles in a browser: a local page with flame graph, time line and table.
    View(ViewArgs),
    /// See what became slower or faster between two files of profiles, as text, flame graph or page.
    Diff(DiffArgs),
    /// Deliver Sentry envelopes from files, such as those that `on_shutdown` of the exporter `sentry` kept.
    Send(SendArgs),
    /// See where a process spends its time: sample it for a while, or a command from start to end.
    Sample(sampling::SampleArgs),
    /// Watch where processes spend their time, in the terminal: drawn anew each second.
    Top(sampling::TopArgs),
    /// Show what each thread of a process does at this moment: its stack, and what it waits for.
    Dump(sampling::DumpArgs),
    /// Start or stop the profiler of a running profbridge, or ask what it does.
    Profiler(sampling::ProfilerArgs),
}

/// Where the configuration comes from.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConfigArgs {
    /// A configuration file. May be given several times: later files win, maps are merged, lists are replaced.
    #[arg(short, long = "config", value_name = "FILE", default_value = "config.yaml")]
    pub(crate) config: Vec<PathBuf>,
    /// Taken only to say how it is written.
    #[arg(hide = true, value_name = "FILE", value_parser = not_an_argument)]
    pub(crate) misplaced: Option<String>,
    /// Override one key, as in `--set service.identity.window=30s`. The value is YAML; quote path segments that hold
    /// dots: `--set 'exporters."otlp/b.c".endpoint=host:4317'`.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub(crate) set: Vec<String>,
}

impl Default for ConfigArgs {
    fn default() -> Self {
        Self { config: vec![PathBuf::from("config.yaml")], misplaced: None, set: Vec::new() }
    }
}

/// Refuses a file that stands alone.
fn not_an_argument(text: &str) -> Result<String, String> {
    Err(format!("a configuration is named as `--config {text}`"))
}

/// How to run the demo.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Where the flame graph goes, and the envelope of a pipeline of the demo's own.
    #[arg(short, long, value_name = "FOLDER", default_value = "out/demo")]
    pub(crate) output: PathBuf,
    /// Use a pipeline of the demo's own even if one is running.
    #[arg(long)]
    pub(crate) own: bool,
    /// How many seconds of work to generate, 1 to 50.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub(crate) seconds: u32,
}

/// What to deliver.
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// Files with one Sentry envelope each, or folders of them, such as `on_shutdown` of the exporter `sentry` names.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Where they go, whatever they say themselves. Otherwise each goes to the DSN in the file `dsn` beside it, else to
    /// that in its own header, else to SENTRY_DSN.
    #[arg(long, value_name = "DSN")]
    pub(crate) dsn: Option<String>,
    /// Delete each file once it is delivered.
    #[arg(long)]
    pub(crate) delete: bool,
}

/// What `diff` says about how it compares.
const ABOUT_DIFF: &str = "\
Commands sampled from start to end (`sample -- COMMAND`) are compared by their total time, \
processes that are always busy by the shares of their functions, others by time per second, and \
values that are no time by their totals. The time of a function has the libraries that it calls.

A function is listed if its share of the whole changed by more than chance explains, which \
successive samples and the course of the run show, and by at least 3 %. What most functions \
changed alike is left out. What could be hidden in the noise is said, so that a file with more \
samples can be made.";

/// What to compare.
#[derive(Debug, Args)]
#[command(after_long_help = ABOUT_DIFF)]
pub(crate) struct DiffArgs {
    /// The profiles from before, in any of the formats that `convert` reads.
    #[arg(value_name = "BEFORE")]
    pub(crate) before: PathBuf,
    /// The profiles from after.
    #[arg(value_name = "AFTER")]
    pub(crate) after: PathBuf,
    /// Write a flame graph (.svg) or a page (.html) with the differences to this file.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The type of values that is compared, such as `inuse_space`. Without it: pprof's default type, else running time,
    /// else the last that has any value.
    #[arg(long = "type", value_name = "NAME")]
    pub(crate) kind: Option<String>,
    /// What is compared. Without it, what suits both files.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) by: Option<By>,
    /// Exit with status 1 if the whole, or a function with at least 1 % of it, grew by more than this many percent and
    /// more than the noise, as in `5%`.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) fail_above: Option<f64>,
    #[command(flatten)]
    pub(crate) graph: GraphStyle,
    /// The largest input to read, in MiB, after decompression too.
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub(crate) limit_mib: u64,
    /// What the numbers of collapsed stacks are; nothing in such a file says it.
    #[arg(long = "folded-unit", value_enum, value_name = "UNIT", default_value = "count")]
    pub(crate) counted: FoldedUnit,
}

/// What `diff` compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// Total time: both did the same work.
    Total,
    /// Time per second: both had the same load.
    Second,
    /// The share of the whole: both were always busy.
    Share,
}

/// Parses a percentage, with or without its sign.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim().parse::<f64>().ok();
    number
        .filter(|percent| (0.0..=10_000.0).contains(percent))
        .ok_or_else(|| "it must be a percentage, as in `5%`".to_owned())
}

/// What to convert into what.
#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// Files: OTLP profiles or traces (ProfilesData, TracesData and the requests of both), as protobuf or JSON, the
    /// Collector file exporter's length-prefixed frames and lines of JSON, a pprof profile, a Sentry envelope with
    /// profiles, transactions or spans, the JSON of a profile_chunk, or collapsed stacks. What they are is told by
    /// their content. `-` is standard input.
    #[arg(required = true, value_name = "INPUT")]
    pub(crate) inputs: Vec<PathBuf>,
    /// Where the result goes. The ending says what it is: .svg (flame graph), .html (page), .folded (collapsed
    /// stacks), .speedscope.json (speedscope), .firefox.json (Firefox Profiler), .pprof or .pb.gz (pprof), .otlp
    /// (OTLP), .json or .otlp.json (the same as JSON), .envelope (Sentry envelopes: this file, and `x-2.envelope` and
    /// so on beside it, as for several pprof profiles); a name without an ending is a folder, for one Sentry envelope
    /// per file. `-` is standard output, which needs `--to`. A file from before is replaced once all of the new one is
    /// there; a pipe or a device is written to.
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// What to write, whatever the ending says.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) to: Option<Format>,
    #[command(flatten)]
    pub(crate) graph: GraphStyle,
    /// Set one key that says how it is converted, by its path in the configuration file: of `exporters.sentry` those
    /// that say how chunks are made (`--set exporters.sentry.environment=prod`, `in_app`, `off_cpu` ...),
    /// `processors.chunk`, `processors.transactions` and `service.identity`, and where OTLP is written
    /// `processors.dedup`. The value is YAML. May be given several times.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub(crate) set: Vec<String>,
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
}

/// How inputs are read.
#[derive(Debug, Args)]
pub(crate) struct ReadingArgs {
    /// The type of values that is taken, such as `inuse_space`; all others are left out. Without it, where what is
    /// written shows one type: pprof's default type, else running time, else the last that has any value.
    #[arg(long = "type", value_name = "NAME")]
    pub(crate) kind: Option<String>,
    /// When profiles were made that do not say it, or cannot mean it (before 2000, or later than tomorrow):
    /// `2026-01-31T08:00:00Z`, or a number of seconds since 1970.
    #[arg(long, value_name = "TIME", value_parser = crate::convert::selection::unix_nano)]
    pub(crate) at: Option<u64>,
    /// The largest input to read, in MiB, after decompression too.
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub(crate) limit_mib: u64,
    /// What the numbers of collapsed stacks are; nothing in such a file says it.
    #[arg(long = "folded-unit", value_enum, value_name = "UNIT", default_value = "count")]
    pub(crate) counted: FoldedUnit,
}

/// What to look at in a browser.
#[derive(Debug, Args)]
pub(crate) struct ViewArgs {
    /// Files of profiles in any of the formats that `convert` reads. `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) inputs: Vec<PathBuf>,
    /// Show the difference of two files, the first one from before.
    #[arg(long)]
    pub(crate) diff: bool,
    /// Only print the address, and open no browser.
    #[arg(long)]
    pub(crate) no_open: bool,
    #[command(flatten)]
    pub(crate) graph: GraphStyle,
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
}

/// What the numbers of collapsed stacks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FoldedUnit {
    /// Samples.
    Count,
    /// Nanoseconds, as profbridge writes them.
    Ns,
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
    /// Bytes of memory.
    Bytes,
}

impl From<FoldedUnit> for CountUnit {
    fn from(unit: FoldedUnit) -> Self {
        match unit {
            FoldedUnit::Count => Self::Samples,
            FoldedUnit::Ns => Self::Nanoseconds,
            FoldedUnit::Us => Self::Microseconds,
            FoldedUnit::Ms => Self::Milliseconds,
            FoldedUnit::Bytes => Self::Bytes,
        }
    }
}
