//! The unwinding rules for one address, small enough to cache thousands of them.

use gimli::{CfaRule, RegisterRule, UnwindExpression};

use super::registers::{COUNT, INSTRUCTION_POINTER};
use crate::elf::{Context, ElfObject};

/// Registers that a small row can hold: the callee-saved ones and the return address.
const SMALL: usize = 8;

/// How the canonical frame address is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cfa {
    /// The value of a register plus an offset.
    Register { register: u8, offset: i64 },
    /// By an expression.
    Expression(UnwindExpression<usize>),
}

/// How the value of a register in the calling frame is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecoveryRule {
    Undefined,
    Same,
    Offset(i64),
    ValueOffset(i64),
    Register(u8),
    At(UnwindExpression<usize>),
    Value(UnwindExpression<usize>),
    Constant(u64),
}

/// The rules for all registers. Except for a few rows of handwritten code, rows only restore saved registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RecoveryRules {
    Saved { count: u8, registers: [u8; SMALL], offsets: [i32; SMALL] },
    Any(Box<[(u8, RecoveryRule)]>),
}

/// The rules for one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnwindRow {
    pub(super) cfa: Cfa,
    pub(super) rules: RecoveryRules,
    /// Whether the kernel created the frame for a signal handler.
    pub(super) signal: bool,
}

/// The result of a lookup in the tables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Lookup {
    /// The rules.
    UnwindRow(UnwindRow),
    /// No entry covers the address.
    #[default]
    Nothing,
    /// There is an entry, but it is malformed, or exceeds a limit.
    Malformed,
}

/// Looks up an address of the file in its tables.
pub(super) fn look_up(object: &ElfObject, address: u64, context: &mut Context) -> Lookup {
    let Some(tables) = object.tables() else { return Lookup::Nothing };
    match tables.row(address, context) {
        Ok(Some(found)) => row(found.row, found.signal).map_or(Lookup::Malformed, Lookup::UnwindRow),
        Ok(None) => Lookup::Nothing,
        Err(_) => Lookup::Malformed,
    }
}

fn row(found: &gimli::UnwindTableRow<usize, crate::elf::Room>, signal: bool) -> Option<UnwindRow> {
    let cfa = match found.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            Cfa::Register { register: general(*register)?, offset: *offset }
        }
        CfaRule::Expression(expression) => Cfa::Expression(*expression),
    };
    let rules = || found.registers().filter_map(|(register, rule)| Some((general(*register)?, rule)));
    let small = rules().count() <= SMALL && rules().all(|(_, rule)| small_offset(rule).is_some());
    let rules = if small {
        let (mut registers, mut offsets) = ([0; SMALL], [0; SMALL]);
        let mut count = 0u8;
        for (register, rule) in rules() {
            registers[usize::from(count)] = register;
            offsets[usize::from(count)] = small_offset(rule)?;
            count += 1;
        }
        sort_by_offset(&mut registers[..usize::from(count)], &mut offsets[..usize::from(count)]);
        RecoveryRules::Saved { count, registers, offsets }
    } else {
        RecoveryRules::Any(rules().map(|(register, rule)| Some((register, convert(rule)?))).collect::<Option<_>>()?)
    };
    Some(UnwindRow { cfa, rules, signal })
}

/// Sorts registers by address, lowest first: if memory is missing, a new copy has to start at the lowest address.
fn sort_by_offset(registers: &mut [u8], offsets: &mut [i32]) {
    for end in 1..offsets.len() {
        for place in (0..end).rev() {
            if offsets[place] <= offsets[place + 1] {
                break;
            }
            offsets.swap(place, place + 1);
            registers.swap(place, place + 1);
        }
    }
}

/// The number of a general register or the return address; other registers (vector registers) do not matter.
fn general(register: gimli::Register) -> Option<u8> {
    u8::try_from(register.0).ok().filter(|register| usize::from(*register) < COUNT)
}

fn small_offset(rule: &RegisterRule<usize>) -> Option<i32> {
    match rule {
        RegisterRule::Offset(offset) => i32::try_from(*offset).ok(),
        _ => None,
    }
}

fn convert(rule: &RegisterRule<usize>) -> Option<RecoveryRule> {
    Some(match rule {
        RegisterRule::Undefined => RecoveryRule::Undefined,
        RegisterRule::SameValue => RecoveryRule::Same,
        RegisterRule::Offset(offset) => RecoveryRule::Offset(*offset),
        RegisterRule::ValOffset(offset) => RecoveryRule::ValueOffset(*offset),
        RegisterRule::Register(register) => RecoveryRule::Register(general(*register)?),
        RegisterRule::Expression(expression) => RecoveryRule::At(*expression),
        RegisterRule::ValExpression(expression) => RecoveryRule::Value(*expression),
        RegisterRule::Constant(value) => RecoveryRule::Constant(*value),
        _ => return None,
    })
}

