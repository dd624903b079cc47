//! What is on its way into a pipeline, and both ends of that way.

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
    /// The request's memory, shared by the pipelines it goes to.
    pub permit: Arc<Permit>,
    /// The receiver's counters, for one of the pipelines it goes to.
    pub source: Option<Edge>,
    /// Told when the processors have it.
    pub taken: oneshot::Sender<Result<(), Rejected>>,
    /// Whether it may still be withdrawn.
    pub(super) fate: Arc<Fate>,
}

/// What became of a request on its way into its pipelines. Its sender repeats one that was withdrawn, so that it must
/// not be taken any more, and one that was taken by any of them must not be withdrawn.
#[derive(Debug, Default)]
pub(super) struct Fate(AtomicU8);

impl Fate {
    const WAITING: u8 = 0;
    const TAKEN: u8 = 1;
    const WITHDRAWN: u8 = 2;

    /// Withdraws it; `false` where a pipeline has begun to take it.
    pub(super) fn withdraw(&self) -> bool {
        self.becomes(Self::WITHDRAWN)
    }

    fn is_taken(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::TAKEN
    }

    fn becomes(&self, fate: u8) -> bool {
        let before = self.0.compare_exchange(Self::WAITING, fate, Ordering::AcqRel, Ordering::Acquire);
        before.is_ok() || before == Err(fate)
    }
}

/// Withdraws a request whose sender goes away before any pipeline has taken it.
pub(super) struct WithdrawnWhenDropped(pub(super) Arc<Fate>);

impl Drop for WithdrawnWhenDropped {
    fn drop(&mut self) {
        self.0.withdraw();
    }
}

/// The inner end of an entrance.
#[derive(Debug)]
pub struct Arrivals(mpsc::Receiver<Arrival>);

/// Both ends of an entrance in which so many requests may wait.
pub fn channel(waiting: usize) -> (mpsc::Sender<Arrival>, Arrivals) {
    let (sender, receiver) = mpsc::channel(waiting);
    (sender, Arrivals(receiver))
}

impl Arrivals {
    /// The next request, which is then the pipeline's to take. `None` where there will never be another. Safe to
    /// cancel.
    pub async fn recv(&mut self) -> Option<Arrival> {
        loop {
            let arrival = self.0.recv().await?;
            if arrival.fate.becomes(Fate::TAKEN) {
                return Some(arrival);
            }
        }
    }

    /// The next request that nobody waits for any longer although another pipeline has begun to take it, so that its
    /// sender was told that it is taken. For a pipeline that takes nothing more. Whoever waits for one of the others
    /// learns that it was not taken.
    pub(crate) fn left(&mut self) -> Option<Arrival> {
        loop {
            let arrival = self.0.try_recv().ok()?;
            if arrival.taken.is_closed() && arrival.fate.is_taken() {
                return Some(arrival);
            }
        }
    }

    /// Lets nothing more in.
    pub fn close(&mut self) {
        self.0.close();
    }
}
