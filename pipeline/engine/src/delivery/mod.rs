//! Delivery: the queue in front of every exporter, its consumers, timeouts and retries. Written once, for all of them.
//!
//! The pipeline's thread turns telemetry into requests ([`Exporter::prepare`]) and puts them into a queue that is
//! bounded in bytes. Consumers take them out, make one attempt after the other, and settle each request exactly once:
//! sent, or lost under a reason.

mod backoff;
mod config;
mod dispatch;
mod log_gate;
mod queue;
mod sink;
mod ticket;

use std::sync::Arc;
use std::time::Duration;

use profbridge_model::Telemetry;
use tokio::time::Instant;

pub use config::{BadQueue, BadRetry, QueueConfig, RetryConfig, Sizer};

use crate::budget::Budget;
use crate::component::{BoxFuture, Exporter, Now, StartError};
use crate::telemetry::ExporterTelemetry;

/// How an exporter's requests are delivered.
#[derive(Debug, Clone, PartialEq)]
pub struct DeliverySettings {
    /// `sending_queue`: what may wait.
    pub queue: QueueConfig,
    /// `retry_on_failure`: when another attempt is made.
    pub retry: RetryConfig,
    /// `timeout`: how long one attempt may take.
    pub timeout: Duration,
}

/// What an exporter needs of the engine.
#[derive(Debug, Clone)]
pub struct ExporterContext {
    /// The exporter's counters.
    pub telemetry: ExporterTelemetry,
    /// The process's memory, which the queue is charged to.
    pub budget: Budget,
}

/// An exporter with its queue, whatever its requests look like.
pub trait DynExporter: Send {
    /// Why the exporter has nothing to do; see [`Exporter::disabled`].
    fn disabled(&self) -> Option<String>;

    /// Starts the exporter and its consumers, on tokio's runtime.
    fn start(self: Box<Self>, context: ExporterContext) -> BoxFuture<'static, Result<RunningExporter, StartError>>;
}

/// Where pipelines put telemetry for one exporter.
pub trait Sink: Send + Sync {
    /// Prepares telemetry and queues the requests. From here on the sink answers for it. Waits only where the queue is
    /// configured to (`block_on_overflow`, or no queue at all), and never after the deadline of a shutdown.
    fn accept<'a>(&'a self, telemetry: &'a Telemetry, now: Now) -> BoxFuture<'a, ()>;
}

/// An exporter that runs.
pub struct RunningExporter {
    sink: Arc<dyn Sink>,
    stop: Box<dyn FnOnce(Stop) -> BoxFuture<'static, ()> + Send>,
    drain: Box<dyn Fn(Instant) + Send + Sync>,
    task: AbortOnDrop,
}

/// Ends the consumers of an exporter that is dropped without being stopped.
struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// When a shutdown has to be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop {
    /// What was not sent by then is lost, counted under [`Reason::Shutdown`](profbridge_model::Reason::Shutdown).
    pub deadline: Instant,
    /// By then the exporter has said what it still has to say ([`Exporter::close`]).
    pub close_by: Instant,
}

impl RunningExporter {
    /// Where pipelines put telemetry.
    pub fn sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.sink)
    }

    /// Says that the shutdown has begun: from here on nothing waits beyond the deadline, and no attempt is planned
    /// after it. Telemetry is still taken.
    pub fn drain_by(&self, deadline: Instant) {
        (self.drain)(deadline);
    }

    /// Takes nothing more, sends what is queued until the deadline, counts the rest as lost, and closes the exporter.
    pub async fn stop(self, stop: Stop) {
        let Self { stop: end, task, .. } = self;
        end(stop).await;
        drop(task);
    }
}

/// Puts an exporter behind a queue.
pub fn deliver<E: Exporter>(exporter: E, settings: DeliverySettings) -> Box<dyn DynExporter> {
    Box::new(Delivered { exporter, settings })
}

struct Delivered<E> {
    exporter: E,
    settings: DeliverySettings,
}

impl<E: Exporter> DynExporter for Delivered<E> {
    fn disabled(&self) -> Option<String> {
        self.exporter.disabled()
    }

    fn start(self: Box<Self>, context: ExporterContext) -> BoxFuture<'static, Result<RunningExporter, StartError>> {
        Box::pin(async move {
            self.exporter.start().await?;
            let core = Arc::new(sink::Core::new(self.exporter, self.settings, context));
            let task = tokio::spawn(dispatch::run(Arc::clone(&core)));
            let drained = Arc::clone(&core);
            let abort = AbortOnDrop(task.abort_handle());
            Ok(RunningExporter {
                sink: Arc::new(sink::Entrance(Arc::clone(&core))),
                drain: Box::new(move |deadline| drained.drain_by(deadline)),
                stop: Box::new(move |stop| Box::pin(dispatch::stop(core, task, stop))),
                task: abort,
            })
        })
    }
}

#[cfg(test)]
mod tests;
