//! When the counters of a pipeline, or of an exporter, are closed.
//!
//! At the end of a shutdown, or when a pipeline's thread has panicked, what is still there is counted as lost, once.
//! Somebody may be in the middle of handing a batch over just then, which takes as long as it is prepared; what would be
//! counted behind that is the same a second time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use profbridge_model::Quantities;

/// Decides whether something is still counted. Cheap to clone; clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    /// What is just being handed over.
    handing: Quantities,
}

/// A batch while it is handed over. Dropped before that is done, as by a panic, it was not handed over.
#[derive(Debug)]
pub(crate) struct Handing<'a> {
    ledger: &'a Ledger,
    quantities: Quantities,
}

impl Ledger {
    /// Counts something with `count`, as one, unless the ledger is closed. Returns whether it was counted.
    pub(crate) fn write(&self, count: impl FnOnce()) -> bool {
        let state = self.state();
        if !state.closed {
            count();
        }
        !state.closed
    }

    /// Says that so much is handed over from here on. `None` where the ledger is closed.
    pub(crate) fn hand(&self, quantities: Quantities) -> Option<Handing<'_>> {
        let mut state = self.state();
        if state.closed {
            return None;
        }
        state.handing += quantities;
        Some(Handing { ledger: self, quantities })
    }

    /// Counts the last thing with `count`, which is told how much is just being handed over, unless it is closed
    /// already. Nothing is counted from then on.
    pub(crate) fn close(&self, count: impl FnOnce(Quantities)) {
        let mut state = self.state();
        if !state.closed {
            count(state.handing);
        }
        state.closed = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handing<'_> {
    /// Counts with `count` what came of it; `None` where that was counted when the ledger was closed.
    pub(crate) fn done<T>(mut self, count: impl FnOnce() -> T) -> Option<T> {
        let mut state = self.ledger.state();
        state.handing = state.handing.saturating_sub(std::mem::take(&mut self.quantities));
        (!state.closed).then(count)
    }
}

impl Drop for Handing<'_> {
    fn drop(&mut self) {
        if !self.quantities.is_none() {
            let mut state = self.ledger.state();
            state.handing = state.handing.saturating_sub(self.quantities);
        }
    }
}
