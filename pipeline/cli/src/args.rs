//! The command-line arguments as written. Each command interprets its own.

pub(crate) mod sampling;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use profbridge_wire::folded::CountUnit;

use crate::destination::Format;
use crate::views::flamegraph::GraphStyle;

/// The text at the end of the help. The page of the command line (`README.md` of this crate) has the same table.
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
    /// Check a configuration and list everything that is wrong with it. Uses no network and writes nothing.
    Validate(ConfigArgs),
    /// Print the effective configuration: defaults, files and --set merged, secrets redacted.
    Config(ConfigArgs),
    /// List the receivers, processors and exporters in this binary.
    Components,
    /// Send a generated but realistic profile through the running pipeline, or through a temporary one.
    Demo(DemoArgs),
    /// Convert files of profiles and spans: OTLP protobuf and JSON, pprof, Sentry envelopes, collapsed stacks, gzipped
    /// or not.
    Convert(ConvertArgs),
    /// Look at files of profiles in a browser: a local page with flame graph, time line and table.
    View(ViewArgs),
    /// See what became slower or faster between two files of profiles, as text, flame graph or page.
    Diff(DiffArgs),
    /// Deliver Sentry envelopes and spans from files, such as those that `on_shutdown` of the exporter `sentry` kept.
    Send(SendArgs),
    /// See where a process spends its time: sample it for a while, or a command from start to end.
    Sample(sampling::SampleArgs),
    /// Watch where processes spend their time, in the terminal: redrawn each second.
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
    /// Accepts a file without `--config`, only to explain in the error how to pass it.
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

/// Rejects a file without `--config`.
fn not_an_argument(text: &str) -> Result<String, String> {
    Err(format!("a configuration is named as `--config {text}`"))
}

/// How to run the demo.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// The folder for the flame graph, and for the envelope if the demo runs a pipeline of its own.
    #[arg(short, long, value_name = "FOLDER", default_value = "out/demo")]
    pub(crate) output: PathBuf,
    /// Use a temporary pipeline even if one is running.
    #[arg(long)]
    pub(crate) own: bool,
    /// How many seconds of work to generate, 1 to 50.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub(crate) seconds: u32,
}

/// What to deliver.
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// Files with one Sentry envelope each, or with spans for Sentry's OTLP endpoint (`.spans.otlp`), or folders of them,
    /// such as the exporter `sentry` writes for `on_shutdown`.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The DSN for all files, in place of their own. Without it, each goes to the DSN in the file `dsn` beside it, or
    /// else to the one in the envelope's header, or else to SENTRY_DSN.
    #[arg(long, value_name = "DSN")]
    pub(crate) dsn: Option<String>,
    /// Delete each file once it is delivered.
    #[arg(long)]
    pub(crate) delete: bool,
}

/// The help text of `diff` about how it compares.
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
    /// The type of values to compare, such as `inuse_space`. By default pprof's default type, or else running time, or
    /// else the last type with any value.
    #[arg(long = "type", value_name = "NAME")]
    pub(crate) kind: Option<String>,
    /// The quantity to compare. By default the one that suits both files.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) by: Option<By>,
    /// Exit with status 1 if the total, or a function with at least 1 % of it, grew by more than this percentage, as in
    /// `5%`, and by more than the noise.
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
    /// Total time, if both did the same work.
    Total,
    /// Time per second, if both had the same load.
    Second,
    /// The share of the total, if both were always busy.
    Share,
}

/// Parses a percentage, with or without its sign.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim().parse::<f64>().ok();
    number
        .filter(|percent| (0.0..=10_000.0).contains(percent))
        .ok_or_else(|| "it must be a percentage, as in `5%`".to_owned())
}

/// The inputs, the output, and the settings of a conversion.
#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// Files: OTLP profiles or traces (ProfilesData, TracesData and the requests of both), as protobuf or JSON, the
    /// Collector file exporter's length-prefixed frames and lines of JSON, a pprof profile, a Sentry envelope with
    /// profiles, transactions or spans, the JSON of a profile_chunk, or collapsed stacks. The format is detected from
    /// the content. `-` is standard input.
    #[arg(required = true, value_name = "INPUT")]
    pub(crate) inputs: Vec<PathBuf>,
    /// The file or folder for the result. The extension selects the format: .svg (flame graph), .html (page), .folded
    /// (collapsed stacks), .speedscope.json (speedscope), .firefox.json (Firefox Profiler), .pprof or .pb.gz (pprof),
    /// .otlp (OTLP), .json or .otlp.json (OTLP as JSON), .envelope (Sentry envelopes: this file, and `x-2.envelope` and
    /// so on beside it, as for several pprof profiles); a name without an extension is a folder, for one Sentry
    /// envelope per file. `-` is standard output, which needs `--to`. An existing file is replaced once the new one is
    /// complete; a pipe or a device is written to.
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// The format, regardless of the extension.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) to: Option<Format>,
    #[command(flatten)]
    pub(crate) graph: GraphStyle,
    /// Set one configuration key for the conversion, by its path in the configuration file: the keys of
    /// `exporters.sentry` for creating chunks (`--set exporters.sentry.environment=prod`, `in_app`, `off_cpu` ...) and
    /// for the form of spans (`spans`: `transactions` or `streamed`, and in .otlp and .json `otlp`, as Sentry's OTLP
    /// endpoint needs them), `processors.chunk`, `processors.transactions` and `service.identity`, and for OTLP output
    /// `processors.dedup`. The value is YAML. May be given several times.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub(crate) set: Vec<String>,
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
}

/// How inputs are read.
#[derive(Debug, Args)]
pub(crate) struct ReadingArgs {
    /// The type of values to read, such as `inuse_space`; all others are left out. By default, if the output shows only
    /// one type: pprof's default type, or else running time, or else the last type with any value.
    #[arg(long = "type", value_name = "NAME")]
    pub(crate) kind: Option<String>,
    /// The time of profiles that have none, or an implausible one (before 2000, or later than tomorrow):
    /// `2026-01-31T08:00:00Z`, or a number of seconds since 1970.
    #[arg(long, value_name = "TIME", value_parser = crate::convert::selection::unix_nano)]
    pub(crate) at: Option<u64>,
    /// The largest input to read, in MiB, after decompression too.
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub(crate) limit_mib: u64,
    /// The unit of the numbers in collapsed stacks, which such a file does not state.
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

/// The unit of the numbers in collapsed stacks.
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
