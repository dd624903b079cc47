use super::*;
use crate::runtime::{CallSegment, Executed, RawFrame};
use crate::unwind::StackCopy;

/// Native frames of 256 bytes each from address 0x1000 on; each has a unique address.
fn native(count: u64) -> Vec<Frame> {
    let frame = |index| Frame {
        pc: 0x40_0000 + index * 0x1000,
        sp: 0x1000 + index * 0x100,
        location: Location::Native { mapping: Some(0), address: index },
        registers: crate::unwind::Registers::default(),
    };
    (0..count).map(frame).collect()
}

pub(super) fn native_location(index: u64) -> Location {
    Location::Native { mapping: Some(0), address: index }
}

pub(super) fn interpreted(function: u32) -> Location {
    Location::Interpreted { function, line: 1 }
}

/// Frames in segments of these lengths, each with this anchor.
fn captured(segments: &[(usize, Option<u64>)]) -> (Captured, Vec<Resolved>) {
    let mut captured = Captured::default();
    for (length, anchor) in segments {
        for _ in 0..*length {
            let index = captured.frames.len() as u64;
            // The innermost frame has the highest address.
            captured.frames.push(RawFrame { address: frame_at(index), code: index, ..RawFrame::default() });
        }
        captured.segments.push(CallSegment { end: captured.frames.len(), anchor: *anchor });
    }
    let resolved = (0..captured.frames.len() as u32).map(|function| Resolved {
        location: Some(interpreted(function)),
        code: code(function),
        unknown: false,
    });
    let resolved = resolved.collect();
    (captured, resolved)
}

/// The address of a frame that was read.
pub(super) fn frame_at(index: u64) -> u64 {
    0x5_8000 - index * 0x100
}

/// The offset of a word that identifies one of several functions with the same instructions, see [`Known`].
const SHARING: u64 = 0x3_0000;
const FRESH: Range<u64> = 12..16;
/// The placeholder for callers that nothing proves.
pub(super) const UNKNOWN: Location = Location::CALLERS_NOT_KNOWN;

/// Known functions, by their numbers, which are also the addresses of their code objects. Numbers from 100 on are
/// native functions.
pub(super) struct Known {
    pub(super) numbers: Range<u32>,
    /// Whether functions may share their instructions.
    pub(super) shared: bool,
    pub(super) calls_of_one: bool,
}

fn executed(number: u32, shared: bool) -> Executed {
    let resolved = Resolved { location: Some(found(number)), code: code(number), unknown: false };
    Executed { code: number.into(), resolved, shared }
}

impl Lookup for Known {
    fn executed(&mut self, address: u64) -> Option<Executed> {
        let mut numbers = self.numbers.clone().chain(100..110);
        numbers.find(|number| code(*number).contains(&address)).map(|number| executed(number, self.shared))
    }

    /// If functions share their instructions, a word with this offset identifies one of them.
    fn executed_among(&mut self, _: u64, words: &[u64]) -> Option<Executed> {
        let number = self.numbers.clone().find(|number| words.contains(&(SHARING + u64::from(*number))))?;
        Some(executed(number, false))
    }

    /// Certain functions count as first read after the sample.
    fn is_fresh(&self, code: u64) -> bool {
        FRESH.contains(&code)
    }

    fn has_calls_of_one(&self) -> bool {
        self.calls_of_one
    }

    /// Functions that were not read yet have the same numbers plus 50, and words identify them by that number.
    fn find_by_frames(&mut self, address: u64, words: &[u64]) -> Option<Executed> {
        let number = self.numbers.clone().map(|number| number + 50).find(|number| words.contains(&(*number).into()))?;
        code(number).contains(&address).then(|| executed(number, false))
    }

