//! The places at which threads wait, and their stacks: a known place needs no unwinding.
//!
//! A place consists of the instruction pointer, the stack pointer, and the words of the copied stack that point into
//! code: waits with different callers differ in one of these. If the copy contains the whole stack, the stack pointer
//! does not matter, so threads that wait in the same way share a place. Words that are left over from earlier calls may
//! split one stack into two places, which only costs unwinding it twice.

use std::hash::{BuildHasher, Hasher};

use hashbrown::HashMap;

/// Where a thread waits, in code and on its stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct WaitPlace {
    ip: u64,
    sp: u64,
    /// A hash of the words that point into code, with their positions.
    code: u64,
}

impl WaitPlace {
    /// The place of a thread with these registers; `stack` begins at the stack pointer.
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

    /// The same place for any thread, regardless of its stack pointer.
    pub(super) fn of_any_thread(self) -> Self {
        Self { sp: 0, ..self }
    }
}

/// The executable address ranges of a process.
#[derive(Debug, Clone, Default)]
pub(super) struct CodeRanges {
    /// Start and end of each range, in ascending order.
    ranges: Vec<(u64, u64)>,
    /// The range that was found last: most return addresses of a stack are in few files.
    last: usize,
}

impl CodeRanges {
    /// Creates the list from ranges in any order.
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

/// Known places with their stacks. If there are too many, those that were not looked up recently are dropped.
#[derive(Debug)]
pub(super) struct Places<S> {
    known: HashMap<WaitPlace, KnownPlace<S>, foldhash::fast::FixedState>,
}

#[derive(Debug)]
struct KnownPlace<S> {
    stack: S,
    /// Whether the place was looked up since places were last dropped.
    met: bool,
}

impl<S> Default for Places<S> {
    fn default() -> Self {
        Self { known: HashMap::default() }
    }
}

impl<S> Places<S> {
    /// The stack of a place, if known. Marks the place as used.
    pub(super) fn get(&mut self, place: &WaitPlace) -> Option<&S> {
        let known = self.known.get_mut(place)?;
        known.met = true;
        Some(&known.stack)
    }

    /// Adds a place, or replaces its stack. At most `most` places are kept, and at least this one.
    pub(super) fn insert(&mut self, place: WaitPlace, stack: S, most: usize) {
        if self.known.len() >= most && !self.known.contains_key(&place) {
            self.known.retain(|_, known| std::mem::take(&mut known.met));
            if self.known.len() >= most {
                // All places were used recently, so every second one is dropped.
                let mut is_kept = false;
                self.known.retain(|_, _| {
                    is_kept = !is_kept;
                    is_kept && most > 1
                });
            }
        }
        self.known.insert(place, KnownPlace { stack, met: false });
    }

    /// Drops all places, because the mapped code has changed.
    pub(super) fn clear(&mut self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests;
