use super::*;
use crate::runtime::merge::tests::{
    Known, UNKNOWN, code, found, frame_at as at, interpreted as p, memory, native_location as n,
};
use crate::runtime::{CallSegment, RawFrame};
use crate::unwind::StackCopy;

const KNOWN: Known = Known { numbers: 0..20, shared: false, calls_of_one: false };

/// The registers in these tests: RBX holds the frame, R12 the instruction.
const FRAME: u8 = 3;
const INSTRUCTION: u8 = 12;

/// The address range of the evaluation function.
const EVALUATION: Range<u64> = 0x40_0000..0x41_0000;

/// A native stack from address 0x1000 on, with a `bool` for each frame: whether it belongs to the evaluation function.
struct Native(Vec<Frame>);

impl Native {
    fn new(kinds: &[bool]) -> Self {
        let frame = |(index, is_evaluation): (usize, &bool)| Frame {
            pc: if *is_evaluation { 0x40_0100 } else { 0x50_0000 } + index as u64 * 0x100,
            sp: 0x1000 + index as u64 * 0x100,
            location: n(index as u64),
            registers: crate::unwind::Registers::default(),
        };
        Self(kinds.iter().enumerate().map(frame).collect())
    }

    /// Sets the registers of this native frame: a frame address, and the address of an instruction in this function.
    fn with(mut self, native: usize, frame: u64, function: u32) -> Self {
        self.0[native].registers.set(FRAME, frame);
        self.0[native].registers.set(INSTRUCTION, code(function).start + 32);
        self
    }
}

/// Frames of the interpreter, captured and resolved.
#[derive(Clone)]
struct FramesToMerge {
    captured: Captured,
    resolved: Vec<Resolved>,
}

/// Frames grouped into these segments; numbers from 100 on are native functions.
fn read(segments: &[&[u32]]) -> FramesToMerge {
    let (mut captured, mut resolved) = (Captured::default(), Vec::new());
    for segment in segments {
        for &function in *segment {
            let address = at(captured.frames.len() as u64);
            captured.frames.push(RawFrame { address, code: u64::from(function), ..RawFrame::default() });
            resolved.push(Resolved { location: Some(p(function)), code: code(function), unknown: false });
        }
        captured.segments.push(CallSegment { end: captured.frames.len(), anchor: None });
    }
    FramesToMerge { captured, resolved }
}

fn merged(native: &Native, complete: bool, read: &FramesToMerge, lookup: Option<Known>) -> (Vec<Location>, Merged) {
    merged_with(native, complete, read, lookup, &[])
}

/// The merged stack with these words on the native stack.
fn merged_with(
    native: &Native,
    complete: bool,
    read: &FramesToMerge,
    lookup: Option<Known>,
    words: &[(u64, u64)],
) -> (Vec<Location>, Merged) {
    let (mut memory, mut lookup) = (memory(words), lookup);
    let words = lookup.as_mut().map(|lookup| Words { memory: &mut memory, lookup });
    let held = Held { evaluation: EVALUATION, registers: Some((FRAME, INSTRUCTION)) };
    let stack = UnwoundStack { frames: &native.0, complete, named: &[] };
    let pieces = MergeInput { stack, captured: &read.captured, resolved: &read.resolved, held: &held };
    let mut locations = Vec::new();
    // Native functions have 0x10000 bytes each.
    let mut start = |pc: u64| (pc >= 0x50_0000).then_some(pc & !0xffff);
    let counts = merge_by_registers(&pieces, &mut start, words, &mut locations);
    (locations, counts)
}

/// The merged stack of a stopped thread.
fn standing(native: &Native, complete: bool, segments: &[&[u32]]) -> Vec<Location> {
    merged(native, complete, &read(segments), None).0
}

/// The merged stack of a thread that has run since its sample.
fn proven(native: &Native, segments: &[&[u32]]) -> (Vec<Location>, Merged) {
    merged(native, true, &read(segments), Some(KNOWN))
}

