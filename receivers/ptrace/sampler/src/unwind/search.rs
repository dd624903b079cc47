//! Finds unknown frame pointers.
//!
//! A blocked thread is not stopped, so only its stack pointer, its program counter and the arguments of its system
//! call are known. For code that addresses its frame by the frame pointer (Rust's standard library, libffi, realigned
//! stacks), the frame pointer is then derived:
//!
//! * From the first instructions of the function: if they push registers and reserve space in one step, they show how
//!   far the frame pointer is above the stack pointer.
//! * From the stack: the right frame pointer is the one with which the rules give a return address that follows a call
//!   of exactly this function, directly, through the linkage table, or through a stored address.
//!
//! Both are facts of the code, so a stack that then reaches its root by rules is complete. If neither works (a call
//! through a register from code that reserves space in several steps), the first word that looks like a frame pointer
//! and leads to the root is used, and the stack is *guessed*.

use super::Frame;
use super::UnwindOutcome;
use super::code::{Call, PROLOGUE_LENGTH, jump, prologue};
use super::memory::Peek;
use super::proof::{MAX_FOLLOWED, MAX_LOOKED, MAX_TRIED};
use super::registers::{FRAME_POINTER, STACK_POINTER};
use super::row::{Cfa, Lookup, UnwindRow, look_up};
use super::step::{Saved, StepState, WalkEnd, step};
use super::walk::{self, UnwindCaches, Walk};
use crate::address_space::Module;
use crate::elf::ElfObject;

/// How many words are tried for one frame: 64 KiB.
const SEARCH_WORDS: u64 = 8192;
/// How many words are tried for one stack.
pub(super) const MAX_SEARCHED: u64 = 16_384;
/// How many times, for one stack, code may be read or a stack unwound to see where it ends.
pub(super) const MAX_CALLS: u32 = 256;
pub(super) const MAX_TRIALS: u32 = 16;
/// The largest distance between a frame pointer and the one above it, in bytes.
const MAX_FRAME: u64 = 16 << 20;
/// Code compiled for several kinds of processors may be entered after its first instruction, if that only marks the
/// start.
const ENTRY_SLACK: u64 = 4;
/// The maximum number of candidates of each kind.
const MOST: usize = 4;

/// The remaining limits of searches for the current stack.
#[derive(Debug, Clone, Copy)]
pub(super) struct SearchBudget {
    pub(super) words: u64,
    pub(super) calls: u32,
    pub(super) trials: u32,
    /// The number of words that may still be examined for a proof of the caller by its code.
    pub(super) looked: u64,
    /// The number of these words that may still be addresses of code.
    pub(super) tried: u32,
    /// The number of instructions that may still be followed for such proofs.
    pub(super) followed: u32,
}

impl SearchBudget {
    pub(super) fn new() -> Self {
        Self {
            words: MAX_SEARCHED,
            calls: MAX_CALLS,
            trials: MAX_TRIALS,
            looked: MAX_LOOKED,
            tried: MAX_TRIED,
            followed: MAX_FOLLOWED,
        }
    }
}

/// The state of a walk before an attempt.
struct WalkSnapshot {
    registers: super::Registers,
    saved: Saved,
    exact: bool,
    guessed: bool,
    switches: u32,
    scanned: u32,
    code_reads: u32,
    frames: usize,
    unknown_code: Option<u64>,
}

/// Candidates for the frame pointer, lowest first.
#[derive(Default)]
struct FrameCandidates {
    /// Candidates whose return address follows a call of this function.
    called: [Option<u64>; MOST],
    /// Candidates whose return address follows some call, and whose saved frame pointer looks like one.
    likely: [Option<u64>; MOST],
}

fn add_candidate(place: &mut [Option<u64>; MOST], frame: u64) {
    if let Some(free) = place.iter_mut().find(|place| place.is_none()) {
        *free = Some(frame);
    }
}

