//! A cache of the code objects of interpreted functions, by address.
//!
//! Code may be freed, and other code may be placed at its address. So a fingerprint (print) of the code's fields is
//! read again for each stack, and cached data is valid only while the print is unchanged. It is not valid for samples
//! taken before the code was first read.

mod lines;
mod reading;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;
use std::time::Instant;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};

use self::lines::LineCache;
pub(super) use self::reading::{CodeLookup, CodeSource};

/// The maximum number of cached codes in a process, and of all copies of their instructions; above it the whole cache
/// is cleared.
const MAX_CODES: usize = 16_384;
const MAX_COPIES: usize = 131_072;

/// The code of a function or a script, as cached.
pub(super) trait CachedCode: Debug {
    type Fingerprint: Debug + Clone + PartialEq;

    /// How many cached codes may have instructions at the same address; one more drops the oldest.
    const MAX_SHARING: usize;

    /// The fingerprint of the code when it was read.
    fn fingerprint(&self) -> &Self::Fingerprint;

    /// The address range of the code's instructions; empty if none are known.
    fn instructions(&self) -> Range<u64>;
}

/// The cached code of a process.
#[derive(Debug)]
pub(super) struct Codes<C> {
    known: HashMap<u64, CodeEntry<C>, RandomState>,
    /// For each address where instructions or a copy of them start, the addresses of their code objects.
    places: BTreeMap<u64, Vec<u64>>,
    /// The number of instruction copies of all codes, and whether there were too many.
    copies: usize,
    is_full: bool,
    /// The number of the current stack.
    stack: u64,
    /// The codes read since [`Self::sampled`].
    fresh: Vec<u64>,
    /// When the current sample was taken; `None` if the sampled thread is stopped.
    sampled: Option<Instant>,
}

#[derive(Debug)]
struct CodeEntry<C> {
    code: C,
    /// The number of the last stack for which the code was compared with memory.
    checked: u64,
    /// A time at which the code had already been read; `None` if it was read for the current stack.
    since: Option<Instant>,
    lines: LineCache,
    /// The start addresses of the copies of the instructions, each in its own memory, and the number of the stack for
    /// which they were read.
    copies: Vec<u64>,
    copied: Option<u64>,
}

/// The result of comparing cached code with memory.
#[derive(Debug)]
enum Checked<P> {
    /// The code is unchanged.
    Known,
    /// The code is not cached and has to be read.
    New(P),
    /// The code can no longer be determined.
    Lost,
}

impl<C> Default for Codes<C> {
    fn default() -> Self {
        Self {
            known: HashMap::default(),
            places: BTreeMap::new(),
            copies: 0,
            is_full: false,
            stack: 0,
            fresh: Vec::new(),
            sampled: None,
        }
    }
}

impl<C: CachedCode> Codes<C> {
    /// Announces that the next requests are about a sample taken at `at`, whose thread has run since; `None` if the
    /// thread is stopped. Everything read so far was read before `now`.
    pub(super) fn sampled(&mut self, at: Option<Instant>, now: Instant) {
        for address in self.fresh.drain(..) {
            if let Some(known) = self.known.get_mut(&address) {
                known.since.get_or_insert(now);
            }
        }
        self.sampled = at;
    }

    /// Whether code was first read after the sample: at the time of the sample other code may have been at its
    /// address.
    pub(super) fn is_fresh(&self, address: u64) -> bool {
        let since = self.known.get(&address).and_then(|known| known.since);
        self.sampled.is_some_and(|sampled| since.is_none_or(|since| since > sampled))
    }

    /// Starts the next stack, for which all code is compared with memory again.
    pub(super) fn next_stack(&mut self) {
        self.stack += 1;
        if self.known.len() >= MAX_CODES || self.is_full {
            self.known.clear();
            self.places.clear();
            (self.copies, self.is_full) = (0, false);
        }
    }

    /// Whether this code was already compared for this stack.
    fn is_checked(&self, address: u64) -> bool {
        self.known.get(&address).is_some_and(|known| known.checked == self.stack)
    }

    /// Compares cached code with its current fingerprint; `None` means that it cannot be read. `has_not_run` means that
    /// the thread has not run since its frames were read, so the frames execute the code that is there now.
    fn check(
        &mut self,
        address: u64,
        fingerprint: Option<C::Fingerprint>,
        has_not_run: bool,
    ) -> Checked<C::Fingerprint> {
        let Some(fingerprint) = fingerprint else {
            self.forget(address);
            return Checked::Lost;
        };
        match self.known.get_mut(&address) {
            None => Checked::New(fingerprint),
            Some(known) if *known.code.fingerprint() == fingerprint => {
                known.checked = self.stack;
                Checked::Known
            }
            Some(_) => {
                self.forget(address);
                if has_not_run { Checked::New(fingerprint) } else { Checked::Lost }
            }
        }
    }

