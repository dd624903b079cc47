//! Walks from each frame to its caller.

use super::cache::Cache;
use super::code_cache::CodeCache;
use super::go::GoCache;
use super::hotspot::Habits;
use super::memory::StackMemory;
use super::proof::FlowCache;
use super::registers::{FRAME_POINTER, Registers};
use super::row::{Lookup, UnwindRow, look_up};
use super::search::SearchBudget;
use super::step::{Saved, StepState, WalkEnd, step};
use super::{Frame, MAX_FRAMES, UnwindOutcome};
use crate::address_space::{AddressSpace, Module, ModuleKind};
use crate::elf::{Context, ElfObject};
use crate::message::{Location, Trust};

/// How often the stack pointer may fail to increase from a frame to its caller. It decreases if a signal handler runs
/// on an alternate stack, or if Go or a coroutine switches stacks. If it decreases more often, the rules are circular.
const MAX_SWITCHES: u32 = 16;
/// A stack address that is further than this above the stack pointer is assumed to be on another stack.
const MAX_LOCALS: u64 = 64 << 10;
/// The maximum number of code reads for one stack.
const MAX_CODE_READS: u32 = 96;

/// The caches that are kept from one stack to the next.
#[derive(Debug, Default)]
pub(super) struct UnwindCaches {
    /// The rules by object and address in its file: these are valid for all processes that map the file.
    pub(super) rows: Cache<2, Lookup, 8192>,
    pub(super) code: CodeCache,
    pub(super) go: GoCache,
    pub(super) java: Habits,
    pub(super) flow: FlowCache,
    pub(super) context: Box<Context>,
}

/// The walk through one stack.
pub(super) struct Walk<'a> {
    pub(super) space: &'a AddressSpace,
    pub(super) memory: &'a mut dyn StackMemory,
    pub(super) scratch: &'a mut UnwindCaches,
    pub(super) registers: Registers,
    pub(super) saved: Saved,
    /// Whether the instruction pointer is the next instruction and not a return address: in the leaf, and in a function
    /// that a signal interrupted.
    pub(super) exact: bool,
    pub(super) guessed: bool,
    pub(super) code_reads: u32,
    pub(super) scanned: u32,
    pub(super) switches: u32,
    pub(super) patience: SearchBudget,
}

