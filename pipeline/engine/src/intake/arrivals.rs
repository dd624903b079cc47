//! Requests on their way into a pipeline, and both ends of the channel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use profbridge_model::Telemetry;
use tokio::sync::{mpsc, oneshot};

use crate::budget::Permit;
use crate::component::Rejected;
use crate::telemetry::Edge;

/// Telemetry on its way into a pipeline.
#[derive(Debug)]
pub struct Arrival {
    /// What arrives.
    pub telemetry: Telemetry,
    /// The request's memory, shared by all pipelines that receive it.
    pub permit: Arc<Permit>,
    /// The receiver's counters; set for only one of the pipelines, so that the request counts once.
    pub source: Option<Edge>,
    /// Notified when the processors have it.
    pub taken: oneshot::Sender<Result<(), Rejected>>,
    /// Whether it can still be withdrawn.
    pub(super) claim: Arc<ClaimState>,
}

/// Whether a request was withdrawn or taken. The sender retries a withdrawn request, so no pipeline may take it any
/// more, and a request that any pipeline has taken can no longer be withdrawn.
#[derive(Debug, Default)]
pub(super) struct ClaimState(AtomicU8);

impl ClaimState {
    const WAITING: u8 = 0;
    const TAKEN: u8 = 1;
    const WITHDRAWN: u8 = 2;

    /// Withdraws the request; `false` if a pipeline has started to take it.
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

/// Withdraws a request whose sender disconnects before any pipeline has taken it.
pub(super) struct WithdrawnWhenDropped(pub(super) Arc<ClaimState>);

impl Drop for WithdrawnWhenDropped {
    fn drop(&mut self) {
        self.0.withdraw();
    }
}

/// The receiving end of the channel.
#[derive(Debug)]
pub struct Arrivals(mpsc::Receiver<Arrival>);

/// A channel in which this many requests may wait.
pub fn channel(waiting: usize) -> (mpsc::Sender<Arrival>, Arrivals) {
    let (sender, receiver) = mpsc::channel(waiting);
    (sender, Arrivals(receiver))
}

impl Arrivals {
    /// The next request, which the pipeline must then take. `None` if the channel is closed and empty. Safe to cancel.
    pub async fn recv(&mut self) -> Option<Arrival> {
        loop {
            let arrival = self.0.recv().await?;
            if arrival.claim.becomes(ClaimState::TAKEN) {
                return Some(arrival);
            }
        }
    }

    /// For a pipeline that takes no more requests: the next request that another pipeline has started to take and that
    /// no sender waits for any longer, so the sender was told that it was accepted. Requests whose sender still waits
    /// are dropped, which tells the sender that they were not taken.
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
