//! A process that was observed during a span, and its threads.

use std::num::NonZeroU64;

use profbridge_identity::Rules;
use profbridge_model::ProfilerId;

use super::{Process, ThreadSeen};
use crate::covered::Stretch;

/// A process that was observed during a span.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found<'a> {
    pub(super) process: &'a Process,
    pub(super) rules: &'a Rules,
    pub(super) during: Stretch,
    /// Whether nothing named the process but the pointer of one of its threads.
    pub(crate) by_thread: bool,
    /// Whether other profilers observed the process as well.
    pub(crate) several: bool,
}

/// A thread that was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FoundThread<'a> {
    pub(crate) id: &'a str,
    pub(crate) name: Option<&'a str>,
}

impl<'a> Found<'a> {
    /// The id of the profiler that observed it when the span began.
    pub(crate) fn profiler_id(&self) -> ProfilerId {
        let identity = self.process.identity;
        self.rules.profiler_id(identity, self.rules.cell(identity, self.during.start))
    }

    /// The hash of its identity.
    pub(crate) fn identity(&self) -> u128 {
        self.process.identity.hash
    }

    /// The thread with an id, if it was observed in the span's time.
    pub(crate) fn thread(&self, id: &str) -> Option<FoundThread<'a>> {
        let (id, thread) = self.process.thread(id)?;
        (!id.is_empty() && thread.covered.overlaps(self.during))
            .then_some(FoundThread { id, name: thread.name.as_deref() })
    }

    /// Whether the process has a thread with this id, observed or not in the span's time.
    pub(crate) fn has_thread(&self, id: &str) -> bool {
        self.process.thread(id).is_some()
    }

    /// The thread with this pointer that was observed in the span's time, if it is the only one.
    pub(crate) fn thread_at(&self, pointer: NonZeroU64) -> Option<FoundThread<'a>> {
        let mut all = self.process.threads.iter().filter(|(id, thread)| {
            !id.is_empty() && thread.pointer == Some(pointer) && thread.covered.overlaps(self.during)
        });
        let (id, thread) = all.next().filter(|_| all.next().is_none())?;
        Some(FoundThread { id, name: thread.name.as_deref() })
    }

    /// Whether the process has a thread with this pointer, observed or not in the span's time.
    pub(crate) fn has_thread_at(&self, pointer: NonZeroU64) -> bool {
        self.process.threads.values().any(|thread| thread.pointer == Some(pointer))
    }

    /// The only thread for which a condition on its name holds, if it was observed in the span's time.
    pub(crate) fn thread_named(&self, is: impl Fn(&str) -> bool) -> Option<FoundThread<'a>> {
        let named = |thread: &&ThreadSeen| thread.name.as_deref().is_some_and(&is);
        let mut all = self.process.threads.iter().filter(|(_, thread)| named(thread));
        let (id, thread) = all.next().filter(|_| all.next().is_none())?;
        thread.covered.overlaps(self.during).then_some(FoundThread { id, name: thread.name.as_deref() })
    }
}
