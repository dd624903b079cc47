//! The consumers of a queue: up to `num_consumers` requests are on their way at the same time.

use std::sync::Arc;
use std::time::Duration;

use profbridge_model::Reason;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};

use super::backoff::Backoff;
use super::core::{Core, Stop, Ticket};
use crate::component::{Accepted, Exporter, Retry, SendError};

/// Sends what is queued until the queue is closed and empty, or the deadline of a shutdown has passed. From then on no
/// attempt begins; those under way have until [`Core::cut_off`]. One task while there is nothing to send.
pub(super) async fn run<E: Exporter>(core: Arc<Core<E>>) {
    let consumers = core.settings.queue.num_consumers;
    let mut sending = JoinSet::new();
    let mut open = true;
    let over = core.over();
    tokio::pin!(over);
    while open || !sending.is_empty() {
        tokio::select! {
            biased;
            () = &mut over, if open => open = false,
            Some(ended) = sending.join_next(), if !sending.is_empty() => note_panic(&core, ended),
            ticket = core.queue.pop(), if open && sending.len() < consumers => match ticket {
                Some(ticket) => {
                    core.publish();
                    sending.spawn(send(ticket));
                }
                None => open = false,
            },
        }
    }
    core.queue.close();
    while let Some(ticket) = core.queue.try_pop() {
        core.leave_unsent(ticket);
    }
}

/// Ends the consumers by the deadline, then lets the exporter say what it still has to say.
pub(super) async fn stop<E: Exporter>(core: Arc<Core<E>>, mut task: JoinHandle<()>, stop: Stop) {
    core.drain_by(stop);
    core.queue.close();
    if let Err(error) = (&mut task).await {
        tracing::error!(exporter = core.telemetry().id(), %error, "the consumers of a queue failed");
        while let Some(ticket) = core.queue.try_pop() {
            ticket.lost(Reason::Internal);
        }
    }
    core.give_up();
    keep(&core, stop.close_by).await;
    if let Some(observer) = core.observer()
        && timeout_at(stop.close_by, observer.close()).await.is_err()
    {
        tracing::warn!(exporter = core.telemetry().id(), "the exporter did not close in time");
    }
}

/// Lets the exporter write what was not sent to disk. What it does not write is lost.
async fn keep<E: Exporter>(core: &Core<E>, by: Instant) {
    let unsent = core.take_unsent();
    if unsent.is_empty() {
        return;
    }
    let requests = unsent.iter().map(|ticket| &ticket.request).collect();
    let kept = match core.observer() {
        Some(observer) => timeout_at(by, observer.keep(requests)).await.unwrap_or(0),
        None => 0,
    };
    for (position, ticket) in unsent.into_iter().enumerate() {
        if position < kept { ticket.failed(Reason::KeptOnDisk) } else { ticket.lost(Reason::Shutdown) }
    }
}

fn note_panic<E: Exporter>(core: &Core<E>, ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(exporter = core.telemetry().id(), %error, "sending a request failed inside of profbridge");
    }
}

/// What became of a request.
enum Outcome {
    Sent(Accepted),
    /// The exporter said that it is lost for good.
    Failed(Reason),
    /// It is lost in the engine's hands.
    Lost(Reason),
    /// The shutdown came before its end.
    Unsent,
}

/// Makes attempts to send one request until it is sent or lost, or a shutdown leaves no time for another.
async fn send<E: Exporter>(ticket: Ticket<E>) {
    let core = Arc::clone(&ticket.core);
    let outcome = tokio::select! {
        // An answer that has come counts, however late it is looked at.
        biased;
        outcome = attempts(&core, &ticket) => outcome,
        () = core.cut_off() => Outcome::Unsent,
    };
    match outcome {
        Outcome::Sent(accepted) => {
            core.note_success(accepted.rejected, accepted.message.as_deref());
            core.telemetry().edge().note_all(&accepted.notes);
            ticket.sent(&accepted);
        }
        Outcome::Failed(reason) => ticket.failed(reason),
        Outcome::Lost(reason) => ticket.lost(reason),
        Outcome::Unsent => core.leave_unsent(ticket),
    }
}

async fn attempts<E: Exporter>(core: &Core<E>, ticket: &Ticket<E>) -> Outcome {
    let quantities = ticket.request.quantities;
    let started = Instant::now();
    let mut backoff = Backoff::new(core.settings.retry, fastrand::Rng::new());
    loop {
        // A rate limit may have begun while it waited.
        if let Some(reason) = core.observer().and_then(|observer| observer.refuses(&ticket.request)) {
            return Outcome::Lost(reason);
        }
        let begun = Instant::now();
        let result = attempt(core, ticket).await;
        core.telemetry().count(|totals| {
            totals.attempts += 1;
            totals.attempt_time += begun.elapsed();
        });
        let error = match result {
            Ok(accepted) => return Outcome::Sent(accepted),
            Err(error) => error,
        };
        let at_least = match error.retry {
            Retry::Never => {
                core.note_loss(quantities, error.reason, &error.message);
                return Outcome::Failed(error.reason);
            }
            Retry::Later => Duration::ZERO,
            Retry::After(pause) => pause,
        };
        let Some(pause) = backoff.next(started.elapsed(), at_least) else {
            core.note_loss(quantities, error.reason, &error.message);
            return Outcome::Lost(error.reason);
        };
        core.note_failure(&error, pause);
        if !core.pause(pause).await {
            return Outcome::Unsent;
        }
        core.telemetry().count(|totals| totals.retries += 1);
    }
}

async fn attempt<E: Exporter>(core: &Core<E>, ticket: &Ticket<E>) -> Result<Accepted, SendError> {
    let limit = core.settings.timeout;
    let send = core.exporter.send(&ticket.request);
    // As in the Collector, no timeout is no limit.
    if limit.is_zero() {
        return send.await;
    }
    timeout(limit, send).await.unwrap_or_else(|_| {
        let message = format!("no answer within {}", crate::config::Duration::from(limit));
        Err(SendError { retry: Retry::Later, reason: Reason::RetriesExhausted, message })
    })
}
