//! Finds the caller of code that keeps frame pointers by what this code will do next with the stack.
//!
//! In the first and last instructions of a function, and everywhere in very short functions, the frame pointer is still
//! that of its caller. So the instructions are followed from the interrupted one on, with the present registers, until
//! they return or call, or for a limited number. Only the effects that can change the return address are simulated, on
//! a copy of the words that they write; if one depends on an unknown value, there is no result.

use super::instruction::{Effect, LONGEST, MemoryOperand, RBP, RSP, decode};
use super::registers::{FRAME_POINTER, INSTRUCTION_POINTER, STACK_POINTER};
use super::walk::Walk;

/// How many instructions are followed.
const MAX_INSTRUCTIONS: u32 = 64;
/// How many bytes of code are read at once.
const BLOCK: usize = 256;
/// Reads of code.
const MAX_READS: u32 = 4;
/// How many words may be written on the way.
const MAX_WRITTEN: usize = 64;

/// The registers' numbers of DWARF by those of instructions (System V ABI for x86-64, figure 3.36).
const NUMBERS: [u8; 16] = [0, 2, 1, 3, STACK_POINTER, FRAME_POINTER, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// Where a function's caller is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ahead {
    /// The return address.
    pub(super) returns: u64,
    /// The caller's stack pointer.
    pub(super) stack: u64,
    /// The caller's frame pointer.
    pub(super) frame: u64,
}

/// Registers and the words that were written, some of which are not known.
#[derive(Debug)]
struct MachineState {
    registers: [Option<u64>; 16],
    written: Vec<(u64, Option<u64>)>,
}

impl MachineState {
    fn get(&self, register: u8) -> Option<u64> {
        self.registers.get(usize::from(register)).copied().flatten()
    }

    fn set(&mut self, register: u8, value: Option<u64>) {
        if let Some(place) = self.registers.get_mut(usize::from(register)) {
            *place = value;
        }
    }

    fn at(&self, operand: MemoryOperand) -> Option<u64> {
        Some(self.get(operand.base?)?.wrapping_add_signed(i64::from(operand.distance)))
    }

    /// `None` where there are too many.
    fn write(&mut self, address: u64, value: Option<u64>) -> Option<()> {
        self.written.retain(|(other, _)| *other != address);
        self.written.push((address, value));
        (self.written.len() <= MAX_WRITTEN).then_some(())
    }
}

impl Walk<'_> {
    /// The caller of the code at the instruction pointer, by what that code will do next; `None` if that does not show
    /// it. `returns` tells whether a word is a return address.
    pub(super) fn look_ahead(&mut self, mut returns: impl FnMut(&mut Self, u64) -> bool) -> Option<Ahead> {
        let mut state =
            MachineState { registers: NUMBERS.map(|number| self.registers.get(number)), written: Vec::new() };
        let mut place = self.registers.get(INSTRUCTION_POINTER)?;
        let (mut block, mut start, mut count, mut reads) = ([0; BLOCK], 0u64, 0, MAX_READS);
        for _ in 0..MAX_INSTRUCTIONS {
            let mut at = place.wrapping_sub(start) as usize;
            if at >= count || count - at < LONGEST {
                reads = reads.checked_sub(1)?;
                (start, at) = (place, 0);
                count = self.space.read_code(place, &mut block).min(BLOCK);
            }
            let Some(instruction) = block.get(at..count).and_then(decode) else { break };
            place = place.wrapping_add(instruction.length as u64);
            match instruction.effect {
                Effect::Return => {
                    let top = state.get(RSP)?;
                    return self.caller_ahead(&state, top, state.get(RBP)?);
                }
                Effect::JumpThrough(register) => {
                    // A jump to a caller whose address was taken from the stack before, to another function, or within
                    // this one.
                    let (top, frame) = (state.get(RSP)?, state.get(RBP)?);
                    if let Some(target) = register.and_then(|register| state.get(register))
                        && returns(self, target)
                    {
                        return Some(Ahead { returns: target, stack: top, frame });
                    }
                    if let Some(word) = self.word_ahead(&state, top)
                        && returns(self, word)
                    {
                        return Some(Ahead { returns: word, stack: top.wrapping_add(8), frame });
                    }
                    break;
                }
                // A function that calls another has set up its frame pointer before.
                Effect::Call | Effect::End => break,
                Effect::Jump(distance) => place = place.wrapping_add_signed(i64::from(distance)),
                Effect::Branch(_) => {}
                effect => self.follow(&mut state, effect)?,
            }
        }
        let frame = state.get(RBP)?;
        let saved = self.word_ahead(&state, frame)?;
        self.caller_ahead(&state, frame.wrapping_add(8), saved)
    }

    /// The caller whose address is in the word at `place`.
    fn caller_ahead(&mut self, state: &MachineState, place: u64, frame: u64) -> Option<Ahead> {
        Some(Ahead { returns: self.word_ahead(state, place)?, stack: place.wrapping_add(8), frame })
    }

    fn word_ahead(&mut self, state: &MachineState, address: u64) -> Option<u64> {
        match state.written.iter().find(|(written, _)| written.wrapping_sub(address).wrapping_add(7) < 15) {
            Some((written, value)) => value.filter(|_| *written == address),
            None => self.memory.read_u64(address),
        }
    }

    /// Applies an instruction. `None` if it depends on too much that is unknown.
    fn follow(&mut self, state: &mut MachineState, effect: Effect) -> Option<()> {
        match effect {
            Effect::Changes(changed) => {
                for register in 0..16 {
                    if changed & 1 << register != 0 {
                        state.set(register, None);
                    }
                }
            }
            Effect::Push(register) => {
                let top = state.get(RSP)?.wrapping_sub(8);
                let value = register.and_then(|register| state.get(register));
                state.set(RSP, Some(top));
                state.write(top, value)?;
            }
            Effect::Pop(register) => {
                let top = state.get(RSP)?;
                let value = self.word_ahead(state, top);
                state.set(RSP, Some(top.wrapping_add(8)));
                if let Some(register) = register {
                    state.set(register, value);
                }
            }
            Effect::Leave => {
                let frame = state.get(RBP)?;
                let value = self.word_ahead(state, frame);
                state.set(RSP, Some(frame.wrapping_add(8)));
                state.set(RBP, value);
            }
            Effect::Copy { to, from } => state.set(to, state.get(from)),
            Effect::Load { to, from } => {
                let value = state.at(from).and_then(|address| self.word_ahead(state, address));
                state.set(to, value);
            }
            Effect::Store { to, from } => {
                if let Some(address) = state.at(to) {
                    state.write(address, state.get(from))?;
                }
            }
            Effect::Fetch { to, .. }
            | Effect::PointBeyond { to, .. }
            | Effect::AddRegister { to, .. }
            | Effect::AddWord { to, .. } => state.set(to, None),
            Effect::Point { to, at } => state.set(to, state.at(at)),
            Effect::Add { to, value } => {
                state.set(to, state.get(to).map(|word| word.wrapping_add_signed(i64::from(value))));
            }
            Effect::Mask { to, value } => {
                state.set(to, state.get(to).map(|word| word & i64::from(value).cast_unsigned()));
            }
            _ => {}
        }
        Some(())
    }
}
