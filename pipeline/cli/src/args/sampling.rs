//! The arguments of the commands that need the sampler.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::destination::{Destination, Format, format_of};
use crate::terminal::shown;
use crate::views::flamegraph::GraphStyle;

/// The help text of `sample` about facts that its options do not explain.
const ABOUT_SAMPLING: &str = "\
Neither the process nor its build is changed. Its threads are looked at from outside and not \
stopped where the kernel permits perf events; --stops says what happens elsewhere. Only the \
process itself is sampled, unless --subprocesses is given; of a command also the one process that \
it only waits for.

Names come from symbol tables and debug information, from the memory of Python (3.8 to 3.14), Ruby \
(3.0 to 3.4), PHP (7.3 to 8.5) and Node (18, 20, 22, 24), and from perf maps: `jcmd PID \
Compiler.perfmap` for Java 17 and later.

With a command, its exit status becomes that of profbridge (127 where there is no such command, \
128 + N where signal N ended it), and profbridge speaks on standard error. Otherwise the status is \
0, or 1 where nothing could be sampled, or none of it written. Ctrl-C, SIGTERM and SIGHUP end \
sampling and write what there is; a second one ends profbridge at once. A command gets the signal \
as well; a process that profbridge did not start does not.";

/// What to sample, and where the result goes.
#[derive(Debug, Args)]
#[command(after_long_help = ABOUT_SAMPLING)]
#[command(override_usage = "profbridge sample [OPTIONS] --pid <PID>\n       \
                      profbridge sample [OPTIONS] --name <PATTERN>\n       \
                      profbridge sample [OPTIONS] -- <COMMAND>...")]
pub(crate) struct SampleArgs {
    #[command(flatten)]
    pub(crate) subject: Subject,
    /// The file for the result. The extension selects the format: .svg (flame graph), .html (page), .folded (collapsed
    /// stacks), .speedscope.json (speedscope), .firefox.json (Firefox Profiler), .pprof or .pb.gz (pprof, one for each
    /// process), .otlp (OTLP profiles), .json or .otlp.json (OTLP as JSON), .envelope (Sentry envelope; one for each
    /// process and 45 s, so `x.envelope` may be followed by `x-2.envelope`). `-` is standard output, which needs
    /// `--to`; all messages then go to standard error. Default: `profile-PID.svg`, with the first of several PIDs.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The format, regardless of the extension.
    #[arg(long, value_enum, value_name = "FORMAT", requires = "output")]
    pub(crate) to: Option<Format>,
    #[command(flatten)]
    pub(crate) graph: GraphStyle,
    /// Say how it was sampled as well, and not only what is wrong.
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

impl SampleArgs {
    /// The requested destination; `None` if no option asks for one.
    ///
    /// # Errors
    ///
    /// If the format is unknown, or the result cannot be written there. The message says what to do instead.
    pub(crate) fn destination(&self) -> Result<Option<Destination>, String> {
        let Self { subject, output, to, graph, .. } = self;
        let Some(path) = output else { return Ok(None) };
        let refused = |why: String, hint: String| Err(format!("-o {}: {why}\nhint: {hint}", shown(path)));
        let format = match to.map_or_else(|| format_of(path), Ok) {
            Ok(format) => format,
            Err(undecided) => return refused(undecided.to_string(), undecided.hint()),
        };
        if let Some(option) = (GraphStyle { lines: false, ..*graph }).meaningless_for(format) {
            return refused(format!("{option} says how a flame graph is drawn"), "leave it out".to_owned());
        }
        let destination = Destination { path: path.clone(), format, graph: *graph };
        let several = subject.name.is_some() || subject.subprocesses || subject.pid.len() > 1;
        if destination.is_standard() {
            let to_file = "name a file".to_owned();
            if !subject.command.is_empty() {
                return refused("standard output is the command's".to_owned(), to_file);
            }
            if format == Format::Sentry || format == Format::Pprof && several {
                return refused("the result is several files, which cannot go there".to_owned(), to_file);
            }
        }
        Ok(Some(destination))
    }
}

/// The help text of `top` about its display.
const ABOUT_TOP: &str = "\
Percentages are of the running time of all threads in the last ten seconds, those of the column \
`wait` of their waiting time. Self time of the program's functions has the libraries that they \
call.

Keys: s, t, w sort by self, total or waiting time; o own code first or not; n as sampled or not; h \
threads or not; a all time or the last ten seconds; / filters by name, Enter keeps the filter and \
Escape drops it; arrows, PageUp, PageDown and Home scroll; q or Ctrl-C ends it. A command goes on \
then. Without a terminal, lines are written every second and at the end.";

/// What to watch.
#[derive(Debug, Args)]
#[command(after_long_help = ABOUT_TOP)]
#[command(override_usage = "profbridge top [OPTIONS] --pid <PID>\n       \
                      profbridge top [OPTIONS] --name <PATTERN>\n       \
                      profbridge top [OPTIONS] -- <COMMAND>...")]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) subject: Subject,
    /// Show the frames of interpreters, the C library and the kernel as well, as the key `n` does.
    #[arg(long)]
    pub(crate) native: bool,
}

