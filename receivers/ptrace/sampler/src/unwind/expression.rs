//! Evaluates DWARF expressions in call frame information.
//!
//! Compilers use expressions for realigned stacks (whose frame address is read from memory), linkers for the procedure
//! linkage table, glibc for signal frames. Expressions may compute with registers and words of the stack; other
//! operations are rejected. The number of operations, the depth of the stack and the length are limited, since an
//! expression may loop.

use gimli::{Encoding, EvaluationResult, EvaluationStorage, Format, Piece, Reader, UnitOffset, Value};

use super::step::{StepState, WalkEnd};
use crate::elf::Slice;

/// The maximum length of an expression in bytes. The longest in use (glibc's for signal frames) have about 30.
const MAX_LENGTH: usize = 1024;
/// The maximum number of operations that are executed.
const MAX_OPERATIONS: u32 = 1000;

const ENCODING: Encoding = Encoding { address_size: 8, format: Format::Dwarf32, version: 4 };

struct Room;

impl<R: Reader> EvaluationStorage<R> for Room {
    type Stack = [Value; 64];
    type ExpressionStack = [(R, R); 1];
    type Result = [Piece<R>; 1];
}

/// Evaluates an expression to an address or value. `initial` is pushed first, if there is one.
pub(super) fn evaluate(bytes: Slice<'_>, initial: Option<u64>, machine: &mut StepState<'_>) -> Result<u64, WalkEnd> {
    if bytes.len() > MAX_LENGTH {
        return Err(WalkEnd::Malformed);
    }
    let mut evaluation = gimli::Evaluation::<_, Room>::new_in(bytes, ENCODING);
    evaluation.set_max_iterations(MAX_OPERATIONS);
    if let Some(initial) = initial {
        evaluation.set_initial_value(initial);
    }
    let mut result = evaluation.evaluate().map_err(malformed)?;
    loop {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresMemory { address, size, space: None, base_type: UnitOffset(0) } => {
                let word = machine.read(address)?;
                let value = if size >= 8 { word } else { word & ((1 << (8 * u32::from(size))) - 1) };
                evaluation.resume_with_memory(Value::Generic(value))
            }
            EvaluationResult::RequiresRegister { register, base_type: UnitOffset(0) } => {
                let value = machine.register(u8::try_from(register.0).map_err(|_| WalkEnd::Malformed)?)?;
                evaluation.resume_with_register(Value::Generic(value))
            }
            _ => return Err(WalkEnd::Malformed),
        }
        .map_err(malformed)?;
    }
    match evaluation.as_result() {
        [Piece { location: gimli::Location::Address { address }, size_in_bits: None, .. }] => Ok(*address),
        [Piece { location: gimli::Location::Value { value: Value::Generic(value) }, size_in_bits: None, .. }] => {
            Ok(*value)
        }
        _ => Err(WalkEnd::Malformed),
    }
}

fn malformed(_: gimli::Error) -> WalkEnd {
    WalkEnd::Malformed
}
