use super::*;
use crate::runtime::{Executed, RawFrame, Segment};
use crate::unwind::StackCopy;

/// Native frames of 256 bytes each from address 0x1000 on; their addresses tell them apart.
fn native(count: u64) -> Vec<Frame> {
    let frame = |index| Frame {
        pc: 0x40_0000 + index * 0x1000,
        sp: 0x1000 + index * 0x100,
        location: Location::Native { mapping: Some(0), address: index },
        registers: crate::unwind::Registers::default(),
    };
    (0..count).map(frame).collect()
}

fn native_location(index: u64) -> Location {
    Location::Native { mapping: Some(0), address: index }
}

fn interpreted(function: u32) -> Location {
    Location::Interpreted { function, line: 1 }
}

/// Frames in segments of these lengths with these anchors.
fn captured(segments: &[(usize, Option<u64>)]) -> (Captured, Vec<Resolved>) {
    let mut captured = Captured::default();
    for (length, anchor) in segments {
        for _ in 0..*length {
            let index = captured.frames.len() as u64;
            // The innermost frame has the highest address.
            captured.frames.push(RawFrame { address: frame_at(index), code: index, instruction: 0 });
        }
        captured.segments.push(Segment { end: captured.frames.len(), anchor: *anchor });
    }
    let resolved = (0..captured.frames.len() as u32).map(|function| Resolved {
        location: Some(interpreted(function)),
        code: code(function),
        unknown: false,
    });
    let resolved = resolved.collect();
    (captured, resolved)
}

/// Where the frames are that were read.
fn frame_at(index: u64) -> u64 {
    0x5_8000 - index * 0x100
}

/// Functions that are known, by their numbers, which are their code objects as well.
struct Known(Range<u64>, bool);

impl Lookup for Known {
    fn executed(&mut self, address: u64) -> Option<Executed> {
        let number = self.0.clone().find(|number| code(*number as u32).contains(&address))?;
        let location = Some(found(number));
        let resolved = Resolved { location, code: code(number as u32), unknown: false };
        Some(Executed { code: number, resolved, shared: self.1 })
    }
}

/// A function that was found by an address in its code.
fn found(number: u64) -> Location {
    Location::Interpreted { function: number as u32, line: 9 }
}

/// Where the instructions of a function are.
fn code(function: u32) -> Range<u64> {
    let start = 0x7_0000 + u64::from(function) * 0x100;
    start..start + 0x80
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
    let stack = Stack { frames: &frames, complete };
    let merged = merge(stack, &captured, &resolved, evaluation.as_ref(), None, &mut locations);
    (locations, merged)
}

/// Guarantees: frames take the place of the native frame that their anchor is in, and all other native frames stay.
#[test]
fn by_containment() {
    let (locations, counts) = merged(true, 6, &[(1, Some(0x1140)), (2, Some(0x13f8))], None);
    let (n, p) = (native_location, interpreted);
    assert_eq!(locations, [n(0), p(0), n(2), p(1), p(2), n(4), n(5)]);
    assert_eq!(counts, Merged { named: 2, ..Merged::default() });
}

/// Guarantees: frames of a call that began after the stack was taken are left out, and those of callers are not shifted
/// by it; what lies beyond a truncated stack is added outside; beyond a complete one there is nothing.
#[test]
fn outside_of_the_native_stack() {
    let (n, p) = (native_location, interpreted);
    let segments = [(1, Some(0xf00)), (1, Some(0x1140)), (1, Some(0x90_0000))];
    assert_eq!(merged(false, 3, &segments, None).0, [n(0), p(1), n(2), p(2)]);
    assert_eq!(merged(true, 3, &segments, None).0, [n(0), p(1), n(2)]);
}

/// Guarantees: two calls in one native frame are both there, and anchors that go back are not believed.
#[test]
fn contradicting_anchors() {
    let (n, p) = (native_location, interpreted);
    let (locations, _) = merged(true, 4, &[(1, Some(0x1240)), (1, Some(0x1140))], None);
    assert_eq!(locations, [n(0), n(1), p(0), n(3)]);
}

