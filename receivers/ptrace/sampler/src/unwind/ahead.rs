//! Finds the caller of code that keeps frame pointers by simulating what this code will do next with the stack.
//!
//! In the first and last instructions of a function, and everywhere in very short functions, the frame pointer is still
//! that of its caller. So the instructions are followed from the interrupted one on, with the current registers, until
//! a return or a call, or up to a limit. Only the effects that can change the return address are simulated, on a copy
//! of the words that they write; if an effect depends on an unknown value, there is no result.

use super::instruction::{Effect, RBP, RSP, decode};
use super::registers::INSTRUCTION_POINTER;
use super::simulation::{CodeBlocks, DWARF, Simulation};
use super::walk::Walk;

/// How many instructions are followed.
const MAX_INSTRUCTIONS: u32 = 64;
/// The maximum number of code reads.
const MAX_READS: u32 = 4;

/// The position of a function's caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ahead {
    /// The return address.
    pub(super) returns: u64,
    /// The caller's stack pointer.
    pub(super) stack: u64,
    /// The caller's frame pointer.
    pub(super) frame: u64,
}

impl Walk<'_> {
    /// The caller of the code at the instruction pointer, found by simulating that code; `None` if the simulation does
    /// not show the caller. `returns` decides whether a word is a return address.
    pub(super) fn look_ahead(&mut self, mut returns: impl FnMut(&mut Self, u64) -> bool) -> Option<Ahead> {
        let mut state = Simulation::new(DWARF.map(|number| self.registers.get(number)), false);
        let mut place = self.registers.get(INSTRUCTION_POINTER)?;
        let mut code = CodeBlocks::new(self.space, MAX_READS);
        for _ in 0..MAX_INSTRUCTIONS {
            let Some(instruction) = decode(code.at(place)) else { break };
            place = place.wrapping_add(instruction.length as u64);
            match instruction.effect {
                Effect::Return => {
                    let top = state.get(RSP)?;
                    return self.caller_ahead(&state, top, state.get(RBP)?);
                }
                Effect::JumpThrough(register) => {
                    // This is a jump to a caller whose address was popped before, to another function, or within this
                    // function.
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
                // Before a call, a function has already set up its frame pointer.
                Effect::Call | Effect::End => break,
                Effect::Jump(distance) => place = place.wrapping_add_signed(i64::from(distance)),
                Effect::Branch(_) => {}
                effect => state.step(effect, |address| self.memory.read_u64(address)),
            }
        }
        let frame = state.get(RBP)?;
        let saved = self.word_ahead(&state, frame)?;
        self.caller_ahead(&state, frame.wrapping_add(8), saved)
    }

    /// The caller whose address is in the word at `place`.
    fn caller_ahead(&mut self, state: &Simulation<u64>, place: u64, frame: u64) -> Option<Ahead> {
        Some(Ahead { returns: self.word_ahead(state, place)?, stack: place.wrapping_add(8), frame })
    }

    fn word_ahead(&mut self, state: &Simulation<u64>, address: u64) -> Option<u64> {
        state.load(Some(address), &mut |address| self.memory.read_u64(address))
    }
}
