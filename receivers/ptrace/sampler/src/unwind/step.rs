//! Steps from a frame to its caller by the rules of a row.

use gimli::UnwindExpression;

use super::expression::evaluate;
use super::memory::StackMemory;
use super::registers::{CALLEE_SAVED, INSTRUCTION_POINTER, Registers, STACK_POINTER};
use super::row::{Cfa, RecoveryRule, RecoveryRules, UnwindRow};
use crate::elf::ElfObject;

/// Why a walk ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WalkEnd {
    /// A rule says that there is no caller.
    Root,
    /// The value of this register is unknown.
    Register(u8),
    /// The memory at this address was not copied.
    Memory(u64),
    /// The rules are malformed.
    Malformed,
}

/// The state to which rules are applied.
pub(super) struct StepState<'a> {
    pub(super) registers: &'a Registers,
    pub(super) memory: &'a mut dyn StackMemory,
    pub(super) saved: Saved,
}

/// Where registers were saved, as far as that may still be needed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Saved {
    /// Registers that are unknown only because the memory in which they were saved is missing, and the lowest such
    /// address.
    lost: u32,
    lost_at: u64,
    /// Registers on which no result depends yet, and the address from which each was read.
    unused: u32,
    places: [u64; super::COUNT],
}

impl Saved {
    /// Marks a register as unknown, because the memory at an address is missing.
    pub(super) fn lose(&mut self, register: u8, address: u64) {
        if self.lost == 0 {
            self.lost_at = address;
        }
        self.lost |= 1 << register;
    }

    /// Stores the address from which a register was read, while no result depends on it yet.
    fn note_read(&mut self, register: u8, address: u64) {
        if let Some(place) = self.places.get_mut(usize::from(register)) {
            *place = address;
            self.unused |= 1 << register;
        }
    }

    /// Marks that a result depends on this register from now on.
    fn uses(&mut self, register: u8, memory: &mut dyn StackMemory) {
        if self.unused & 1 << register != 0 {
            self.unused &= !(1 << register);
            // The first read was not recorded; this one is.
            memory.read_u64(self.places[usize::from(register)]);
        }
    }

    /// Marks that a result may depend on all registers.
    pub(super) fn uses_all(&mut self, memory: &mut dyn StackMemory) {
        while self.unused != 0 {
            self.uses(self.unused.trailing_zeros() as u8, memory);
        }
    }

    /// The part of this state that is also valid for the caller.
    fn in_caller(&self) -> Self {
        Self { lost: self.lost & CALLEE_SAVED, unused: self.unused & CALLEE_SAVED, ..*self }
    }
}

impl StepState<'_> {
    pub(super) fn register(&mut self, register: u8) -> Result<u64, WalkEnd> {
        match self.registers.get(register) {
            Some(value) => {
                self.saved.uses(register, self.memory);
                Ok(value)
            }
            None if usize::from(register) >= super::COUNT => Err(WalkEnd::Malformed),
            None if self.saved.lost & 1 << register != 0 => Err(WalkEnd::Memory(self.saved.lost_at)),
            None => Err(WalkEnd::Register(register)),
        }
    }

    pub(super) fn read(&mut self, address: u64) -> Result<u64, WalkEnd> {
        self.memory.read_u64(address).ok_or(WalkEnd::Memory(address))
    }
}

/// Computes the registers of the caller.
///
/// Most of the words that a function saves do not affect its callers' frames, and differ from call to call. They must
/// not make a stack look changed, so a saved register is recorded as read only when a result depends on it.
pub(super) fn step(
    row: &UnwindRow,
    object: Option<&ElfObject>,
    machine: &mut StepState<'_>,
) -> Result<(Registers, Saved), WalkEnd> {
    let cfa = match row.cfa {
        Cfa::Register { register, offset } => machine.register(register)?.wrapping_add_signed(offset),
        Cfa::Expression(expression) => evaluate(bytes(object, expression)?, None, machine)?,
    };
    let mut caller = Caller {
        registers: Registers { known: machine.registers.known & CALLEE_SAVED, ..*machine.registers },
        saved: machine.saved.in_caller(),
        returns: false,
    };
    caller.registers.set(STACK_POINTER, cfa);
    match &row.rules {
        RecoveryRules::Saved { count, registers, offsets } => {
            for (register, offset) in registers.iter().zip(offsets).take(usize::from(*count)) {
                let place = cfa.wrapping_add_signed(i64::from(*offset));
                if CALLEE_SAVED & 1 << register == 0 || *register == STACK_POINTER {
                    caller.put(*register, machine.read(place))?;
                } else {
                    let value = machine.memory.peek_u64(place);
                    caller.put(*register, value.ok_or(WalkEnd::Memory(place)))?;
                    if value.is_some() {
                        caller.saved.note_read(*register, place);
                    }
                }
            }
        }
        RecoveryRules::Any(rules) => {
            for (register, rule) in rules {
                caller.put(*register, apply(*rule, *register, cfa, object, machine))?;
            }
        }
    }
    if !caller.returns {
        return Err(WalkEnd::Malformed);
    }
    // The first functions of the kernel and of libraries have no caller; if no rule says so, their return address is 0.
    if caller.registers.instruction_pointer() == 0 {
        return Err(WalkEnd::Root);
    }
    Ok((caller.registers, caller.saved))
}