    /// The evaluation function has the address of its next instruction in RBX, in the second word of its stack frame,
    /// or in both. Between two functions, the fourth or the sixth word is the address of the frame to be continued.
    fn next_instructions(&mut self, frame: &Frame, read: &mut dyn FnMut(u64) -> Option<u64>) -> Vec<NextInstruction> {
        let mut word = |at| read(frame.sp + at).filter(|word| *word != 0);
        let places = [frame.registers.get(3), word(8)].into_iter().flatten().map(NextInstruction::At);
        places.chain([24, 40].into_iter().filter_map(word).map(NextInstruction::Of)).collect()
    }
}

/// A function that was found by an address in its code.
pub(super) fn found(function: u32) -> Location {
    Location::Interpreted { function, line: 9 }
}

/// The address range of a function's instructions, or where a native function starts.
pub(super) fn code(function: u32) -> Range<u64> {
    match u64::from(function) {
        native @ 100.. => 0x50_0000 + native * 0x1_0000..0x50_0000 + native * 0x1_0000 + 1,
        function => 0x7_0000 + function * 0x1000..0x7_0000 + function * 0x1000 + 0x80,
    }
}

/// The memory of a stack from address 0x1000 on, with these words.
pub(super) fn memory(words: &[(u64, u64)]) -> StackCopy {
    let mut memory = StackCopy { start: 0x1000, bytes: vec![0; 0x800], ..StackCopy::default() };
    for (address, value) in words {
        memory.bytes[(address - 0x1000) as usize..][..8].copy_from_slice(&value.to_le_bytes());
    }
    memory
}

fn merged(
    complete: bool,
    count: u64,
    segments: &[(usize, Option<u64>)],
    evaluation: Option<Range<u64>>,
) -> (Vec<Location>, Merged) {
    let frames = native(count);
    let (captured, resolved) = captured(segments);
    let mut locations = Vec::new();
    let stack = UnwoundStack { frames: &frames, complete, named: &[] };
    let merged = merge(stack, &captured, &resolved, evaluation.as_ref(), None, &mut locations);
    (locations, merged)
}

/// Guarantees: the frames of a stopped thread replace the native frames that execute them, by the anchors that they
/// contain or by counting, and all other native frames stay.
#[test]
fn places_of_frames() {
    let (n, p) = (native_location, interpreted);
    let by_anchor = [(1, Some(0x1140)), (2, Some(0x13f8))];
    let beyond = [(1, Some(0xf00)), (1, Some(0x1140)), (1, Some(0x90_0000))];
    let four = [(1, None); 4];
    // The second to the fourth native frame. Callers are looked up by the address before their return address.
    let evaluation = Some(0x40_0fff..0x40_3000);
    for (complete, count, segments, evaluation, named, expected) in [
        (true, 6, &by_anchor[..], None, 2, &[n(0), p(0), n(2), p(1), p(2), n(4), n(5)][..]),
        // Frames of a call that began after the native stack was read are left out, and do not shift those of callers.
        // Frames beyond the end of a truncated stack are appended; those beyond a complete stack are left out.
        (false, 3, &beyond, None, 2, &[n(0), p(1), n(2), p(2)]),
        (true, 3, &beyond, None, 1, &[n(0), p(1), n(2)]),
        // Anchors in decreasing order are rejected.
        (true, 4, &[(1, Some(0x1240)), (1, Some(0x1140))], None, 1, &[n(0), n(1), p(0), n(3)]),
        // Without anchors, evaluation functions are counted from the outermost one; a call that is just beginning keeps
        // its native frame. On a truncated stack they are counted from the innermost one, and the remaining frames are
        // appended.
        (true, 6, &four[..2], evaluation.clone(), 2, &[n(0), n(1), p(0), p(1), n(4), n(5)]),
        (true, 6, &four, evaluation.clone(), 4, &[n(0), p(0), p(1), p(2), p(3), n(4), n(5)]),
        (false, 5, &four, evaluation.clone(), 4, &[n(0), p(0), p(1), p(2), n(4), p(3)]),
        (true, 6, &[], evaluation.clone(), 0, &[n(0), n(1), n(2), n(3), n(4), n(5)]),
        // Several frames of one call without an anchor are not placed by counting.
        (true, 4, &[(4, None)], evaluation, 0, &[n(0), n(1), n(2), n(3)]),
    ] {
        let (locations, counts) = merged(complete, count, segments, evaluation);
        assert_eq!(locations, expected, "{complete} {count} {segments:?}");
        assert_eq!(counts, Merged { named, ..Merged::default() });
    }
}

