//! What is remembered of the sessions of a sampler process that has ended.

use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

use profbridge_sampler::message::TargetId;
use profbridge_sampler::owner::Gaps;
use profbridge_sampler::protocol::MAX_PROCESSES;

use super::tracked::Tracked;
use crate::lifecycle::{Lifecycle, Outcome};
use crate::spans::Scope;

/// What a session continues with when its process is found again.
#[derive(Debug)]
pub(super) struct Left {
    target: TargetId,
    pid: u32,
    pub(super) lifecycle: Lifecycle,
    /// The gaps in its samples since then. There are none if its profiler did not run.
    pub(super) gaps: Gaps,
}

impl Left {
    /// What is remembered of a process whose sampler process has just ended.
    pub(super) fn behind(tracked: &mut Tracked) -> Self {
        let mut gaps = std::mem::take(&mut tracked.gaps);
        let lifecycle = tracked.lifecycle();
        if lifecycle.is_running() {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            gaps.open(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
        }
        Self { target: tracked.process.target, pid: tracked.process.pid, lifecycle, gaps }
    }

    /// Sets how many sampled root spans are open now.
    pub(super) fn spans_changed(&mut self, open: usize) {
        if self.lifecycle.spans_changed(open) == Outcome::Stopped {
            self.gaps.forget();
        }
    }
}

/// The remembered sessions. They outlast any number of sampler processes, since one may end before it has found all
/// processes again. There are at most as many as can be attached at once; beyond that the oldest are forgotten.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    sessions: HashMap<u64, (Left, u64)>,
    /// The sessions in the order in which they were left behind.
    order: BTreeMap<u64, u64>,
    next: u64,
}

impl Remembered {
    pub(super) fn put(&mut self, session: u64, left: Left) {
        self.take(session);
        self.sessions.insert(session, (left, self.next));
        self.order.insert(self.next, session);
        self.next += 1;
        if self.order.len() > MAX_PROCESSES
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.sessions.remove(&oldest);
        }
    }

    pub(super) fn take(&mut self, session: u64) -> Option<Left> {
        let (left, place) = self.sessions.remove(&session)?;
        self.order.remove(&place);
        Some(left)
    }

    /// Spans of a scope started or ended: sets how many are open now for each process.
    pub(super) fn spans_changed(&mut self, scope: Scope, open: impl Fn(TargetId, u32) -> usize) {
        for (left, _) in self.sessions.values_mut().filter(|(left, _)| scope.covers(left.target, left.pid)) {
            left.spans_changed(open(left.target, left.pid));
        }
    }

    /// Limits the number of remembered threads. Those of the oldest sessions are forgotten first, since their processes
    /// are likely gone.
    pub(super) fn keep_threads(&mut self, most: usize) {
        let mut threads: usize = self.sessions.values().map(|(left, _)| left.gaps.threads()).sum();
        for session in self.order.values() {
            if threads <= most {
                return;
            }
            if let Some((left, _)) = self.sessions.get_mut(session) {
                threads -= left.gaps.threads();
                left.gaps.forget();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use profbridge_sampler::message::{Batch, Sample, Thread};

    use super::*;
    use crate::lifecycle::Mode;

    fn left(running: bool, threads: u32) -> Left {
        let mut gaps = Gaps::default();
        gaps.fill(&mut Batch {
            threads: (0..threads).map(|id| Thread { id, ..Thread::default() }).collect(),
            samples: (0..threads).map(|thread| Sample { thread, ..Sample::default() }).collect(),
            ..Batch::default()
        });
        Left { target: TargetId(0), pid: 1, lifecycle: Lifecycle::launch(Mode::Manual, true, running, 0), gaps }
    }

    /// Guarantees: beyond a number of threads the oldest are forgotten, and no more than necessary; their sessions are
    /// not.
    #[test]
    fn bounded_threads() {
        let mut remembered = Remembered::default();
        for session in [3, 1, 2] {
            remembered.put(session, left(true, 10));
        }
        remembered.keep_threads(30);
        assert_eq!(remembered.sessions[&3].0.gaps.threads(), 10);
        remembered.keep_threads(20);
        let threads = [3, 1, 2].map(|session| remembered.sessions[&session].0.gaps.threads());
        assert_eq!(threads, [0, 10, 10]);
        assert!(remembered.take(3).is_some());
    }

    /// Guarantees: as many sessions as can be attached are remembered, the latest of them and each once; a session that
    /// was taken is not remembered any more.
    #[test]
    fn bounded() {
        let mut remembered = Remembered::default();
        for session in 0..MAX_PROCESSES as u64 {
            remembered.put(session, left(false, 0));
        }
        remembered.put(0, left(true, 0));
        remembered.put(u64::MAX, left(false, 0));
        assert_eq!((remembered.sessions.len(), remembered.order.len()), (MAX_PROCESSES, MAX_PROCESSES));
        assert!(remembered.take(1).is_none(), "the oldest");
        assert!(remembered.take(0).is_some_and(|left| left.lifecycle.is_running()));
        assert!(remembered.take(0).is_none());
        assert_eq!(remembered.order.len(), MAX_PROCESSES - 1);
    }
}
