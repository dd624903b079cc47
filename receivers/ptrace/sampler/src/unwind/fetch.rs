//! Where code will read its next instruction from, of a program that it interprets.
//!
//! An interpreter of byte code jumps from the code for one instruction to the code for the next through a table, and
//! reads the byte or the two that it jumps by before. Which read that is follows from the registers that the jump's
//! target is computed from: some builds read other bytes in between, such as the switch of a tracer (Debian's CPython
//! 3.11). From where that read takes its address, everything before it on the way tells: which register had the address
//! earlier, or which word of the stack. So the code ahead of a thread says where it has the address of its next
//! instruction now, in builds of any compiler and without debug information. What else is on the stack, such as what
//! the compiler left of an earlier use of the same word, is not looked at.

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use hashbrown::HashSet;

use super::instruction::{Effect, Instruction, LONGEST, MemoryOperand, RBP, RSP, decode};
use super::registers::Registers;
use crate::address_space::AddressSpace;

/// How many instructions are followed for one question.
const MOST: u32 = 600;
/// How many ways may wait to be followed.
const MAX_WAYS: usize = 32;
/// How many answers are kept.
const MAX_ANSWERS: usize = 4;
/// How many instructions may lie between the read and the jump, where registers do not tell that they belong together.
const NEAR: u32 = 16;
/// How many reads are told apart on a way.
const MAX_READS: usize = 16;
/// How many words that were written on a way are remembered.
const MAX_WRITTEN: usize = 64;
/// How often an address may be read from memory on a way.
const MAX_HOPS: usize = 2;
/// How many bytes of code are read at once.
const BLOCK: usize = 512;

/// The numbers of registers in DWARF by those in instructions.
const DWARF: [u8; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// The registers that a call leaves as they were.
const KEPT: u16 = 1 << 3 | 1 << RSP | 1 << RBP | 0xf << 12;

/// How a value follows from the registers at the start: a register's value, with as many words read as there are hops,
/// each at a distance from the value so far, and a distance to the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Fetch {
    register: u8,
    hops: [i64; MAX_HOPS],
    count: u8,
    distance: i64,
}

impl Fetch {
    fn of(register: u8) -> Self {
        Self { register, hops: [0; MAX_HOPS], count: 0, distance: 0 }
    }

    fn plus(self, distance: i64) -> Self {
        Self { distance: self.distance.wrapping_add(distance), ..self }
    }

    /// The word at this address.
    fn word(mut self) -> Option<Self> {
        *self.hops.get_mut(usize::from(self.count))? = self.distance;
        Some(Self { count: self.count + 1, distance: 0, ..self })
    }

    /// Where that leads with these registers, and the words that `read` knows.
    pub(crate) fn resolve(&self, registers: &Registers, mut read: impl FnMut(u64) -> Option<u64>) -> Option<Next> {
        let mut value = registers.get(*DWARF.get(usize::from(self.register))?)?;
        let hops = self.hops.iter().take(usize::from(self.count));
        for (index, hop) in hops.enumerate() {
            let at = value.wrapping_add_signed(*hop);
            value = match read(at) {
                Some(value) => value,
                None if index + 1 == usize::from(self.count) => return Some(Next::In(at)),
                None => return None,
            };
        }
        Some(Next::At(value.wrapping_add_signed(self.distance)))
    }
}

/// Where the next instruction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// At this address.
    At(u64),
    /// At an address that is in this word of memory.
    In(u64),
}

/// How code finds the address of its next instruction.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ways {
    /// From what registers and stack say, one or more that may be right.
    pub(crate) fetches: Vec<Fetch>,
    /// The instruction was read already and the code jumps to it: its address is in a register that all such jumps
    /// leave it in.
    pub(crate) is_read: bool,
}

/// The registers that had the address of the instruction at all jumps that were seen (bit N for register N).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept(u16);

impl Default for Kept {
    fn default() -> Self {
        Self(!0)
    }
}

impl Kept {
    /// At another jump, these had it.
    fn see(&mut self, registers: u16) {
        let both = self.0 & registers;
        if both != 0 {
            self.0 = both;
        }
    }

    /// The address, once few enough registers are left that it may be in.
    pub(crate) fn resolve(self, registers: &Registers) -> impl Iterator<Item = u64> {
        let numbers = (0..16).filter(move |register| self.0.count_ones() <= 2 && self.0 & 1 << register != 0);
        numbers.filter_map(move |register: usize| registers.get(DWARF[register]))
    }
}

/// What is known on a way.
#[derive(Debug, Clone)]
struct State {
    registers: [Option<Fetch>; 16],
    /// Words that were written, by their addresses.
    written: Vec<(Fetch, Option<Fetch>)>,
    /// The addresses of bytes, or of two each, that were read, in order.
    reads: Vec<Fetch>,
    /// By register: the reads that its value was computed from (bit N for read N).
    computed: [u16; 16],
    /// And those that what the present instruction writes is computed from.
    computed_now: u16,
    /// How many instructions ago the last read was.
    since: u32,
}

impl State {
    fn first() -> Self {
        let registers = std::array::from_fn(|register| Some(Fetch::of(register as u8)));
        Self { registers, written: Vec::new(), reads: Vec::new(), computed: [0; 16], computed_now: 0, since: 0 }
    }

    fn get(&self, register: u8) -> Option<Fetch> {
        self.registers.get(usize::from(register)).copied().flatten()
    }

