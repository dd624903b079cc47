//! Delivery for all exporters: the queue in front of each, its consumers, timeouts and retries.
//!
//! The pipeline's thread turns telemetry into requests ([`Exporter::prepare`]) and pushes them into a bounded queue.
//! Consumers pop requests, try to send each, and settle each exactly once: sent, or lost for a reason.

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

/// An exporter with its queue, with the type of its requests erased. It may move between threads until it is started on
/// tokio's runtime. Made by [`deliver`] or [`disabled`].
pub trait DynExporter: Send {
    /// The reason why the exporter is disabled, such as an empty DSN: see [`disabled`].
    fn disabled(&self) -> Option<String>;

    /// The destinations; see [`Exporter::destinations`].
    fn destinations(&self) -> Vec<String>;

    /// Starts the exporter and its consumers, on tokio's runtime.
    fn start(self: Box<Self>, context: ExporterContext) -> BoxFuture<'static, Result<RunningExporter, StartError>>;
}

/// A running exporter.
pub struct RunningExporter {
    sink: Arc<dyn Sink>,
    stop: Box<dyn FnOnce(Stop) -> BoxFuture<'static, ()> + Send>,
    drain: Box<dyn Fn(Stop) + Send + Sync>,
    task: AbortOnDrop,
}

/// Aborts the consumers of an exporter that is dropped without being stopped.
struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl RunningExporter {
    /// The sink into which pipelines put telemetry.
    pub fn sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.sink)
    }

    /// Announces the shutdown: from now on nothing waits past the deadline, and no attempt is scheduled after it.
    /// Telemetry is still accepted.
    pub fn drain_by(&self, stop: Stop) {
        (self.drain)(stop);
    }

    /// Stops accepting, sends queued requests until the deadline, counts the rest as lost, and closes the exporter.
    pub async fn stop(self, stop: Stop) {
        let Self { stop: end, task, .. } = self;
        end(stop).await;
        drop(task);
    }
}

/// Puts a queue in front of an exporter.
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
                sink: Arc::new(sink::ExporterSink(Arc::clone(&core))),
                drain: Box::new(move |stop| drained.drain_by(stop)),
                stop: Box::new(move |stop| Box::pin(dispatch::stop(core, task, stop))),
                task: abort,
            })
        })
    }
}

/// An exporter that is disabled for the given reason. Its pipelines ignore it, it is never started, and the reason is
/// logged.
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
