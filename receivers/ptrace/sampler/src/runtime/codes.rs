//! Code that was read before, by its address.
//!
//! Code that was freed may have given its place to other code. So what code says of itself, its print, is read again for
//! each stack, and what is known of it holds only if it still says the same.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// The most code that is remembered of a process; all is forgotten when there is more.
const MAX_CODES: usize = 16_384;
/// The most lines that are remembered of one code.
const MAX_LINES: usize = 64;

/// Code that was read: a function, or a script.
pub(super) trait Code: Debug {
    /// What it says of itself.
    type Print: Debug + PartialEq;

    /// How many may be remembered whose instructions begin at one place; the oldest is forgotten for a further one.
    const MAX_SHARING: usize = usize::MAX;

    /// What it said of itself when it was read.
    fn print(&self) -> &Self::Print;

    /// Where its instructions are.
    fn instructions(&self) -> Range<u64>;

    /// Where copies of its instructions begin, each of which has memory of its own.
    fn copies(&self) -> &[u64] {
        &[]
    }

    /// Its instructions, or the copy of them, that this address is in.
    fn part(&self, address: u64) -> Option<Range<u64>> {
        let Range { start, end } = self.instructions();
        let length = end.saturating_sub(start);
        let mut starts = [start].into_iter().chain(self.copies().iter().copied());
        let start = starts.find(|start| address.wrapping_sub(*start) < length)?;
        Some(start..start.saturating_add(length))
    }
}

/// The code of a process that was read.
#[derive(Debug)]
pub(super) struct Codes<C> {
    known: HashMap<u64, Known<C>, RandomState>,
    /// Where the instructions of each begin, and copies of them, and the addresses of the code that has them.
    places: BTreeMap<u64, Vec<u64>>,
    /// The number of the stack that is told.
    stack: u64,
}

#[derive(Debug)]
struct Known<C> {
    code: C,
    /// The number of the stack for which it was compared with what is in memory.
    checked: u64,
}

/// What comparing code with what it says of itself by now showed.
#[derive(Debug)]
pub(super) enum Checked<P> {
    /// It is what it was.
    Known,
    /// It is not known, and is to be read.
    New(P),
    /// It cannot be told any more.
    Lost,
}

impl<C> Default for Codes<C> {
    fn default() -> Self {
        Self { known: HashMap::default(), places: BTreeMap::new(), stack: 0 }
    }
}

impl<C: Code> Codes<C> {
    /// Says that from now on another stack is told, for which all code is compared anew.
    pub(super) fn next_stack(&mut self) {
        self.stack += 1;
        if self.known.len() >= MAX_CODES {
            self.known.clear();
            self.places.clear();
        }
    }

    /// The number of the stack that is told.
    pub(super) fn stack(&self) -> u64 {
        self.stack
    }

    /// Whether this code was compared for this stack already.
    pub(super) fn is_checked(&self, address: u64) -> bool {
        self.known.get(&address).is_some_and(|known| known.checked == self.stack)
    }

