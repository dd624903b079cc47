//! `profbridge sample`: where one process spends its time, or a command from start to end.
//!
//! The sampler process does the sampling ([`profbridge_ptrace`]); here its samples are put together ([`collect`]),
//! named, added up ([`shares`]), written ([`sink`]) and shown ([`report`]).

mod collect;
mod course;
mod progress;
mod report;
mod run;
mod shares;
mod signals;
mod sink;
mod stats;

use std::process::ExitCode;

use profbridge_ptrace::message::{Command, Mode, Select, Settings, Target, TargetId};
use profbridge_ptrace::owner::{SamplerProcess, StartOptions};
use profbridge_receiver_ptrace::resource::ENVIRONMENT;
use profbridge_symbolize::Symbolizer;
use tracing::level_filters::LevelFilter;

use crate::args::sampling::{self, SampleArgs};
use crate::destination::Destination;
use crate::{Failure, logging};
use run::{Run, Sampling};
use signals::Interrupt;

/// The one target of a run.
const TARGET: TargetId = TargetId(0);

/// Samples, writes and shows.
pub(crate) fn run(arguments: &SampleArgs) -> Result<ExitCode, Failure> {
    logging::start(LevelFilter::WARN);
    // A long run must not end with the news that its file cannot be written.
    let pid = arguments.pid.unwrap_or_else(std::process::id);
    arguments.output.clone().unwrap_or_else(|| Destination::of_process(pid)).check()?;
    let symbolizer = Symbolizer::start(profbridge_symbolize::Settings::default())
        .map_err(|error| Failure::new("threads cannot be started", &error))?;
    let interrupt = Interrupt::listen()?;
    let (sampler, events) = SamplerProcess::start(StartOptions::default())
        .map_err(|error| Failure::new("nothing can be sampled", &error))?;
    // Each file that the process has mapped is opened here. The command, if there is one, gets the limit from before.
    crate::limits::raise_open_files();
    let target = target(arguments);
    let settings = target.settings;
    sampler.send(Command::Watch(target)).map_err(|error| Failure::new("nothing can be sampled", &error))?;
    Run::new(arguments, settings, Sampling { sampler, events, interrupt }, symbolizer).go()
}

fn target(arguments: &SampleArgs) -> Target {
    let mode = match arguments.mode {
        sampling::Mode::Wall => Mode::Wall,
        sampling::Mode::Cpu => Mode::Cpu,
    };
    let select = match arguments.pid {
        Some(pid) => Select::Pid(pid),
        None => Select::Command(arguments.command.clone()),
    };
    Target {
        id: TARGET,
        select,
        settings: Settings { rate_hertz: arguments.rate, mode, ..Settings::default() },
        environment: ENVIRONMENT.map(str::to_owned).to_vec(),
        sample_at_once: true,
    }
}
