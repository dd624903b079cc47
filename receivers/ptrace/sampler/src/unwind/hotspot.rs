//! Unwinds Java's frames in the HotSpot virtual machine.
//!
//! The interpreter and the stubs keep frame pointers, and so do compiled methods with `-XX:+PreserveFramePointer`.
//! Their return addresses are special. The interpreter uses no call instructions: it pushes the address at which its
//! own code continues after the call, and jumps. A method stopped at a safepoint continues at the instruction that
//! polled the safepoint, and a deoptimized method continues at the code that converts its frame to an interpreter
//! frame. Each of these places begins with fixed instructions (openjdk/jdk `src/hotspot/cpu/x86`:
//! `templateInterpreterGenerator_x86.cpp` generate_return_entry_for and generate_deopt_entry_for, `x86.ad`
//! emit_deopt_handler, `c1_LIRAssembler_x86.cpp` safepoint_poll, `stubGenerator_x86_64.cpp` generate_cont_thaw; JDK 11
//! to 25).

use foldhash::fast::RandomState;
use hashbrown::HashSet;

use super::code::Progress;
use super::fallback::Maker;
use super::registers::{FRAME_POINTER, INSTRUCTION_POINTER, STACK_POINTER};
use super::step::WalkEnd;
use super::walk::{Caller, Walk};

/// Whether this code is entered by a return although no call precedes it.
pub(super) fn is_entered_by_return(code: &[u8]) -> bool {
    const ENTRIES: [&[u8]; 5] = [
        // The interpreter after a call: it restores its stack pointer (since JDK 21 from an offset), and clears the
        // slot.
        b"\x48\x8b\x65\xf0\x48\xc7\x45\xf0\x00\x00\x00\x00",
        b"\x48\x8b\x4d\xf0\x48\x8d\x64\xcd\x00\x48\xc7\x45\xf0",
        // The interpreter in a frame that was converted from the frame of a compiled method.
        b"\x48\xc7\x45\xf0\x00\x00\x00\x00\x4c\x8b\x6d\xc0",
        // A compiled method that is being deoptimized pushes its address.
        b"\xe8\x00\x00\x00\x00\x48\x83\x2c\x24\x05",
        b"\x4c\x8d\x15\xf9\xff\xff\xff\x41\x52",
    ];
    // The bottom of the frames that were copied to the stack of a virtual thread: the code restores the thread's own
    // stack pointer, and keeps the result.
    let thawed = matches!(code, [0x49, 0x8b, 0xa7, _, _, _, _, 0x50, ..]);
    let poll = match code {
        // `test %eax, (register)`: the polled page is unreadable when the thread is to stop.
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
/// For how many addresses of one process the code before them is searched. Each is searched once.
const MAX_LOOKS: usize = 4096;
/// How many processes are cached.
const MAX_PROCESSES: usize = 64;

/// Whether the compiled methods of processes keep frame pointers, as far as known.
#[derive(Debug, Default)]
pub(super) struct Habits(Vec<Habit>);

#[derive(Debug)]
struct Habit {
    /// The id of the address space.
    space: u64,
    looked: HashSet<u64, RandomState>,
    /// Whether a method was seen that keeps no frame pointer.
    without: bool,
}

/// Whether a compiled method starts here that reserves stack space after `push %rbp` without setting its frame pointer.
/// HotSpot's methods first touch the stack far below (`mov %eax, -N(%rsp)`).
pub(super) fn has_method_without_frame_pointer(code: &[u8]) -> bool {
    let starts = |code: &[u8]| matches!(code, [0x89, 0x84, 0x24, _, _, _, 0xff, 0x55, 0x48, 0x81 | 0x83, 0xec]);
    code.windows(11).any(starts)
}

impl Walk<'_> {
    /// Whether the methods of this process may keep frame pointers, judged by the code before an address. The virtual
    /// machine has one setting for all methods, which is known once a method without a frame pointer was seen.
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

    /// Finds the caller of code that HotSpot generated. `None` if the frame pointer does not lead to a caller.
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
            // Arguments may have been pushed after the return address.
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