    fn set(&mut self, register: u8, value: Option<Fetch>) {
        let register = usize::from(register);
        if let (Some(place), Some(computed)) = (self.registers.get_mut(register), self.computed.get_mut(register)) {
            (*place, *computed) = (value, self.computed_now);
        }
    }

    fn at(&self, operand: MemoryOperand) -> Option<Fetch> {
        Some(self.get(operand.base?)?.plus(i64::from(operand.distance)))
    }

    /// The registers that have this address, or that of the byte beside it.
    fn holding(&self, at: Fetch) -> u16 {
        let is_it = |value: &Option<Fetch>| value.is_some_and(|value| value == at || value.plus(1) == at);
        (0..16).filter(|register| is_it(&self.registers[*register])).fold(0, |mask, register| mask | 1 << register)
    }

    fn load(&self, address: Option<Fetch>) -> Option<Fetch> {
        let address = address?;
        match self.written.iter().find(|(written, _)| *written == address) {
            Some((_, value)) => *value,
            None => address.word(),
        }
    }

    fn store(&mut self, address: Option<Fetch>, value: Option<Fetch>) {
        let Some(address) = address else { return };
        if let Some((_, before)) = self.written.iter_mut().find(|(written, _)| *written == address) {
            *before = value;
        } else if self.written.len() < MAX_WRITTEN {
            self.written.push((address, value));
        }
    }

    fn change(&mut self, registers: u16) {
        for register in 0..16 {
            if registers & 1 << register != 0 {
                self.set(register, None);
            }
        }
    }

    /// The reads that the value of any of these registers was computed from.
    fn computed_from(&self, registers: u16) -> u16 {
        let with = self.computed.iter().enumerate().filter(|(register, _)| registers & 1 << register != 0);
        with.fold(0, |reads, (_, more)| reads | more)
    }

    /// The reads that a jump depends on, by the reads that its registers were computed from; where these do not tell,
    /// the last one if it is near.
    fn jumps_by(&self, reads: u16) -> Vec<Fetch> {
        let by_registers = self.reads.iter().enumerate().filter(|(read, _)| reads & 1 << read != 0);
        let last = self.reads.last().filter(|_| reads == 0 && self.since < NEAR);
        by_registers.map(|(_, at)| *at).chain(last.copied()).collect()
    }

    fn step(&mut self, Instruction { effect, sources, .. }: Instruction) {
        self.since += 1;
        self.computed_now = if effect == Effect::Call { 0 } else { self.computed_from(sources) };
        match effect {
            Effect::Changes(registers) => self.change(registers),
            Effect::Push(register) => {
                let top = self.get(RSP).map(|top| top.plus(-8));
                let value = register.and_then(|register| self.get(register));
                self.set(RSP, top);
                self.store(top, value);
            }
            Effect::Pop(register) => {
                let top = self.get(RSP);
                let value = self.load(top);
                self.set(RSP, top.map(|top| top.plus(8)));
                if let Some(register) = register {
                    self.set(register, value);
                }
            }
            Effect::Copy { to, from } => self.set(to, self.get(from)),
            Effect::Load { to, from } => self.set(to, self.load(self.at(from))),
            Effect::Store { to, from } => self.store(self.at(to), self.get(from)),
            Effect::Fetch { to, from } => {
                (self.computed_now, self.since) = (0, NEAR);
                if let Some(at) = self.at(from).filter(|_| self.reads.len() < MAX_READS) {
                    (self.computed_now, self.since) = (1 << self.reads.len(), 0);
                    self.reads.push(at);
                }
                self.set(to, None);
            }
            // An instruction further on or back is one of the same function.
            Effect::Point { to, at } | Effect::PointBeyond { to, at } => self.set(to, self.at(at)),
            Effect::Add { to, value } => self.set(to, self.get(to).map(|word| word.plus(i64::from(value)))),
            Effect::AddRegister { to, from } if to == from => self.set(to, None),
            Effect::AddRegister { to, from } => self.set(to, self.get(to).or(self.get(from))),
            Effect::AddWord { to, from } => self.set(to, self.get(to).or(self.load(self.at(from)))),
            Effect::Mask { to, .. } => self.set(to, None),
            Effect::Call => self.change(!KEPT),
            _ => {}
        }
    }
}

/// Reads code in pieces.
struct Code<'a> {
    space: &'a AddressSpace,
    start: u64,
    bytes: Vec<u8>,
}

impl Code<'_> {
    fn at(&mut self, address: u64) -> &[u8] {
        let within = |start: u64, length: usize| {
            address.checked_sub(start).is_some_and(|at| at.saturating_add(LONGEST as u64) <= length as u64)
        };
        if !within(self.start, self.bytes.len()) {
            self.start = address;
            self.bytes.resize(BLOCK, 0);
            let count = self.space.read_code(address, &mut self.bytes).min(BLOCK);
            self.bytes.truncate(count);
        }
        usize::try_from(address.wrapping_sub(self.start)).ok().and_then(|at| self.bytes.get(at..)).unwrap_or_default()
    }
}

/// How code at `start` will find the address of the next instruction that it reads, by all ways that lead there, the
/// one without branches first. Nothing where that is not known at `start` yet, or any more.
pub(crate) fn fetches(space: &AddressSpace, start: u64, kept: &mut Kept) -> Ways {
    let mut code = Code { space, start: 0, bytes: Vec::new() };
    let mut open = VecDeque::from([(start, State::first(), 0)]);
    let mut seen = HashSet::with_hasher(RandomState::default());
    let (mut found, mut left) = (Ways::default(), MOST);
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
                        kept.see(state.holding(*at));
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