impl Walk<'_> {
    /// Continues a walk at the last of `frames`, whose rules need an unknown frame pointer.
    pub(super) fn search(
        &mut self,
        module: &Module,
        lookup: u64,
        frames: &mut Vec<Frame>,
        outcome: &mut UnwindOutcome,
    ) -> WalkEnd {
        let needed = WalkEnd::Register(FRAME_POINTER);
        let address = lookup.wrapping_sub(module.bias);
        let Some(object) = module.object.as_deref() else { return needed };
        let Some(function) = object.tables().and_then(|tables| tables.function(address)) else { return needed };
        let function = function.wrapping_add(module.bias);
        let UnwindCaches { rows, context, .. } = &mut *self.scratch;
        let Lookup::UnwindRow(row) = rows.get([object.id(), address], || look_up(object, address, context)) else {
            return needed;
        };
        let row = row.clone();
        let before = WalkSnapshot {
            registers: self.registers,
            saved: self.saved,
            exact: self.exact,
            guessed: self.guessed,
            switches: self.switches,
            scanned: self.scanned,
            code_reads: self.code_reads,
            frames: frames.len().saturating_sub(1),
            unknown_code: outcome.unknown_code,
        };
        let computed = self.by_prologue(&row, object, function);
        if let Some(frame) = computed
            && self.leads_to_root(frame, &before, frames, outcome)
        {
            return WalkEnd::Root;
        }
        let found = self.by_stack(&row, object, function);
        for frame in found.called.into_iter().flatten() {
            if Some(frame) != computed && self.leads_to_root(frame, &before, frames, outcome) {
                return WalkEnd::Root;
            }
        }
        for frame in found.likely.into_iter().flatten() {
            if self.leads_to_root(frame, &before, frames, outcome) && self.guessed == before.guessed {
                self.guessed = true;
                return WalkEnd::Root;
            }
        }
        // The caller is known, but not the end of the stack.
        self.restore(&before, frames, outcome);
        match computed.or(found.called[0]) {
            Some(frame) if self.patience.trials > 0 => self.proceed(frame, frames, outcome),
            _ => {
                frames.push(walk::frame(&before.registers, walk::location(module, lookup)));
                needed
            }
        }
    }

    /// The frame pointer that the function's first instructions imply, if there is a return address next to it.
    fn by_prologue(&mut self, row: &UnwindRow, object: &ElfObject, function: u64) -> Option<u64> {
        let mut code = [0; PROLOGUE_LENGTH];
        let count = self.space.read_code(function, &mut code).min(PROLOGUE_LENGTH);
        let (size, saved) = prologue(&code[..count])?;
        // The row saves more registers than the prologue pushes, so the function has reserved more space than was
        // found.
        if row.saved() != Some(saved) {
            return None;
        }
        let frame = self.registers.stack_pointer().wrapping_add(size);
        let returns = self.return_address(row, object, frame)?;
        self.call_of(returns).is_some().then_some(frame)
    }

    /// The candidates for the frame pointer on the stack, with which the rules give a return address.
    fn by_stack(&mut self, row: &UnwindRow, object: &ElfObject, function: u64) -> FrameCandidates {
        let mut found = FrameCandidates::default();
        let start = self.registers.stack_pointer();
        for place in 0..SEARCH_WORDS.min(self.patience.words) {
            self.patience.words -= 1;
            let frame = start.wrapping_add(8 * place);
            let Some(saved) = self.memory.peek_u64(frame) else { break };
            let Some(returns) = self.return_address(row, object, frame) else { continue };
            let Some(call) = self.call_of(returns) else { continue };
            if self.calls(call, function) {
                add_candidate(&mut found.called, frame);
            } else if saved > frame && saved - frame < MAX_FRAME && saved.is_multiple_of(8) {
                add_candidate(&mut found.likely, frame);
            }
            if found.called[MOST - 1].is_some() || self.patience.calls == 0 {
                break;
            }
        }
        found
    }

    /// The return address that the rules give with a frame pointer, if the address and its place on the stack are
    /// plausible.
    fn return_address(&mut self, row: &UnwindRow, object: &ElfObject, frame: u64) -> Option<u64> {
        let above = |cfa: u64| {
            cfa.checked_sub(self.registers.stack_pointer()).is_some_and(|distance| (8..MAX_FRAME).contains(&distance))
        };
        if let (Cfa::Register { register: FRAME_POINTER, offset }, Some(at)) = (row.cfa, row.return_address()) {
            let cfa = frame.wrapping_add_signed(offset);
            return if above(cfa) { self.memory.peek_u64(cfa.wrapping_add_signed(at)) } else { None };
        }
        let mut registers = self.registers;
        registers.set(FRAME_POINTER, frame);
        let mut memory = Peek(&mut *self.memory);
        let mut machine = StepState { registers: &registers, memory: &mut memory, saved: self.saved };
        let (caller, _) = step(row, Some(object), &mut machine).ok()?;
        above(caller.get(STACK_POINTER)?).then(|| caller.instruction_pointer())
    }

    /// The call before a return address.
    fn call_of(&mut self, returns: u64) -> Option<Call> {
        self.space.find(returns.checked_sub(1)?)?;
        self.patience.calls = self.patience.calls.checked_sub(1)?;
        self.unbounded(|walk| walk.call_before(returns))
    }

    /// Whether a call is known to call this function.
    fn calls(&mut self, call: Call, function: u64) -> bool {
        let is = |target: u64| target.wrapping_sub(function) <= ENTRY_SLACK;
        match call {
            Call::Direct(target) if is(target) => true,
            Call::Direct(target) => {
                let code = self.unbounded(|walk| walk.code_at(target));
                match code.and_then(|code| jump(target, &code)) {
                    Some(Call::Direct(target)) => is(target),
                    Some(Call::Stored(place)) => self.stored(place).is_some_and(is),
                    _ => false,
                }
            }
            Call::Stored(place) => self.stored(place).is_some_and(is),
            Call::Indirect => false,
        }
    }

    /// Reads code within the search's own limit only, so that the result does not depend on which code is cached.
    pub(super) fn unbounded<T>(&mut self, look: impl FnOnce(&mut Self) -> T) -> T {
        let reads = std::mem::replace(&mut self.code_reads, u32::MAX);
        let seen = look(self);
        self.code_reads = reads;
        seen
    }

    pub(super) fn stored(&mut self, place: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (self.space.read_code(place, &mut bytes) == 8).then(|| u64::from_le_bytes(bytes))
    }

    /// Whether the stack reaches its root with this frame pointer. The walk does not continue afterwards.
    fn leads_to_root(
        &mut self,
        frame: u64,
        before: &WalkSnapshot,
        frames: &mut Vec<Frame>,
        outcome: &mut UnwindOutcome,
    ) -> bool {
        let Some(trials) = self.patience.trials.checked_sub(1) else { return false };
        self.patience.trials = trials;
        self.restore(before, frames, outcome);
        self.proceed(frame, frames, outcome) == WalkEnd::Root
    }

    fn proceed(&mut self, frame: u64, frames: &mut Vec<Frame>, outcome: &mut UnwindOutcome) -> WalkEnd {
        self.registers.set(FRAME_POINTER, frame);
        self.walk(frames, outcome)
    }

    /// Restores the state from before the frame was tried.
    fn restore(&mut self, before: &WalkSnapshot, frames: &mut Vec<Frame>, outcome: &mut UnwindOutcome) {
        self.registers = before.registers;
        self.saved = before.saved;
        self.exact = before.exact;
        self.guessed = before.guessed;
        self.switches = before.switches;
        self.scanned = before.scanned;
        self.code_reads = before.code_reads;
        outcome.unknown_code = before.unknown_code;
        frames.truncate(before.frames);
    }
}
