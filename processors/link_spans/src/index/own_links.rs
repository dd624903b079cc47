//! The spans that samples name by themselves, by links that they came with: on which thread of which process each ran.
//!
//! A profiler that reads what a program shows of its live contexts (OTEP 4947) says with each sample which span its
//! thread worked on. So the span's process and thread are known, whatever the span says of them.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use profbridge_model::dictionary::Link;

use super::Process;
use super::texts::TextId;
use super::threads::Key;
use crate::covered::MILLI;

/// Where a span was seen, and when first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The number of the process.
    pub(super) process: u32,
    pub(super) thread: Key,
    /// On the scale of the process.
    pub(super) first: u32,
}

/// The system says to the hundredth of a second when processes began, behind the second in which it booted, so a
/// process may have begun up to a second later than it says: what began so little before a process, in nanoseconds, may
/// have begun in it, and what began before that did not.
const TICKS: u64 = 20_000_000;

impl Process {
    /// When a span was seen first in it, in nanoseconds since the Unix epoch.
    pub(super) fn first_of(&self, place: Place) -> u64 {
        self.scale.unix_milli(place.first).saturating_mul(MILLI)
    }

    /// Whether a span that had begun by some time was seen in it only since it was forked meanwhile, with the context
    /// of the thread that forked. Where the process itself was seen before it began a clock was set since.
    pub(super) fn inherited(&self, place: Place, begun: u64) -> bool {
        self.began.is_some_and(|began| {
            began > begun.saturating_add(TICKS) && self.first_of(place).saturating_add(TICKS) >= began
        })
    }

    /// Whether it began later than another process: of two that show one span it is the one that was forked.
    pub(super) fn is_younger(&self, than: &Self) -> bool {
        self.began.zip(than.began).is_some_and(|(began, other)| began > other.saturating_add(TICKS))
    }
}

/// A span that was seen, known by a hash under a key of this processor's.
#[derive(Debug, Clone, Copy)]
struct Seen {
    span: [u32; 2],
    place: Place,
}

impl Seen {
    fn hash(&self) -> u64 {
        u64::from(self.span[0]) | u64::from(self.span[1]) << 32
    }
}

/// What a table takes that is not empty, in bytes.
const LEAST: u64 = 4 * (size_of::<Seen>() as u64 + 1) + 16;

/// The spans, in two generations: what was not seen during all of one is forgotten.
#[derive(Debug, Default)]
pub(super) struct OwnLinks {
    young: HashTable<Seen>,
    old: HashTable<Seen>,
    /// When the young ones became that, in the monotonic time.
    since: u64,
    hasher: DefaultHashBuilder,
}

impl OwnLinks {
    /// Where a span was seen.
    pub(super) fn get(&self, link: &Link) -> Option<Place> {
        let hash = self.hasher.hash_one((link.trace_id, link.span_id));
        let find = |of: &HashTable<Seen>| of.find(hash, |seen| seen.hash() == hash).map(|seen| seen.place);
        find(&self.young).or_else(|| find(&self.old))
    }

    /// The memory that one more span will take, in bytes: tables grow to twice their size.
    pub(super) fn growth(&self) -> u64 {
        match self.young.len() < self.young.capacity() {
            true => 0,
            false => (self.young.allocation_size() as u64).max(LEAST),
        }
    }

    /// A span was seen. Of two places that which `is_better` than the other one counts.
    pub(super) fn add(&mut self, link: &Link, place: Place, is_better: impl FnOnce(Place, Place) -> bool) {
        let hash = self.hasher.hash_one((link.trace_id, link.span_id));
        let known = self.get(link);
        let place = known.filter(|known| !is_better(place, *known)).unwrap_or(place);
        if let Some(seen) = self.young.find_mut(hash, |seen| seen.hash() == hash) {
            seen.place = place;
            return;
        }
        let seen = Seen { span: [hash as u32, (hash >> 32) as u32], place };
        self.young.insert_unique(hash, seen, Seen::hash);
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
        self.old.shrink_to(0, Seen::hash);
        gone.len() as u64
    }

    /// Forgets spans of processes that are forgotten, and moves the others to where their process is.
    pub(super) fn retain(&mut self, mut place: impl FnMut(&mut Place) -> bool) {
        for table in [&mut self.young, &mut self.old] {
            table.retain(|seen| place(&mut seen.place));
            table.shrink_to(table.len() * 2, Seen::hash);
        }
    }

    /// How many spans there are.
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// The numbers of texts that are ids of threads.
    pub(super) fn texts(&self) -> impl Iterator<Item = TextId> {
        self.young.iter().chain(&self.old).filter_map(|seen| seen.place.thread.text())
    }

    /// The memory of it, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        (self.young.allocation_size() + self.old.allocation_size()) as u64
    }
}
