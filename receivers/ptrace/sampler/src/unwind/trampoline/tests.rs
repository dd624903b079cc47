//! CPython's trampoline, instruction by instruction.

use super::super::UnwindOutcome;
use super::super::made::{ALL, CODE, ROOT, SyntheticCode, SyntheticThread};
use super::*;

const FIRST: u64 = CODE + 0x100;
const SECOND: u64 = CODE + 0x200;
/// The mask with which only the stack pointer and the instruction pointer are known.
const TWO: u32 = 1 << 7 | 1 << 16;

/// The trampoline as CPython builds it: its code, the offsets of its instructions, and the return address of its
/// callee.
fn variants() -> [(Vec<u8>, Vec<usize>, usize); 4] {
    let marked = |code: &[u8]| [MARK, code].concat();
    [
        (SPACED.to_vec(), vec![0, 4, 6, 10], 6),
        (marked(SPACED), vec![0, 4, 8, 10, 14], 10),
        (FRAMED.to_vec(), vec![0, 1, 4, 6, 7], 6),
        (marked(FRAMED), vec![0, 4, 5, 8, 10, 11], 10),
    ]
}

/// Pushes the return address, and applies the trampoline's instructions before offset `at` to the stack.
fn enter(thread: &mut SyntheticThread, code: &[u8], at: usize, returns: u64) {
    thread.push(returns);
    let at = if code.starts_with(MARK) { at.saturating_sub(MARK.len()) } else { at };
    let framed = code.ends_with(FRAMED);
    match (framed, at) {
        (false, 4..=6) => thread.room(8),
        (true, 1) => thread.push(thread.registers[6]),
        (true, 4..=6) => thread.frame(),
        _ => {}
    }
}

/// Guarantees: the callers of CPython's trampoline are found by the stack pointer alone at each of its instructions,
/// whether the thread is there or in a function that it called. The stack is complete, and registers that the
/// trampoline preserves are known in its caller.
#[test]
fn at_each_instruction() {
    for (code, places, returns) in variants() {
        let mut made = SyntheticCode::new();
        made.put(FIRST, &code);
        made.put(SECOND, &code);
        let space = made.space();
        for place in places {
            let mut thread = SyntheticThread::new();
            enter(&mut thread, &code, returns, ROOT);
            enter(&mut thread, &code, place, FIRST + returns as u64);
            let pc = SECOND + place as u64;
            let whole = vec![pc, FIRST + returns as u64, ROOT];
            for known in [TWO, ALL] {
                assert_eq!(
                    thread.unwind(&space, pc, known),
                    (whole.clone(), UnwindOutcome::default()),
                    "{code:02x?} {place}"
                );
            }
        }
    }
}

/// Guarantees: the frame pointer of the code that entered the trampoline is known in its caller.
#[test]
fn keeps_the_frame_pointer() {
    for (code, places, _) in variants() {
        let mut made = SyntheticCode::new();
        // `push %rbp; mov %rsp, %rbp; call *%rax`
        made.put(FIRST, b"\x55\x48\x89\xe5\xff\xd0\x5d\xc3");
        made.put(SECOND, &code);
        let space = made.space();
        // The first place is not in a trampoline: the code there calls through another register.
        for place in places {
            let mut thread = SyntheticThread::new();
            thread.push(ROOT);
            thread.frame();
            thread.room(64);
            enter(&mut thread, &code, place, FIRST + 6);
            let pc = SECOND + place as u64;
            let whole = (vec![pc, FIRST + 6, ROOT], UnwindOutcome::default());
            assert_eq!(thread.unwind(&space, pc, ALL), whole, "{code:02x?} {place}");
        }
    }
}

/// Guarantees: code that differs in one byte is not recognized as a trampoline.
#[test]
fn other_code() {
    for (code, places, _) in variants() {
        for (changed, _) in code.iter().enumerate() {
            let mut other = [0x90; 64];
            other[16..16 + code.len()].copy_from_slice(&code);
            other[16 + changed] ^= 0x21;
            for place in &places {
                let at = 16 + place;
                let Some(before) = other[..at].last_chunk() else { continue };
                let seen = at - CALL_LENGTH..at + code.len() - place;
                let marked = code.starts_with(MARK) && (changed < MARK.len() || at >= 16 + MARK.len());
                if seen.contains(&(16 + changed)) && !marked {
                    assert_eq!(trampoline(before, &other[at..at + 16]), None, "{code:02x?} {changed} {place}");
                }
            }
        }
    }
}