impl UnwindRow {
    /// The offset of the return address from the canonical frame address, if the rule has this form.
    pub(super) fn return_address(&self) -> Option<i64> {
        let RecoveryRules::Saved { count, registers, offsets } = &self.rules else { return None };
        let place = registers.iter().take(usize::from(*count)).position(|register| *register == INSTRUCTION_POINTER)?;
        Some(i64::from(offsets[place]))
    }

    /// The number of saved registers besides the frame pointer and the return address, if all of them are saved on the
    /// stack.
    pub(super) fn saved(&self) -> Option<usize> {
        let RecoveryRules::Saved { count, registers, .. } = &self.rules else { return None };
        let others = registers.iter().take(usize::from(*count));
        Some(others.filter(|register| !matches!(**register, super::FRAME_POINTER | INSTRUCTION_POINTER)).count())
    }

    /// Whether nothing calls this code: the rule says that there is no return address.
    pub(super) fn is_root(&self) -> bool {
        let RecoveryRules::Any(rules) = &self.rules else { return false };
        rules.contains(&(INSTRUCTION_POINTER, RecoveryRule::Undefined))
    }

    /// Creates the row of vsyscalls and of functions at their first instruction: only the return address is on the
    /// stack.
    pub(super) fn entry() -> Self {
        let (mut registers, mut offsets) = ([0; SMALL], [0; SMALL]);
        registers[0] = INSTRUCTION_POINTER;
        offsets[0] = -8;
        Self {
            cfa: Cfa::Register { register: super::STACK_POINTER, offset: 8 },
            rules: RecoveryRules::Saved { count: 1, registers, offsets },
            signal: false,
        }
    }

    /// Creates the row of a function that has only pushed its caller's frame pointer.
    pub(super) fn pushed() -> Self {
        let mut row = Self::entry();
        row.cfa = Cfa::Register { register: super::STACK_POINTER, offset: 16 };
        row.save_frame_pointer()
    }

    /// Creates a row whose canonical frame address is at an offset from a register; the return address is below it, and
    /// registers are saved at offsets from it. `None` if an offset is too large.
    pub(super) fn computed(register: u8, offset: i64, saved: impl Iterator<Item = (u8, i64)>) -> Option<Self> {
        let (mut registers, mut offsets) = ([0; SMALL], [0; SMALL]);
        let mut count = 0;
        for (register, offset) in saved.chain([(INSTRUCTION_POINTER, -8)]) {
            *registers.get_mut(count)? = register;
            offsets[count] = i32::try_from(offset).ok()?;
            count += 1;
        }
        sort_by_offset(&mut registers[..count], &mut offsets[..count]);
        let rules = RecoveryRules::Saved { count: count as u8, registers, offsets };
        Some(Self { cfa: Cfa::Register { register, offset }, rules, signal: false })
    }

    /// Creates the row of a function that has reserved one word and saved no register.
    pub(super) fn spaced() -> Self {
        let mut row = Self::entry();
        row.cfa = Cfa::Register { register: super::STACK_POINTER, offset: 16 };
        row
    }

    /// Creates the row of a function that has set up its frame pointer.
    pub(super) fn framed() -> Self {
        let mut row = Self::entry();
        row.cfa = Cfa::Register { register: super::FRAME_POINTER, offset: 16 };
        row.save_frame_pointer()
    }

    fn save_frame_pointer(mut self) -> Self {
        if let RecoveryRules::Saved { count, registers, offsets } = &mut self.rules {
            (registers[1], offsets[1]) = (registers[0], offsets[0]);
            (registers[0], offsets[0]) = (super::FRAME_POINTER, -16);
            *count = 2;
        }
        self
    }

    /// Creates the row at the first instruction of the code that returns from a signal handler: the kernel has pushed
    /// `struct ucontext` at the stack pointer, and its registers start at 40 (Linux
    /// `arch/x86/include/uapi/asm/sigcontext.h`).
    pub(super) fn signal_frame() -> Self {
        const ORDER: [u8; COUNT] = [8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, 16];
        let rules = ORDER.iter().zip(0i64..).map(|(register, place)| (*register, RecoveryRule::Offset(40 + 8 * place)));
        Self {
            cfa: Cfa::Register { register: super::STACK_POINTER, offset: 0 },
            rules: RecoveryRules::Any(rules.collect()),
            signal: true,
        }
    }
}
