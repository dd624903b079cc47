//! Finds where an interpreter's code will read the next instruction of the interpreted program.
//!
//! A byte code interpreter jumps from the code of one instruction to the code of the next through a table, indexed by
//! the one or two bytes that it has read before. The registers from which the jump's target is computed identify that
//! read: some builds read other bytes in between, such as the flag of a tracer (Debian's CPython 3.11). The address of
//! the read is then traced back along the path to the register or stack word that held it earlier. So the code that a
//! thread will execute shows where the thread holds the address of its next instruction now, in builds of any compiler
//! and without debug information. Other words on the stack, such as leftovers of earlier calls, are not considered.

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use hashbrown::HashSet;

use super::instruction::{Effect, Instruction, decode};
use super::registers::Registers;
use super::simulation::{CodeBlocks, DWARF, KEPT, SimulatedValue, Simulation, ValueOrigin};
use crate::address_space::AddressSpace;

/// How many instructions are followed for one query.
const MOST: u32 = 600;
/// The maximum number of paths that wait to be followed.
const MAX_WAYS: usize = 32;
/// How many results are kept.
const MAX_ANSWERS: usize = 4;
/// How many instructions may be between the read and the jump if registers do not link the two.
const NEAR: u32 = 16;
/// How many reads are distinguished on a path.
const MAX_READS: usize = 16;

impl ValueOrigin {
    /// The address that this expression yields with these registers and the words that `read` knows.
    pub(crate) fn resolve(
        &self,
        registers: &Registers,
        mut read: impl FnMut(u64) -> Option<u64>,
    ) -> Option<FetchPlace> {
        let (register, hops, distance) = self.path();
        let mut value = registers.get(*DWARF.get(usize::from(register))?)?;
        for (index, hop) in hops.iter().enumerate() {
            let at = value.wrapping_add_signed(*hop);
            value = match read(at) {
                Some(value) => value,
                None if index + 1 == hops.len() => return Some(FetchPlace::In(at)),
                None => return None,
            };
        }
        Some(FetchPlace::At(value.wrapping_add_signed(distance)))
    }
}

/// Where the next instruction of the interpreted program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FetchPlace {
    /// At this address.
    At(u64),
    /// At the address stored in this word of memory.
    In(u64),
}

/// How native code finds the address of its next instruction of the interpreted program.
#[derive(Debug, Clone, Default)]
pub(crate) struct FetchExpressions {
    /// Expressions for the address, at least one of which is right.
    pub(crate) fetches: Vec<ValueOrigin>,
    /// Whether the instruction was already read, and the code is about to jump: the address is then in a register that
    /// holds it at all such jumps.
    pub(crate) is_read: bool,
}

/// The registers that held the instruction's address at all jumps seen so far (bit N for register N).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HoldingRegisters(u16);

impl Default for HoldingRegisters {
    fn default() -> Self {
        Self(!0)
    }
}

impl HoldingRegisters {
    /// Removes registers that did not hold the address at another jump.
    fn restrict_to(&mut self, registers: u16) {
        let both = self.0 & registers;
        if both != 0 {
            self.0 = both;
        }
    }

    /// Returns the possible addresses, if at most two registers are left.
    pub(crate) fn resolve(self, registers: &Registers) -> impl Iterator<Item = u64> {
        let numbers = (0..16).filter(move |register| self.0.count_ones() <= 2 && self.0 & 1 << register != 0);
        numbers.filter_map(move |register: usize| registers.get(DWARF[register]))
    }
}

#[derive(Debug, Clone)]
struct PathState {
    values: Simulation<ValueOrigin>,
    /// The addresses of the reads of one or two bytes, in order.
    reads: Vec<ValueOrigin>,
    /// For each register, the reads that its value was computed from (bit N for read N).
    computed: [u16; 16],
    /// The number of instructions since the last read.
    since: u32,
}

