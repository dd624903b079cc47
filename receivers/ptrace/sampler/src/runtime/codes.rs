//! Code that was read before, by its address.
//!
//! Code that was freed may have given its place to other code. So what code says of itself, its print, is read again
//! for each stack, and what is known of it holds only if it still says the same. And it says nothing of a sample that
//! was taken before it was read for the first time.

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

use self::lines::Lines;
pub(super) use self::reading::{Look, Reading};

/// The most code that is remembered of a process, and the most copies of instructions of all of it; all is forgotten
/// when there is more.
const MAX_CODES: usize = 16_384;
const MAX_COPIES: usize = 131_072;

/// Code that was read: a function, or a script.
pub(super) trait Code: Debug {
    /// What it says of itself.
    type Print: Debug + Clone + PartialEq;

    /// How many may be remembered whose instructions begin at one place; the oldest is forgotten for a further one.
    const MAX_SHARING: usize;

    /// What it said of itself when it was read.
    fn print(&self) -> &Self::Print;

    /// Where its instructions are; nowhere, if none of it are known.
    fn instructions(&self) -> Range<u64>;
}

/// The code of a process that was read.
#[derive(Debug)]
pub(super) struct Codes<C> {
    known: HashMap<u64, Known<C>, RandomState>,
    /// Where the instructions of each begin, and copies of them, and the addresses of the code that has them.
    places: BTreeMap<u64, Vec<u64>>,
    /// How many copies there are of all, and whether there were too many.
    copies: usize,
    is_full: bool,
    /// The number of the stack that is told.
    stack: u64,
    /// The code that was read since [`Self::sampled`].
    fresh: Vec<u64>,
    /// When the sample was taken that is worked on; `None` if its thread stood still.
    sampled: Option<Instant>,
}

#[derive(Debug)]
struct Known<C> {
    code: C,
    /// The number of the stack for which it was compared with what is in memory.
    checked: u64,
    /// A moment before which it was read; `None` if that was for the present stack.
    since: Option<Instant>,
    lines: Lines,
    /// Where copies of its instructions begin, each of which has memory of its own, and the number of the stack for
    /// which that was read.
    copies: Vec<u64>,
    copied: Option<u64>,
}

/// What comparing code with what it says of itself by now showed.
#[derive(Debug)]
enum Checked<P> {
    /// It is what it was.
    Known,
    /// It is not known, and is to be read.
    New(P),
    /// It cannot be told any more.
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

impl<C: Code> Codes<C> {
    /// What follows is about a sample of this moment, whose thread ran on since; `None` if it stood still. What was
    /// read before was read before `now`.
    pub(super) fn sampled(&mut self, at: Option<Instant>, now: Instant) {
        for address in self.fresh.drain(..) {
            if let Some(known) = self.known.get_mut(&address) {
                known.since.get_or_insert(now);
            }
        }
        self.sampled = at;
    }

    /// Whether code was read only after the sample, when it may have had the place of other code.
    pub(super) fn is_fresh(&self, address: u64) -> bool {
        let since = self.known.get(&address).and_then(|known| known.since);
        self.sampled.is_some_and(|sampled| since.is_none_or(|since| since > sampled))
    }

    /// Says that from now on another stack is told, for which all code is compared anew.
    pub(super) fn next_stack(&mut self) {
        self.stack += 1;
        if self.known.len() >= MAX_CODES || self.is_full {
            self.known.clear();
            self.places.clear();
            (self.copies, self.is_full) = (0, false);
        }
    }

    /// Whether this code was compared for this stack already.
    fn is_checked(&self, address: u64) -> bool {
        self.known.get(&address).is_some_and(|known| known.checked == self.stack)
    }

    /// Compares what is known of code with what it says of itself now, `None` if that cannot be read. `stands` if the
    /// thread still stands where its frames were read: then other code that is here now is what they execute.
    fn check(&mut self, address: u64, print: Option<C::Print>, stands: bool) -> Checked<C::Print> {
        let Some(print) = print else {
            self.forget(address);
            return Checked::Lost;
        };
        match self.known.get_mut(&address) {
            None => Checked::New(print),
            Some(known) if *known.code.print() == print => {
                known.checked = self.stack;
                Checked::Known
            }
            Some(_) => {
                self.forget(address);
                if stands { Checked::New(print) } else { Checked::Lost }
            }
        }
    }

    /// Remembers code that was read for this stack. What had its instructions in the same memory before is gone.
    fn insert(&mut self, address: u64, code: C) {
        let Range { start, end } = code.instructions();
        let before = self.places.range(..start).next_back();
        let near = before.into_iter().chain(self.places.range(start..end)).filter(|(at, _)| **at != start);
        let overlapping = near.flat_map(|(at, sharing)| sharing.iter().map(|other| (*at, *other)));
        let ends_behind = |(at, other): &(u64, u64)| at.saturating_add(self.length(*other)) > start;
        let gone: Vec<u64> = overlapping.filter(ends_behind).map(|(_, other)| other).collect();
        gone.into_iter().for_each(|other| self.forget(other));
        // Several may be the same function, made anew each time: it is not new if another one was known.
        let sharing = self.places.get(&start).into_iter().flatten().chain([&address]);
        let same = sharing.filter_map(|other| self.known.get(other)).filter(|other| other.code.print() == code.print());
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
        let (lines, copies) = (Lines::default(), Vec::new());
        self.known.insert(address, Known { code, checked: self.stack, since, lines, copies, copied: None });
    }

    /// Forgets code.
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

    /// Whether it was read for this stack where copies of its instructions are.
    pub(super) fn has_copies(&self, address: u64) -> bool {
        self.known.get(&address).is_some_and(|known| known.copied == Some(self.stack))
    }

    /// Sets where copies of its instructions begin. What was known to be there is gone.
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
            // At the moment of the sample the memory of a new copy may have been another function's.
            known.since = None;
            self.fresh.push(address);
        }
        self.copies += copies.len();
        known.copies.clone_from(&copies);
        before.into_iter().for_each(|start| self.forget_place(start, address));
        self.places.extend(copies.into_iter().map(|start| (start, vec![address])));
    }

    /// Code that is known, as it was when it was read.
    pub(super) fn get(&self, address: u64) -> Option<&C> {
        self.known.get(&address).map(|known| &known.code)
    }

    /// The same, to add what was read of it later.
    pub(super) fn get_mut(&mut self, address: u64) -> Option<&mut C> {
        self.known.get_mut(&address).map(|known| &mut known.code)
    }

    fn length(&self, address: u64) -> u64 {
        let instructions = self.get(address).map_or(0..0, Code::instructions);
        instructions.end.saturating_sub(instructions.start)
    }

    /// The addresses of the code that has an instruction here, the oldest first.
    pub(super) fn around(&self, address: u64) -> impl Iterator<Item = u64> {
        let near = self.places.range(..=address).next_back().into_iter();
        let sharing = near.flat_map(|(start, sharing)| sharing.iter().map(|code| (*start, *code)));
        sharing.filter(move |(start, code)| address - start < self.length(*code)).map(|(_, code)| code)
    }

    /// The instructions of this code, or the copy of them, that this address is in.
    pub(super) fn part(&self, code: u64, address: u64) -> Option<Range<u64>> {
        let (start, sharing) = self.places.range(..=address).next_back()?;
        let length = self.length(code);
        let is_in = address - start < length && sharing.contains(&code);
        is_in.then(|| *start..start.saturating_add(length))
    }
}