/// Guarantees: the frames of a native call replace it; calls and groups of frames are paired in order as far as both
/// exist.
#[test]
fn in_order() {
    let native = Native::new(&[false, true, false, true, false]);
    assert_eq!(standing(&native, true, &[&[1, 2], &[3]]), [n(0), p(1), p(2), n(2), p(3), n(4)]);
    // A call is just beginning and has no frames yet.
    assert_eq!(standing(&native, true, &[&[3]]), [n(0), n(1), n(2), p(3), n(4)]);
    // The native stack is truncated, or continues on another stack (a fiber's).
    for complete in [true, false] {
        let stack = standing(&native, complete, &[&[1], &[2], &[3]]);
        assert_eq!(stack, [n(0), p(1), n(2), p(2), n(4), p(3)]);
    }
}

/// Guarantees: the frame in a native call's register identifies the call's frames, whichever calls or frames are
/// missing; between such calls, the others are paired in order if their numbers are equal.
#[test]
fn by_registers() {
    let native = || Native::new(&[true, false, true, true, false]);
    let segments: [&[u32]; 3] = [&[1], &[2], &[3]];
    assert_eq!(standing(&native().with(3, at(1), 2), true, &segments), [n(0), n(1), p(1), p(2), n(4), p(3)]);
    assert_eq!(standing(&native().with(0, at(1), 2), true, &segments), [p(2), n(1), p(3), n(3), n(4)]);
    let both = native().with(0, at(0), 1).with(3, at(2), 3);
    assert_eq!(standing(&both, true, &segments), [p(1), n(1), p(2), p(3), n(4)]);
    // The register may hold any frame of the call.
    assert_eq!(standing(&native().with(2, at(1), 2), true, &[&[1, 2]]), [n(0), n(1), p(1), p(2), n(3), n(4)]);
}

/// Guarantees: a thread without a call of the evaluation function has no frames, whatever was read of its process.
#[test]
fn other_threads() {
    let native = Native::new(&[false, false]);
    for complete in [false, true] {
        assert_eq!(standing(&native, complete, &[&[1], &[2]]), [n(0), n(1)]);
    }
    assert_eq!(proven(&native, &[&[1]]), (vec![n(0), n(1)], Merged::default()));
}

/// Guarantees: a native function replaces the native frame of its machine code if that is on the stack; otherwise it
/// is placed before the function that called it, and the outermost ones outside of the stack.
#[test]
fn native_functions() {
    let mut native = Native::new(&[true, false, false, false, true, false]);
    native.0[2].pc = code(101).start + 8;
    native.0[3].pc = code(102).start + 8;
    let segments: [&[u32]; 3] = [&[1], &[101], &[102, 2]];
    assert_eq!(standing(&native, true, &segments), [p(1), n(1), p(101), p(102), p(2), n(5)]);
    let segments: [&[u32]; 3] = [&[1], &[103], &[102, 2]];
    assert_eq!(standing(&native, true, &segments), [p(1), n(1), n(2), p(102), p(103), p(2), n(5)]);
    assert_eq!(standing(&native, true, &[&[1], &[2], &[104]]).last(), Some(&p(104)));
}

/// Guarantees: internal frames of the interpreter are not shown and end a call; unknown functions are counted.
#[test]
fn own_frames() {
    let native = Native::new(&[false, true, false]);
    let mut read = read(&[&[1], &[5, 102, 2]]);
    read.resolved[1].location = None;
    read.resolved[3].unknown = true;
    let (locations, counts) = merged(&native, true, &read, None);
    assert_eq!(locations, [n(0), p(1), n(2), p(102), p(2)]);
    assert_eq!(counts, Merged { named: 1, unknown: 1, ..Merged::default() });
}