impl PathState {
    fn first() -> Self {
        // Reads must also be recognized if an unknown value was added to the address: it still belongs to the same
        // function.
        Self { values: Simulation::at_start(true), reads: Vec::new(), computed: [0; 16], since: 0 }
    }

    /// The registers that hold this address, or that of the byte before it.
    fn holding(&self, at: ValueOrigin) -> u16 {
        self.values.holding(|value| value == at || value.plus(1) == at)
    }

    /// The reads from which the values of these registers were computed.
    fn computed_from(&self, registers: u16) -> u16 {
        let with = self.computed.iter().enumerate().filter(|(register, _)| registers & 1 << register != 0);
        with.fold(0, |reads, (_, more)| reads | more)
    }

    /// The reads on which a jump depends, given the reads from which its registers were computed. If there are none,
    /// the last read, if it is near.
    fn jumps_by(&self, reads: u16) -> Vec<ValueOrigin> {
        let by_registers = self.reads.iter().enumerate().filter(|(read, _)| reads & 1 << read != 0);
        let last = self.reads.last().filter(|_| reads == 0 && self.since < NEAR);
        by_registers.map(|(_, at)| *at).chain(last.copied()).collect()
    }

    fn step(&mut self, Instruction { effect, sources, .. }: Instruction) {
        self.since += 1;
        let mut computed = self.computed_from(sources);
        if let Effect::Fetch { from, .. } = effect {
            (computed, self.since) = (0, NEAR);
            if let Some(at) = self.values.address_of(from).filter(|_| self.reads.len() < MAX_READS) {
                (computed, self.since) = (1 << self.reads.len(), 0);
                self.reads.push(at);
            }
        }
        let targets = if effect == Effect::Call { !KEPT } else { effect.targets() };
        if effect == Effect::Call {
            // The return value is computed by the called function.
            computed = 0;
        }
        for (register, place) in self.computed.iter_mut().enumerate() {
            if targets & 1 << register != 0 {
                *place = computed;
            }
        }
        self.values.step(effect, ValueOrigin::word);
    }
}

/// Finds how code at `start` gets the address of the next instruction that it reads, on all paths to that read; the
/// path without branches comes first. Nothing if the address is not known yet at `start`, or no longer known.
pub(crate) fn fetches(space: &AddressSpace, start: u64, kept: &mut HoldingRegisters) -> FetchExpressions {
    let mut code = CodeBlocks::new(space, MOST);
    let mut open = VecDeque::from([(start, PathState::first(), 0)]);
    let mut seen = HashSet::with_hasher(RandomState::default());
    let (mut found, mut left) = (FetchExpressions::default(), MOST);
    while let Some((mut place, mut state, mut steps)) = open.pop_front() {
        while seen.insert(place) {
            let Some(next) = left.checked_sub(1) else { return found };
            left = next;
            steps += 1;
            let Some(instruction) = decode(code.at(place)) else { break };
            let behind = place.wrapping_add(instruction.length as u64);
            let to = |distance: i32| behind.wrapping_add_signed(i64::from(distance));
            place = behind;
            match instruction.effect {
                Effect::Jump(distance) => place = to(distance),
                Effect::Branch(distance) => {
                    if open.len() < MAX_WAYS {
                        open.push_back((to(distance), state.clone(), steps));
                    }
                }
                Effect::JumpThrough(_) => {
                    let reads = state.computed_from(instruction.sources);
                    let fetches = state.jumps_by(reads);
                    if let (1, [at]) = (reads.count_ones(), &fetches[..]) {
                        kept.restrict_to(state.holding(*at));
                    }
                    found.is_read |= steps < NEAR && reads == 0;
                    fetches.into_iter().for_each(|at| {
                        if !found.fetches.contains(&at) {
                            found.fetches.push(at);
                        }
                    });
                    if found.fetches.len() >= MAX_ANSWERS {
                        found.fetches.truncate(MAX_ANSWERS);
                        return found;
                    }
                    break;
                }
                Effect::Return | Effect::End | Effect::Leave => break,
                _ => state.step(instruction),
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
