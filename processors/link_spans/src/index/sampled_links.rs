//! What is remembered of single spans: on which thread of which process a span ran, if incoming samples are linked with
//! it, and which profiler an SDK named in a segment.
//!
//! A profiler that reads a program's live contexts (OTEP 4947) writes into each sample the span its thread was working
//! on. So the span's process and thread are known, whatever the span itself contains.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap};
use profbridge_model::dictionary::Link;

use super::ObservedProcess;
use super::threads::ThreadId;

/// Where a span was seen, and when first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SampledPlace {
    /// The number of the process.
    pub(super) process: u32,
    pub(super) thread: ThreadId,
    /// In nanoseconds since the Unix epoch.
    pub(super) first: u64,
}

/// The tolerance for the start time of a process, in nanoseconds. The kernel gives it in hundredths of a second since
/// boot, and the boot time in whole seconds, so a process may have begun up to a second later than computed. A span
/// that began less than this before its process may have begun in it; a span that began earlier did not.
const TICKS: u64 = 20_000_000;

impl ObservedProcess {
    /// Whether a span that had begun at `begun` was seen in this process only because the process was forked later and
    /// inherited the context of the forking thread. If the process itself was seen before its start, a clock was set in
    /// between and nothing can be concluded.
    pub(super) fn inherited(&self, place: &SampledPlace, begun: u64) -> bool {
        self.began
            .is_some_and(|began| began > begun.saturating_add(TICKS) && place.first.saturating_add(TICKS) >= began)
    }

    /// Whether it began later than another process. If both expose one span, this one was forked from the other: fork
    /// copies the context.
    pub(super) fn is_younger(&self, than: &Self) -> bool {
        self.began.zip(than.began).is_some_and(|(began, other)| began > other.saturating_add(TICKS))
    }
}

/// The spans, each under a keyed hash, in two generations: a span that is not seen for a whole generation is forgotten.
#[derive(Debug)]
pub(super) struct RecentSpans<T> {
    young: HashMap<u64, T>,
    old: HashMap<u64, T>,
    /// When the young generation began, in monotonic time.
    since: u64,
    hasher: DefaultHashBuilder,
}

/// Where the spans were seen that samples name.
pub(super) type SampledLinks = RecentSpans<SampledPlace>;

impl<T> Default for RecentSpans<T> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), since: 0, hasher: DefaultHashBuilder::default() }
    }
}

impl<T> RecentSpans<T> {
    /// The bytes of the smallest non-empty table.
    const LEAST: u64 = 4 * (size_of::<(u64, T)>() as u64 + 1) + 16;

    fn hash(&self, link: &Link) -> u64 {
        self.hasher.hash_one((link.trace_id, link.span_id))
    }

    /// What is known of a span.
    pub(super) fn get(&self, link: &Link) -> Option<&T> {
        let hash = self.hash(link);
        self.young.get(&hash).or_else(|| self.old.get(&hash))
    }

    /// The bytes that one more span will take: a full table doubles.
    pub(super) fn growth(&self) -> u64 {
        match self.young.len() < self.young.capacity() {
            true => 0,
            false => (self.young.allocation_size() as u64).max(Self::LEAST),
        }
    }

    /// Records what is known of a span now.
    pub(super) fn insert(&mut self, link: &Link, known: T) {
        self.young.insert(self.hash(link), known);
    }

    /// Forgets spans that were not seen for `keep` nanoseconds, or at the latest for twice as long.
    pub(super) fn forget(&mut self, now: u64, keep: u64) {
        if now.saturating_sub(self.since) >= keep {
            self.since = now;
            self.forget_old();
        }
    }

    /// Forgets the older half. Returns the number of spans forgotten.
    pub(super) fn forget_old(&mut self) -> u64 {
        let gone = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
        self.old.shrink_to_fit();
        gone.len() as u64
    }

    /// The number of spans.
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Memory use in bytes.
    pub(super) fn bytes(&self) -> u64 {
        (self.young.allocation_size() + self.old.allocation_size()) as u64
    }
}

impl SampledLinks {
    /// Records where a span was seen. If it was seen elsewhere before, `is_better` decides which place counts.
    pub(super) fn add(
        &mut self,
        link: &Link,
        place: SampledPlace,
        is_better: impl FnOnce(&SampledPlace, &SampledPlace) -> bool,
    ) {
        let place = match self.get(link) {
            Some(known) if !is_better(&place, known) => known.clone(),
            _ => place,
        };
        self.insert(link, place);
    }

    /// Forgets the spans of forgotten processes.
    pub(super) fn retain(&mut self, is_known: impl Fn(u32) -> bool) {
        for table in [&mut self.young, &mut self.old] {
            table.retain(|_, place| is_known(place.process));
            table.shrink_to(table.len() * 2);
        }
    }
}