struct Caller {
    registers: Registers,
    saved: Saved,
    /// Whether the return address is known.
    returns: bool,
}

impl Caller {
    fn put(&mut self, register: u8, value: Result<u64, WalkEnd>) -> Result<(), WalkEnd> {
        match value {
            Ok(value) => {
                self.registers.set(register, value);
                self.saved.lost &= !(1 << register);
                self.saved.unused &= !(1 << register);
                self.returns |= register == INSTRUCTION_POINTER;
            }
            Err(WalkEnd::Memory(address)) if register == INSTRUCTION_POINTER => {
                // Rules are sorted by address, so missing words at lower addresses are needed as well.
                let lower = self.saved.lost != 0 && address.wrapping_sub(self.saved.lost_at) < 256;
                return Err(WalkEnd::Memory(if lower { self.saved.lost_at } else { address }));
            }
            Err(end) if register == INSTRUCTION_POINTER || register == STACK_POINTER => return Err(end),
            // Any other register is missed only if it is needed later.
            Err(end) => {
                self.registers.forget(register);
                self.saved.unused &= !(1 << register);
                if let WalkEnd::Memory(address) = end {
                    self.saved.lose(register, address);
                }
            }
        }
        Ok(())
    }
}

fn apply(
    rule: RecoveryRule,
    register: u8,
    cfa: u64,
    object: Option<&ElfObject>,
    machine: &mut StepState<'_>,
) -> Result<u64, WalkEnd> {
    match rule {
        // An undefined return address marks the first function (DWARF 5 section 6.4.4).
        RecoveryRule::Undefined => Err(WalkEnd::Root),
        RecoveryRule::Same => machine.register(register),
        RecoveryRule::Offset(offset) => machine.read(cfa.wrapping_add_signed(offset)),
        RecoveryRule::ValueOffset(offset) => Ok(cfa.wrapping_add_signed(offset)),
        RecoveryRule::Register(other) => machine.register(other),
        RecoveryRule::At(expression) => {
            let address = evaluate(bytes(object, expression)?, Some(cfa), machine)?;
            machine.read(address)
        }
        RecoveryRule::Value(expression) => evaluate(bytes(object, expression)?, Some(cfa), machine),
        RecoveryRule::Constant(value) => Ok(value),
    }
}

fn bytes(object: Option<&ElfObject>, expression: UnwindExpression<usize>) -> Result<crate::elf::Slice<'_>, WalkEnd> {
    object.and_then(ElfObject::tables).and_then(|tables| tables.expression(expression)).ok_or(WalkEnd::Malformed)
}

#[cfg(test)]
mod tests {
    use super::super::made::RecordingMemory;
    use super::super::registers::FRAME_POINTER;
    use super::*;

    /// Guarantees: a saved register is recorded as read, once, when a caller's frame depends on it; other registers
    /// are not.
    #[test]
    fn saved_registers() {
        const STACK: u64 = 0x7000_0000;
        let saves =
            |base, offset| UnwindRow::computed(base, offset, [(3, -32), (12, -24), (FRAME_POINTER, -16)].into_iter());
        let (leaf, caller) = (saves(STACK_POINTER, 32).unwrap(), saves(FRAME_POINTER, 64).unwrap());
        // The value of each word is its address.
        let mut memory = RecordingMemory(Some, Vec::new());
        let mut machine =
            StepState { registers: &Registers::passive(STACK, 1), memory: &mut memory, saved: Saved::default() };
        let (registers, saved) = step(&leaf, None, &mut machine).unwrap();
        let values = [3, 12, FRAME_POINTER, STACK_POINTER, INSTRUCTION_POINTER].map(|register| registers.get(register));
        assert_eq!(values, [0, 8, 16, 32, 24].map(|offset| Some(STACK + offset)));
        assert_eq!(memory.1, [STACK + 24]);
        memory.1.clear();
        let mut machine = StepState { registers: &registers, memory: &mut memory, saved };
        let (registers, mut saved) = step(&caller, None, &mut machine).unwrap();
        let frame = STACK + 16 + 64;
        assert_eq!(registers.stack_pointer(), frame);
        assert_eq!(memory.1, [STACK + 16, frame - 8]);
        memory.1.clear();
        saved.uses_all(&mut memory);
        saved.uses_all(&mut memory);
        assert_eq!(memory.1, [frame - 32, frame - 16, frame - 24]);
    }
}
