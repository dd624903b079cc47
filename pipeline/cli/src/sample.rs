//! `profbridge sample`: where one process spends its time, or a command from start to end.
//!
//! The sampler process does the sampling ([`profbridge_sampler`]); here its samples are put together ([`collect`]),
//! named, added up ([`shares`]), written ([`writer`]) and shown ([`report`]).

mod collect;
mod course;
mod follow;
mod processes;
mod progress;
mod report;
mod run;
mod runtimes;
mod sampler;
mod shares;
mod signals;
mod stats;
mod writer;

use std::process::ExitCode;
use std::sync::Arc;

use profbridge_sampler::is_any_named;
use profbridge_sampler::message::TargetId;
use profbridge_sampler::owner::{Inherited, SuperviseError, Supervised};
use profbridge_symbolizer::Symbolizer;
use tracing::level_filters::LevelFilter;

use crate::args::sampling::SampleArgs;
use crate::destination::Destination;
use crate::{Failure, logging, terminal};
use run::{Run, Sampling};
use sampler::Sampler;
use signals::Interrupt;

/// The command, or the first of the processes. What a command is found to wait for has other numbers.
const TARGET: TargetId = TargetId(0);

/// Samples, writes and shows.
pub(crate) fn run(arguments: &SampleArgs) -> Result<ExitCode, Failure> {
    // The command gets what profbridge was given, and not what is changed from here on.
    let inherited =
        Inherited::now().map_err(|error| Failure::new("the system does not tell this process its limits", &error))?;
    let interrupt = Interrupt::listen()?;
    logging::start(LevelFilter::WARN);
    // A long run must not end with the news that its file cannot be written.
    let subject = &arguments.subject;
    let pid = subject.pid.first().copied().unwrap_or_else(std::process::id);
    arguments.output.clone().unwrap_or_else(|| Destination::of_process(pid)).check()?;
    let symbolizer = Symbolizer::start(profbridge_symbolizer::Settings::default())
        .map_err(|error| Failure::new("threads cannot be started", &error))?;
    let sampler = Sampler::start().map_err(|error| Failure::new("nothing can be sampled", &error))?;
    // Each file that the process has mapped is opened here.
    crate::limits::raise_open_files();
    if let Some(pattern) = subject.name.as_deref().filter(|pattern| !is_any_named(pattern)) {
        return Err(Failure(format!("error: there is no process named {pattern}")));
    }
    let command = match &subject.command[..] {
        [] => None,
        words => match Supervised::start(words.to_vec(), inherited) {
            Ok(command) => Some(Arc::new(command)),
            Err(error) => return Ok(not_started(&error)),
        },
    };
    let pids = command.as_ref().map_or_else(|| distinct(&subject.pid), |command| vec![command.pid()]);
    if let (None, Some(pid)) = (&arguments.output, command.as_ref().map(|command| command.pid())) {
        // Nothing of the command has run: it ends with this if its file cannot be written.
        Destination::of_process(pid).check()?;
    }
    if let Some(command) = &command {
        interrupt.pass_on_to(command);
    }
    let run = Run::new(arguments, Sampling { sampler, interrupt, command, pids }, symbolizer);
    if let Some(warning) = run.stops().warning() {
        terminal::say(format!("warning: {warning}"));
    }
    run.go()
}

/// Process ids without those that were given before.
fn distinct(pids: &[u32]) -> Vec<u32> {
    let mut distinct = Vec::new();
    for pid in pids {
        if !distinct.contains(pid) {
            distinct.push(*pid);
        }
    }
    distinct
}

/// Says why there is no command. The status is what a shell would have.
fn not_started(error: &SuperviseError) -> ExitCode {
    terminal::say(format!("error: {error}"));
    ExitCode::from(u8::try_from(error.shell_code()).unwrap_or(u8::MAX))
}
