//! Runs a plan: starts exporters first and receivers last, and stops in the reverse order.
//!
//! A shutdown has one deadline, the configured `shutdown_timeout`, and proceeds in this order: receivers stop accepting
//! and finish requests in progress (for at most a fifth of the time; after a tenth, every waiting sender gets its
//! answer: a request that a pipeline has started to process is accepted, any other is refused), processors flush,
//! queues drain, exporters send their final reports (in the remaining time, at least a second, or a twentieth of a
//! short deadline). Everything not sent by then is counted.

mod report;
mod reporter;
mod running;
pub(crate) mod server;
mod start;

use profbridge_net::Shutdown;

pub use report::{ExporterReport, PipelineReport, ProcessorReport, ReceiverReport, RunReport};
pub use running::{ListenAddress, RunningPlan};

use crate::component::StartError;
use crate::config::Duration;
use crate::plan::Plan;

/// Starts a plan, waits for `shutdown`, and stops it in order.
///
/// # Errors
///
/// A component could not start. Components that had been started are stopped.
pub async fn run(plan: Plan, mut shutdown: Shutdown) -> Result<RunReport, StartError> {
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
/// A component could not start. Components that had been started are stopped.
pub async fn start(plan: Plan) -> Result<RunningPlan, StartError> {
    start::start(plan, crate::clock::Clock::system(), crate::pipeline::RunsOn::Thread).await
}

#[cfg(test)]
mod tests;
