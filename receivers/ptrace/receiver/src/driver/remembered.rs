//! The lifecycles of sessions that a sampler process left behind when it ended.

use std::collections::{BTreeMap, HashMap};

use profbridge_ptrace::protocol::MAX_PROCESSES;

use crate::lifecycle::Lifecycle;

/// Lifecycles by session. They outlast any number of sampler processes, since one may end before it has found all processes again;
/// beyond as many as can be attached at once, those that were left behind first are forgotten.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    lifecycles: HashMap<u64, (Lifecycle, u64)>,
    /// The sessions in the order in which they were left behind.
    order: BTreeMap<u64, u64>,
    next: u64,
}

impl Remembered {
    pub(super) fn put(&mut self, session: u64, lifecycle: Lifecycle) {
        self.take(session);
        self.lifecycles.insert(session, (lifecycle, self.next));
        self.order.insert(self.next, session);
        self.next += 1;
        if self.order.len() > MAX_PROCESSES
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.lifecycles.remove(&oldest);
        }
    }

    pub(super) fn take(&mut self, session: u64) -> Option<Lifecycle> {
        let (lifecycle, place) = self.lifecycles.remove(&session)?;
        self.order.remove(&place);
        Some(lifecycle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::Mode;

    /// Guarantees: as many sessions as can be attached are remembered, the latest of them and each once; one that was taken is gone.
    #[test]
    fn bounded() {
        let mut remembered = Remembered::default();
        let stopped = Lifecycle::launch(Mode::Manual, true, false, 0);
        let running = Lifecycle::launch(Mode::Manual, true, true, 0);
        for session in 0..MAX_PROCESSES as u64 {
            remembered.put(session, stopped);
        }
        remembered.put(0, running);
        remembered.put(u64::MAX, stopped);
        assert_eq!((remembered.lifecycles.len(), remembered.order.len()), (MAX_PROCESSES, MAX_PROCESSES));
        assert_eq!(remembered.take(1), None, "the oldest");
        assert_eq!(remembered.take(0), Some(running));
        assert_eq!(remembered.take(0), None);
        assert_eq!(remembered.order.len(), MAX_PROCESSES - 1);
    }
}
