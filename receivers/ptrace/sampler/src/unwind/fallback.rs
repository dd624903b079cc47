//! Unwinds code without call frame information.
//!
//! Some code has its own rules: code that returns from a signal handler, the first function of a program or a thread,
//! CPython's trampolines, and code that keeps frame pointers (compiled at run time, Java's, Go's, V8's built-in
//! functions). A frame pointer is used only if the return address next to it lies in code and follows a call. For
//! other code (handwritten assembly, programs built without tables) the code itself may prove the caller, see
//! [`proof`](super::proof). Otherwise the stack is scanned for an address that follows a call, preferably a call of an
//! address shortly before the current one. Debuggers do the same. A stack with such a step is *guessed*, never
//! complete.

use super::code::{
    Call, Progress, call_before, ends_coroutine, ends_thread, jump, progress, prologue, returns_from_signal,
};
use super::hotspot::is_entered_by_return;
use super::registers::{FRAME_POINTER, INSTRUCTION_POINTER, STACK_POINTER};
use super::row::UnwindRow;
use super::step::WalkEnd;
use super::trampoline::trampoline;
use super::walk::{Caller, Walk};
use crate::address_space::{Module, ModuleKind};

/// The largest frame, in bytes: if a frame would be larger, the register is not a frame pointer.
const MAX_FRAME: u64 = 16 << 20;
/// How many words of the stack are scanned for one frame.
const SCAN_WORDS: u32 = 1024;
/// How many words of the stack are scanned for all frames together.
const MAX_SCANNED: u32 = 8192;
/// The length of the first function of a thread or program, in bytes: those of glibc and musl have about 40.
const ENTRY_LENGTH: u64 = 64;
/// Functions without tables are shorter than this.
const MAX_FUNCTION: u64 = 1 << 20;

/// A word on the stack that may be a return address.
#[derive(Debug, Clone, Copy)]
struct ScanCandidate {
    /// The word's address on the stack.
    slot: u64,
    /// The possible return address.
    address: u64,
    /// The called function, if the preceding call shows it and the thread may be in it.
    function: Option<u64>,
}

/// What generated the code that keeps frame pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Maker {
    Go,
    HotSpot,
    Other,
}