/// Guarantees: if a thread has run since its sample, a call is named only by the instruction in its register, with that
/// instruction's line, and a placeholder replaces the callers. A call without that register keeps its native frame.
#[test]
fn proof() {
    let native = Native::new(&[true, false, true, false]).with(0, at(0), 4);
    let (locations, counts) = proven(&native, &[&[4, 3], &[2]]);
    assert_eq!(locations, [found(4), UNKNOWN, n(1), n(2), n(3)]);
    assert_eq!(counts, Merged { named: 1, unproven: 1, missing_callers: 1, unknown: 0 });
    let native = native.with(2, at(2), 2);
    assert_eq!(proven(&native, &[&[4, 3], &[2]]).0, [found(4), UNKNOWN, n(1), found(2), UNKNOWN, n(3)]);
    // An unknown function.
    let native = Native::new(&[true]).with(0, at(0), 50);
    assert_eq!(proven(&native, &[&[4]]), (vec![n(0)], Merged { unproven: 1, ..Merged::default() }));
}

/// Guarantees: if the call executed another function than the one read, the executed one is named.
#[test]
fn another_function() {
    let native = |frame, function| Native::new(&[true, false]).with(0, frame, function);
    for (frame, function) in [(at(0), 9), (at(0), 1), (at(0) + 0x80, 9)] {
        assert_eq!(proven(&native(frame, function), &[&[4, 3, 2]]).0, [found(function), UNKNOWN, n(1)]);
    }
}

/// Guarantees: while a call begins or ends, its registers belong to the caller and are not used; if nothing saved the
/// registers of an outer call, they belong to its callee and are not used either.
#[test]
fn registers_of_another_call() {
    let native = Native::new(&[true, false, true]).with(0, at(0), 4).with(2, at(0), 4);
    assert_eq!(proven(&native, &[&[4, 3]]).0, [n(0), n(1), found(4), UNKNOWN]);
    let native = Native::new(&[false, true, false, true]).with(1, at(0), 4).with(3, at(0), 4);
    assert_eq!(proven(&native, &[&[4, 3]]).0, [n(0), found(4), UNKNOWN, n(2), n(3)]);
}

/// Guarantees: an instruction register that belongs to the callee is not used for the call; the values of both
/// registers that the callee saved are used, if they belong together.
#[test]
fn saved_registers() {
    // Either both registers of the outer call, or only its instruction register, have the values of the inner call.
    let (both, one) = (at(0), at(2));
    let segments: [&[u32]; 2] = [&[4, 3], &[2]];
    let with = |frame: u64, words: &[(u64, u64)]| {
        let native = Native::new(&[false, true, false, true]).with(1, at(0), 4).with(3, frame, 4);
        merged_with(&native, true, &read(&segments), Some(KNOWN), words).0
    };
    let (frame, instruction) = (at(2), code(2).start + 64);
    let wanted = [n(0), found(4), UNKNOWN, n(2), found(2), UNKNOWN];
    let nothing = [n(0), found(4), UNKNOWN, n(2), n(3)];
    assert_eq!((with(both, &[]), with(one, &[])), (nothing.to_vec(), nothing.to_vec()));
    assert_eq!(with(both, &[(0x1140, instruction), (0x1148, frame)]), wanted);
    assert_eq!(with(both, &[(0x1140, frame), (0x1148, instruction)]), wanted);
    assert_eq!(with(one, &[(0x1140, instruction)]), wanted);
    // Values that are not adjacent, of two functions, or in another stack frame prove nothing.
    assert_eq!(with(both, &[(0x1140, frame), (0x1150, instruction)]), nothing);
    assert_eq!(with(both, &[(0x1140, at(1)), (0x1148, instruction)]), nothing);
    assert_eq!(with(both, &[(0x1240, frame), (0x1248, instruction)]), nothing);
    assert_eq!(with(one, &[(0x1140, code(3).start)]), nothing);
}

