//! The `profbridge` binary: the command line around the pipeline.
//!
//! `run` and `validate` make a plan of the configuration and the components that are compiled in (`components`);
//! `demo`, `convert`, `sample` and `profiler` are tools that use the same crates. It knows arguments, files, the
//! terminal and signals. What is received, changed and sent, and by which rules, is the components' business.

mod args;
mod commands;
mod components;
mod configuration;
mod convert;
mod demo;
mod destination;
mod files;
mod limits;
mod logging;
mod output;
mod profiler;
mod rights;
mod sample;
mod send;
mod signals;
mod terminal;
mod top;
mod views;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command, ConfigArgs};

fn main() -> ExitCode {
    // The sampler process is this program, started once more by itself.
    if let Some(code) = profbridge_sampler::run_if_sampler() {
        return code;
    }
    profbridge_heap::keep_little();
    let outcome = match Cli::parse().command.unwrap_or(Command::Run(ConfigArgs::default())) {
        Command::Run(arguments) => commands::run(&arguments),
        Command::Validate(arguments) => commands::validate(&arguments),
        Command::Config(arguments) => commands::config(&arguments),
        Command::Components => commands::components(),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Convert(arguments) => convert::run(&arguments),
        Command::Send(arguments) => send::run(&arguments),
        Command::Sample(arguments) => sample::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Profiler(arguments) => profiler::run(&arguments),
    };
    logging::finish();
    match outcome {
        Ok(_) if terminal::result_is_lost() => ExitCode::FAILURE,
        Ok(code) => code,
        Err(failure) => {
            terminal::say(failure.0);
            ExitCode::FAILURE
        }
    }
}

/// Why a command failed, as it is shown to a person.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl Failure {
    /// A failure with its cause: `what: why: why of that`.
    pub(crate) fn new(what: impl std::fmt::Display, why: &(dyn std::error::Error + 'static)) -> Self {
        Self(format!("error: {what}: {}", profbridge_net::error_chain(why)))
    }
}
