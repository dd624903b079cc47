//! From one frame to its caller, by the rules of a row.

use gimli::UnwindExpression;

use super::expression::evaluate;
use super::memory::StackMemory;
use super::registers::{CALLEE_SAVED, INSTRUCTION_POINTER, Registers, STACK_POINTER};
use super::row::{Cfa, Row, Rule, Rules};
use crate::elf::Object;

/// Why there is no caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// A rule says that there is none.
    Root,
    /// The value of this register is not known.
    Register(u8),
    /// The memory at this address was not copied.
    Memory(u64),
    /// The rules make no sense.
    Malformed,
}

/// What rules are applied to.
pub(super) struct Machine<'a> {
    pub(super) registers: &'a Registers,
    pub(super) memory: &'a mut dyn StackMemory,
    /// Registers that are unknown only because memory was missing, and that memory's address.
    pub(super) lost: Lost,
}

/// Registers whose saved values were not in the copy of the stack.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lost {
    registers: u32,
    address: u64,
}

impl Lost {
    /// A register is unknown because the memory at an address was missing.
    pub(super) fn lose(&mut self, register: u8, address: u64) {
        if self.registers == 0 {
            self.address = address;
        }
        self.registers |= 1 << register;
    }
}

impl Machine<'_> {
    pub(super) fn register(&self, register: u8) -> Result<u64, Stop> {
        match self.registers.get(register) {
            Some(value) => Ok(value),
            None if usize::from(register) >= super::COUNT => Err(Stop::Malformed),
            None if self.lost.registers & 1 << register != 0 => Err(Stop::Memory(self.lost.address)),
            None => Err(Stop::Register(register)),
        }
    }

    pub(super) fn read(&mut self, address: u64) -> Result<u64, Stop> {
        self.memory.read_u64(address).ok_or(Stop::Memory(address))
    }
}

/// The registers of the caller.
pub(super) fn step(row: &Row, object: Option<&Object>, machine: &mut Machine<'_>) -> Result<(Registers, Lost), Stop> {
    let cfa = match row.cfa {
        Cfa::Register { register, offset } => machine.register(register)?.wrapping_add_signed(offset),
        Cfa::Expression(expression) => evaluate(bytes(object, expression)?, None, machine)?,
    };
    let mut caller = Caller {
        registers: Registers { known: machine.registers.known & CALLEE_SAVED, ..*machine.registers },
        lost: Lost { registers: machine.lost.registers & CALLEE_SAVED, ..machine.lost },
        returns: false,
    };
    caller.registers.set(STACK_POINTER, cfa);
    match &row.rules {
        Rules::Saved { count, registers, offsets } => {
            for (register, offset) in registers.iter().zip(offsets).take(usize::from(*count)) {
                let value = machine.read(cfa.wrapping_add_signed(i64::from(*offset)));
                caller.put(*register, value)?;
            }
        }
        Rules::Any(rules) => {
            for (register, rule) in rules {
                caller.put(*register, apply(*rule, *register, cfa, object, machine))?;
            }
        }
    }
    if !caller.returns {
        return Err(Stop::Malformed);
    }
    // The kernel's and the libraries' first functions have no caller; where no rule says so, the return address is 0.
    if caller.registers.instruction_pointer() == 0 {
        return Err(Stop::Root);
    }
    Ok((caller.registers, caller.lost))
}

struct Caller {
    registers: Registers,
    lost: Lost,
    /// The return address is known.
    returns: bool,
}

impl Caller {
    fn put(&mut self, register: u8, value: Result<u64, Stop>) -> Result<(), Stop> {
        match value {
            Ok(value) => {
                self.registers.set(register, value);
                self.lost.registers &= !(1 << register);
                self.returns |= register == INSTRUCTION_POINTER;
            }
            Err(Stop::Memory(address)) if register == INSTRUCTION_POINTER => {
                // Rules are in the order of addresses: what was missed below is needed as well.
                let lower = self.lost.registers != 0 && address.wrapping_sub(self.lost.address) < 256;
                return Err(Stop::Memory(if lower { self.lost.address } else { address }));
            }
            Err(stop) if register == INSTRUCTION_POINTER || register == STACK_POINTER => return Err(stop),
            // Another register is missed only if somebody asks for it.
            Err(stop) => {
                self.registers.forget(register);
                if let Stop::Memory(address) = stop {
                    self.lost.lose(register, address);
                }
            }
        }
        Ok(())
    }
}

fn apply(rule: Rule, register: u8, cfa: u64, object: Option<&Object>, machine: &mut Machine<'_>) -> Result<u64, Stop> {
    match rule {
        // A return address that is undefined marks the first function (DWARF 5 section 6.4.4).
        Rule::Undefined => Err(Stop::Root),
        Rule::Same => machine.register(register),
        Rule::Offset(offset) => machine.read(cfa.wrapping_add_signed(offset)),
        Rule::ValueOffset(offset) => Ok(cfa.wrapping_add_signed(offset)),
        Rule::Register(other) => machine.register(other),
        Rule::At(expression) => {
            let address = evaluate(bytes(object, expression)?, Some(cfa), machine)?;
            machine.read(address)
        }
        Rule::Value(expression) => evaluate(bytes(object, expression)?, Some(cfa), machine),
        Rule::Constant(value) => Ok(value),
    }
}

fn bytes(object: Option<&Object>, expression: UnwindExpression<usize>) -> Result<crate::elf::Slice<'_>, Stop> {
    object.and_then(Object::tables).and_then(|tables| tables.expression(expression)).ok_or(Stop::Malformed)
}
