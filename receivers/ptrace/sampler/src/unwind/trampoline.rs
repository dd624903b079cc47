//! CPython's trampolines, which mark Python functions for profilers.
//!
//! With `-X perf` (CPython 3.12 and later) each Python function is entered through its own copy of a small function, at
//! an address listed in the perf map. The copy calls the interpreter's loop and returns, and it has no call frame
//! information. Its code is known (python/cpython `Python/asm_trampoline.S`), so where it is recognized, its caller and
//! all preserved registers are known exactly.

use super::code::CALL_LENGTH;
use super::row::UnwindRow;

/// `sub $8, %rsp; call *%rcx; add $8, %rsp; ret`: 3.12, 3.13 to 3.13.5.
const SPACED: &[u8] = b"\x48\x83\xec\x08\xff\xd1\x48\x83\xc4\x08\xc3";
/// `push %rbp; mov %rsp, %rbp; call *%rcx; pop %rbp; ret`: 3.13.6, 3.14 and later.
const FRAMED: &[u8] = b"\x55\x48\x89\xe5\xff\xd1\x5d\xc3";
/// `endbr64`, which precedes the trampoline if Python was built with control-flow protection.
const MARK: &[u8] = b"\xf3\x0f\x1e\xfa";

/// The rules for the instruction at `after`, if it is in CPython's trampoline; `before` are the preceding bytes.
pub(super) fn trampoline(before: &[u8; CALL_LENGTH], after: &[u8]) -> Option<UnwindRow> {
    let entered = after.strip_prefix(MARK).unwrap_or(after);
    if entered.starts_with(SPACED) || entered.starts_with(FRAMED) {
        return Some(UnwindRow::entry());
    }
    let is_at = |code: &[u8], place: usize| {
        let seen = place.min(CALL_LENGTH);
        before.ends_with(&code[place - seen..place]) && after.starts_with(&code[place..])
    };
    if [4, 6].into_iter().any(|place| is_at(SPACED, place)) {
        return Some(UnwindRow::spaced());
    }
    if [1, 4, 6].into_iter().any(|place| is_at(FRAMED, place)) {
        return Some(UnwindRow::pushed());
    }
    (is_at(SPACED, 10) || is_at(FRAMED, 7)).then(UnwindRow::entry)
}

#[cfg(test)]
mod tests;
