use std::time::{Duration, Instant};

use super::lines::MAX_LINES;
use super::*;
use crate::runtime::code_reader::ResolveSession;
use crate::runtime::{Functions, TargetMemory};

#[derive(Debug)]
struct FakeCode(u32, Range<u64>);

impl CachedCode for FakeCode {
    type Fingerprint = u32;

    const MAX_SHARING: usize = 2;

    fn fingerprint(&self) -> &u32 {
        &self.0
    }

    fn instructions(&self) -> Range<u64> {
        self.1.clone()
    }
}

fn codes() -> Codes<FakeCode> {
    let mut codes = Codes::default();
    codes.next_stack();
    codes.insert(10, FakeCode(1, 100..120));
    codes.insert(20, FakeCode(2, 200..220));
    codes
}

impl Codes<FakeCode> {
    fn all_around(&self, address: u64) -> Vec<u64> {
        self.around(address).collect()
    }

    fn beginning_at(&self, start: u64) -> &[u64] {
        self.places.get(&start).map_or(&[], Vec::as_slice)
    }
}

/// Guarantees: unchanged code is checked once for each stack; other code that is now at its address is never mistaken
/// for it, and is read only if the frame certainly executes that code.
#[test]
fn compared() {
    let mut codes = codes();
    assert!(codes.is_checked(10));
    codes.next_stack();
    assert!(!codes.is_checked(10));
    assert!(matches!(codes.check(10, Some(1), false), Checked::Known));
    assert!(codes.is_checked(10));
    assert!(matches!(codes.check(10, Some(3), true), Checked::New(3)));
    assert!(codes.get(10).is_none() && codes.all_around(110).is_empty());
    assert!(matches!(codes.check(20, Some(3), false), Checked::Lost));
    assert!(matches!(codes.check(20, Some(3), false), Checked::New(3)));
    codes.insert(20, FakeCode(3, 200..220));
    assert!(matches!(codes.check(20, None, true), Checked::Lost));
    assert!(codes.get(20).is_none());
}

/// Guarantees: code is found by its instructions, also if several codes share them, and the oldest of these is dropped
/// first; code without instructions has no entry in the address map.
#[test]
fn found_by_instructions() {
    let mut codes = codes();
    assert_eq!(codes.all_around(100), [10]);
    assert_eq!(codes.all_around(219), [20]);
    assert!(codes.all_around(120).is_empty() && codes.all_around(99).is_empty());
    codes.insert(30, FakeCode(1, 100..130));
    assert_eq!(codes.all_around(119), [10, 30]);
    assert_eq!(codes.all_around(120), [30]);
    codes.insert(40, FakeCode(1, 100..130));
    assert_eq!(codes.beginning_at(100), [30, 40]);
    assert!(codes.get(10).is_none());
    codes.insert(40, FakeCode(1, 100..140));
    assert_eq!(codes.beginning_at(100), [30, 40]);
    codes.forget(30);
    codes.forget(40);
    assert!(codes.beginning_at(100).is_empty());
    for address in 50..60 {
        codes.insert(address, FakeCode(7, 0..0));
    }
    assert!((50..60).all(|address| codes.get(address).is_some()) && codes.beginning_at(0).is_empty());
}

/// Guarantees: new code replaces older code whose instructions were in the same memory, including its copies; and code
/// is found by the copies that it currently has.
#[test]
fn memory_used_again() {
    let mut codes = codes();
    codes.insert(50, FakeCode(5, 90..101));
    assert!(codes.get(10).is_none() && codes.get(20).is_some());
    assert!(!codes.has_copies(20));
    codes.set_copies(20, vec![1000, 2000]);
    assert!(codes.has_copies(20));
    assert_eq!(codes.all_around(1019), [20]);
    assert_eq!((codes.part(20, 2010), codes.part(20, 201)), (Some(2000..2020), Some(200..220)));
    assert_eq!((codes.part(20, 2020), codes.part(50, 2010)), (None, None));
    codes.next_stack();
    assert!(!codes.has_copies(20));
    codes.set_copies(20, vec![2000, 3000]);
    assert!(codes.all_around(1000).is_empty());
    assert_eq!((codes.all_around(2019), codes.all_around(3000)), (vec![20], vec![20]));
    codes.insert(60, FakeCode(6, 3019..3030));
    assert!(codes.get(20).is_none() && codes.all_around(200).is_empty() && codes.all_around(2000).is_empty());
    assert_eq!((codes.all_around(3019), codes.copies), (vec![60], 0));
}

