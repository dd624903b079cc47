//! A process that was observed during a span, and its threads.

use std::num::NonZeroU64;

use profbridge_identity::ProcessClaims;
use profbridge_model::ProfilerId;

use super::find::about;
use super::threads::{Thread, ThreadId};
use super::{Index, Process};
use crate::covered::{Millis, Stretch};

/// A process that was observed during a span.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found<'a> {
    pub(super) process: &'a Process,
    pub(super) index: &'a Index,
    pub(super) during: Stretch,
    /// Whether nothing named the process but the pointer of one of its threads.
    pub(crate) by_thread: bool,
    /// Whether other profilers observed the process as well.
    pub(crate) several: bool,
    /// Whether ids of threads are the system's in what the span says, and in the process.
    pub(crate) has_system_ids: bool,
}

/// A thread that was observed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundThread<'a> {
    pub(crate) id: String,
    pub(crate) name: Option<&'a str>,
}

/// Who had a thread pointer in a span's time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum At<'a> {
    Thread(FoundThread<'a>),
    /// Several threads, one after the other, each for as much of it.
    Ambiguous,
    /// Nobody is known to have had it then.
    Unobserved,
}

impl<'a> Found<'a> {
    /// The id of the profiler that observed it when the span began.
    pub(crate) fn profiler_id(&self) -> ProfilerId {
        let (identity, rules) = (self.process.identity, &self.index.rules);
        rules.profiler_id(identity, rules.cell(identity, self.during.start))
    }

    /// The hash of its identity.
    pub(crate) fn identity(&self) -> u128 {
        self.process.identity.hash
    }

    /// Whether nothing better may come for a span that samples name: it was observed up to its end, or by a profiler
    /// that comes before others.
    pub(crate) fn is_settled(&self) -> bool {
        self.process.profiler.wall || self.process.last >= self.during.end
    }

    /// Whether threads that wait are observed as well.
    pub(crate) fn observes_waiting_threads(&self) -> bool {
        self.process.profiler.wall
    }

    /// Whether all is known of the span's time, and as far about it as clocks may be off.
    pub(crate) fn is_past(&self) -> bool {
        self.process.reaches(self.during)
    }

    /// Whether any thread of it was observed in the span's time, or about then.
    pub(crate) fn is_observed_about(&self) -> bool {
        self.process.threads.iter().any(|(_, thread)| self.is_observed_near(thread))
    }

    /// Whether it may be the process of which something is said.
    pub(crate) fn agrees(&self, claims: &ProcessClaims) -> bool {
        self.process.claims.agrees(claims)
    }

    /// Whether it is a process, or may be the same that another profiler observed.
    pub(crate) fn may_be(&self, identity: u128) -> bool {
        let other = self.index.by_identity.get(&identity).and_then(|number| self.index.processes.get(number));
        self.identity() == identity || other.is_some_and(|other| self.process.is_also(other))
    }

    /// A thread of it.
    pub(super) fn of(&self, (id, thread): (&ThreadId, &'a Thread)) -> Option<FoundThread<'a>> {
        id.to_text().map(|id| FoundThread { id, name: thread.name.as_deref() })
    }

    /// Whether a thread was observed in the span's time, or about it.
    fn is_observed_near(&self, thread: &Thread) -> bool {
        thread.covered.overlaps(about(self.during).into())
    }

    /// The thread with an id, if it was observed in the span's time.
    pub(crate) fn thread(&self, id: &str) -> Option<FoundThread<'a>> {
        let thread = self.process.thread(id)?;
        self.is_observed_near(thread.1).then(|| self.of(thread))?
    }

    /// Whether the process has a thread with this id, observed or not in the span's time.
    pub(crate) fn has_thread(&self, id: &str) -> bool {
        self.process.thread(id).is_some()
    }

    /// What the process calls its main thread: its own id, in its own namespace where it has one, as profiles say it or
    /// it was found out. `None` where profiles do not say it.
    pub(crate) fn main_thread(&self) -> Option<i64> {
        self.process.claims.own_pid().or(self.process.claims.pid())
    }

    /// The thread with this pointer in the span's time. The system gives a new thread the memory, and so the pointer,
    /// of one that ended: of several the one is taken that was observed for most of the span.
    pub(crate) fn thread_at(&self, pointer: NonZeroU64) -> At<'a> {
        let known = |(id, _): &(&ThreadId, &Thread)| **id != ThreadId::UNKNOWN;
        let of = |thread: (&ThreadId, &'a Thread)| self.of(thread).map_or(At::Unobserved, At::Thread);
        let (mut most, mut longest, mut several) = (0, None, false);
        for thread in self.process.threads_at(pointer).filter(known) {
            let time = thread.1.covered.within(self.during.into());
            if time > most {
                (most, longest, several) = (time, Some(thread), false);
            } else {
                several |= time > 0 && time == most;
            }
        }
        match longest {
            Some(_) if several => At::Ambiguous,
            Some(thread) => of(thread),
            None => self.process.near(pointer, self.during).filter(known).map_or(At::Unobserved, of),
        }
    }

    /// Whether the process has a thread with this pointer, observed or not in the span's time.
    pub(crate) fn has_thread_at(&self, pointer: NonZeroU64) -> bool {
        self.process.threads_at(pointer).next().is_some()
    }

    /// The only thread that has one of these names, if it was observed in the span's time. One that got its name since
    /// the span began is not it, and where it may have had such a name then, no other is.
    pub(crate) fn thread_named(&self, names: [Option<&str>; 2]) -> Option<FoundThread<'a>> {
        let begun = Millis::from(self.during).start;
        let may_be_named = |thread: &Thread| thread.may_be_named(begun, |name| names.contains(&Some(name)));
        let mut all = self.process.threads.iter().filter(|(_, thread)| may_be_named(thread));
        let thread = all.next().filter(|(_, thread)| all.next().is_none() && thread.has_name_since(begun))?;
        self.is_observed_near(thread.1).then(|| self.of(thread))?
    }
}
