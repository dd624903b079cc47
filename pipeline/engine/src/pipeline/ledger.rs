//! When the counters of a pipeline are closed.
//!
//! At the end of a shutdown, or when a pipeline's thread has panicked, what the pipeline still has is counted as lost,
//! once. The thread may be in the middle of its work just then, for as long as one step takes; what it would count behind
//! that is the same observations a second time.

use std::sync::{Arc, Mutex, PoisonError};

/// Decides whether a pipeline still counts. Cheap to clone; clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    closed: Arc<Mutex<bool>>,
}

impl Ledger {
    /// Counts something with `count`, as one, unless the ledger is closed. Returns whether it was counted.
    pub(crate) fn write(&self, count: impl FnOnce()) -> bool {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if !*closed {
            count();
        }
        !*closed
    }

    /// Counts the last thing with `count`, unless it is closed already. Nothing is counted from then on.
    pub(crate) fn close(&self, count: impl FnOnce()) {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if !*closed {
            count();
        }
        *closed = true;
    }
}
