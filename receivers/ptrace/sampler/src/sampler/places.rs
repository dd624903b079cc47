//! Where threads wait, and with which stacks: a place that was met before needs no unwinding.
//!
//! A place is the instruction pointer, the stack pointer and the words of the copied stack that point into code: of
//! waits that differ in their callers, one of these differs as well. Where the copy has all of a stack, the stack pointer
//! does not matter, so that threads which wait alike share a place. Words that are left over from earlier calls make
//! two places of one stack, which only costs unwinding it twice.

use std::hash::{BuildHasher, Hasher};

use hashbrown::HashMap;

/// A place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place {
    ip: u64,
    sp: u64,
    /// The words that point into code, each with where it is.
    code: u64,
}

impl Place {
    /// The place of a thread with these registers and the stack from the stack pointer on.
    pub(super) fn new(ip: u64, sp: u64, stack: &[u8], code: &mut CodeRanges) -> Self {
        let mut hasher = foldhash::fast::FixedState::with_seed(0).build_hasher();
        let (words, _) = stack.as_chunks();
        for (index, word) in words.iter().map(|word| u64::from_ne_bytes(*word)).enumerate() {
            if code.contains(word) {
                hasher.write_usize(index);
                hasher.write_u64(word);
            }
        }
        Self { ip, sp, code: hasher.finish() }
    }

    /// The same place on the stack of any thread.
    pub(super) fn of_any_thread(self) -> Self {
        Self { sp: 0, ..self }
    }
}

/// The addresses of a process that are mapped executable.
#[derive(Debug, Clone, Default)]
pub(super) struct CodeRanges {
    /// Beginnings and ends, in ascending order.
    ranges: Vec<(u64, u64)>,
    /// The range that was found last: return addresses of one stack are mostly of few files.
    last: usize,
}

impl CodeRanges {
    /// Takes ranges in any order.
    pub(super) fn new(ranges: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().collect();
        ranges.sort_unstable();
        Self { ranges, last: 0 }
    }

    fn contains(&mut self, address: u64) -> bool {
        let within = |&(start, end): &(u64, u64)| (start..end).contains(&address);
        let Some(&(first, _)) = self.ranges.first() else { return false };
        if address < first {
            return false;
        }
        if self.ranges.get(self.last).is_some_and(within) {
            return true;
        }
        let index = self.ranges.partition_point(|(start, _)| *start <= address) - 1;
        let found = self.ranges.get(index).is_some_and(within);
        if found {
            self.last = index;
        }
        found
    }
}

/// The places that are known, with what is known of each. Where there are too many, those are forgotten that were not
/// met lately.
#[derive(Debug)]
pub(super) struct Places<S> {
    known: HashMap<Place, Known<S>, foldhash::fast::FixedState>,
}

#[derive(Debug)]
struct Known<S> {
    stack: S,
    /// Whether it was met again since places were last forgotten.
    met: bool,
}

impl<S> Default for Places<S> {
    fn default() -> Self {
        Self { known: HashMap::default() }
    }
}

impl<S> Places<S> {
    /// What is known of a place that was met.
    pub(super) fn get(&mut self, place: &Place) -> Option<&S> {
        let known = self.known.get_mut(place)?;
        known.met = true;
        Some(&known.stack)
    }

    /// Remembers a place, or replaces what is known of it. There are at most so many afterwards, and at least this one.
    pub(super) fn insert(&mut self, place: Place, stack: S, most: usize) {
        if self.known.len() >= most && !self.known.contains_key(&place) {
            self.known.retain(|_, known| std::mem::take(&mut known.met));
            if self.known.len() >= most {
                // All were met: every second one has to be found anew.
                let mut is_kept = false;
                self.known.retain(|_, _| {
                    is_kept = !is_kept;
                    is_kept && most > 1
                });
            }
        }
        self.known.insert(place, Known { stack, met: false });
    }

    /// Forgets all: code is mapped elsewhere by now.
    pub(super) fn clear(&mut self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests;
