//! Requests that enter a pipeline, and both ends of the pipeline's channel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use profbridge_model::Telemetry;
use tokio::sync::{mpsc, oneshot};

use crate::budget::Permit;
use crate::component::Rejected;
use crate::telemetry::Edge;

/// A request that enters a pipeline.
#[derive(Debug)]
pub struct Arrival {
    /// The telemetry of the request.
    pub telemetry: Telemetry,
    /// The request's memory, shared by all pipelines that receive it.
    pub permit: Arc<Permit>,
    /// The receiver's counters; set for only one of the pipelines, so that the request counts once.
    pub source: Option<Edge>,
    /// Notified when the processors have the telemetry.
    pub taken: oneshot::Sender<Result<(), Rejected>>,
    /// Whether the request can still be withdrawn.
    pub(super) claim: Arc<ClaimState>,
}

/// Whether a request was withdrawn, or a pipeline has started to process it. The sender retries a withdrawn request, so
/// no pipeline may process it any more. A request that any pipeline has started to process cannot be withdrawn.
#[derive(Debug, Default)]
pub(super) struct ClaimState(AtomicU8);

impl ClaimState {
    const WAITING: u8 = 0;
    const TAKEN: u8 = 1;
    const WITHDRAWN: u8 = 2;

    /// Withdraws the request. Returns `false` if a pipeline has started to process it.
    pub(super) fn withdraw(&self) -> bool {
        self.becomes(Self::WITHDRAWN)
    }

    fn is_taken(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::TAKEN
    }

    fn becomes(&self, claim: u8) -> bool {
        let before = self.0.compare_exchange(Self::WAITING, claim, Ordering::AcqRel, Ordering::Acquire);
        before.is_ok() || before == Err(claim)
    }
}

/// Withdraws a request when its sender disconnects before any pipeline has started to process it.
pub(super) struct WithdrawnWhenDropped(pub(super) Arc<ClaimState>);

impl Drop for WithdrawnWhenDropped {
    fn drop(&mut self) {
        self.0.withdraw();
    }
}

/// The receiving end of the channel.
#[derive(Debug)]
pub struct Arrivals(mpsc::Receiver<Arrival>);

/// Creates a channel in which this many requests may wait.
pub fn channel(waiting: usize) -> (mpsc::Sender<Arrival>, Arrivals) {
    let (sender, receiver) = mpsc::channel(waiting);
    (sender, Arrivals(receiver))
}

impl Arrivals {
    /// Returns the next request, which the pipeline must then process. `None` if the channel is closed and empty. Safe
    /// to cancel.
    pub async fn recv(&mut self) -> Option<Arrival> {
        loop {
            let arrival = self.0.recv().await?;
            if arrival.claim.becomes(ClaimState::TAKEN) {
                return Some(arrival);
            }
        }
    }

    /// For a pipeline that processes no more requests. Returns the next request that another pipeline has started to
    /// process and whose sender no longer waits, because it got the answer that the request is accepted. Requests whose
    /// sender still waits are dropped, which informs the sender that they were not accepted.
    pub(crate) fn next_abandoned(&mut self) -> Option<Arrival> {
        loop {
            let arrival = self.0.try_recv().ok()?;
            if arrival.taken.is_closed() && arrival.claim.is_taken() {
                return Some(arrival);
            }
        }
    }

    /// Closes the channel to new requests.
    pub fn close(&mut self) {
        self.0.close();
    }
}
