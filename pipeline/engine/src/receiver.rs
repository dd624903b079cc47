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

/// A receiver: takes telemetry from outside.
///
/// # Lifecycle
///
/// `start` acquires all that the receiver needs (it binds its ports) or fails the start of profbridge with a message
/// that names what is missing. It returns when telemetry can arrive. The receiver then runs until `shutdown`, stops
/// accepting at once, lets what is under way finish, and completes the returned future. It never ends the process.
///
/// # Threads
///
/// `start` is called once, on tokio's runtime, and must not block it. What runs afterwards runs in the returned future,
/// which the engine makes a task of, or on threads and tasks of the receiver's own. [`Intake`] is shared by them all.
///
/// # Cancellation
///
/// The future of `start` runs to its end. The one it returns is dropped when a shutdown's time for receivers has
/// passed, and with it what the receiver still has under way: a request that no pipeline has taken then is the sender's
/// to repeat. A future that completes or panics unasked is a failure, which health shows.
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
    /// Where it will listen, each as `HOST:PORT`, so that an exporter that leads there is noticed.
    fn listens(&self) -> Vec<String> {
        Vec::new()
    }

    /// Starts the receiver. Telemetry goes to `next`, whose `Ok` means that the pipelines answer for it from there on.
    fn start<'a>(self: Box<Self>, context: ReceiverContext) -> BoxFuture<'a, Result<RunningReceiver, StartError>>;
}

/// What a receiver needs of the engine.
#[derive(Clone)]
pub struct ReceiverContext {
    /// The receiver's id in the configuration.
    pub id: String,
    /// Where telemetry goes.
    pub next: Intake,
    /// Ends when the receiver shall stop.
    pub shutdown: Shutdown,
    /// The counters of this receiver.
    pub telemetry: ReceiverTelemetry,
    /// The limits that destinations have set to senders.
    pub peer_limits: PeerLimits,
    /// The names under which listeners on the loopback are reached, beside its own (`service.allowed_hosts`).
    pub allowed_hosts: Arc<[String]>,
    /// Who a process is, as processors are told: for a receiver that says which profiler id its telemetry will carry.
    pub identity: Rules,
}

/// A receiver that runs.
pub struct RunningReceiver {
    /// The addresses it listens on, with the ports that the system chose.
    pub addresses: Vec<(&'static str, SocketAddr)>,
    /// Completes when it has stopped.
    pub stopped: BoxFuture<'static, ()>,
}

/// Completes when all of what a receiver consists of has stopped, each part in a task of its own. A panic of one is the
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