    /// Compares what is known of code with what it says of itself now, `None` if that cannot be read. `stands` if the
    /// thread still stands where its frames were read: then other code that is here now is what they execute.
    pub(super) fn check(&mut self, address: u64, print: Option<C::Print>, stands: bool) -> Checked<C::Print> {
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
    pub(super) fn insert(&mut self, address: u64, code: C) {
        let Range { start, end } = code.instructions();
        let before = self.places.range(..start).next_back();
        let near = before.into_iter().chain(self.places.range(start..end)).filter(|(at, _)| **at != start);
        let overlapping = near.flat_map(|(at, sharing)| sharing.iter().map(|other| (*at, *other)));
        let ends_behind = |(at, other): &(u64, u64)| {
            self.get(*other).and_then(|code| code.part(*at)).is_some_and(|part| part.end > start)
        };
        let gone: Vec<(u64, u64)> = overlapping.filter(ends_behind).collect();
        gone.into_iter().for_each(|(_, other)| self.forget(other));
        let sharing = self.places.entry(start).or_default();
        sharing.push(address);
        if sharing.len() > C::MAX_SHARING {
            let oldest = sharing.remove(0);
            self.known.remove(&oldest);
        }
        self.known.insert(address, Known { code, checked: self.stack });
    }

    /// Forgets code.
    pub(super) fn forget(&mut self, address: u64) {
        if let Some(known) = self.known.remove(&address) {
            self.forget_place(known.code.instructions().start, address);
            known.code.copies().iter().for_each(|start| self.forget_place(*start, address));
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

    /// Finds code by copies of its instructions: `before` begin where it had them until now. What was known to be where
    /// they are now is gone.
    pub(super) fn copied(&mut self, address: u64, before: &[u64]) {
        before.iter().for_each(|start| self.forget_place(*start, address));
        if let Some(known) = self.known.get(&address) {
            self.places.extend(known.code.copies().iter().map(|start| (*start, vec![address])));
        }
    }

    /// Code that is known, as it was when it was read.
    pub(super) fn get(&self, address: u64) -> Option<&C> {
        self.known.get(&address).map(|known| &known.code)
    }

    /// The same, to add what was read of it later.
    pub(super) fn get_mut(&mut self, address: u64) -> Option<&mut C> {
        self.known.get_mut(&address).map(|known| &mut known.code)
    }

    /// The addresses of the code whose instructions begin here, the oldest first.
    pub(super) fn beginning_at(&self, start: u64) -> &[u64] {
        self.places.get(&start).map_or(&[], Vec::as_slice)
    }

    /// The addresses of the code that has an instruction here, the oldest first.
    pub(super) fn around(&self, address: u64) -> Vec<u64> {
        let near = self.places.range(..=address).next_back().into_iter().flat_map(|(_, sharing)| sharing);
        let has = |code: &C| code.part(address).is_some();
        near.copied().filter(|at| self.get(*at).is_some_and(has)).collect()
    }
}

/// The lines of a function by its instructions, as far as they were asked for.
#[derive(Debug, Default)]
pub(super) struct Lines(HashMap<u64, u32, RandomState>);

impl Lines {
    /// The line of an instruction: as it was read before, or as it is read now. 0 if it cannot be read.
    pub(super) fn line(&mut self, instruction: u64, read: impl FnOnce() -> Option<u32>) -> u32 {
        if let Some(line) = self.0.get(&instruction) {
            return *line;
        }
        let Some(line) = read() else { return 0 };
        if self.0.len() >= MAX_LINES {
            self.0.clear();
        }
        self.0.insert(instruction, line);
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Function(u32, Range<u64>, Vec<u64>);

    impl Code for Function {
        type Print = u32;

        const MAX_SHARING: usize = 2;

        fn print(&self) -> &u32 {
            &self.0
        }

        fn instructions(&self) -> Range<u64> {
            self.1.clone()
        }

        fn copies(&self) -> &[u64] {
            &self.2
        }
    }

    fn function(print: u32, instructions: Range<u64>) -> Function {
        Function(print, instructions, Vec::new())
    }

    fn codes() -> Codes<Function> {
        let mut codes = Codes::default();
        codes.next_stack();
        codes.insert(10, function(1, 100..120));
        codes.insert(20, function(2, 200..220));
        codes
    }

    /// Guarantees: code that says the same is known once for each stack; other code in its place is never taken for it,
    /// and is read only if it is certain that the frame is of it.
    #[test]
    fn compared() {
        let mut codes = codes();
        assert!(codes.is_checked(10));
        codes.next_stack();
        assert!(!codes.is_checked(10));
        assert!(matches!(codes.check(10, Some(1), false), Checked::Known));
        assert!(codes.is_checked(10));
        assert!(matches!(codes.check(10, Some(3), true), Checked::New(3)));
        assert!(codes.get(10).is_none() && codes.around(110).is_empty());
        assert!(matches!(codes.check(20, Some(3), false), Checked::Lost));
        assert!(matches!(codes.check(20, Some(3), false), Checked::New(3)));
        codes.insert(20, function(3, 200..220));
        assert!(matches!(codes.check(20, None, true), Checked::Lost));
        assert!(codes.get(20).is_none());
    }

    /// Guarantees: code is found by its instructions, also where several share them, of which the oldest goes first.
    #[test]
    fn found_by_instructions() {
        let mut codes = codes();
        assert_eq!(codes.around(100), [10]);
        assert_eq!(codes.around(219), [20]);
        assert!(codes.around(120).is_empty() && codes.around(99).is_empty());
        codes.insert(30, function(1, 100..130));
        assert_eq!(codes.around(119), [10, 30]);
        assert_eq!(codes.around(120), [30]);
        codes.insert(40, function(1, 100..130));
        assert_eq!(codes.beginning_at(100), [30, 40]);
        assert!(codes.get(10).is_none());
        codes.forget(30);
        codes.forget(40);
        assert!(codes.beginning_at(100).is_empty());
    }

    /// Guarantees: code whose instructions are where other code had its own takes the place of that, copies included;
    /// and it is found by its copies as long as it has them.
    #[test]
    fn memory_used_again() {
        let mut codes = codes();
        codes.insert(50, function(5, 90..101));
        assert!(codes.get(10).is_none() && codes.get(20).is_some());
        codes.get_mut(20).unwrap().2 = vec![1000, 2000];
        codes.copied(20, &[]);
        assert_eq!(codes.around(1019), [20]);
        assert_eq!(codes.get(20).unwrap().part(2010), Some(2000..2020));
        codes.get_mut(20).unwrap().2 = vec![2000, 3000];
        codes.copied(20, &[1000, 2000]);
        assert!(codes.around(1000).is_empty());
        assert_eq!((codes.around(2019), codes.around(3000)), (vec![20], vec![20]));
        codes.insert(60, function(6, 3019..3030));
        assert!(codes.get(20).is_none() && codes.around(200).is_empty() && codes.around(2000).is_empty());
        assert_eq!(codes.around(3019), [60]);
    }

    /// Guarantees: what is remembered is bounded, and lines that cannot be read are asked for again.
    #[test]
    fn bounded() {
        let mut codes = codes();
        for address in 0..MAX_CODES as u64 {
            codes.insert(address, function(1, address * 1000..address * 1000 + 10));
        }
        codes.next_stack();
        assert!(codes.get(10).is_none() && codes.around(110).is_empty());
        let mut lines = Lines::default();
        assert_eq!(lines.line(4, || None), 0);
        assert_eq!(lines.line(4, || Some(7)), 7);
        assert_eq!(lines.line(4, || Some(8)), 7);
        for instruction in 0..=MAX_LINES as u64 {
            lines.line(instruction, || Some(1));
        }
        assert!(lines.0.len() <= MAX_LINES);
    }
}
