//! The contract between the engine and receivers, see [`crate::component`].

use std::net::SocketAddr;
use std::sync::Arc;

use profbridge_identity::Rules;
use profbridge_net::Shutdown;
use tokio::task::JoinSet;

use crate::component::{BoxFuture, StartError};
use crate::intake::Intake;
use crate::peer_limits::PeerLimits;
use crate::telemetry::ReceiverTelemetry;

/// A receiver: accepts or fetches telemetry from outside.
///
/// # Lifecycle
///
/// `start` acquires everything the receiver needs (it binds its ports), or fails the start of profbridge with a message
/// that names what is missing. It returns when telemetry can arrive. The receiver then runs until `shutdown`, stops
/// accepting at once, finishes requests in progress, and completes the returned future. It never ends the process.
///
/// # Threads
///
/// `start` is called once, on tokio's runtime, and must not block it. Afterwards the receiver runs in the returned
/// future, which the engine spawns as a task, or on its own threads and tasks. All of them share the [`Intake`].
///
/// # Cancellation
///
/// The future of `start` is never cancelled. The future that it returns is dropped when a shutdown's time for receivers
/// is over, together with requests in progress: senders have to retry those that no pipeline has started to process. If
/// the future completes or panics without a shutdown, health reports a failure.
///
/// ```
/// use profbridge_engine::component::{BoxFuture, StartError};
/// use profbridge_engine::receiver::{Receiver, ReceiverContext, RunningReceiver};
/// use profbridge_model::Builder;
///
/// /// Hands on one batch without samples.
/// struct Once;
///
/// impl Receiver for Once {
///     fn start<'a>(self: Box<Self>, context: ReceiverContext) -> BoxFuture<'a, Result<RunningReceiver, StartError>> {
///         let stopped = Box::pin(async move {
///             if let (Ok(batch), Ok(memory)) = (Builder::new().finish(), context.next.admit(1000)) {
///                 context.next.consume(batch, memory).await.ok();
///             }
///             context.shutdown.triggered().await;
///         });
///         Box::pin(async move { Ok(RunningReceiver { addresses: Vec::new(), stopped }) })
///     }
/// }
/// ```
pub trait Receiver: Send {
    /// The addresses that the receiver will listen on, each as `HOST:PORT`, so that the plan can detect an exporter
    /// that sends there.
    fn listens(&self) -> Vec<String> {
        Vec::new()
    }

    /// The destinations to which the receiver forwards requests, each as `HOST:PORT`.
    fn forwards_to(&self) -> Vec<String> {
        Vec::new()
    }

    /// Starts the receiver. It hands telemetry to `next`, whose `Ok` means that the pipelines are now responsible for
    /// it.
    fn start<'a>(self: Box<Self>, context: ReceiverContext) -> BoxFuture<'a, Result<RunningReceiver, StartError>>;
}

/// What the engine provides to a receiver.
#[derive(Clone)]
pub struct ReceiverContext {
    /// The receiver's id in the configuration.
    pub id: String,
    /// The entrance to the receiver's pipelines.
    pub next: Intake,
    /// Triggered when the receiver should stop.
    pub shutdown: Shutdown,
    /// The counters of this receiver.
    pub telemetry: ReceiverTelemetry,
    /// The rate limits that destinations have set for senders.
    pub peer_limits: PeerLimits,
    /// Names under which loopback listeners may be reached, in addition to the loopback's own
    /// (`service.allowed_hosts`).
    pub allowed_hosts: Arc<[String]>,
    /// The rules for process identity that processors get too: for a receiver that reports the profiler id of its
    /// telemetry.
    pub identity: Rules,
}

/// A running receiver.
pub struct RunningReceiver {
    /// The addresses that the receiver listens on, with the ports that the system chose.
    pub addresses: Vec<(&'static str, SocketAddr)>,
    /// Completes when the receiver has stopped.
    pub stopped: BoxFuture<'static, ()>,
}

/// Completes when all parts of a receiver have stopped. Each runs in its own task; a panic of one counts as the
/// receiver's.
pub fn together(parts: Vec<BoxFuture<'static, ()>>) -> BoxFuture<'static, ()> {
    Box::pin(async {
        let mut tasks: JoinSet<()> = parts.into_iter().collect();
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended
                && let Ok(panic) = error.try_into_panic()
            {
                std::panic::resume_unwind(panic);
            }
        }
    })
}
