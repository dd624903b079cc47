//! The threads of a process.

use std::num::NonZeroU64;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::observed_times::{ALLOCATION, ObservedTimes, TimeRange};

/// The id of a thread: a system id, which is below 2^31, or a text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ThreadId {
    System(u32),
    Text(Arc<str>),
}

impl ThreadId {
    /// For observations on an unknown thread.
    pub(super) const UNKNOWN: Self = Self::System(u32::MAX);

    /// Parses an id. Only a number in the system's notation is a system id.
    pub(super) fn new(id: &str) -> Self {
        let is_plain = !id.starts_with(['0', '+']) || id == "0";
        let number = id.parse().ok().filter(|_| is_plain).and_then(Self::of_system);
        number.unwrap_or_else(|| Self::Text(id.into()))
    }

    /// From a system id; `None` if it is larger than any the system assigns.
    pub(super) fn of_system(id: u32) -> Option<Self> {
        (id <= i32::MAX as u32).then_some(Self::System(id))
    }

    /// The id as text, or `None` if the thread is unknown.
    pub(super) fn to_text(&self) -> Option<String> {
        match self {
            Self::System(_) => self.system().map(|number| number.to_string()),
            Self::Text(text) => Some(text.to_string()),
        }
    }

    /// The system's id, if it is one.
    pub(super) fn system(&self) -> Option<u32> {
        match self {
            Self::System(number) => Some(*number).filter(|_| *self != Self::UNKNOWN),
            Self::Text(_) => None,
        }
    }
}

/// A thread that was observed.
#[derive(Debug)]
pub(super) struct ObservedThread {
    /// Its pointer, if known.
    pub(super) pointer: Option<NonZeroU64>,
    pub(super) covered: ObservedTimes,
    /// Its latest name: programs rename their threads.
    pub(super) name: Option<Box<str>>,
    renamed: Option<Box<Renamed>>,
}

/// The previous name of a renamed thread. Its latest name is certain only from the end of the first batch that has it.
#[derive(Debug)]
struct Renamed {
    before: Box<str>,
    /// The end of that batch, in nanoseconds since the Unix epoch.
    since: u64,
}

impl ObservedThread {
    pub(super) fn new(covered: ObservedTimes) -> Self {
        Self { pointer: None, covered, name: None, renamed: None }
    }

    /// Learns the thread's name from a batch that ended at `batch_end`. `is_latest` says whether the batch is the
    /// newest one about this thread. Until `batch_end` the thread may have had either name.
    pub(super) fn learn_name(&mut self, name: &str, is_latest: bool, batch_end: u64) {
        if self.name.is_none() || is_latest && self.name.as_deref() != Some(name) {
            let since = batch_end.max(self.covered.end());
            let before = self.name.replace(name.into());
            self.renamed = before.map(|before| Box::new(Renamed { before, since })).or(self.renamed.take());
        }
    }

    /// Whether its name is certain since a time.
    pub(super) fn has_name_since(&self, time: u64) -> bool {
        self.renamed.as_ref().is_none_or(|renamed| renamed.since < time)
    }

    /// Whether it may have had a matching name at some point since a time.
    pub(super) fn may_be_named(&self, since: u64, fits: impl Fn(&str) -> bool) -> bool {
        let before = self.renamed.as_ref().filter(|renamed| since <= renamed.since).map(|renamed| &*renamed.before);
        self.name.as_deref().into_iter().chain(before).any(fits)
    }

    fn bytes(&self) -> u64 {
        let name = |name: &str| ALLOCATION + name.len();
        let before = |renamed: &Renamed| ALLOCATION + size_of::<Renamed>() + name(&renamed.before);
        let names = self.name.as_deref().map_or(0, name) + self.renamed.as_deref().map_or(0, before);
        self.covered.bytes() + names as u64
    }
}

/// The threads of a process.
#[derive(Debug, Default)]
pub(super) struct ObservedThreads(HashMap<ThreadId, ObservedThread>);

impl ObservedThreads {
    pub(super) fn get(&self, id: &ThreadId) -> Option<(&ThreadId, &ObservedThread)> {
        self.0.get_key_value(id)
    }

    /// The thread with this id. If it is new, it starts with the observation `first`.
    pub(super) fn get_or_add(&mut self, id: ThreadId, first: TimeRange) -> &mut ObservedThread {
        self.0.entry(id).or_insert_with(|| ObservedThread::new(ObservedTimes::new(first)))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ThreadId, &ObservedThread)> {
        self.0.iter()
    }

    /// Forgets what lies outside a time range.
    pub(super) fn remember(&mut self, time: TimeRange) {
        self.0.retain(|_, thread| {
            thread.renamed.take_if(|renamed| renamed.since < time.start);
            thread.covered.remember(time)
        });
        self.0.shrink_to(self.0.len() * 2);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The memory of all threads in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.0.allocation_size() as u64 + self.0.values().map(ObservedThread::bytes).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: an id that is not in the system's notation is not taken for a system id.
    #[test]
    fn ids() {
        let ids = ["0", "7", "07", "+7", "2147483647", "2147483648", "worker", "-1", ""];
        let all = ids.map(ThreadId::new);
        for (text, id) in ids.iter().zip(&all) {
            assert_eq!(
                (id.to_text().as_deref(), all.iter().filter(|of| *of == id).count()),
                (Some(*text), 1),
                "{text}"
            );
        }
        assert_eq!([1, 2, 4, 5].map(|at: usize| all[at].system()), [Some(7), None, Some(2_147_483_647), None]);
        assert_eq!((ThreadId::UNKNOWN.to_text(), ThreadId::UNKNOWN.system()), (None, None));
    }
}