/// Guarantees: functions that another interpreter found for native frames are shown in their places, also several for
/// one native frame. If both interpreters have frames for a native frame, those that replace it win.
#[test]
fn two_interpreters() {
    let frames = native(6);
    let (captured, resolved) = captured(&[(1, Some(0x1140)), (2, Some(0x13f8))]);
    let (n, p) = (native_location, interpreted);
    let named = [(0, p(50)), (2, p(51)), (2, p(52)), (3, p(53)), (5, p(54))];
    let stack = UnwoundStack { frames: &frames, complete: true, named: &named };
    let mut locations = Vec::new();
    let counts = merge(stack, &captured, &resolved, None, None, &mut locations);
    assert_eq!(locations, [p(50), p(0), p(51), p(52), p(1), p(2), n(4), p(54)]);
    assert_eq!(counts, Merged { named: 2, ..Merged::default() });
    stack.show(&mut locations);
    assert_eq!(locations, [p(50), n(1), p(51), p(52), p(53), n(4), p(54)]);
}

/// Guarantees: generated code that calls the evaluation function is replaced by the frames already shown for it; other
/// generated code stays.
#[test]
fn trampolines() {
    let mut frames = native(5);
    let generated = |address| Location::Native { mapping: None, address };
    frames[0].location = generated(0x100);
    frames[2].location = generated(0x200);
    let (captured, resolved) = captured(&[(1, Some(0x1140))]);
    let mut locations = Vec::new();
    let stack = UnwoundStack { frames: &frames, complete: true, named: &[] };
    merge(stack, &captured, &resolved, None, None, &mut locations);
    assert_eq!(locations, [generated(0x100), interpreted(0), native_location(3), native_location(4)]);
}

/// The merged stack of a thread that has run since its sample, with these words on the native stack and these registers
/// (native frame, register, value).
fn proven(
    words: &[(u64, u64)],
    registers: &[(usize, u8, u64)],
    segments: &[(usize, Option<u64>)],
    evaluation: Option<Range<u64>>,
) -> (Vec<Location>, Merged) {
    let known = Known { numbers: 0..20, shared: false, calls_of_one: false };
    proven_with(known, words, registers, segments, evaluation)
}

fn proven_with(
    mut known: Known,
    words: &[(u64, u64)],
    registers: &[(usize, u8, u64)],
    segments: &[(usize, Option<u64>)],
    evaluation: Option<Range<u64>>,
) -> (Vec<Location>, Merged) {
    let mut frames = native(6);
    for (frame, register, value) in registers {
        frames[*frame].registers.set(*register, *value);
    }
    let (captured, resolved) = captured(segments);
    let mut locations = Vec::new();
    let stack = UnwoundStack { frames: &frames, complete: true, named: &[] };
    let words = Some(Words { memory: &mut memory(words), lookup: &mut known });
    let counts = merge(stack, &captured, &resolved, evaluation.as_ref(), words, &mut locations);
    (locations, counts)
}