/// Guarantees: without anchors, evaluation functions are counted from the outermost one, a call that is beginning keeps
/// its native frame, and a truncated stack is counted from the innermost one, with the rest outside.
#[test]
fn by_counting() {
    let (n, p) = (native_location, interpreted);
    // The second to the fourth frame; callers are looked up before their return address.
    let evaluation = Some(0x40_0fff..0x40_3000);
    assert_eq!(merged(true, 6, &[(1, None), (1, None)], evaluation.clone()).0, [n(0), n(1), p(0), p(1), n(4), n(5)]);
    let four = [(1, None); 4];
    assert_eq!(merged(true, 6, &four, evaluation.clone()).0, [n(0), p(0), p(1), p(2), p(3), n(4), n(5)]);
    assert_eq!(merged(false, 5, &four, evaluation.clone()).0, [n(0), p(0), p(1), p(2), n(4), p(3)]);
    assert_eq!(merged(true, 6, &[], evaluation).0, [n(0), n(1), n(2), n(3), n(4), n(5)]);
}

/// Guarantees: code made at run time that calls the evaluation function stands for what is named already, other such
/// code stays.
#[test]
fn trampolines() {
    let mut frames = native(5);
    let generated = |address| Location::Native { mapping: None, address };
    frames[0].location = generated(0x100);
    frames[2].location = generated(0x200);
    let (captured, resolved) = captured(&[(1, Some(0x1140))]);
    let mut locations = Vec::new();
    let stack = Stack { frames: &frames, complete: true };
    merge(stack, &captured, &resolved, None, None, &mut locations);
    assert_eq!(locations, [generated(0x100), interpreted(0), native_location(3), native_location(4)]);
}

/// What is believed of a thread that ran on: with these words on its stack, and values of RBX in these native frames.
fn proven(
    words: &[(u64, u64)],
    registers: &[(usize, u64)],
    segments: &[(usize, Option<u64>)],
    evaluation: Option<Range<u64>>,
) -> (Vec<Location>, Merged) {
    proven_of(words, registers, segments, evaluation, false)
}

/// The same, where functions may share their instructions.
fn proven_of(
    words: &[(u64, u64)],
    registers: &[(usize, u64)],
    segments: &[(usize, Option<u64>)],
    evaluation: Option<Range<u64>>,
    shared: bool,
) -> (Vec<Location>, Merged) {
    let mut frames = native(6);
    for (frame, value) in registers {
        frames[*frame].registers.set(3, *value);
    }
    let (captured, resolved) = captured(segments);
    let mut memory = StackCopy { start: 0x1000, bytes: vec![0; 0x800], ..StackCopy::default() };
    for (address, value) in words {
        memory.bytes[(address - 0x1000) as usize..][..8].copy_from_slice(&value.to_le_bytes());
    }
    let mut locations = Vec::new();
    let stack = Stack { frames: &frames, complete: true };
    let words = Some(Words { memory: &mut memory, lookup: &mut Known(0..20, shared) });
    let counts = merge(stack, &captured, &resolved, evaluation.as_ref(), words, &mut locations);
    (locations, counts)
}

/// Guarantees: of a thread that ran on, a call's frames are believed only with an address of its innermost function in
/// a register or in its own part of the stack, and the line is the one of that address; else the native frame stays;
/// callers within the same call are counted as read later.
#[test]
fn proof() {
    let (n, p) = (native_location, interpreted);
    let segments = [(2, Some(0x1140)), (1, Some(0x1340))];
    let none = proven(&[], &[], &segments, None);
    assert_eq!(none.0, [n(0), n(1), n(2), n(3), n(4), n(5)]);
    assert_eq!(none.1, Merged { unproven: 2, ..Merged::default() });
    let inner = proven(&[(0x1108, code(0).start + 4)], &[], &segments, None);
    assert_eq!(inner.0, [n(0), found(0), p(1), n(2), n(3), n(4), n(5)]);
    assert_eq!(inner.1, Merged { named: 1, unproven: 1, later_read: 1, unknown: 0 });
    let both = proven(&[(0x1310, code(2).end - 1)], &[(1, code(0).start)], &segments, None);
    assert_eq!(both.0, [n(0), found(0), p(1), n(2), found(2), n(4), n(5)]);
    // What is outside of the call's own part, and in the registers of other calls, proves nothing.
    let outside = [(0x1010, code(0).start), (0x1208, code(0).start), (0x1310, code(0).end)];
    assert_eq!(proven(&outside, &[(0, code(0).start)], &segments, None).1.unproven, 2);
}

