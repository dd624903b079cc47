//! The commands for pipelines: run, validate, config, components.

use std::process::ExitCode;
use std::thread::available_parallelism;

use profbridge_engine::config::Problems;
use profbridge_engine::plan::Plan;
use profbridge_engine::run::{self, RunReport};
use profbridge_model::quantities::Number;
use profbridge_net::Shutdown;
use tokio::runtime::Runtime;
use tracing::level_filters::LevelFilter;

use crate::args::ConfigArgs;
use crate::signals::{ASKED_TWICE, Signals};
use crate::{Failure, components, configuration, logging, terminal};

/// The most I/O threads. Each pipeline has its own thread for the work; these only move bytes.
const MOST_IO_THREADS: usize = 4;

/// `profbridge run`: runs until SIGTERM or SIGINT. A second signal ends the process at once.
pub(crate) fn run(arguments: &ConfigArgs) -> Result<ExitCode, Failure> {
    let plan = configuration::plan(arguments).map_err(|problems| wrong(&problems, arguments))?;
    logging::start(LevelFilter::from_level(plan.service.log_level.into()));
    if let Ok(config) = configuration::load(arguments) {
        crate::rights::leave_tracing_to_the_sampler(&config);
    }
    // From here on, only the log writes to standard error: other writers could block on its reader.
    plan.warnings.iter().for_each(logging::say);
    run_plan(plan).or_else(|Failure(failure)| {
        logging::say(failure);
        Ok(ExitCode::FAILURE)
    })
}

fn run_plan(plan: Plan) -> Result<ExitCode, Failure> {
    let runtime = runtime()?;
    let report = runtime.block_on(until_asked(plan));
    // Remaining tasks have used up their time. The process must not wait for a thread that hangs in a file system.
    runtime.shutdown_background();
    let Some(report) = report? else { return Ok(ExitCode::SUCCESS) };
    for line in report.to_string().lines() {
        tracing::info!("{line}");
    }
    Ok(verdict(&report))
}

/// The exit status of a run. The page of the command line lists the statuses.
fn verdict(report: &RunReport) -> ExitCode {
    let lost = report.unaccounted();
    if !lost.is_none() {
        let unit = if lost.is_observations_only() { " observations" } else { "" };
        tracing::error!("{}{unit} are unaccounted for: this is a defect of profbridge", Number(lost));
    }
    if !report.is_clean() || !lost.is_none() {
        return ExitCode::FAILURE;
    }
    if let Some(unserved) = report.unserved() {
        tracing::error!("{unserved} sent nothing of what it was given; the lines above say why");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Runs a plan until a signal asks to stop. `None` if the signal came before everything was started.
async fn until_asked(plan: Plan) -> Result<Option<RunReport>, Failure> {
    let (trigger, mut shutdown) = Shutdown::pair();
    let mut signals = Signals::listen()
        .map_err(|error| Failure::new("the system does not let this process wait for signals", &error))?;
    tokio::spawn(async move {
        let signal = signals.next().await;
        tracing::info!("{signal}: shutting down");
        trigger.trigger();
        signals.next().await;
        logging::say("ended by a second signal; what was held is lost");
        logging::finish();
        #[allow(clippy::exit, reason = "whoever asks twice does not want to wait for anything")]
        std::process::exit(ASKED_TWICE.into());
    });
    let running = tokio::select! {
        running = run::start(plan) => running.map_err(|error| Failure(format!("error: {error}")))?,
        // Starting a component may block, for example on a file system.
        () = shutdown.wait() => return Ok(None),
    };
    // Not earlier, since sampler processes started before must get the original limit.
    crate::limits::raise_open_files();
    tracing::info!("profbridge is running");
    shutdown.wait().await;
    Ok(Some(running.stop().await))
}

/// The I/O runtime.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    let threads = available_parallelism().map_or(1, usize::from).min(MOST_IO_THREADS);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("io")
        .enable_all()
        .build()
        .map_err(|error| Failure::new("threads cannot be started", &error))
}

/// `profbridge validate`.
pub(crate) fn validate(arguments: &ConfigArgs) -> Result<ExitCode, Failure> {
    let plan = configuration::plan(arguments).map_err(|problems| wrong(&problems, arguments))?;
    for warning in &plan.warnings {
        terminal::say(format!("{warning}\n"));
    }
    for (id, why) in &plan.disabled {
        terminal::say(format!("exporter {id} is switched off: {why}"));
    }
    terminal::result("the configuration is valid");
    Ok(ExitCode::SUCCESS)
}

/// `profbridge config`: prints the merged configuration, even if it is not valid.
pub(crate) fn config(arguments: &ConfigArgs) -> Result<ExitCode, Failure> {
    let config = configuration::load(arguments).map_err(|problems| wrong(&problems, arguments))?;
    terminal::result(config.redacted_yaml().trim_end());
    Ok(ExitCode::SUCCESS)
}

fn wrong(problems: &Problems, arguments: &ConfigArgs) -> Failure {
    Failure(configuration::explain(problems, arguments))
}

/// `profbridge components`.
pub(crate) fn components() -> Result<ExitCode, Failure> {
    terminal::result(components::listing().trim_end());
    Ok(ExitCode::SUCCESS)
}