/// Guarantees: if a thread has run since its sample, a call is named only if an address of its innermost function is in
/// a register or in its own stack frame, and the line is that of the address; otherwise the native frame stays. A
/// placeholder stands for the callers within the same call, whatever frames were read for them.
#[test]
fn proof() {
    let n = native_location;
    let segments = [(2, Some(0x1140)), (1, Some(0x1340))];
    let none = proven(&[], &[], &segments, None);
    assert_eq!(none.0, [n(0), n(1), n(2), n(3), n(4), n(5)]);
    assert_eq!(none.1, Merged { unproven: 2, ..Merged::default() });
    let inner = proven(&[(0x1108, code(0).start + 4)], &[], &segments, None);
    assert_eq!(inner.0, [n(0), found(0), UNKNOWN, n(2), n(3), n(4), n(5)]);
    assert_eq!(inner.1, Merged { named: 1, unproven: 1, missing_callers: 1, unknown: 0 });
    let both = proven(&[(0x1308, code(2).end - 1)], &[(1, 3, code(0).start)], &segments, None);
    assert_eq!(both.0, [n(0), found(0), UNKNOWN, n(2), found(2), UNKNOWN, n(4), n(5)]);
    assert_eq!(both.1.missing_callers, 2);
    // Words outside of the call's stack frame, at other offsets in it, and in registers of other calls prove nothing.
    let outside = [(0x1010, code(0).start), (0x1208, code(0).start), (0x1120, code(0).start), (0x1308, code(0).end)];
    assert_eq!(proven(&outside, &[(0, 3, code(0).start)], &segments, None).1.unproven, 2);
}

/// Guarantees: if the code may keep its next instruction in several places, all these addresses must belong to one
/// function. A function that was not read before is found by its frame. One that was first read after the sample is not
/// named: at the time of the sample another one may have been at its address.
#[test]
fn executed_functions() {
    let n = native_location;
    let (slot, start) = (0x1108, |function| code(function).start);
    let register = [(1, 3, start(0))];
    for (words, registers, expected) in [
        (&[(slot, start(0) + 8)][..], &register[..], found(0)),
        (&[(slot, start(8))], &register, n(1)),
        (&[(slot, 0x5000)], &register, found(0)),
        // A word left on the stack by an earlier function.
        (&[(slot, start(0)), (slot + 24, start(8))], &[], found(0)),
        // A function that was not read before.
        (&[(slot, start(55) + 4)], &[], n(1)),
        (&[(slot, start(55) + 4), (0x1110, 55)], &[], found(55)),
        (&[(slot, start(55) + 4), (0x1110, 56)], &[], n(1)),
        // First read before the sample, and after it.
        (&[(slot, start(11))], &[], found(11)),
        (&[(slot, start(12))], &[], n(1)),
    ] {
        let (locations, counts) = proven(words, registers, &[(1, Some(0x1140))], None);
        assert_eq!((locations[1], counts.unproven), (expected, u32::from(expected == n(1))), "{words:x?}");
    }
    let beside = proven(&[(slot, start(12))], &[], &[], Some(0x40_0fff..0x40_1fff));
    assert_eq!((beside.0[1], beside.1.unproven), (n(1), 1));
}

/// Guarantees: if each call executes one function, it is identified by the call's registers or else by its stack
/// frame, but not by the caller's registers saved there; there are no callers within the call.
#[test]
fn calls_of_one_function() {
    let n = native_location;
    let (slot, end, one, other) = (0x1120, 0x11f0, code(0).start, code(8).start);
    for (words, registers, expected) in [
        (&[(slot, other)][..], &[(1, 12, one)][..], found(0)),
        (&[(slot, one), (end, other)], &[(2, 12, other)], found(0)),
        (&[(slot, one), (end, other)], &[], n(1)),
        (&[(end, one)], &[(2, 12, one)], n(1)),
    ] {
        let known = Known { numbers: 0..20, shared: false, calls_of_one: true };
        let merged = proven_with(known, words, registers, &[(1, Some(0x1140))], None).0;
        assert_eq!(merged, [n(0), expected, n(2), n(3), n(4), n(5)]);
    }
}

