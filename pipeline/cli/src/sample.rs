//! `profbridge sample`: shows where a process spends its time, or a command from start to end.
//!
//! The sampler process takes the samples ([`profbridge_sampler`]); this module collects ([`collect`]), names, writes
//! ([`writer`]) and shows ([`report`]) them.

pub(crate) mod awaited;
mod collect;
mod course;
mod follow;
mod processes;
mod progress;
mod report;
mod run;
mod runtimes;
mod sampler;
mod signals;
mod stats;
mod writer;

use std::collections::HashSet;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use profbridge_model::Profiles;
use profbridge_sampler::is_any_named;
use profbridge_sampler::message::{Batch, Process, TargetId};
use profbridge_sampler::owner::{Inherited, SuperviseError, Supervised};
use profbridge_symbolizer::Symbolizer;
use tracing::level_filters::LevelFilter;

use crate::args::sampling::{SampleArgs, Subject};
use crate::destination::Destination;
use crate::views::flamegraph::GraphStyle;
use crate::{Failure, logging, terminal};
pub(crate) use collect::label;
pub(crate) use progress::RunSnapshot;
use run::{Run, Sampling};
use sampler::Sampler;
pub(crate) use signals::Interrupt;

/// The target of the command, or of the first process. Processes that a command waits for have other numbers.
const TARGET: TargetId = TargetId(0);

/// The exit status for a wrong command line, as with clap.
const WRONG_COMMAND_LINE: u8 = 2;

/// The purpose of a run.
pub(crate) enum Purpose {
    /// Writing and showing its result.
    Result {
        /// The file; without one, a flame graph named after the first process.
        output: Option<Destination>,
        /// How a flame graph is drawn, and functions are listed.
        graph: GraphStyle,
        /// Whether the text says how it was sampled.
        verbose: bool,
    },
    /// Showing its samples in another way.
    View(Box<dyn RunView>),
}

/// A view of the samples of a run.
pub(crate) trait RunView {
    /// Whether it is shown while the run goes on. Otherwise only its end is: processes that are found later are not
    /// announced, and the end waits for names as long as a file does.
    fn is_live(&self) -> bool;

    /// Called before a command is started, to change the streams that it inherits.
    fn before_command(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Called after it was started, or failed to start.
    fn after_command(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Shows a message to the user, without terminal control characters.
    fn say(&mut self, text: &str) {
        terminal::say(text);
    }

    /// A process was found.
    fn attached(&mut self, _process: &Process) {}

    /// Samples have arrived; [`take`](Self::take) gets them once they are named.
    fn arrived(&mut self, _batch: &Batch) {}

    /// Adds samples. `until` is their end, relative to the start of the run.
    fn take(&mut self, profiles: &Profiles, until: Duration);

    /// Updates the state of the run. Called many times a second; returns whether to end it.
    fn look(&mut self, look: &RunSnapshot<'_>) -> bool;

    /// Called when sampling has ended; the last samples are still to arrive.
    fn close(&mut self);

    /// Whether the view also shows the last samples, which arrive after it was closed.
    fn shows_the_end(&self) -> bool {
        true
    }

    /// Shows the end of the run, after its last samples.
    fn end(&mut self, look: &RunSnapshot<'_>);
}

/// `profbridge sample`.
pub(crate) fn run(arguments: &SampleArgs) -> Result<ExitCode, Failure> {
    let output = match arguments.destination() {
        Ok(output) => output,
        Err(why) => {
            terminal::say(format!("error: {why}"));
            return Ok(ExitCode::from(WRONG_COMMAND_LINE));
        }
    };
    let SampleArgs { graph, verbose, .. } = *arguments;
    start(&arguments.subject, || Ok((Interrupt::listen()?, Purpose::Result { output, graph, verbose })))
}

/// Samples, and writes or shows the result. `prepare` is called before any thread or process is started.
pub(crate) fn start(
    subject: &Subject,
    prepare: impl FnOnce() -> Result<(Interrupt, Purpose), Failure>,
) -> Result<ExitCode, Failure> {
    // The command inherits profbridge's original limits, not those changed below.
    let inherited =
        Inherited::now().map_err(|error| Failure::new("the system does not tell this process its limits", &error))?;
    let (interrupt, mut purpose) = prepare()?;
    logging::start(LevelFilter::WARN);
    // Checked first, so that a long run does not fail at its end because the file cannot be written.
    if let Purpose::Result { output, .. } = &purpose {
        let pid = subject.pid.first().copied().unwrap_or_else(std::process::id);
        output.clone().unwrap_or_else(|| Destination::of_process(pid)).check()?;
    }
    // The result waits for symbols as long as needed, since there is no later result.
    let settings = profbridge_symbolizer::Settings { patience: Duration::MAX, ..Default::default() };
    let symbolizer = profbridge_debuginfod::start(&profbridge_debuginfod::Config::default())
        .and_then(|server| Symbolizer::with_server(settings, server))
        .map_err(|error| Failure::new("threads cannot be started", &error))?;
    let sampler = Sampler::start().map_err(|error| Failure::new("nothing can be sampled", &error))?;
    // Every file mapped by the process is opened here.
    crate::limits::raise_open_files();
    let command = match &subject.command[..] {
        [] => None,
        words => match supervised(words, inherited, &mut purpose)? {
            Ok(command) => Some(Arc::new(command)),
            Err(error) => return Ok(not_started(&error)),
        },
    };
    let pids = command.as_ref().map_or_else(|| distinct(&subject.pid), |command| vec![command.pid()]);
    if let (Purpose::Result { output: None, .. }, Some(command)) = (&purpose, &command) {
        // The command has not run yet: if its file cannot be written, it ends here.
        Destination::of_process(command.pid()).check()?;
    }
    if let Some(command) = &command {
        interrupt.pass_on_to(command);
    }
    let mut run = Run::new(subject, Sampling { sampler, interrupt, command, pids }, symbolizer, purpose);
    if let Some(warning) = run.stops().warning() {
        run.say(&format!("warning: {warning}"));
    }
    if let Some(pattern) = subject.name.as_deref().filter(|pattern| !is_any_named(pattern)) {
        run.say(&format!("waiting for a process named {pattern}; Ctrl-C ends it"));
    }
    run.go()
}

fn supervised(
    words: &[OsString],
    inherited: Inherited,
    purpose: &mut Purpose,
) -> Result<Result<Supervised, SuperviseError>, Failure> {
    let Purpose::View(view) = purpose else { return Ok(Supervised::start(words.to_vec(), inherited)) };
    view.before_command()?;
    let started = Supervised::start(words.to_vec(), inherited);
    view.after_command()?;
    if started.is_err() {
        view.close();
    }
    Ok(started)
}

/// Process ids without duplicates.
fn distinct(pids: &[u32]) -> Vec<u32> {
    let mut seen = HashSet::new();
    pids.iter().copied().filter(|pid| seen.insert(*pid)).collect()
}

/// Reports why the command was not started. The exit status is that of a shell.
fn not_started(error: &SuperviseError) -> ExitCode {
    terminal::say(format!("error: {error}"));
    ExitCode::from(u8::try_from(error.shell_code()).unwrap_or(u8::MAX))
}