/// Guarantees: the cache is bounded; codes with the maximum number of copies take bounded memory, however many codes
/// there are, and little time whether nothing or everything has changed.
#[test]
fn attack_copies() {
    const EACH: u64 = 8192;
    let mut codes = codes();
    for address in 0..MAX_CODES as u64 {
        codes.insert(address, FakeCode(1, address * 1000..address * 1000 + 10));
    }
    codes.next_stack();
    assert_eq!((codes.places.len(), codes.known.len()), (0, 0));
    // CPU time of this thread, so that other load on the machine does not matter.
    let start = crate::os::time::thread_cpu();
    for address in 0..200u64 {
        codes.insert(1000 + address, FakeCode(7, address * 10..address * 10 + 1));
        for moved in [0, 0, 1] {
            codes.set_copies(1000 + address, (0..EACH).map(|copy| (address * EACH + copy) * 64 + moved).collect());
        }
        assert!(codes.copies <= MAX_COPIES && codes.places.len() <= MAX_COPIES + 202);
    }
    // Comparing the copies one by one would take minutes.
    let used = crate::os::time::thread_cpu() - start;
    assert!(used < Duration::from_secs(20), "{used:?}");
    codes.next_stack();
    assert_eq!((codes.copies, codes.places.len(), codes.known.len()), (0, 0, 0));
    codes.insert(20, FakeCode(2, 200..220));
    codes.set_copies(20, vec![1000]);
    assert_eq!(codes.all_around(1000), [20]);
}

/// Guarantees: code is known for samples taken after it was certainly read; code with the same fingerprint and
/// instructions as known code counts as known too; after it gets another copy, it counts as new.
#[test]
fn known_before_a_sample() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut codes = codes();
    let is_fresh = |codes: &mut Codes<FakeCode>, sampled: Option<u64>, now| {
        codes.sampled(sampled.map(at), at(now));
        codes.is_fresh(10)
    };
    assert!(!is_fresh(&mut codes, Some(5), 5) && is_fresh(&mut codes, Some(4), 6) && !is_fresh(&mut codes, None, 6));
    codes.sampled(Some(at(8)), at(9));
    assert!(!codes.is_fresh(10) && codes.is_fresh(77));
    codes.insert(11, FakeCode(1, 100..120));
    assert!(!codes.is_fresh(11));
    codes.insert(12, FakeCode(4, 100..120));
    assert!(codes.is_fresh(12));
    codes.insert(20, FakeCode(2, 200..220));
    assert!(!codes.is_fresh(20));
    for (copies, is_new) in [(vec![1000], true), (vec![1000], false), (vec![], false), (vec![2000], true)] {
        codes.sampled(Some(at(20)), at(10));
        codes.set_copies(20, copies);
        assert_eq!(codes.is_fresh(20), is_new);
    }
}

/// Simulated memory: code fingerprints by address, a line, and how many reads are left. Further reads are refused.
struct FakeMemory {
    prints: Vec<(u64, u32)>,
    /// Values that take effect after this number of reads.
    later: (u32, Vec<(u64, u32)>),
    line: Option<u32>,
    reads: u32,
    left: u32,
    again: bool,
}

impl FakeMemory {
    fn new(prints: &[(u64, u32)]) -> Self {
        let later = (u32::MAX, Vec::new());
        Self { prints: prints.to_vec(), later, line: Some(5), reads: 0, left: 100, again: false }
    }

