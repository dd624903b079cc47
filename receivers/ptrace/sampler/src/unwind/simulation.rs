//! Simulates the contents of registers and memory while instructions are followed: as numbers, or as expressions of the
//! initial registers.

use super::instruction::{Effect, LONGEST, MemoryOperand, RBP, RSP};
use super::registers::{FRAME_POINTER, STACK_POINTER};
use crate::address_space::AddressSpace;

/// DWARF register numbers, indexed by instruction encoding numbers (System V ABI for x86-64, figure 3.36).
pub(super) const DWARF: [u8; 16] = [0, 2, 1, 3, STACK_POINTER, FRAME_POINTER, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// The registers that a call preserves: RBX, RSP, RBP, R12 to R15.
pub(super) const KEPT: u16 = 1 << 3 | 1 << RSP | 1 << RBP | 0xf << 12;

/// The maximum number of written words that are tracked.
const MAX_WRITTEN: usize = 64;
/// How many memory reads an expression may contain.
const MAX_HOPS: usize = 2;
/// How many bytes of code are read at once.
const BLOCK: usize = 2048;

/// The simulated value of a register or of a word in memory.
pub(super) trait SimulatedValue: Copy + PartialEq {
    /// This value plus a distance.
    fn plus(self, distance: i64) -> Self;

    /// The value with only the bits in a mask; `None` if that is unknown.
    fn masked(self, mask: i64) -> Option<Self>;

    /// The distance to another address; `None` if that is unknown.
    fn distance_to(self, other: Self) -> Option<i64>;
}

impl SimulatedValue for u64 {
    fn plus(self, distance: i64) -> Self {
        self.wrapping_add_signed(distance)
    }

    fn masked(self, mask: i64) -> Option<Self> {
        Some(self & mask.cast_unsigned())
    }

    fn distance_to(self, other: Self) -> Option<i64> {
        Some(other.wrapping_sub(self).cast_signed())
    }
}

/// A value as an expression of an initial register: its value is taken, then for each hop the word at that distance
/// from the value so far is read, and finally a distance is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ValueOrigin {
    pub(super) register: u8,
    hops: [i64; MAX_HOPS],
    count: u8,
    distance: i64,
}

impl ValueOrigin {
    pub(super) fn of_register(register: u8) -> Self {
        Self { register, hops: [0; MAX_HOPS], count: 0, distance: 0 }
    }

    /// The expression for the word at this address.
    pub(super) fn word(mut self) -> Option<Self> {
        *self.hops.get_mut(usize::from(self.count))? = self.distance;
        Some(Self { count: self.count + 1, distance: 0, ..self })
    }

    /// The inverse of [`Self::word`]: the address of this word.
    pub(super) fn address_of_word(self) -> Option<Self> {
        let count = self.count.checked_sub(1).filter(|_| self.distance == 0)?;
        let mut address = Self { count, ..self };
        address.distance = std::mem::take(address.hops.get_mut(usize::from(count))?);
        Some(address)
    }

    /// The distance from a register's initial value; `None` if the value does not depend on that alone.
    pub(super) fn distance_from(self, register: u8) -> Option<i64> {
        Self::of_register(register).distance_to(self)
    }

    /// The initial register, the distances of the words that are read, and the final distance.
    pub(super) fn path(&self) -> (u8, &[i64], i64) {
        (self.register, self.hops.get(..usize::from(self.count)).unwrap_or_default(), self.distance)
    }
}

impl SimulatedValue for ValueOrigin {
    fn plus(self, distance: i64) -> Self {
        Self { distance: self.distance.wrapping_add(distance), ..self }
    }

    fn masked(self, _mask: i64) -> Option<Self> {
        None
    }

    fn distance_to(self, other: Self) -> Option<i64> {
        let same = Self { distance: self.distance, ..other } == self;
        same.then(|| other.distance.wrapping_sub(self.distance))
    }
}

/// Registers, by their encoding numbers, and the words that were written; `None` for unknown values.
#[derive(Debug, Clone)]
pub(super) struct Simulation<V> {
    registers: [Option<V>; 16],
    written: Vec<(V, Option<V>)>,
    /// Whether adding an unknown value leaves an address as it is: it still points into the same object.
    nearly: bool,
}

impl Simulation<ValueOrigin> {
    /// The initial state, with a distinct value in each register.
    pub(super) fn at_start(nearly: bool) -> Self {
        Self::new(std::array::from_fn(|register| Some(ValueOrigin::of_register(register as u8))), nearly)
    }

    /// Whether a register still has its initial value.
    pub(super) fn has_own(&self, register: u8) -> bool {
        self.get(register) == Some(ValueOrigin::of_register(register))
    }

    /// The address where the initial value of a register was first written, if it was not overwritten.
    pub(super) fn saved(&self, register: u8) -> Option<ValueOrigin> {
        let mut saved = self.written.iter().filter(|(_, value)| *value == Some(ValueOrigin::of_register(register)));
        saved.next().map(|(address, _)| *address)
    }
}

impl<V: SimulatedValue> Simulation<V> {
    pub(super) fn new(registers: [Option<V>; 16], nearly: bool) -> Self {
        Self { registers, written: Vec::new(), nearly }
    }

    pub(super) fn get(&self, register: u8) -> Option<V> {
        self.registers.get(usize::from(register)).copied().flatten()
    }