/// Guarantees: between two functions nothing is named; if the call is known to be between two functions, a placeholder
/// replaces it.
#[test]
fn between_functions() {
    let n = native_location;
    let segments = [(3, Some(0x1140))];
    let returned = proven(&[(0x1118, frame_at(1))], &[], &segments, None);
    assert_eq!(returned.0, [n(0), UNKNOWN, n(2), n(3), n(4), n(5)]);
    assert_eq!(returned.1, Merged { named: 1, missing_callers: 1, ..Merged::default() });
    assert_eq!(proven(&[(0x1118, frame_at(7))], &[], &segments, None).1.unproven, 1);
    // A known instruction is better evidence.
    assert_eq!(proven(&[(0x1118, frame_at(1)), (0x1108, code(0).start)], &[], &segments, None).0[1], found(0));
}

/// Guarantees: if the call executed another function than the one read, the executed function is named.
#[test]
fn another_function() {
    let alone = proven(&[(0x1108, code(9).start + 4)], &[], &[(3, Some(0x1140))], None);
    assert_eq!(alone.0[1..3], [found(9), UNKNOWN]);
    assert_eq!(alone.1, Merged { named: 1, missing_callers: 1, ..Merged::default() });
}

/// Guarantees: among functions that share their instructions, the one read is accepted only if the call holds the
/// address of its frame.
#[test]
fn shared_instructions() {
    let segments = [(1, Some(0x1140))];
    let word = (0x1108, code(0).start + 4);
    let with = |words: &[(u64, u64)]| {
        proven_with(Known { numbers: 0..20, shared: true, calls_of_one: false }, words, &[], &segments, None).0[1]
    };
    assert_eq!(with(&[word, (0x1110, frame_at(0))]), interpreted(0));
    assert_eq!(with(&[word]), native_location(1));
    assert_eq!(with(&[(0x1108, code(1).start), (0x1110, frame_at(0))]), native_location(1));
    // A function's code object is better evidence than its frame, which may belong to another function by now.
    assert_eq!(with(&[word, (0x1110, frame_at(0)), (0x1120, SHARING + 3)]), found(3));
}

/// Guarantees: frames that began after the sample, and seem to belong to a native function other than the evaluation
/// function, are left out and not counted as unproven calls.
#[test]
fn frames_in_the_place_of_other_functions() {
    let evaluation = Some(0x40_2fff..0x40_3fff);
    let counts = |words: &[(u64, u64)]| proven(words, &[], &[(1, Some(0x1140))], evaluation.clone()).1;
    assert_eq!(counts(&[]).unproven, 1);
    assert_eq!(counts(&[(0x1108, 0x5000)]).unproven, 2);
    assert_eq!(counts(&[(0x1308, code(1).start)]).unproven, 0);
}

/// Guarantees: a native call for which no frames were read is named by the function it executed, if that is known.
#[test]
fn calls_that_were_not_read() {
    let (n, segments) = (native_location, [(1, Some(0x1340))]);
    let evaluation = Some(0x40_0fff..0x40_1fff);
    let words = [(0x1308, code(0).start), (0x1108, code(9).start)];
    let named = proven(&words, &[], &segments, evaluation.clone());
    assert_eq!(named.0, [n(0), found(9), UNKNOWN, n(2), found(0), UNKNOWN, n(4), n(5)]);
    assert_eq!(named.1, Merged { named: 2, missing_callers: 2, ..Merged::default() });
    let unknown = proven(&words[..1], &[], &segments, evaluation);
    assert_eq!(unknown.0, [n(0), n(1), n(2), found(0), UNKNOWN, n(4), n(5)]);
    assert_eq!(unknown.1.unproven, 1);
}

/// Guarantees: stacks and captures that contradict each other in any way never yield more locations than both have
/// frames.
#[test]
fn attack_contradictions() {
    for count in [0, 1, 3] {
        for anchor in [None, Some(0), Some(0x1000), Some(0x10ff), Some(0x1200), Some(u64::MAX)] {
            for complete in [false, true] {
                for evaluation in [None, Some(0..u64::MAX), Some(9..9)] {
                    let (locations, _) = merged(complete, count, &[(1, anchor), (2, anchor), (1, None)], evaluation);
                    assert!(locations.len() <= count as usize + 4);
                }
            }
        }
    }
}