/// Guarantees: among functions that share their instructions, the one whose frame the call holds is accepted.
#[test]
fn shared_instructions() {
    let lookup = || Known { shared: true, ..KNOWN };
    let native = Native::new(&[true]).with(0, at(0), 4);
    assert_eq!(merged(&native, true, &read(&[&[4, 3]]), Some(lookup())).0, [p(4), UNKNOWN]);
    assert_eq!(merged(&native, true, &read(&[&[5, 3]]), Some(lookup())).0, [n(0)]);
}

/// Guarantees: a native function is named by its start address if a proven call called it.
#[test]
fn native_function_of_a_proven_call() {
    let mut native = Native::new(&[false, false, true]).with(2, at(0), 4);
    native.0[1].pc = code(101).start + 8;
    assert_eq!(proven(&native, &[&[4]]).0, [n(0), found(101), found(4), UNKNOWN]);
    native.0[1].pc = code(111).start + 8;
    assert_eq!(proven(&native, &[&[4]]).0, [n(0), n(1), found(4), UNKNOWN]);
}

/// Guarantees: the native frame of code compiled at run time is replaced by the frame in its register. If the thread
/// has run since the sample, this requires that frame and instruction agree, and shows no line, since such code does
/// not update the instruction.
#[test]
fn compiled_code() {
    let compiled = |function| {
        let mut native = Native::new(&[false, false, false]).with(1, at(0), function);
        native.0[1].location = Location::Native { mapping: None, address: 0x9000 };
        native
    };
    assert_eq!(standing(&compiled(7), false, &[&[4, 3]]), [n(0), p(4), p(3), n(2)]);
    assert_eq!(
        proven(&compiled(4), &[&[4, 3]]).0,
        [n(0), Location::Interpreted { function: 4, line: 0 }, UNKNOWN, n(2)]
    );
    assert_eq!(proven(&compiled(7), &[&[4, 3]]).1.unproven, 1);
}

/// Guarantees: without registers, no frame of a thread that has run since its sample is accepted, and the frames of a
/// stopped thread are paired in order.
#[test]
fn without_registers() {
    let native = Native::new(&[true, false]);
    let held = Held { evaluation: EVALUATION, registers: None };
    let FramesToMerge { captured, resolved } = read(&[&[4]]);
    let stack = UnwoundStack { frames: &native.0, complete: true, named: &[] };
    let pieces = MergeInput { stack, captured: &captured, resolved: &resolved, held: &held };
    let mut locations = Vec::new();
    let words = Words { memory: &mut StackCopy::default(), lookup: &mut { KNOWN } };
    merge_by_registers(&pieces, &mut |_| None, Some(words), &mut locations);
    assert_eq!(locations, [n(0), n(1)]);
    merge_by_registers(&pieces, &mut |_| None, None, &mut locations);
    assert_eq!(locations, [p(4), n(1)]);
}

/// Guarantees: stacks and captures that contradict each other in any way never yield more locations than both have
/// frames.
#[test]
fn attack_contradictions() {
    let segments: [&[&[u32]]; 4] = [&[], &[&[1], &[101, 2]], &[&[101], &[102]], &[&[1, 2, 3], &[], &[4]]];
    for segments in segments {
        for kinds in 0..16u32 {
            let kinds: Vec<bool> = (0..4).map(|bit| kinds >> bit & 1 == 1).collect();
            for frame in [0, at(0), at(1), at(2), u64::MAX] {
                let native = Native::new(&kinds).with(0, frame, 1).with(2, at(1), 2).with(3, frame, 9);
                for short in [false, true] {
                    let mut read = read(segments);
                    if short {
                        read.resolved.truncate(1);
                    }
                    for complete in [false, true] {
                        let most = 4 + 2 * read.captured.frames.len();
                        assert!(merged(&native, complete, &read, None).0.len() <= most);
                        let lookup = Some(Known { shared: complete, ..KNOWN });
                        assert!(merged(&native, complete, &read, lookup).0.len() <= most + 4);
                    }
                }
            }
        }
    }
}