/// Guarantees: a register counts before the call's part of the stack; the registers of its caller, which the call saved
/// at the end of its part, do not count; of two functions at the same place neither is believed.
#[test]
fn several_addresses() {
    let (n, segments) = (native_location, [(1, Some(0x1140))]);
    let inner = |words: &[(u64, u64)], registers: &[(usize, u64)]| proven(words, registers, &segments, None).0[1];
    let (slot, end) = (0x1108, 0x11f0);
    assert_eq!(inner(&[(slot, code(8).start)], &[(1, code(0).start)]), found(0));
    let of_caller = [(2, code(8).start)];
    assert_eq!(inner(&[(slot, code(0).start), (end, code(8).start)], &of_caller), found(0));
    assert_eq!(inner(&[(slot, code(0).start), (end, code(8).start)], &[]), n(1));
    assert_eq!(inner(&[(end, code(0).start)], &of_caller), found(0));
    assert_eq!(inner(&[(slot, code(0).start), (slot + 8, code(8).start)], &[]), n(1));
}

/// Guarantees: where another function was executed than the one that was read, that one is named; its callers are those
/// of the frame that has its place by now, if it is there, or of itself.
#[test]
fn another_function() {
    let (n, p) = (native_location, interpreted);
    let segments = [(3, Some(0x1140))];
    let rest = [n(2), n(3), n(4), n(5)];
    let stack = |inner: &[Location]| [&[n(0)], inner, &rest].concat();
    let word = (0x1108, code(9).start + 4);
    let alone = proven(&[word], &[], &segments, None);
    assert_eq!(alone.0, stack(&[found(9)]));
    assert_eq!(alone.1, Merged { named: 1, ..Merged::default() });
    let replaced = proven(&[word, (0x1110, frame_at(0))], &[], &segments, None);
    assert_eq!(replaced.0, stack(&[found(9), p(1), p(2)]));
    assert_eq!(replaced.1.later_read, 2);
    // It is one of those that were read: what it called then has begun later.
    let called = proven(&[(0x1108, code(1).start + 4)], &[], &segments, None);
    assert_eq!(called.0, stack(&[found(1), p(2)]));
}

/// Guarantees: where functions share their instructions, the one that was read is believed if the call has the address
/// of its frame, and else none.
#[test]
fn shared_instructions() {
    let segments = [(1, Some(0x1140))];
    let word = (0x1108, code(0).start + 4);
    let with = |words: &[(u64, u64)]| proven_of(words, &[], &segments, None, true).0[1];
    assert_eq!(with(&[word, (0x1110, frame_at(0))]), interpreted(0));
    assert_eq!(with(&[word]), native_location(1));
    assert_eq!(with(&[(0x1108, code(1).start), (0x1110, frame_at(0))]), native_location(1));
}

/// Guarantees: of frames that were read later, those behind one that makes no sense are left out, and frames that lead
/// nowhere have no place.
#[test]
fn senseless_frames() {
    let (n, p) = (native_location, interpreted);
    let mut frames = native(4);
    frames[1].registers.set(3, code(0).start);
    let (captured, mut resolved) = captured(&[(4, Some(0x1140))]);
    resolved[2].unknown = true;
    let mut memory = StackCopy { start: 0x1000, bytes: vec![0; 0x400], ..StackCopy::default() };
    let mut locations = Vec::new();
    let stack = Stack { frames: &frames, complete: true };
    let words = Words { memory: &mut memory, lookup: &mut Known(0..20, false) };
    let counts = merge(stack, &captured, &resolved, None, Some(words), &mut locations);
    assert_eq!(locations, [n(0), found(0), p(1), n(2), n(3)]);
    assert_eq!((counts.later_read, counts.unknown), (1, 0));
    // Several frames of one call, the place of which is not told, are not counted.
    let evaluation = Some(0x40_0fff..0x40_3000);
    assert_eq!(merged(true, 4, &[(4, None)], evaluation).0, [n(0), n(1), n(2), n(3)]);
}

/// Guarantees: a native call of which no frames were read is named by what it executed, if that is known.
#[test]
fn calls_that_were_not_read() {
    let (n, segments) = (native_location, [(1, Some(0x1340))]);
    let evaluation = Some(0x40_0fff..0x40_1fff);
    let words = [(0x1308, code(0).start), (0x1108, code(9).start)];
    let named = proven(&words, &[], &segments, evaluation.clone());
    assert_eq!(named.0, [n(0), found(9), n(2), found(0), n(4), n(5)]);
    assert_eq!(named.1, Merged { named: 2, ..Merged::default() });
    let unknown = proven(&words[..1], &[], &segments, evaluation);
    assert_eq!(unknown.0, [n(0), n(1), n(2), found(0), n(4), n(5)]);
    assert_eq!(unknown.1.unproven, 1);
}

/// Guarantees: stacks and captures that contradict each other in every way give no more than all of their frames.
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
