//! The `profbridge` binary: the command line around the pipeline.
//!
//! `run` and `validate` create a plan from the configuration and the compiled-in components (`components`); `demo`,
//! `convert`, `view`, `sample`, `dump` and `profiler` are tools that use the same crates. This crate handles arguments,
//! files, the terminal and signals. The components decide what is received, changed and sent.

mod args;
mod commands;
mod components;
mod configuration;
mod convert;
mod demo;
mod destination;
mod diff;
mod dump;
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
mod view;
mod views;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command, ConfigArgs};

fn main() -> ExitCode {
    // The sampler process is this program, which starts itself once more.
    if let Some(code) = profbridge_sampler::run_if_sampler() {
        return code;
    }
    profbridge_heap::configure_allocator();
    let outcome = match Cli::parse().command.unwrap_or(Command::Run(ConfigArgs::default())) {
        Command::Run(arguments) => commands::run(&arguments),
        Command::Validate(arguments) => commands::validate(&arguments),
        Command::Config(arguments) => commands::config(&arguments),
        Command::Components => commands::components(),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Convert(arguments) => convert::run(&arguments),
        Command::View(arguments) => view::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Send(arguments) => send::run(&arguments),
        Command::Sample(arguments) => sample::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Dump(arguments) => dump::run(&arguments),
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

/// Why a command failed, as a message for people.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl Failure {
    /// A failure with its causes: `what: why: why of that`.
    pub(crate) fn new(what: impl std::fmt::Display, why: &(dyn std::error::Error + 'static)) -> Self {
        Self(format!("error: {what}: {}", profbridge_net::error_chain(why)))
    }
}
