//! The consumers of a queue: they send up to `num_consumers` requests at the same time.

use std::sync::Arc;
use std::time::Duration;

use profbridge_model::Reason;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};

use super::backoff::Backoff;
use super::core::{Core, Stop, Ticket};
use crate::component::{Accepted, Exporter, Retry, SendError};

/// Sends queued requests until the queue is closed and empty, or the shutdown's deadline has passed. No attempt starts
/// after the deadline; running attempts are cancelled after [`Core::wait_for_cut_off`]. While nothing is queued there
/// is only one task.
pub(super) async fn run<E: Exporter>(core: Arc<Core<E>>) {
    let consumers = core.settings.queue.num_consumers;
    let mut sending = JoinSet::new();
    let mut open = true;
    let over = core.wait_until_over();
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

/// Stops the consumers by the deadline, then lets the exporter send its final reports.
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

/// Lets the exporter write unsent requests to disk. The requests that it does not write are lost.
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

/// How the attempts to send a request ended.
enum AttemptOutcome {
    Sent(Accepted),
    /// The exporter gave up for good.
    Failed(Reason),
    /// The engine gave up.
    Lost(Reason),
    /// The shutdown's deadline came before the request was sent.
    Unsent,
}

/// Tries to send one request until it is sent or lost, or there is no time for another attempt before the shutdown's
/// deadline.
async fn send<E: Exporter>(ticket: Ticket<E>) {
    let core = Arc::clone(&ticket.core);
    let outcome = tokio::select! {
        // An answer that has arrived counts, even if it is polled late.
        biased;
        outcome = attempts(&core, &ticket) => outcome,
        () = core.wait_for_cut_off() => AttemptOutcome::Unsent,
    };
    match outcome {
        AttemptOutcome::Sent(accepted) => {
            core.note_success(accepted.lost(), accepted.message.as_deref());
            core.telemetry().edge().note_all(&accepted.notes);
            ticket.sent(&accepted);
        }
        AttemptOutcome::Failed(reason) => ticket.failed(reason),
        AttemptOutcome::Lost(reason) => ticket.lost(reason),
        AttemptOutcome::Unsent => core.leave_unsent(ticket),
    }
}

async fn attempts<E: Exporter>(core: &Core<E>, ticket: &Ticket<E>) -> AttemptOutcome {
    let quantities = ticket.request.quantities;
    let started = Instant::now();
    let mut backoff = Backoff::new(core.settings.retry, fastrand::Rng::new());
    loop {
        // A rate limit may have started while the request waited.
        if let Some(reason) = core.observer().and_then(|observer| observer.refuses(&ticket.request)) {
            return AttemptOutcome::Lost(reason);
        }
        let begun = Instant::now();
        let result = attempt(core, ticket).await;
        core.telemetry().count(|totals| {
            totals.attempts += 1;
            totals.attempt_time += begun.elapsed();
        });
        let error = match result {
            Ok(accepted) => return AttemptOutcome::Sent(accepted),
            Err(error) => error,
        };
        let at_least = match error.retry {
            Retry::Never => {
                core.note_loss(quantities, error.reason, &error.message);
                return AttemptOutcome::Failed(error.reason);
            }
            Retry::Later => Duration::ZERO,
            Retry::After(pause) => pause,
        };
        let Some(pause) = backoff.next(started.elapsed(), at_least) else {
            core.note_loss(quantities, error.reason, &error.message);
            return AttemptOutcome::Lost(error.reason);
        };
        core.note_failure(&error, pause);
        if !core.pause(pause).await {
            return AttemptOutcome::Unsent;
        }
        core.telemetry().count(|totals| totals.retries += 1);
    }
}

async fn attempt<E: Exporter>(core: &Core<E>, ticket: &Ticket<E>) -> Result<Accepted, SendError> {
    let limit = core.settings.timeout;
    let send = core.exporter.send(&ticket.request);
    // As in the Collector, a timeout of zero means no timeout.
    if limit.is_zero() {
        return send.await;
    }
    timeout(limit, send).await.unwrap_or_else(|_| {
        let message = format!("no answer within {}", crate::config::Duration::from(limit));
        Err(SendError { retry: Retry::Later, reason: Reason::RetriesExhausted, message })
    })
}