impl Walk<'_> {
    /// Finds the caller of code without call frame information.
    pub(super) fn without_rules(&mut self, module: &Module, lookup: u64) -> Result<Caller, WalkEnd> {
        self.saved.uses_all(&mut *self.memory);
        let pc = self.registers.instruction_pointer();
        let window =
            self.scratch.code.window(self.space, module, pc, &mut self.code_reads).ok_or(WalkEnd::Malformed)?;
        if returns_from_signal(&window.after) {
            return self.step(&UnwindRow::signal_frame(), None);
        }
        if !self.exact && ends_thread(&window.after) {
            return Err(WalkEnd::Root);
        }
        if !self.exact && ends_coroutine(&window.after) && call_before(pc, &window.before).is_none() {
            return Err(WalkEnd::Root);
        }
        if module.kind == ModuleKind::Generated
            && let Some(row) = trampoline(&window.before, &window.after)
        {
            let caller = self.step(&row, None)?;
            if self.call_before(caller.registers.instruction_pointer()).is_some() {
                return Ok(caller);
            }
        }
        let address = lookup.wrapping_sub(module.bias);
        if let Some(object) = &module.object
            && address.checked_sub(object.entry()).is_some_and(|distance| distance < ENTRY_LENGTH)
        {
            return Err(WalkEnd::Root);
        }
        let go = module.object.as_ref().is_some_and(|object| object.is_go());
        if go
            && (self.exact || self.registers.get(FRAME_POINTER).is_none())
            && let Some(caller) = self.by_go_table(module, lookup)?
        {
            return Ok(caller);
        }
        let java = module.kind == ModuleKind::Generated && self.space.hotspot;
        if java && let Some(caller) = self.by_hotspot()? {
            return Ok(caller);
        }
        if module.kind == ModuleKind::Generated && !java || go || module.builtins.contains(&address) {
            let progress = if self.exact { progress(&window.before, &window.after) } else { Progress::Framed };
            if let Some(caller) = self.by_frame_pointer(progress, if go { Maker::Go } else { Maker::Other })? {
                return Ok(caller);
            }
        }
        if let Some(row) = self.proven_rules(module, lookup) {
            return self.step(&row, None);
        }
        self.guess(module, lookup)
    }

    /// Finds the caller by the frame pointer, in code that keeps it. `None` if the register does not hold a frame
    /// pointer.
    pub(super) fn by_frame_pointer(&mut self, progress: Progress, by: Maker) -> Result<Option<Caller>, WalkEnd> {
        let go = by == Maker::Go;
        let row = match progress {
            Progress::Bare => UnwindRow::entry(),
            Progress::Pushed => UnwindRow::pushed(),
            Progress::Framed => {
                let frame = self.register(FRAME_POINTER)?;
                if go && frame == 0 {
                    // Goroutines and Go's threads start with a frame pointer of 0 (`runtime/asm_amd64.s`,
                    // `runtime/proc.go` newproc1).
                    return Err(WalkEnd::Root);
                }
                // Go switches between the stacks of goroutines and of threads, so the frame pointer may be far away.
                if !go && !self.is_frame(frame) {
                    return Ok(None);
                }
                UnwindRow::framed()
            }
        };
        let mut caller = match self.step(&row, None) {
            Ok(caller) => caller,
            Err(WalkEnd::Root) if go => return Err(WalkEnd::Root),
            Err(WalkEnd::Root) => return Ok(None),
            Err(stop) => return Err(stop),
        };
        if !self.returns(caller.registers.instruction_pointer(), by) {
            return Ok(None);
        }
        // Such code does not follow the calling convention for the other registers.
        for register in [3, 12, 13, 14, 15] {
            caller.registers.forget(register);
        }
        Ok(Some(caller))
    }

    /// Whether code may return to this address.
    pub(super) fn returns(&mut self, address: u64, by: Maker) -> bool {
        let without_call = match by {
            // Go's `goexit` is entered after its first instruction, without a call.
            Maker::Go => self.space.find(address.wrapping_sub(1)).is_some_and(|module| module.is_go()),
            Maker::HotSpot => {
                let is_generated = self.space.find(address).is_some_and(|module| module.kind == ModuleKind::Generated);
                is_generated && self.code_at(address).is_some_and(|code| is_entered_by_return(&code))
            }
            Maker::Other => false,
        };
        without_call || self.call_before(address).is_some()
    }

    pub(super) fn is_frame(&self, frame: u64) -> bool {
        frame.checked_sub(self.registers.stack_pointer()).is_some_and(|distance| distance < MAX_FRAME)
    }

    /// The call before a return address, if there is one.
    pub(super) fn call_before(&mut self, address: u64) -> Option<Call> {
        let module = self.space.find(address.checked_sub(1)?)?;
        let window = self.scratch.code.window(self.space, module, address, &mut self.code_reads)?;
        call_before(address, &window.before)
    }

    fn guess(&mut self, module: &Module, lookup: u64) -> Result<Caller, WalkEnd> {
        let framed = self.frame_candidate();
        let found = match self.scan(module, lookup) {
            Ok(found) => found,
            Err(_) if framed.is_some() => None,
            Err(stop) => return Err(stop),
        };
        let chosen = match (found, framed) {
            (Some(found), _) if found.function.is_some() => found,
            (_, Some(framed)) => framed,
            (Some(found), None) => found,
            (None, None) => return Err(WalkEnd::Malformed),
        };
        if framed.is_some_and(|framed| framed.slot == chosen.slot) {
            // The call shows which function was called, and its first instructions show whether it keeps a frame
            // pointer.
            let proven = chosen.function.is_some_and(|function| self.sets_frame_pointer(function));
            self.guessed |= !proven;
            return self.step(&UnwindRow::framed(), None);
        }
        self.guessed = true;
        let mut registers = self.registers;
        registers.known &= super::registers::CALLEE_SAVED;
        registers.set(STACK_POINTER, chosen.slot.wrapping_add(8));
        registers.set(INSTRUCTION_POINTER, chosen.address);
        Ok(Caller { registers, saved: self.saved, interrupted: false })
    }

    /// The return address next to the frame pointer, if that looks like one.
    fn frame_candidate(&mut self) -> Option<ScanCandidate> {
        let frame = self.registers.get(FRAME_POINTER).filter(|frame| self.is_frame(*frame))?;
        let next = self.memory.read_u64(frame)?;
        let slot = frame.wrapping_add(8);
        let address = self.memory.read_u64(slot)?;
        let plausible = (next == 0 || next > frame) && self.call_before(address).is_some();
        plausible.then_some(ScanCandidate { slot, address, function: None })
    }

    /// Scans for a return address from the stack pointer on.
    fn scan(&mut self, module: &Module, lookup: u64) -> Result<Option<ScanCandidate>, WalkEnd> {
        let start = self.register(STACK_POINTER)?;
        let (mut indirect, mut elsewhere) = (None, None);
        for place in 0..SCAN_WORDS.min(MAX_SCANNED.saturating_sub(self.scanned)) {
            self.scanned += 1;
            let slot = start.wrapping_add(8 * u64::from(place));
            let Some(address) = self.memory.read_u64(slot) else {
                // The copy may end with the stack. If a return address was found before its end, that one is used.
                return indirect.or(elsewhere).map(Some).ok_or(WalkEnd::Memory(slot));
            };
            let mut candidate = ScanCandidate { slot, address, function: None };
            match self.call_before(address) {
                Some(Call::Direct(function)) if self.may_be_in(module, lookup, function) => {
                    candidate.function = Some(function);
                    return Ok(Some(candidate));
                }
                Some(Call::Direct(function)) if !self.jumps_on(function) => elsewhere = elsewhere.or(Some(candidate)),
                Some(_) => indirect = indirect.or(Some(candidate)),
                None => {}
            }
        }
        Ok(indirect.or(elsewhere))
    }

    /// Whether `lookup` may be in the function that starts at `function`: the address is shortly after the function's
    /// start, and no known function is in between.
    pub(super) fn may_be_in(&self, module: &Module, lookup: u64, function: u64) -> bool {
        let near = lookup.checked_sub(function).is_some_and(|distance| distance < MAX_FUNCTION);
        let tables = module.object.as_ref().and_then(|object| object.tables());
        let (one, other) = (function.wrapping_sub(module.bias), lookup.wrapping_sub(module.bias));
        near && function >= module.start && tables.is_none_or(|tables| tables.same_gap(one, other))
    }

    /// Whether the code only jumps through memory, as entries of the procedure linkage table do.
    fn jumps_on(&mut self, address: u64) -> bool {
        self.code_at(address).is_some_and(|code| matches!(jump(address, &code), Some(Call::Stored(_))))
    }

    fn sets_frame_pointer(&mut self, function: u64) -> bool {
        self.code_at(function).is_some_and(|code| prologue(&code).is_some())
    }

    pub(super) fn code_at(&mut self, address: u64) -> Option<[u8; super::code::LOOK_AHEAD]> {
        let module = self.space.find(address)?;
        Some(self.scratch.code.window(self.space, module, address, &mut self.code_reads)?.after)
    }
}
