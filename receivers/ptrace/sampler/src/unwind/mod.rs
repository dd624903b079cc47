//! Unwinds stacks: finds the active calls by registers and a copy of the stack.
//!
//! The unwinder follows the call frame information that compilers write into `.eh_frame`, for all registers and with
//! all of DWARF's expressions. For code without such information it uses rules that are known for that code (frame
//! pointers of code compiled at run time, Go's own table, the kernel's signal frame), and as the last resort a checked
//! scan of the stack. Each result states how far it can be trusted: a stack is complete only if it ends where a rule
//! says that there is no caller.

mod ahead;
mod cache;
mod code;
mod code_cache;
mod expression;
mod fallback;
mod fetch;
mod flow;
mod go;
mod hotspot;
mod instruction;
#[cfg(test)]
mod made;
mod memory;
mod proof;
mod registers;
mod row;
mod search;
mod simulation;
mod step;
#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod tests;
mod trampoline;
mod walk;

pub(crate) use fetch::{FetchExpressions, FetchPlace, HoldingRegisters, fetches};
pub use memory::{StackCopy, StackMemory};
pub use registers::{COUNT, FRAME_POINTER, INSTRUCTION_POINTER, Registers, STACK_POINTER};

use crate::address_space::AddressSpace;
use crate::message::{Location, Trust};

/// The largest number of frames of a stack. A deeper stack is truncated.
pub const MAX_FRAMES: usize = 1024;

/// One active call. Two frames are equal if they are the same call at the same instruction, whichever of their
/// registers are known.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    /// The address of the instruction to be executed next in this frame.
    pub pc: u64,
    /// The stack pointer: the start of this frame's stack range, which ends at the caller's stack pointer.
    pub sp: u64,
    /// The location of that instruction; for callers, of the call instruction before it.
    pub location: Location,
    /// The known registers; in callers, callee-saved ones only.
    pub registers: Registers,
}

impl Frame {
    /// The address to look up the frame's code, given its index in the stack: for callers an address within the call,
    /// which may be the last instruction of its function.
    pub fn lookup(&self, index: usize) -> u64 {
        if index == 0 { self.pc } else { self.pc.wrapping_sub(1) }
    }
}

impl PartialEq for Frame {
    fn eq(&self, other: &Self) -> bool {
        (self.pc, self.sp, self.location) == (other.pc, other.sp, other.location)
    }
}

impl Eq for Frame {}

/// How unwinding ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UnwindOutcome {
    /// How much of the stack is known.
    pub trust: Trust,
    /// Unwinding ended because this register (DWARF number) is unknown: stop the thread, or take the register from an
    /// earlier sample.
    pub needs_register: Option<u8>,
    /// Unwinding ended at this stack address, which is not in the copy: copy more from there on.
    pub needs_memory: Option<u64>,
    /// An instruction pointer that lies in no known executable mapping: the maps should be read again.
    pub unknown_code: Option<u64>,
}

/// Unwinds stacks. It caches data about code, so a thread should use one unwinder for all processes.
#[derive(Debug, Default)]
pub struct Unwinder {
    scratch: walk::UnwindCaches,
}

impl Unwinder {
    /// Creates an unwinder with empty caches.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes the active calls into `frames` (cleared first), the leaf first.
    ///
    /// Reads stacks through `memory` only, and code through `space` if there is no call frame information. Stops after
    /// [`MAX_FRAMES`] frames at the latest.
    pub fn unwind(
        &mut self,
        space: &AddressSpace,
        registers: &Registers,
        memory: &mut dyn StackMemory,
        frames: &mut Vec<Frame>,
    ) -> UnwindOutcome {
        frames.clear();
        walk::Walk::new(space, registers, memory, &mut self.scratch).run(frames)
    }
}
