//! Remembers the sessions of a sampler process that has ended.

use std::collections::VecDeque;

use profbridge_engine::clock::Clock;
use profbridge_sampler::message::TargetId;
use profbridge_sampler::owner::Gaps;
use profbridge_sampler::protocol::MAX_PROCESSES;

use super::tracked::Tracked;
use crate::lifecycle::{LifecycleChange, ProfilerLifecycle};
use crate::spans::Scope;

/// The state with which a session continues when its process is found again.
#[derive(Debug)]
pub(super) struct DetachedProcess {
    target: TargetId,
    pid: u32,
    pub(super) lifecycle: ProfilerLifecycle,
    /// The gaps in the process's samples since then. There are none if the profiler was not running.
    pub(super) gaps: Gaps,
}

impl DetachedProcess {
    /// The state of a process whose sampler process has just ended.
    pub(super) fn behind(tracked: &mut Tracked) -> Self {
        let mut gaps = std::mem::take(&mut tracked.gaps);
        let lifecycle = tracked.lifecycle();
        if lifecycle.is_running() {
            gaps.open(Clock::system().now().unix_nano);
        }
        Self { target: tracked.process.target, pid: tracked.process.pid, lifecycle, gaps }
    }

    /// Sets the number of sampled root spans that are open now.
    pub(super) fn spans_changed(&mut self, open: usize) {
        if self.lifecycle.spans_changed(open) == LifecycleChange::Stopped {
            self.gaps.forget();
        }
    }
}

/// The remembered sessions, oldest first. They are kept across any number of sampler processes, since one may end
/// before it has found all processes again. There are at most as many as can be attached at once; beyond that the
/// oldest are dropped.
#[derive(Debug, Default)]
pub(super) struct Remembered(VecDeque<(u64, DetachedProcess)>);

impl Remembered {
    pub(super) fn put(&mut self, session: u64, left: DetachedProcess) {
        self.remove(session);
        self.0.push_back((session, left));
        if self.0.len() > MAX_PROCESSES {
            self.0.pop_front();
        }
    }

    pub(super) fn remove(&mut self, session: u64) -> Option<DetachedProcess> {
        let place = self.0.iter().position(|(known, _)| *known == session)?;
        self.0.remove(place).map(|(_, left)| left)
    }

    /// Called when spans of a scope started or ended: updates the number of open ones for each process.
    pub(super) fn spans_changed(&mut self, scope: Scope, open: impl Fn(TargetId, u32) -> usize) {
        for (_, left) in self.0.iter_mut().filter(|(_, left)| scope.covers(left.target, left.pid)) {
            left.spans_changed(open(left.target, left.pid));
        }
    }

    /// Limits the number of remembered threads. Those of the oldest sessions are dropped first, since their processes
    /// are probably gone.
    pub(super) fn keep_threads(&mut self, most: usize) {
        let mut threads: usize = self.0.iter().map(|(_, left)| left.gaps.threads()).sum();
        for (_, left) in &mut self.0 {
            if threads <= most {
                return;
            }
            threads -= left.gaps.threads();
            left.gaps.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use profbridge_sampler::message::{Batch, Sample, Thread};

    use super::*;
    use crate::lifecycle::LifecycleMode;

    fn left(running: bool, threads: u32) -> DetachedProcess {
        let mut gaps = Gaps::default();
        gaps.fill(&mut Batch {
            threads: (0..threads).map(|id| Thread { id, ..Thread::default() }).collect(),
            samples: (0..threads).map(|thread| Sample { thread, ..Sample::default() }).collect(),
            ..Batch::default()
        });
        DetachedProcess {
            target: TargetId(0),
            pid: 1,
            lifecycle: ProfilerLifecycle::launch(LifecycleMode::Manual, true, running, 0),
            gaps,
        }
    }

    /// Guarantees: if there are too many threads, the oldest are dropped, and no more than necessary; their sessions
    /// are kept.
    #[test]
    fn bounded_threads() {
        let mut remembered = Remembered::default();
        for session in [3, 1, 2] {
            remembered.put(session, left(true, 10));
        }
        remembered.keep_threads(30);
        assert_eq!(remembered.0[0].1.gaps.threads(), 10);
        remembered.keep_threads(20);
        let threads: Vec<usize> = remembered.0.iter().map(|(_, left)| left.gaps.threads()).collect();
        assert_eq!(threads, [0, 10, 10]);
        assert!(remembered.remove(3).is_some());
    }

    /// Guarantees: as many sessions as can be attached are remembered, the latest ones and each once; a session that
    /// was taken is no longer remembered.
    #[test]
    fn bounded() {
        let mut remembered = Remembered::default();
        for session in 0..MAX_PROCESSES as u64 {
            remembered.put(session, left(false, 0));
        }
        remembered.put(0, left(true, 0));
        remembered.put(u64::MAX, left(false, 0));
        assert_eq!(remembered.0.len(), MAX_PROCESSES);
        assert!(remembered.remove(1).is_none(), "the oldest");
        assert!(remembered.remove(0).is_some_and(|left| left.lifecycle.is_running()));
        assert!(remembered.remove(0).is_none());
        assert_eq!(remembered.0.len(), MAX_PROCESSES - 1);
    }
}
