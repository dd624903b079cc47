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
mod sampler;
mod shares;
mod signals;
mod stats;
mod writer;

use std::process::ExitCode;
use std::sync::Arc;

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

/// What is sampled: the process, or the command. What a command starts has other numbers.
const TARGET: TargetId = TargetId(0);

/// Samples, writes and shows.
pub(crate) fn run(arguments: &SampleArgs) -> Result<ExitCode, Failure> {
    // The command gets what profbridge was given, and not what is changed from here on.
    let inherited =
        Inherited::now().map_err(|error| Failure::new("the system does not tell this process its limits", &error))?;
    let interrupt = Interrupt::listen()?;
    logging::start(LevelFilter::WARN);
    // A long run must not end with the news that its file cannot be written.
    let pid = arguments.pid.unwrap_or_else(std::process::id);
    arguments.output.clone().unwrap_or_else(|| Destination::of_process(pid)).check()?;
    let symbolizer = Symbolizer::start(profbridge_symbolizer::Settings::default())
        .map_err(|error| Failure::new("threads cannot be started", &error))?;
    let sampler = Sampler::start().map_err(|error| Failure::new("nothing can be sampled", &error))?;
    // Each file that the process has mapped is opened here.
    crate::limits::raise_open_files();
    let command = match arguments.pid {
        Some(_) => None,
        None => match Supervised::start(arguments.command.clone(), inherited) {
            Ok(command) => Some(Arc::new(command)),
            Err(error) => return Ok(not_started(&error)),
        },
    };
    let pid = command.as_ref().map_or(pid, |command| command.pid());
    if arguments.output.is_none() {
        // Nothing of the command has run: it ends with this if its file cannot be written.
        Destination::of_process(pid).check()?;
    }
    if let Some(command) = &command {
        interrupt.pass_on_to(command);
    }
    let run = Run::new(arguments, Sampling { sampler, interrupt, command, pid }, symbolizer);
    if let Some(warning) = run.stops().warning() {
        terminal::say(format!("warning: {warning}"));
    }
    run.go()
}

/// Says why there is no command. The status is what a shell would have.
fn not_started(error: &SuperviseError) -> ExitCode {
    terminal::say(format!("error: {error}"));
    ExitCode::from(u8::try_from(error.shell_code()).unwrap_or(u8::MAX))
}
