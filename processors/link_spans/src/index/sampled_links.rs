//! The spans that samples name by themselves, by links that they came with: on which thread of which process each ran.
//!
//! A profiler that reads what a program shows of its live contexts (OTEP 4947) says with each sample which span its
//! thread worked on. So the span's process and thread are known, whatever the span says of them.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap};
use profbridge_model::dictionary::Link;

use super::Process;
use super::threads::ThreadId;

/// Where a span was seen, and when first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The number of the process.
    pub(super) process: u32,
    pub(super) thread: ThreadId,
    /// In nanoseconds since the Unix epoch.
    pub(super) first: u64,
}

/// The system says to the hundredth of a second when processes began, behind the second in which it booted, so a
/// process may have begun up to a second later than it says: what began so little before a process, in nanoseconds, may
/// have begun in it, and what began before that did not.
const TICKS: u64 = 20_000_000;

impl Process {
    /// Whether a span that had begun by some time was seen in it only since it was forked meanwhile, with the context
    /// of the thread that forked. Where the process itself was seen before it began a clock was set since.
    pub(super) fn inherited(&self, place: &Place, begun: u64) -> bool {
        self.began
            .is_some_and(|began| began > begun.saturating_add(TICKS) && place.first.saturating_add(TICKS) >= began)
    }

    /// Whether it began later than another process. Where both show one span it was forked from the other one: fork
    /// copies the context.
    pub(super) fn is_younger(&self, than: &Self) -> bool {
        self.began.zip(than.began).is_some_and(|(began, other)| began > other.saturating_add(TICKS))
    }
}

/// What a table takes that is not empty, in bytes.
const LEAST: u64 = 4 * (size_of::<(u64, Place)>() as u64 + 1) + 16;

/// The spans, each known by a hash under a key of this processor's, in two generations: what was not seen during all of
/// one is forgotten.
#[derive(Debug, Default)]
pub(super) struct SampledLinks {
    young: HashMap<u64, Place>,
    old: HashMap<u64, Place>,
    /// When the young ones became that, in the monotonic time.
    since: u64,
    hasher: DefaultHashBuilder,
}

impl SampledLinks {
    fn hash(&self, link: &Link) -> u64 {
        self.hasher.hash_one((link.trace_id, link.span_id))
    }

    /// Where a span was seen.
    pub(super) fn get(&self, link: &Link) -> Option<&Place> {
        let hash = self.hash(link);
        self.young.get(&hash).or_else(|| self.old.get(&hash))
    }

    /// The memory that one more span will take, in bytes: tables grow to twice their size.
    pub(super) fn growth(&self) -> u64 {
        match self.young.len() < self.young.capacity() {
            true => 0,
            false => (self.young.allocation_size() as u64).max(LEAST),
        }
    }

    /// A span was seen. Of two places that which `is_better` than the other one counts.
    pub(super) fn add(&mut self, link: &Link, place: Place, is_better: impl FnOnce(&Place, &Place) -> bool) {
        let place = match self.get(link) {
            Some(known) if !is_better(&place, known) => known.clone(),
            _ => place,
        };
        self.young.insert(self.hash(link), place);
    }

    /// Forgets what was not seen for `keep` nanoseconds, and for twice as long at most.
    pub(super) fn forget(&mut self, now: u64, keep: u64) {
        if now.saturating_sub(self.since) >= keep {
            self.since = now;
            self.forget_old();
        }
    }

    /// Forgets the older half. How many spans that are.
    pub(super) fn forget_old(&mut self) -> u64 {
        let gone = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
        self.old.shrink_to_fit();
        gone.len() as u64
    }

    /// Forgets spans of processes that are forgotten.
    pub(super) fn retain(&mut self, is_known: impl Fn(u32) -> bool) {
        for table in [&mut self.young, &mut self.old] {
            table.retain(|_, place| is_known(place.process));
            table.shrink_to(table.len() * 2);
        }
    }

    /// How many spans there are.
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// The memory of it, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        (self.young.allocation_size() + self.old.allocation_size()) as u64
    }
}
