//! Runs a plan: exporters first, receivers last, and back in the other order.
//!
//! A shutdown has one deadline, the configuration's `shutdown_timeout`, and spends it in this order: receivers stop
//! accepting and finish what is under way (at most a fifth of it; after a tenth whoever still waits is answered: what a
//! pipeline has begun to take is taken, and what none has begun to take is given back to its sender), processors put
//! out what they hold, queues drain, exporters say what they still have to say (what is left, a second at least, or a
//! twentieth of a short deadline). Whatever is not sent by then is counted.

mod report;
mod reporter;
mod running;
pub(crate) mod server;
mod start;

use profbridge_net::Shutdown;

pub use report::{ExporterReport, PipelineReport, ProcessorReport, ReceiverReport, Report};
pub use running::{Address, RunningPlan};

use crate::component::StartError;
use crate::config::Duration;
use crate::plan::Plan;

/// Starts a plan, waits for `shutdown`, and stops it in order.
///
/// # Errors
///
/// A component could not start. What had been started is stopped.
pub async fn run(plan: Plan, mut shutdown: Shutdown) -> Result<Report, StartError> {
    let within = Duration::from(plan.service.shutdown_timeout);
    let running = start(plan).await?;
    shutdown.wait().await;
    tracing::info!(%within, "shutting down");
    Ok(running.stop().await)
}

/// Starts a plan: exporters first, receivers last. Must be called on tokio's runtime.
///
/// # Errors
///
/// A component could not start. What had been started is stopped.
pub async fn start(plan: Plan) -> Result<RunningPlan, StartError> {
    start::start(plan, crate::clock::Clock::system(), crate::pipeline::Host::Thread).await
}

#[cfg(test)]
mod tests;
