//! The consumers of a queue: up to `num_consumers` requests are on their way at the same time.

use std::sync::Arc;
use std::time::Duration;

use profbridge_model::Reason;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};

use super::Stop;
use super::backoff::Backoff;
use super::sink::Core;
use super::ticket::Ticket;
use crate::component::{Accepted, Exporter, Retry, SendError};

/// Sends what is queued until the queue is closed and empty, or the deadline of a shutdown has passed. One task while
/// there is nothing to send.
pub(super) async fn run<E: Exporter>(core: Arc<Core<E>>) {
    let consumers = core.settings().queue.num_consumers();
    let mut sending = JoinSet::new();
    let mut open = true;
    let over = core.over();
    tokio::pin!(over);
    while open || !sending.is_empty() {
        tokio::select! {
            biased;
            () = &mut over => {
                // Whatever is on its way or waits is settled as its ticket is dropped.
                core.abort();
                sending.shutdown().await;
                break;
            }
            Some(ended) = sending.join_next(), if !sending.is_empty() => note_panic(&core, ended),
            ticket = core.queue().pop(), if open && sending.len() < consumers => match ticket {
                Some(ticket) => {
                    core.publish();
                    sending.spawn(send(ticket));
                }
                None => open = false,
            },
        }
    }
    core.queue().close();
    while let Some(ticket) = core.queue().try_pop() {
        ticket.lost(Reason::Shutdown);
    }
}

/// Ends the consumers by the deadline, then lets the exporter say what it still has to say.
pub(super) async fn stop<E: Exporter>(core: Arc<Core<E>>, mut task: JoinHandle<()>, stop: Stop) {
    core.drain_by(stop.deadline);
    core.queue().close();
    if let Err(error) = (&mut task).await {
        tracing::error!(exporter = core.telemetry().id(), %error, "the consumers of a queue failed");
        while let Some(ticket) = core.queue().try_pop() {
            ticket.lost(Reason::Internal);
        }
    }
    core.give_up();
    if timeout_at(stop.close_by, core.exporter().close()).await.is_err() {
        tracing::warn!(exporter = core.telemetry().id(), "the exporter did not close in time");
    }
}

fn note_panic<E: Exporter>(core: &Core<E>, ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(exporter = core.telemetry().id(), %error, "sending a request failed inside of profbridge");
    }
}

/// Makes attempts to send one request until it is sent or lost.
async fn send<E: Exporter>(ticket: Ticket<E>) {
    let core = Arc::clone(ticket.core());
    let quantities = ticket.request().quantities;
    let started = Instant::now();
    let mut backoff = Backoff::new(core.settings().retry, fastrand::Rng::new());
    loop {
        // A rate limit may have begun while it waited.
        if let Some(reason) = core.exporter().refuses(ticket.request()) {
            ticket.lost(reason);
            return;
        }
        let error = match attempt(&core, &ticket).await {
            Ok(accepted) => {
                core.note_success(accepted.rejected, accepted.message.as_deref());
                core.telemetry().edge().note_all(&accepted.notes);
                ticket.sent(&accepted);
                return;
            }
            Err(error) => error,
        };
        let at_least = match error.retry {
            Retry::Never => {
                core.note_loss(quantities, error.reason, &error.message);
                ticket.failed(error.reason);
                return;
            }
            Retry::Later => Duration::ZERO,
            Retry::After(pause) => pause,
        };
        let Some(pause) = backoff.next(started.elapsed(), at_least) else {
            core.note_loss(quantities, error.reason, &error.message);
            ticket.lost(error.reason);
            return;
        };
        core.note_failure(&error.message, pause);
        if !core.pause(pause).await {
            core.note_loss(quantities, Reason::Shutdown, &error.message);
            ticket.lost(Reason::Shutdown);
            return;
        }
        core.telemetry().retried();
    }
}

async fn attempt<E: Exporter>(core: &Core<E>, ticket: &Ticket<E>) -> Result<Accepted, SendError> {
    let limit = core.settings().timeout;
    let send = core.exporter().send(ticket.request());
    // As in the Collector, no timeout is no limit.
    if limit.is_zero() {
        return send.await;
    }
    timeout(limit, send).await.unwrap_or_else(|_| {
        let message = format!("no answer within {}", crate::config::Duration::from(limit));
        Err(SendError { retry: Retry::Later, reason: Reason::RetriesExhausted, message })
    })
}
