//! A second unwinder, as simple as possible: for each frame it reads all entries of the table, it caches nothing, and
//! gimli evaluates all expressions with its own storage. It uses call frame information only.

use std::sync::Arc;

use gimli::{
    CfaRule, EndianSlice, EvaluationResult, LittleEndian, Register, RegisterRule, UnwindContext, UnwindSection, Value,
};
use profbridge_sampler::address_space::{AddressSpace, Module};
use profbridge_sampler::elf::UnwindTables;
use profbridge_sampler::unwind::{Registers, StackMemory};

const RSP: u8 = 7;
const RIP: u8 = 16;
/// RBX, RBP, R12 to R15.
const PRESERVED: [u8; 6] = [3, 6, 12, 13, 14, 15];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OracleEnd {
    Root,
    /// The table has no entry for this code.
    NoEntry,
    /// A register or memory is missing, or the code is unknown.
    Missing,
    /// The requested number of frames was found.
    Enough,
}

/// The instruction pointers of the frames, at most `most`.
pub(crate) fn unwind(
    space: &AddressSpace,
    registers: &Registers,
    memory: &mut dyn StackMemory,
    most: usize,
) -> (Vec<u64>, OracleEnd) {
    let mut now = *registers;
    let mut exact = true;
    let mut pcs = Vec::new();
    while pcs.len() < most {
        let Some(pc) = now.get(RIP) else { return (pcs, OracleEnd::Missing) };
        let lookup = if exact { pc } else { pc.wrapping_sub(1) };
        let Some(module) = space.find(lookup) else {
            if pcs.is_empty() {
                pcs.push(pc);
            }
            return (pcs, OracleEnd::Missing);
        };
        pcs.push(pc);
        match caller(module, lookup, &now, memory) {
            Ok((caller, signal)) => {
                now = caller;
                exact = signal;
            }
            Err(end) => return (pcs, end),
        }
    }
    (pcs, OracleEnd::Enough)
}

fn caller(
    module: &Module,
    lookup: u64,
    now: &Registers,
    memory: &mut dyn StackMemory,
) -> Result<(Registers, bool), OracleEnd> {
    let object = Arc::clone(module.object.as_ref().ok_or(OracleEnd::NoEntry)?);
    let tables: &UnwindTables = object.tables().ok_or(OracleEnd::NoEntry)?;
    let (section, bases) = (tables.eh_frame(), tables.bases());
    let address = lookup.wrapping_sub(module.bias);
    let entry = section
        .fde_for_address(bases, address, |section, bases, offset| section.cie_from_offset(bases, offset))
        .map_err(|_| OracleEnd::NoEntry)?;
    let mut context = UnwindContext::new();
    let row = entry.unwind_info_for_address(&section, bases, &mut context, address).map_err(|_| OracleEnd::Missing)?;
    let evaluate = |expression: gimli::UnwindExpression<usize>, first, memory: &mut dyn StackMemory| {
        let expression = expression.get(&section).map_err(|_| OracleEnd::Missing)?;
        evaluate(expression, first, now, memory)
    };
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => get(now, *register)?.wrapping_add_signed(*offset),
        CfaRule::Expression(expression) => evaluate(*expression, None, memory)?,
    };
    let mut caller = Registers::default();
    caller.set(RSP, cfa);
    for number in 0..=RIP {
        let value = match row.register(Register(number.into())) {
            None if PRESERVED.contains(&number) => get(now, Register(number.into())),
            None => continue,
            Some(RegisterRule::SameValue) => get(now, Register(number.into())),
            Some(RegisterRule::Undefined) if number == RIP => return Err(OracleEnd::Root),
            Some(RegisterRule::Offset(offset)) => {
                memory.read_u64(cfa.wrapping_add_signed(offset)).ok_or(OracleEnd::Missing)
            }
            Some(RegisterRule::ValOffset(offset)) => Ok(cfa.wrapping_add_signed(offset)),
            Some(RegisterRule::Register(other)) => get(now, other),
            Some(RegisterRule::Expression(expression)) => evaluate(expression, Some(cfa), memory)
                .and_then(|address| memory.read_u64(address).ok_or(OracleEnd::Missing)),
            Some(RegisterRule::ValExpression(expression)) => evaluate(expression, Some(cfa), memory),
            Some(_) => Err(OracleEnd::Missing),
        };
        match value {
            Ok(value) => caller.set(number, value),
            Err(end) if number == RIP || number == RSP => return Err(end),
            Err(_) => {}
        }
    }
    match caller.get(RIP) {
        Some(0) => Err(OracleEnd::Root),
        Some(_) => Ok((caller, entry.is_signal_trampoline())),
        None => Err(OracleEnd::Missing),
    }
}

fn get(now: &Registers, register: Register) -> Result<u64, OracleEnd> {
    u8::try_from(register.0).ok().and_then(|number| now.get(number)).ok_or(OracleEnd::Missing)
}

fn evaluate(
    expression: gimli::Expression<EndianSlice<'_, LittleEndian>>,
    first: Option<u64>,
    now: &Registers,
    memory: &mut dyn StackMemory,
) -> Result<u64, OracleEnd> {
    let encoding = gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 5 };
    let mut evaluation = expression.evaluation(encoding);
    evaluation.set_max_iterations(1000);
    if let Some(first) = first {
        evaluation.set_initial_value(first);
    }
    let mut result = evaluation.evaluate().map_err(|_| OracleEnd::Missing)?;
    loop {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresMemory { address, size, .. } => {
                let word = memory.read_u64(address).ok_or(OracleEnd::Missing)?;
                let value = word & u64::MAX.checked_shr(64 - 8 * u32::from(size)).ok_or(OracleEnd::Missing)?;
                evaluation.resume_with_memory(Value::Generic(value))
            }
            EvaluationResult::RequiresRegister { register, .. } => {
                evaluation.resume_with_register(Value::Generic(get(now, register)?))
            }
            _ => return Err(OracleEnd::Missing),
        }
        .map_err(|_| OracleEnd::Missing)?;
    }
    match evaluation.as_result() {
        [gimli::Piece { location: gimli::Location::Address { address }, .. }] => Ok(*address),
        _ => Err(OracleEnd::Missing),
    }
}