    /// Adds code read for this stack. Older code with instructions in the same memory is dropped.
    fn insert(&mut self, address: u64, code: C) {
        let Range { start, end } = code.instructions();
        let before = self.places.range(..start).next_back();
        let near = before.into_iter().chain(self.places.range(start..end)).filter(|(at, _)| **at != start);
        let overlapping = near.flat_map(|(at, sharing)| sharing.iter().map(|other| (*at, *other)));
        let ends_behind = |(at, other): &(u64, u64)| at.saturating_add(self.length(*other)) > start;
        let gone: Vec<u64> = overlapping.filter(ends_behind).map(|(_, other)| other).collect();
        gone.into_iter().for_each(|other| self.forget(other));
        // Several code objects may be the same function, created repeatedly: it counts as known if one of them was
        // known.
        let sharing = self.places.get(&start).into_iter().flatten().chain([&address]);
        let same = sharing
            .filter_map(|other| self.known.get(other))
            .filter(|other| other.code.fingerprint() == code.fingerprint());
        let since = same.filter_map(|other| other.since).min();
        self.forget(address);
        if start < end {
            let sharing = self.places.entry(start).or_default();
            let oldest = (sharing.len() >= C::MAX_SHARING).then(|| sharing.first().copied()).flatten();
            sharing.push(address);
            oldest.into_iter().for_each(|oldest| self.forget(oldest));
        }
        if since.is_none() {
            self.fresh.push(address);
        }
        let (lines, copies) = (LineCache::default(), Vec::new());
        self.known.insert(address, CodeEntry { code, checked: self.stack, since, lines, copies, copied: None });
    }

    /// Drops code from the cache.
    pub(super) fn forget(&mut self, address: u64) {
        if let Some(known) = self.known.remove(&address) {
            self.copies -= known.copies.len();
            self.forget_place(known.code.instructions().start, address);
            known.copies.iter().for_each(|start| self.forget_place(*start, address));
        }
    }

    fn forget_place(&mut self, start: u64, address: u64) {
        if let Some(sharing) = self.places.get_mut(&start) {
            sharing.retain(|other| *other != address);
            if sharing.is_empty() {
                self.places.remove(&start);
            }
        }
    }

    /// Whether the addresses of the code's instruction copies were read for this stack.
    pub(super) fn has_copies(&self, address: u64) -> bool {
        self.known.get(&address).is_some_and(|known| known.copied == Some(self.stack))
    }

    /// Sets the addresses where copies of the code's instructions start. Other code known at these addresses is
    /// dropped.
    pub(super) fn set_copies(&mut self, address: u64, mut copies: Vec<u64>) {
        let Some(known) = self.known.get_mut(&address) else { return };
        known.copied = Some(self.stack);
        if known.copies == copies {
            return;
        }
        let before = std::mem::take(&mut known.copies);
        self.copies -= before.len();
        if self.copies + copies.len() > MAX_COPIES {
            self.is_full = true;
            copies = Vec::new();
        }
        let known_before: HashSet<u64, RandomState> = before.iter().copied().collect();
        if copies.iter().any(|start| !known_before.contains(start)) {
            // At the time of the sample the memory of a new copy may have belonged to another function.
            known.since = None;
            self.fresh.push(address);
        }
        self.copies += copies.len();
        known.copies.clone_from(&copies);
        before.into_iter().for_each(|start| self.forget_place(start, address));
        self.places.extend(copies.into_iter().map(|start| (start, vec![address])));
    }

    /// The code as it was when it was cached.
    pub(super) fn get(&self, address: u64) -> Option<&C> {
        self.known.get(&address).map(|known| &known.code)
    }

    /// The same as [`Self::get`], to add data that is read later.
    pub(super) fn get_mut(&mut self, address: u64) -> Option<&mut C> {
        self.known.get_mut(&address).map(|known| &mut known.code)
    }

    fn length(&self, address: u64) -> u64 {
        let instructions = self.get(address).map_or(0..0, CachedCode::instructions);
        instructions.end.saturating_sub(instructions.start)
    }

    /// The addresses of the codes with an instruction at this address, oldest first.
    pub(super) fn around(&self, address: u64) -> impl Iterator<Item = u64> {
        let near = self.places.range(..=address).next_back().into_iter();
        let sharing = near.flat_map(|(start, sharing)| sharing.iter().map(|code| (*start, *code)));
        sharing.filter(move |(start, code)| address - start < self.length(*code)).map(|(_, code)| code)
    }

    /// The range of this code's instructions, or of one copy of them, that contains this address.
    pub(super) fn part(&self, code: u64, address: u64) -> Option<Range<u64>> {
        let (start, sharing) = self.places.range(..=address).next_back()?;
        let length = self.length(code);
        let is_in = address - start < length && sharing.contains(&code);
        is_in.then(|| *start..start.saturating_add(length))
    }
}
