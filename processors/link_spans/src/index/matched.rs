//! A process that was observed during a span, and its threads.

use std::num::NonZeroU64;

use profbridge_identity::ProcessClaims;
use profbridge_model::ProfilerId;

use super::find::with_tolerance;
use super::threads::{ObservedThread, ThreadId};
use super::{Index, ObservedProcess};
use crate::observed_times::TimeRange;

/// A process that was observed during a span.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MatchedProcess<'a> {
    pub(super) process: &'a ObservedProcess,
    pub(super) index: &'a Index,
    pub(super) during: TimeRange,
    /// Whether the process was found only by the pointer of one of its threads.
    pub(crate) by_thread: bool,
    /// Whether other profilers observed the process as well.
    pub(crate) several: bool,
    /// Whether both the span and the process use the system's thread ids.
    pub(crate) has_system_ids: bool,
}

/// A thread that was observed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MatchedThread<'a> {
    pub(crate) id: String,
    pub(crate) name: Option<&'a str>,
}

/// Which thread had a thread pointer during a span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PointerMatch<'a> {
    Thread(MatchedThread<'a>),
    /// Several threads, one after the other, for equally long.
    Ambiguous,
    /// No thread is known to have had it then.
    Unobserved,
}

impl<'a> MatchedProcess<'a> {
    /// The id of the profiler that observed it when the span began.
    pub(crate) fn profiler_id(&self) -> ProfilerId {
        let (identity, rules) = (self.process.identity, &self.index.rules);
        rules.profiler_id(identity, rules.cell(identity, self.during.start))
    }

    /// The hash of its identity.
    pub(crate) fn identity(&self) -> u128 {
        self.process.identity.hash
    }

    /// Whether the result for a span named by samples is final: the process was observed up to the span's end, or by a
    /// profiler of the highest priority.
    pub(crate) fn is_settled(&self) -> bool {
        self.process.profiler.wall || self.process.last >= self.during.end
    }

    /// Whether waiting threads are observed as well.
    pub(crate) fn observes_waiting_threads(&self) -> bool {
        self.process.profiler.wall
    }

    /// Whether profiles cover the span's time plus the clock tolerance.
    pub(crate) fn is_past(&self) -> bool {
        self.process.reaches(self.during)
    }

    /// Whether any of its threads was observed during the span, within the clock tolerance.
    pub(crate) fn is_observed_about(&self) -> bool {
        self.process.threads.iter().any(|(_, thread)| self.is_observed_near(thread))
    }

    /// Whether these claims may describe the process.
    pub(crate) fn agrees(&self, claims: &ProcessClaims) -> bool {
        self.process.claims.agrees(claims)
    }

    /// Whether this is the process with that identity, or may be the same one observed by another profiler.
    pub(crate) fn may_be(&self, identity: u128) -> bool {
        let other = self.index.by_identity.get(&identity).and_then(|number| self.index.processes.get(number));
        self.identity() == identity || other.is_some_and(|other| self.process.may_equal(other))
    }

    pub(super) fn matched(&self, (id, thread): (&ThreadId, &'a ObservedThread)) -> Option<MatchedThread<'a>> {
        id.to_text().map(|id| MatchedThread { id, name: thread.name.as_deref() })
    }

    /// Whether a thread was observed during the span, within the clock tolerance.
    fn is_observed_near(&self, thread: &ObservedThread) -> bool {
        thread.covered.overlaps(with_tolerance(self.during))
    }

    /// The thread with an id, if it was observed during the span.
    pub(crate) fn thread(&self, id: &str) -> Option<MatchedThread<'a>> {
        let thread = self.process.thread(id)?;
        self.is_observed_near(thread.1).then(|| self.matched(thread))?
    }

    /// The thread of a process that was observed on no other, whenever that was.
    pub(super) fn only_thread(&self) -> Option<MatchedThread<'a>> {
        let mut known = self.process.threads.iter().filter(|(id, _)| **id != ThreadId::UNKNOWN);
        known.next().filter(|_| known.next().is_none()).and_then(|thread| self.matched(thread))
    }

    /// Whether the process has a thread with this id, whether or not observed during the span.
    pub(crate) fn has_thread(&self, id: &str) -> bool {
        self.process.thread(id).is_some()
    }

    /// The id of the main thread, which is the process id; in the process's own PID namespace if it has one, according
    /// to profiles or `/proc`. `None` if profiles have no process id.
    pub(crate) fn main_thread(&self) -> Option<i64> {
        self.process.claims.inner_pid().or(self.process.claims.pid())
    }

    /// The thread with this pointer during the span. The system reuses the memory of an ended thread, and so its
    /// pointer: of several the one observed for most of the span is taken.
    pub(crate) fn thread_with_pointer(&self, pointer: NonZeroU64) -> PointerMatch<'a> {
        let known = |(id, _): &(&ThreadId, &ObservedThread)| **id != ThreadId::UNKNOWN;
        let of = |thread: (&ThreadId, &'a ObservedThread)| {
            self.matched(thread).map_or(PointerMatch::Unobserved, PointerMatch::Thread)
        };
        let (mut most, mut longest, mut several) = (0, None, false);
        for thread in self.process.threads_with_pointer(pointer).filter(known) {
            let time = thread.1.covered.within(self.during);
            if time > most {
                (most, longest, several) = (time, Some(thread), false);
            } else {
                several |= time > 0 && time == most;
            }
        }
        match longest {
            Some(_) if several => PointerMatch::Ambiguous,
            Some(thread) => of(thread),
            None => self.process.thread_near(pointer, self.during).filter(known).map_or(PointerMatch::Unobserved, of),
        }
    }

    /// Whether the process has a thread with this pointer, whether or not observed during the span.
    pub(crate) fn has_pointer(&self, pointer: NonZeroU64) -> bool {
        self.process.threads_with_pointer(pointer).next().is_some()
    }

    /// The only thread with one of these names, if it was observed during the span. A thread that got its name after
    /// the span began does not count. If it may have had such a name then, the result is ambiguous and so `None`.
    pub(crate) fn thread_named(&self, names: [Option<&str>; 2]) -> Option<MatchedThread<'a>> {
        let begun = self.during.start;
        let may_be_named = |thread: &ObservedThread| thread.may_be_named(begun, |name| names.contains(&Some(name)));
        let mut all = self.process.threads.iter().filter(|(_, thread)| may_be_named(thread));
        let thread = all.next().filter(|(_, thread)| all.next().is_none() && thread.has_name_since(begun))?;
        self.is_observed_near(thread.1).then(|| self.matched(thread))?
    }
}