    fn read(&mut self, session: &mut ResolveSession<'_>) -> bool {
        self.reads += 1;
        self.left = self.left.saturating_sub(1);
        session.target.read(0, &mut [])
    }

    /// Looks up code with the remaining reads.
    fn look(&mut self, codes: &mut Codes<FakeCode>, address: u64, has_not_run: bool, new: &mut u32) -> CodeLookup {
        let (mut target, mut functions) = (Anything, Functions::default());
        let mut session =
            ResolveSession { has_not_run, new: *new, ..ResolveSession::new(self.left, &mut target, &mut functions) };
        let look = codes.look_up(address, self, &mut session);
        *new = session.new;
        look
    }

    fn line_of(&mut self, codes: &mut Codes<FakeCode>, address: u64, instruction: u64) -> Option<u32> {
        codes.line_of(
            address,
            instruction,
            self,
            &mut ResolveSession::new(self.left, &mut Anything, &mut Functions::default()),
        )
    }
}

/// Memory that can be read everywhere.
struct Anything;

impl TargetMemory for Anything {
    fn read(&mut self, _address: u64, _bytes: &mut [u8]) -> bool {
        true
    }
}

impl CodeSource for FakeMemory {
    type Code = FakeCode;
    type Texts = Range<u64>;

    fn read_print(&mut self, address: u64, session: &mut ResolveSession<'_>) -> Option<u32> {
        let is_read = self.read(session);
        let prints = if self.reads > self.later.0 { &self.later.1 } else { &self.prints };
        prints.iter().find(|(at, _)| is_read && *at == address).map(|(_, fingerprint)| *fingerprint)
    }

    fn is_code(&mut self, fingerprint: &u32, _session: &mut ResolveSession<'_>) -> bool {
        *fingerprint != 99
    }

    fn should_read_again(&self, _known: &mut FakeCode) -> bool {
        self.again
    }

    fn read_texts(&mut self, address: u64, _print: &u32, session: &mut ResolveSession<'_>) -> Option<Range<u64>> {
        // A refused read looks like missing data, but must be treated differently.
        let length = if self.read(session) { 10 } else { 0 };
        Some(address * 100..address * 100 + length)
    }

    fn make_code(&mut self, fingerprint: u32, texts: Range<u64>, _: Option<&FakeCode>, _: &mut Functions) -> FakeCode {
        FakeCode(fingerprint, texts)
    }

    fn read_line(&mut self, _code: &FakeCode, _instruction: u64, session: &mut ResolveSession<'_>) -> Option<u32> {
        let is_read = self.read(session);
        self.line.filter(|_| is_read)
    }
}

/// Guarantees: code is read once, within the allowed number, and compared once for each stack; objects that are not
/// code do not use up that number.
#[test]
fn looked_at_once() {
    let mut codes = Codes::<FakeCode>::default();
    let mut memory = FakeMemory::new(&[(1, 1), (2, 2), (3, 99)]);
    let mut new = 1;
    let mut look = |codes: &mut Codes<_>, memory: &mut FakeMemory, address| {
        let before = memory.reads;
        (memory.look(codes, address, false, &mut new), memory.reads - before)
    };
    assert_eq!(look(&mut codes, &mut memory, 3), (CodeLookup::Other, 1));
    assert_eq!(look(&mut codes, &mut memory, 1), (CodeLookup::Known, 3));
    assert_eq!(look(&mut codes, &mut memory, 1), (CodeLookup::Known, 0));
    assert_eq!(look(&mut codes, &mut memory, 2), (CodeLookup::Unknown, 1));
    assert_eq!(look(&mut codes, &mut memory, 4), (CodeLookup::Unknown, 1));
    codes.next_stack();
    assert_eq!(look(&mut codes, &mut memory, 1), (CodeLookup::Known, 1));
    // Incomplete code is read again while that is allowed.
    memory.again = true;
    codes.next_stack();
    assert_eq!(look(&mut codes, &mut memory, 1), (CodeLookup::Known, 1));
    codes.next_stack();
    let before = memory.reads;
    assert_eq!(memory.look(&mut codes, 1, false, &mut 1), CodeLookup::Known);
    assert_eq!((memory.reads - before, codes.get(1).unwrap().0), (3, 1));
}

