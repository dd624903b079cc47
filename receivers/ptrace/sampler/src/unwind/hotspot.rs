//! Unwinds Java's frames in the HotSpot virtual machine.
//!
//! The interpreter and the stubs keep frame pointers, and compiled methods do with `-XX:+PreserveFramePointer`. What is
//! special is what they return to. The interpreter does not call: it pushes the address of code of its own that goes on
//! behind the call, and jumps. A method that is stopped at a safepoint goes on at the instruction that looked whether
//! it should stop, and one whose assumptions fell at the code that turns its frame into an interpreter's. Each of these
//! places begins with fixed instructions (openjdk/jdk `src/hotspot/cpu/x86`: `templateInterpreterGenerator_x86.cpp`
//! generate_return_entry_for and generate_deopt_entry_for, `x86.ad` emit_deopt_handler, `c1_LIRAssembler_x86.cpp`
//! safepoint_poll, `stubGenerator_x86_64.cpp` generate_cont_thaw; JDK 11 to 25).

use foldhash::fast::RandomState;
use hashbrown::HashSet;

use super::code::Progress;
use super::fallback::Maker;
use super::registers::{FRAME_POINTER, INSTRUCTION_POINTER, STACK_POINTER};
use super::step::WalkEnd;
use super::walk::{Caller, Walk};

/// Whether code is entered by a return without a call before it.
pub(super) fn is_entered_by_return(code: &[u8]) -> bool {
    const ENTRIES: [&[u8]; 5] = [
        // The interpreter behind a call: its stack pointer is restored (since JDK 21 from a distance), and the place
        // cleared.
        b"\x48\x8b\x65\xf0\x48\xc7\x45\xf0\x00\x00\x00\x00",
        b"\x48\x8b\x4d\xf0\x48\x8d\x64\xcd\x00\x48\xc7\x45\xf0",
        // The interpreter in a frame that was a compiled method's.
        b"\x48\xc7\x45\xf0\x00\x00\x00\x00\x4c\x8b\x6d\xc0",
        // A compiled method whose frame is to be made an interpreter's: it pushes where it is.
        b"\xe8\x00\x00\x00\x00\x48\x83\x2c\x24\x05",
        b"\x4c\x8d\x15\xf9\xff\xff\xff\x41\x52",
    ];
    // The bottom of what was copied to the stack of a virtual thread: it takes the thread's own stack pointer, and
    // keeps the result.
    let thawed = matches!(code, [0x49, 0x8b, 0xa7, _, _, _, _, 0x50, ..]);
    let poll = match code {
        // `test %eax, (register)`: the page cannot be read where the thread shall stop.
        [0x41, 0x85, mode, ..] | [0x85, mode, ..] => {
            *mode < 8 && !matches!(*mode, 4 | 5) || *mode == 5 && code[0] == 0x85
        }
        _ => false,
    };
    poll || thawed || ENTRIES.iter().any(|entry| code.starts_with(entry))
}

/// The largest distance to a caller's stack pointer, in bytes.
const MAX_FRAME: i64 = 16 << 20;
/// How many bytes of code before an address are searched for the start of a method.
const MAX_SEARCHED: u64 = 4096;
/// How many addresses of one process have the code before them searched, each once.
const MAX_LOOKS: usize = 4096;
/// How many processes are remembered.
const MAX_PROCESSES: usize = 64;

/// What is known of processes' compiled methods.
#[derive(Debug, Default)]
pub(super) struct Habits(Vec<Habit>);

#[derive(Debug)]
struct Habit {
    /// The address space's number.
    space: u64,
    looked: HashSet<u64, RandomState>,
    /// A method was seen that keeps no frame pointer.
    without: bool,
}

/// Whether there is the start of a compiled method that makes room behind `push %rbp` without setting its frame
/// pointer: it touches the stack far below first (`mov %eax, -N(%rsp)`).
pub(super) fn has_method_without_frame_pointer(code: &[u8]) -> bool {
    let starts = |code: &[u8]| matches!(code, [0x89, 0x84, 0x24, _, _, _, 0xff, 0x55, 0x48, 0x81 | 0x83, 0xec]);
    code.windows(11).any(starts)
}

impl Walk<'_> {
    /// Whether the methods of this process may keep frame pointers, by the code before an address. The virtual machine
    /// has one rule for all, which is known once a method was seen that does not.
    fn may_keep_frame_pointers(&mut self, address: u64) -> bool {
        let space = self.space.id();
        let habits = &mut self.scratch.java.0;
        let place = habits.iter().position(|habit| habit.space == space).unwrap_or_else(|| {
            if habits.len() == MAX_PROCESSES {
                habits.remove(0);
            }
            habits.push(Habit { space, looked: HashSet::default(), without: false });
            habits.len() - 1
        });
        let habit = &mut habits[place];
        if !habit.without && habit.looked.len() < MAX_LOOKS && habit.looked.insert(address) {
            let first = self.space.find(address.wrapping_sub(1)).map_or(address, |module| module.start);
            let length = address.saturating_sub(first).min(MAX_SEARCHED);
            let mut code = [0; MAX_SEARCHED as usize];
            let count = self.space.read_code(address - length, &mut code[..length as usize]).min(length as usize);
            habit.without = has_method_without_frame_pointer(&code[..count]);
        }
        !habit.without
    }

    /// The caller of code that HotSpot made. `None` where its frame pointer does not lead to one.
    pub(super) fn by_hotspot(&mut self) -> Result<Option<Caller>, WalkEnd> {
        self.guessed |= !self.may_keep_frame_pointers(self.registers.instruction_pointer());
        let stack = self.register(STACK_POINTER)?;
        if self.exact
            && let Some(ahead) = self.look_ahead(|walk, word| walk.returns(word, Maker::HotSpot))
            && self.returns(ahead.returns, Maker::HotSpot)
            && ahead.stack.wrapping_sub(stack).cast_signed() < MAX_FRAME
        {
            let mut registers = self.registers;
            registers.known = 0;
            // Arguments may be pushed on the way.
            registers.set(STACK_POINTER, ahead.stack.max(stack));
            registers.set(INSTRUCTION_POINTER, ahead.returns);
            registers.set(FRAME_POINTER, ahead.frame);
            return Ok(Some(Caller { registers, saved: self.saved, interrupted: false }));
        }
        self.by_frame_pointer(Progress::Framed, Maker::HotSpot)
    }
}

#[cfg(test)]
mod tests;
