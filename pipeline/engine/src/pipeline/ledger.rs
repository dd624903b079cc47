//! When the counters of a pipeline are closed.
//!
//! At the end of a shutdown, or when a pipeline's thread has panicked, what the pipeline still has is counted as lost,
//! once. The thread may be in the middle of its work just then, for as long as one step takes; what it would count
//! behind that is the same a second time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use profbridge_model::Quantities;

/// Decides whether a pipeline still counts. Cheap to clone; clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    /// What the exporters are just being given, which takes as long as they prepare it.
    handing: Quantities,
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

    /// Says that the exporters are being given so much from here on: they answer for it. Returns whether the ledger is
    /// still open; if it is not, that is counted as lost already.
    pub(crate) fn hand(&self, quantities: Quantities) -> bool {
        let mut state = self.state();
        state.handing = quantities;
        !state.closed
    }

    /// Counts with `count` that the exporters have what they were given, unless that was counted when the ledger was
    /// closed.
    pub(crate) fn handed(&self, count: impl FnOnce(Quantities)) {
        let mut state = self.state();
        let handed = std::mem::take(&mut state.handing);
        if !state.closed {
            count(handed);
        }
    }

    /// Says that the exporters do not have what they were being given.
    pub(crate) fn take_back(&self) {
        self.state().handing = Quantities::NONE;
    }

    /// Counts the last thing with `count`, which is told how much the exporters are just being given,
    /// unless it is closed already. Nothing is counted from then on.
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