/// Guarantees: data read from code that changed during the read is discarded, and so is the line of an instruction.
#[test]
fn changed_while_it_is_read() {
    for at in 0..4 {
        let mut codes = Codes::<FakeCode>::default();
        let mut memory = FakeMemory { later: (at, vec![(1, 2)]), ..FakeMemory::new(&[(1, 1)]) };
        let look = memory.look(&mut codes, 1, false, &mut 9);
        assert_eq!(look, if matches!(at, 1 | 2) { CodeLookup::Unknown } else { CodeLookup::Known }, "at {at}");
        assert_eq!(codes.get(1).map(|code| code.0), [Some(2), None, None, Some(1)][at as usize]);
        if at == 3 {
            assert_eq!((memory.line_of(&mut codes, 1, 7), codes.get(1).is_none()), (None, true));
        }
    }
}

/// Guarantees: lines are read once, those that could not be read are read again, and the number of cached lines is
/// bounded.
#[test]
fn lines_of_code() {
    let mut codes = Codes::<FakeCode>::default();
    let mut memory = FakeMemory { line: None, ..FakeMemory::new(&[(1, 1)]) };
    assert_eq!(memory.look(&mut codes, 1, true, &mut 1), CodeLookup::Known);
    assert_eq!(memory.line_of(&mut codes, 1, 7), Some(0));
    memory.line = Some(5);
    assert_eq!(memory.line_of(&mut codes, 1, 7), Some(5));
    memory.line = Some(6);
    assert_eq!((memory.line_of(&mut codes, 1, 7), memory.line_of(&mut codes, 2, 7)), (Some(5), None));
    memory.left = u32::MAX;
    for instruction in 0..2 * MAX_LINES as u64 {
        assert!(memory.line_of(&mut codes, 1, 100 + instruction).is_some());
        assert!(codes.known[&1].lines.0.len() <= MAX_LINES);
    }
}

/// Guarantees: when no more reads are allowed, nothing is dropped from the cache, and nothing unreadable is added.
#[test]
fn refused_reads() {
    for left in 0..3 {
        let mut codes = Codes::<FakeCode>::default();
        let mut memory = FakeMemory { left, ..FakeMemory::new(&[(1, 1)]) };
        assert_eq!(memory.look(&mut codes, 1, true, &mut 9), CodeLookup::Unknown, "{left} left");
        assert!(codes.get(1).is_none());
    }
    let mut codes = Codes::<FakeCode>::default();
    let mut memory = FakeMemory { left: 3, ..FakeMemory::new(&[(1, 1)]) };
    assert_eq!(memory.look(&mut codes, 1, false, &mut 9), CodeLookup::Known);
    // Either the read of the line or that of the fingerprint after it is refused.
    for left in 0..2 {
        memory.left = left;
        assert_eq!(memory.line_of(&mut codes, 1, 7), Some(0), "{left} left");
    }
    codes.next_stack();
    memory.left = 0;
    for again in [false, true] {
        memory.again = again;
        assert_eq!(memory.look(&mut codes, 1, false, &mut 9), CodeLookup::Unknown);
    }
    for left in 1..3 {
        memory.left = left;
        codes.next_stack();
        assert_eq!(memory.look(&mut codes, 1, false, &mut 9), CodeLookup::Known, "{left} left");
        assert_eq!(codes.get(1).unwrap().1, 100..110);
    }
    memory.left = 9;
    assert_eq!(memory.line_of(&mut codes, 1, 7), Some(5));
}