/// The help text of `dump` about its output.
const ABOUT_DUMP: &str = "\
Each thread has its state and its stack, the innermost function first, as its whole stack was last \
seen within half a second, or up to two where that takes longer. What is not known is said, as in \
`[callers not known]`. Where a thread runs functions of Python, Node, Ruby or PHP, the machine code \
of the interpreter and the C library is left out, and while it waits that of all libraries; \
elsewhere the kernel is. The status is 1 where nothing could be read.";

/// Which threads are shown, and how.
#[derive(Debug, Args)]
#[command(after_long_help = ABOUT_DUMP)]
pub(crate) struct DumpArgs {
    /// The process, by its id. For several, separate the ids by commas or repeat the option. Needs the right to trace
    /// the process: the same user, or root.
    #[arg(
        short, long, required = true, value_name = "PID", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub(crate) pid: Vec<u32>,
    /// Also show all descendants of these processes.
    #[arg(long)]
    pub(crate) subprocesses: bool,
    /// Show every frame.
    #[arg(long)]
    pub(crate) native: bool,
}

impl DumpArgs {
    /// The sampling options for `dump`, with this time limit.
    pub(crate) fn subject(&self, longest: Duration) -> Subject {
        Subject {
            pid: self.pid.clone(),
            name: None,
            subprocesses: self.subprocesses,
            no_subprocesses: true,
            duration: Some(longest),
            rate: DEFAULT_RATE,
            mode: SamplingMode::Wall,
            stops: Stops::UserBound,
            command: Vec::new(),
        }
    }
}

/// The default sampling rate, in hertz.
const DEFAULT_RATE: f64 = 101.0;

/// Which processes are sampled, and how.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("target").required(true).args(["pid", "name", "command"]))]
pub(crate) struct Subject {
    /// The process to sample, by its id. For several, separate the ids by commas or repeat the option. Needs the right
    /// to trace the process: the same user, or root.
    #[arg(
        short, long, value_name = "PID", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub(crate) pid: Vec<u32>,
    /// Sample all processes with this name, including those that start later. A name is the one that `ps` shows, or
    /// that of the executable; a pattern with a slash is compared with the executable's path. `*` stands for any
    /// characters, `?` for one.
    #[arg(short, long, value_name = "PATTERN", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) name: Option<String>,
    /// Also sample all descendants of these processes, including those that start later. A process that lives for less
    /// than 20 ms, or later in the run 100 ms, may be missed.
    #[arg(long)]
    pub(crate) subprocesses: bool,
    /// Never sample the children of the processes given by --pid. Without this option, children are sampled from the
    /// moment when they run while their parents do not, as with a server that only starts other processes.
    #[arg(long, conflicts_with = "subprocesses")]
    pub(crate) no_subprocesses: bool,
    /// How long to sample, as in `10s` or `1m30s`; a number without a unit means seconds. By default, until the last
    /// process or the command ends, or until Ctrl-C.
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// The number of samples per second of each thread, 1 to 1000. It is lowered if sampling costs too much.
    #[arg(short, long, value_name = "HERTZ", default_value_t = DEFAULT_RATE, value_parser = rate)]
    pub(crate) rate: f64,
    /// What is sampled.
    #[arg(short, long, value_enum, default_value_t = SamplingMode::Wall)]
    pub(crate) mode: SamplingMode,
    /// Which running threads are stopped to be sampled.
    #[arg(long, value_enum, default_value_t = Stops::UserBound)]
    pub(crate) stops: Stops,
    /// A command to start and to sample from its first instruction.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// What is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SamplingMode {
    /// Running and waiting threads, which are shown separately.
    Wall,
    /// Only running threads.
    Cpu,
}

