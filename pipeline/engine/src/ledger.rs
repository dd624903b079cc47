//! Closes the counters of a pipeline or an exporter.
//!
//! At the end of a shutdown, or after a pipeline's thread panicked, all data left is counted as lost, once. A batch
//! that is being handed over at that moment must not be counted again when the handover completes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use profbridge_model::Quantities;

/// Decides whether data is still counted. Cheap to clone; clones share the state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    state: Arc<Mutex<LedgerState>>,
}

#[derive(Debug, Default)]
struct LedgerState {
    closed: bool,
    /// The sum of the batches that are being handed over.
    handover: Quantities,
}

/// A batch that is being handed over. If it is dropped before [`Self::complete`], as by a panic, it was not handed
/// over.
#[derive(Debug)]
pub(crate) struct Handover<'a> {
    ledger: &'a Ledger,
    quantities: Quantities,
}

impl Ledger {
    /// Calls `count` under the lock, unless the ledger is closed. Returns whether it called it.
    pub(crate) fn write(&self, count: impl FnOnce()) -> bool {
        let state = self.state();
        if !state.closed {
            count();
        }
        !state.closed
    }

    /// Registers a batch that is being handed over. `None` if the ledger is closed.
    pub(crate) fn begin_handover(&self, quantities: Quantities) -> Option<Handover<'_>> {
        let mut state = self.state();
        if state.closed {
            return None;
        }
        state.handover += quantities;
        Some(Handover { ledger: self, quantities })
    }

    /// Calls `count` a last time, with the sum of the batches that are being handed over, unless the ledger is already
    /// closed. Then closes the ledger.
    pub(crate) fn close(&self, count: impl FnOnce(Quantities)) {
        let mut state = self.state();
        if !state.closed {
            count(state.handover);
        }
        state.closed = true;
    }

    fn state(&self) -> MutexGuard<'_, LedgerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handover<'_> {
    /// Calls `count`; returns `None` if closing the ledger already counted the batch.
    pub(crate) fn complete<T>(mut self, count: impl FnOnce() -> T) -> Option<T> {
        let mut state = self.ledger.state();
        state.handover = state.handover.saturating_sub(std::mem::take(&mut self.quantities));
        (!state.closed).then(count)
    }
}

impl Drop for Handover<'_> {
    fn drop(&mut self) {
        if !self.quantities.is_none() {
            let mut state = self.ledger.state();
            state.handover = state.handover.saturating_sub(self.quantities);
        }
    }
}