    /// The registers whose values satisfy a condition (bit N for register N).
    pub(super) fn holding(&self, is_it: impl Fn(V) -> bool) -> u16 {
        (0..16)
            .filter(|register| self.get(*register).is_some_and(&is_it))
            .fold(0, |mask, register| mask | 1 << register)
    }

    fn set(&mut self, register: u8, value: Option<V>) {
        if let Some(place) = self.registers.get_mut(usize::from(register)) {
            *place = value;
        }
    }

    pub(super) fn address_of(&self, operand: MemoryOperand) -> Option<V> {
        Some(self.get(operand.base?)?.plus(i64::from(operand.distance)))
    }

    /// The word at an address: the one that was written there, or else the result of `read`.
    pub(super) fn load(&self, address: Option<V>, read: &mut impl FnMut(V) -> Option<V>) -> Option<V> {
        let address = address?;
        let overlaps = |written: V| written.distance_to(address).is_some_and(|distance| distance.unsigned_abs() < 8);
        match self.written.iter().find(|(written, _)| overlaps(*written)) {
            Some((written, value)) => value.filter(|_| *written == address),
            None => read(address),
        }
    }

    fn store(&mut self, address: Option<V>, value: Option<V>) {
        let Some(address) = address else { return };
        if let Some((_, before)) = self.written.iter_mut().find(|(written, _)| *written == address) {
            *before = value;
        } else if self.written.len() < MAX_WRITTEN {
            self.written.push((address, value));
        } else if value.is_some()
            && let Some(unknown) = self.written.iter_mut().find(|(_, value)| value.is_none())
        {
            // A saved register is more important than another word with an unknown value.
            *unknown = (address, value);
        }
    }

    /// Applies an instruction after which the next one is executed.
    pub(super) fn step(&mut self, effect: Effect, mut read: impl FnMut(V) -> Option<V>) {
        let nearly = self.nearly;
        match effect {
            Effect::Push(register) => {
                let top = self.get(RSP).map(|top| top.plus(-8));
                let value = register.and_then(|register| self.get(register));
                self.set(RSP, top);
                self.store(top, value);
            }
            Effect::Pop(register) => {
                let top = self.get(RSP);
                let value = self.load(top, &mut read);
                self.set(RSP, top.map(|top| top.plus(8)));
                if let Some(register) = register {
                    self.set(register, value);
                }
            }
            Effect::Leave => {
                let frame = self.get(RBP);
                self.set(RSP, frame.map(|frame| frame.plus(8)));
                self.set(RBP, self.load(frame, &mut read));
            }
            Effect::Copy { to, from } => self.set(to, self.get(from)),
            Effect::Load { to, from } => self.set(to, self.load(self.address_of(from), &mut read)),
            Effect::Store { to, from } => self.store(self.address_of(to), self.get(from)),
            Effect::Point { to, at } => self.set(to, self.address_of(at)),
            Effect::PointBeyond { to, at } => self.set(to, self.address_of(at).filter(|_| nearly)),
            Effect::Add { to, value } => self.set(to, self.get(to).map(|word| word.plus(i64::from(value)))),
            Effect::AddRegister { to, from } => {
                let either = self.get(to).or_else(|| self.get(from));
                self.set(to, either.filter(|_| nearly && to != from));
            }
            Effect::AddWord { to, from } => {
                let either = self.get(to).or_else(|| self.load(self.address_of(from), &mut read));
                self.set(to, either.filter(|_| nearly));
            }
            Effect::Mask { to, value } => self.set(to, self.get(to).and_then(|word| word.masked(i64::from(value)))),
            Effect::Call => self.change(!KEPT),
            Effect::Changes(_) | Effect::Fetch { .. } => self.change(effect.targets()),
            Effect::Return | Effect::Jump(_) | Effect::Branch(_) | Effect::JumpThrough(_) | Effect::End => {}
        }
    }

    fn change(&mut self, registers: u16) {
        for register in (0..16).filter(|register| registers & 1 << register != 0) {
            self.set(register, None);
        }
    }
}

/// Reads code in pieces.
pub(super) struct CodeBlocks<'a> {
    space: &'a AddressSpace,
    /// The number of pieces that may still be read.
    reads: u32,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> CodeBlocks<'a> {
    pub(super) fn new(space: &'a AddressSpace, reads: u32) -> Self {
        Self { space, reads, start: 0, bytes: Vec::new() }
    }

    /// The code at an address, at least one instruction; empty if it cannot be read, or the limit is reached.
    pub(super) fn at(&mut self, address: u64) -> &[u8] {
        let within = |start: u64, length: usize| {
            address.checked_sub(start).is_some_and(|at| at.saturating_add(LONGEST as u64) <= length as u64)
        };
        if !within(self.start, self.bytes.len()) {
            let Some(left) = self.reads.checked_sub(1) else { return &[] };
            self.reads = left;
            // Blocks begin a little before the address, for paths that jump back.
            let first = self.space.find(address).map_or(address, |module| module.start);
            self.start = address.saturating_sub(BLOCK as u64 / 4).max(first);
            self.bytes.resize(BLOCK, 0);
            let count = self.space.read_code(self.start, &mut self.bytes).min(BLOCK);
            self.bytes.truncate(count);
        }
        usize::try_from(address.wrapping_sub(self.start)).ok().and_then(|at| self.bytes.get(at..)).unwrap_or_default()
    }
}
