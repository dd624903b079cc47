//! Delivery: the queue in front of every exporter, its consumers, timeouts and retries. Written once, for all of them.
//!
//! The pipeline's thread turns telemetry into requests ([`Exporter::prepare`]) and puts them into a queue that is
//! bounded. Consumers take them out, make one attempt after the other, and settle each request exactly once:
//! sent, or lost under a reason.

mod backoff;
mod core;
mod dispatch;
mod queue;
mod queue_config;
mod retry_config;
mod settings;
mod sink;

use std::sync::Arc;

pub use self::core::Stop;
pub use queue_config::{BadQueue, Overflow, QueueConfig, Sizer};
pub use retry_config::{BadRetry, RetryConfig, RetryRules};
pub use settings::DeliverySettings;
pub use sink::Sink;

pub use crate::component::ExporterContext;
use crate::component::{BoxFuture, Exporter, StartError};

/// An exporter with its queue, whatever its requests look like. Moves between threads until it is started, on tokio's
/// runtime; made by [`deliver`] or [`disabled`].
pub trait DynExporter: Send {
    /// Why the exporter has nothing to do, such as a DSN that is empty: see [`disabled`].
    fn disabled(&self) -> Option<String>;

    /// Where it connects to; see [`Exporter::destinations`].
    fn destinations(&self) -> Vec<String>;

    /// Starts the exporter and its consumers, on tokio's runtime.
    fn start(self: Box<Self>, context: ExporterContext) -> BoxFuture<'static, Result<RunningExporter, StartError>>;
}

/// An exporter that runs.
pub struct RunningExporter {
    sink: Arc<dyn Sink>,
    stop: Box<dyn FnOnce(Stop) -> BoxFuture<'static, ()> + Send>,
    drain: Box<dyn Fn(Stop) + Send + Sync>,
    task: AbortOnDrop,
}

/// Ends the consumers of an exporter that is dropped without being stopped.
struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl RunningExporter {
    /// Where pipelines put telemetry.
    pub fn sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.sink)
    }

    /// Says that the shutdown has begun: from here on nothing waits beyond the deadline, and no attempt is planned
    /// after it. Telemetry is still taken.
    pub fn drain_by(&self, stop: Stop) {
        (self.drain)(stop);
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
        None
    }

    fn destinations(&self) -> Vec<String> {
        self.exporter.destinations()
    }

    fn start(self: Box<Self>, context: ExporterContext) -> BoxFuture<'static, Result<RunningExporter, StartError>> {
        Box::pin(async move {
            self.exporter.start(&context).await?;
            let core = Arc::new(core::Core::new(self.exporter, self.settings, context));
            let task = tokio::spawn(dispatch::run(Arc::clone(&core)));
            let drained = Arc::clone(&core);
            let abort = AbortOnDrop(task.abort_handle());
            Ok(RunningExporter {
                sink: Arc::new(sink::Entrance(Arc::clone(&core))),
                drain: Box::new(move |stop| drained.drain_by(stop)),
                stop: Box::new(move |stop| Box::pin(dispatch::stop(core, task, stop))),
                task: abort,
            })
        })
    }
}

/// An exporter that has nothing to do, and why. It is left out of its pipelines, with this line in the log, and never
/// started.
pub fn disabled(why: impl Into<String>) -> Box<dyn DynExporter> {
    Box::new(Disabled(why.into()))
}

struct Disabled(String);

impl DynExporter for Disabled {
    fn disabled(&self) -> Option<String> {
        Some(self.0.clone())
    }

    fn destinations(&self) -> Vec<String> {
        Vec::new()
    }

    fn start(self: Box<Self>, _: ExporterContext) -> BoxFuture<'static, Result<RunningExporter, StartError>> {
        Box::pin(std::future::ready(Err(StartError(self.0))))
    }
}

#[cfg(test)]
mod tests;
