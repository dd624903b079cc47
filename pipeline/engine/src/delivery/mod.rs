//! Delivery: the queue in front of every exporter, its consumers, timeouts and retries. Written once, for all of them.
//!
//! The pipeline's thread turns telemetry into requests ([`Exporter::prepare`]) and puts them into a queue that is
//! bounded. Consumers take them out, make one attempt after the other, and settle each request exactly once:
//! sent, or lost under a reason.

mod backoff;
mod dispatch;
mod queue;
mod queue_config;
mod retry_config;
mod sink;
mod ticket;

use std::sync::Arc;
use std::time::Duration;

use profbridge_model::{SampledOut, Telemetry};
use tokio::time::Instant;

pub use queue_config::{BadQueue, Overflow, QueueConfig, Sizer};
pub use retry_config::{BadRetry, RetryConfig, RetryRules};

use crate::budget::Budget;
use crate::component::{BoxFuture, Exporter, Now, StartError};
use crate::peer_limits::PeerLimits;
use crate::telemetry::ExporterTelemetry;
use crate::via::Via;

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
    /// Where the exporter publishes the limits that its destinations set to senders.
    pub peer_limits: PeerLimits,
    /// The processes that telemetry came through which it sends on.
    pub via: Via,
}

/// An exporter with its queue, whatever its requests look like. Moves between threads until it is started, on tokio's
/// runtime; made by [`deliver`] only.
pub trait DynExporter: Send {
    /// Why the exporter has nothing to do; see [`Exporter::disabled`].
    fn disabled(&self) -> Option<String>;

    /// Where it connects to; see [`Exporter::destinations`].
    fn destinations(&self) -> Vec<String>;

    /// Starts the exporter and its consumers, on tokio's runtime.
    fn start(self: Box<Self>, context: ExporterContext) -> BoxFuture<'static, Result<RunningExporter, StartError>>;
}

/// Where pipelines put telemetry for one exporter.
///
/// Shared by the threads of pipelines and the tasks of receivers (`Sync`). Every call answers at once, but for
/// [`Sink::accept`], which does the exporter's preparing and first lets another pipeline's end. A pipeline calls it on
/// its own thread, a receiver never.
pub trait Sink: Send + Sync {
    /// The exporter's id in the configuration.
    fn id(&self) -> &str;

    /// What happens where there is no room.
    fn overflow(&self) -> Overflow;

    /// Whether a batch can be handed over now. Always, where what does not fit is dropped ([`Overflow::Drop`]), and
    /// where nothing waits any longer because the deadline of a shutdown has passed.
    fn has_room(&self) -> bool;

    /// Whether there is memory for what a batch becomes: the limit is not passed, or nothing is queued whose sending
    /// would free some. Always, where what does not fit is dropped, and behind the deadline of a shutdown.
    fn has_memory(&self) -> bool {
        true
    }

    /// Completes when [`Sink::has_room`] and [`Sink::has_memory`] hold, at once where they do. Safe to drop at any
    /// time.
    fn room(&self) -> BoxFuture<'_, ()>;

    /// Prepares telemetry and queues the requests. From here on the sink answers for it. Never waits.
    ///
    /// A caller makes sure that there is room. A batch is then taken whole, so the queue may exceed its bound by the
    /// requests of one batch for each pipeline that hands over at the same time; they are charged to the memory budget
    /// all the same. Without room it is taken too, but for [`Overflow::Drop`].
    fn accept(&self, telemetry: &Telemetry, now: Now);

    /// Takes note of the processes that a request to its pipeline came through. `false` where this one is among them.
    fn came_through(&self, _processes: &[u64]) -> bool {
        true
    }

    /// Hands on what sampling has left out. Never waits.
    fn sampled_out(&self, _what: &SampledOut) {}
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

/// When a shutdown has to be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop {
    /// What was not sent by then is kept on disk, where the exporter does that, or lost, counted under
    /// [`Reason::Shutdown`](profbridge_model::Reason::Shutdown).
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
        self.exporter.disabled()
    }

    fn destinations(&self) -> Vec<String> {
        self.exporter.destinations()
    }

    fn start(self: Box<Self>, context: ExporterContext) -> BoxFuture<'static, Result<RunningExporter, StartError>> {
        Box::pin(async move {
            self.exporter.start(&context).await?;
            let core = Arc::new(sink::Core::new(self.exporter, self.settings, context));
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

#[cfg(test)]
mod tests;