/// The state of the caller.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) registers: Registers,
    pub(super) saved: Saved,
    /// Whether the caller was interrupted by a signal instead of making a call.
    pub(super) interrupted: bool,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        space: &'a AddressSpace,
        registers: &Registers,
        memory: &'a mut dyn StackMemory,
        scratch: &'a mut UnwindCaches,
    ) -> Self {
        Self {
            space,
            memory,
            scratch,
            registers: *registers,
            saved: Saved::default(),
            exact: true,
            guessed: false,
            code_reads: MAX_CODE_READS,
            scanned: 0,
            switches: 0,
            patience: SearchBudget::new(),
        }
    }

    /// Walks from frame to frame until the stack ends or cannot be unwound further.
    pub(super) fn run(mut self, frames: &mut Vec<Frame>) -> UnwindOutcome {
        let mut outcome = UnwindOutcome { trust: Trust::Truncated, ..UnwindOutcome::default() };
        match self.walk(frames, &mut outcome) {
            WalkEnd::Root => outcome.trust = Trust::Complete,
            WalkEnd::Register(register) => outcome.needs_register = Some(register),
            WalkEnd::Memory(address) => outcome.needs_memory = Some(self.needed_from(address)),
            WalkEnd::Malformed => {}
        }
        if self.guessed {
            outcome.trust = Trust::Guessed;
        }
        outcome
    }

    /// Walks from the frame of the current registers to the end.
    pub(super) fn walk(&mut self, frames: &mut Vec<Frame>, outcome: &mut UnwindOutcome) -> WalkEnd {
        let space = self.space;
        while frames.len() < MAX_FRAMES {
            let pc = self.registers.instruction_pointer();
            let lookup = if self.exact { pc } else { pc.wrapping_sub(1) };
            let Some(module) = space.find(lookup) else {
                // The leaf may be anywhere, but a caller cannot be outside of all code.
                if frames.is_empty() {
                    frames.push(frame(&self.registers, Location::Native { mapping: None, address: pc }));
                }
                outcome.unknown_code = Some(pc);
                return WalkEnd::Malformed;
            };
            frames.push(frame(&self.registers, location(module, lookup)));
            if begins_greenlet(module, lookup, frames) {
                return WalkEnd::Root;
            }
            let caller = match self.caller(module, lookup) {
                Ok(caller) => caller,
                Err(WalkEnd::Register(FRAME_POINTER)) => return self.search(module, lookup, frames, outcome),
                Err(end) => return end,
            };
            if caller.interrupted
                && let Some(frame) = frames.last_mut()
            {
                // The code that returns from a signal handler was not called: the kernel put its address on the stack.
                frame.location = location(module, pc);
            }
            let (below, above) = (self.registers.stack_pointer(), caller.registers.stack_pointer());
            if above <= below {
                self.switches += 1;
                if self.switches > MAX_SWITCHES {
                    return WalkEnd::Malformed;
                }
            }
            self.registers = caller.registers;
            self.saved = caller.saved;
            self.exact = caller.interrupted;
        }
        WalkEnd::Malformed
    }

    fn caller(&mut self, module: &Module, lookup: u64) -> Result<Caller, WalkEnd> {
        if module.kind == ModuleKind::Vsyscall {
            return self.step(&UnwindRow::entry(), None);
        }
        let Some(object) = &module.object else { return self.without_rules(module, lookup) };
        let address = lookup.wrapping_sub(module.bias);
        let UnwindCaches { rows, context, .. } = &mut *self.scratch;
        let row = match rows.get([object.id(), address], || look_up(object, address, context)) {
            Lookup::UnwindRow(row) => row,
            Lookup::Nothing => {
                return if self.is_entered_by_nobody(module) {
                    Err(WalkEnd::Root)
                } else {
                    self.without_rules(module, lookup)
                };
            }
            Lookup::Malformed => return Err(WalkEnd::Malformed),
        };
        let mut machine = StepState { registers: &self.registers, memory: &mut *self.memory, saved: self.saved };
        let (registers, saved) = step(row, Some(object), &mut machine)?;
        Ok(Caller { registers, saved, interrupted: row.signal })
    }

    /// Whether a return address is the first instruction of code that nothing calls. Such an address was put on the
    /// stack of a coroutine or a thread, so that its first function returns there; the bytes before it need not be a
    /// call.
    fn is_entered_by_nobody(&mut self, module: &Module) -> bool {
        let (Some(object), false) = (&module.object, self.exact) else { return false };
        let address = self.registers.instruction_pointer().wrapping_sub(module.bias);
        let UnwindCaches { rows, context, .. } = &mut *self.scratch;
        matches!(rows.get([object.id(), address], || look_up(object, address, context)), Lookup::UnwindRow(row) if row.is_root())
    }

    /// The address from which a copy must start to contain `address` and everything else that this frame and its
    /// callers need: the stack pointer, unless that is on another stack.
    fn needed_from(&self, address: u64) -> u64 {
        let stack = self.registers.stack_pointer();
        if address.wrapping_sub(stack) < MAX_LOCALS { stack } else { address }
    }

    /// Steps to the caller by given rules.
    pub(super) fn step(&mut self, row: &UnwindRow, object: Option<&ElfObject>) -> Result<Caller, WalkEnd> {
        let mut machine = StepState { registers: &self.registers, memory: &mut *self.memory, saved: self.saved };
        let (registers, saved) = step(row, object, &mut machine)?;
        Ok(Caller { registers, saved, interrupted: row.signal })
    }

    pub(super) fn register(&mut self, register: u8) -> Result<u64, WalkEnd> {
        StepState { registers: &self.registers, memory: &mut *self.memory, saved: self.saved }.register(register)
    }
}

/// Whether the last of these frames, which is at this address, is the first one of a greenlet. Greenlets use one stack
/// in turn, and the part above a greenlet's own belongs to the one that ran last, so its callers cannot be found. As
/// long as only functions of the greenlet library were called, the greenlet is still being started, and the stack
/// belongs to the function that starts it.
fn begins_greenlet(module: &Module, address: u64, frames: &[Frame]) -> bool {
    let starts = |object: &ElfObject| object.starts_greenlet(address.wrapping_sub(module.bias));
    module.object.as_deref().is_some_and(starts)
        && frames.iter().any(|frame| frame.location.mapping() != module.mapping)
}

pub(super) fn frame(registers: &Registers, location: Location) -> Frame {
    Frame { pc: registers.instruction_pointer(), sp: registers.stack_pointer(), location, registers: *registers }
}

pub(super) fn location(module: &Module, address: u64) -> Location {
    match module.mapping {
        Some(mapping) => Location::Native { mapping: Some(mapping), address: address.wrapping_sub(module.bias) },
        None => Location::Native { mapping: None, address },
    }
}
