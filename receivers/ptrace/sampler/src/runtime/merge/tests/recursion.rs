//! Functions that call themselves.

use super::*;

/// What is shown in the place of a native call whose next instruction is in a function that called itself twice, and
/// was called by another one, with these values in R12 and in words of its own part of the stack.
fn shown(register: Option<u64>, words: &[(u64, u64)]) -> Vec<Location> {
    let mut frames = native(4);
    register.into_iter().for_each(|value| frames[1].registers.set(12, value));
    let (mut captured, mut resolved) = captured(&[(4, Some(0x1140))]);
    for (frame, told) in captured.frames.iter_mut().zip(&mut resolved).take(3) {
        (frame.code, told.code) = (0, code(0));
    }
    let mut memory = StackCopy { start: 0x1000, bytes: vec![0; 0x400], ..StackCopy::default() };
    for (address, value) in words.iter().chain(&[(0x1108, code(0).start + 4)]) {
        memory.bytes[(address - 0x1000) as usize..][..8].copy_from_slice(&value.to_le_bytes());
    }
    let words = Some(Words { memory: &mut memory, lookup: &mut Known(0..20, false) });
    let mut locations = Vec::new();
    let stack = Stack { frames: &frames, complete: true, told: &[] };
    let counts = merge(stack, &captured, &resolved, None, words, &mut locations);
    let callers = locations[2..].iter().take_while(|location| matches!(location, Location::Interpreted { .. }));
    assert_eq!(counts.later_read as usize, callers.count());
    locations.drain(1..=1 + counts.later_read as usize).collect()
}

/// Guarantees: of several frames of one function, it is the one that the native call has the address of whose callers
/// are shown: in a register, which says more than what is on the stack, or else there; and the innermost one where the
/// call says nothing of them, or has several in one of these places.
#[test]
fn callers_of_the_level_that_was_executed() {
    let p = interpreted;
    assert_eq!(shown(None, &[]), [found(0), p(1), p(2), p(3)]);
    assert_eq!(shown(None, &[(0x1110, frame_at(1))]), [found(0), p(2), p(3)]);
    assert_eq!(shown(None, &[(0x1110, frame_at(2))]), [found(0), p(3)]);
    assert_eq!(shown(Some(frame_at(2)), &[(0x1110, frame_at(1))]), [found(0), p(3)]);
    assert_eq!(shown(None, &[(0x1110, frame_at(2)), (0x1120, frame_at(1))]), [found(0), p(2), p(3)]);
    // The address of the caller's frame says nothing of the one that was executed.
    assert_eq!(shown(Some(frame_at(3)), &[]), [found(0), p(1), p(2), p(3)]);
}