/// Which running threads are stopped to be sampled. A stop can end a long system call early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stops {
    /// Threads that stay in their own code, and only if the kernel permits no perf events. Of all other threads, only
    /// the amount of processor time is then known.
    UserBound,
    /// None. Without perf events, only the amount of processor time is then known.
    Never,
    /// All, even if the kernel permits perf events. Long system calls (read, write, send) may return early, with only a
    /// part of the requested data.
    Always,
}

/// A request to a running profbridge.
#[derive(Debug, Args)]
pub(crate) struct ProfilerArgs {
    /// The action.
    #[command(subcommand)]
    pub(crate) action: ProfilerAction,
}

/// The actions of `profiler`.
#[derive(Debug, Subcommand)]
pub(crate) enum ProfilerAction {
    /// Start profiling a target, or all of them. If nothing was started, prints the reason.
    Start(ControlArgs),
    /// Stop profiling a target, or all of them. If nothing was stopped, prints the reason.
    Stop(ControlArgs),
    /// Show for each target whether it is profiled, and its processes.
    Status(ControlArgs),
}

/// How to reach a running profbridge, and which of its processes a request is for.
#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    /// The target, by its name in the configuration of the receiver `ptrace`. Without it, all of them.
    #[arg(value_name = "TARGET")]
    pub(crate) target: Option<String>,
    /// One process of a target, by its id.
    #[arg(short, long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// The control socket: the receiver's `control.socket`. Default: `$XDG_RUNTIME_DIR/profbridge/control.sock`, or
    /// `/run/profbridge/control.sock` if that variable is not set.
    #[arg(short, long, value_name = "SOCKET")]
    pub(crate) socket: Option<PathBuf>,
}

/// Parses a duration; a number without a unit means seconds, as in `sleep` and `timeout`.
fn duration(text: &str) -> Result<Duration, String> {
    let duration = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?,
        Err(_) => text.parse::<profbridge_engine::config::Duration>().map_err(|error| error.to_string())?.get(),
    };
    if duration.is_zero() {
        return Err("it must be longer than nothing".to_owned());
    }
    Ok(duration)
}

/// Parses a rate in hertz.
fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (1.0..=1000.0).contains(&rate) => Ok(rate),
        _ => Err("it must be a number from 1 to 1000".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: durations are parsed with and without a unit, and invalid ones are refused.
    #[test]
    fn durations() {
        let good = [("10", 10_000), ("0.5", 500), ("10s", 10_000), ("1m30s", 90_000), ("250ms", 250)];
        for (text, milliseconds) in good {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "0", "0s", "-1", "-1s", "NaN", "inf", "1e30", "5 parsecs"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    /// Guarantees: only rates that the sampler supports are accepted.
    #[test]
    fn rates() {
        assert_eq!((rate("1"), rate("99.9"), rate("1000")), (Ok(1.0), Ok(99.9), Ok(1000.0)));
        for text in ["0", "0.5", "1001", "-5", "NaN", "inf", "fast"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }
}
