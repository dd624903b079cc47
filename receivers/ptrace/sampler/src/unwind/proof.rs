//! Finds the caller of code without call frame information, if the code itself proves which one it is.
//!
//! A word on the stack is the return address of the running function if it follows a call of a function whose
//! instructions lead to the current position, and if these instructions have moved the stack pointer by exactly its
//! distance from that word. A call through a pointer does not show which function it calls. Then all paths from the
//! current position to a return are followed: each gives a distance of the return address, and exactly one of them
//! must lead to a word that follows a call. Both are facts of the code, so a stack with such steps can be complete.

use super::cache::Cache;
use super::code::{Call, jump};
use super::flow::{main_function, rules, rules_to_return};
use super::instruction::LONGEST;
use super::registers::{FRAME_POINTER, STACK_POINTER};
use super::row::{Cfa, UnwindRow};
use super::walk::Walk;
use crate::address_space::{AddressSpace, Module, ModuleKind};
use crate::elf::ElfObject;

/// How many words of the stack are examined for one frame: 16 KiB.
const MAX_WORDS: u64 = 2048;
/// How many words are examined for one stack.
pub(super) const MAX_LOOKED: u64 = 16_384;
/// How many words that are addresses of code are examined for one stack.
pub(super) const MAX_TRIED: u32 = 1024;
/// How many instructions are followed for one stack, including those whose result is cached.
pub(super) const MAX_FOLLOWED: u32 = 65_536;
/// How many instructions are followed for one function.
const MAX_FOLLOWED_ONCE: u32 = 4096;
/// The longest function that is considered, in bytes.
const MAX_FUNCTION: u64 = 64 << 10;
/// How many bytes of a function table are read.
const MAX_TABLE: usize = 8192;

/// Cached results of following instructions: by the object, an address in it, and the start of the function, or 0 for
/// paths from the address to a return. The value has the rules, at most one if the function's start is known, and the
/// number of instructions followed.
pub(super) type FlowCache = Cache<3, FlowResult, 2048>;
type FlowResult = (Vec<UnwindRow>, u32);

impl Walk<'_> {
    /// The unwind rules for an address without call frame information, if the code and the stack prove them.
    pub(super) fn proven_rules(&mut self, module: &Module, lookup: u64) -> Option<UnwindRow> {
        let (ModuleKind::File, Some(object)) = (module.kind, &module.object) else { return None };
        let pc = self.registers.instruction_pointer();
        let stack = self.registers.get(STACK_POINTER)?;
        let by_return = self.rules_by_return(module, object, pc);
        let mut main = None;
        // The start of a called function shows that the function before it has ended there.
        let mut nearest = 0;
        for place in 0..MAX_WORDS.min(self.patience.looked) {
            self.patience.looked -= 1;
            let slot = stack.wrapping_add(8 * place);
            let address = self.memory.peek_u64(slot)?;
            if address == 0 || self.space.find(address - 1).is_none() {
                continue;
            }
            self.patience.tried = self.patience.tried.checked_sub(1)?;
            let Some(call) = self.unbounded(|walk| walk.call_before(address)) else { continue };
            let function = match call {
                // The thread is still in a stub that only jumps to the called function.
                Call::Direct(function) if pc.wrapping_sub(function) < LONGEST as u64 => function,
                Call::Direct(function) => self.jumped_to(function),
                Call::Stored(place) => self.stored(place).unwrap_or_default(),
                // The C library calls the program's first function through a pointer.
                _ => function_of_table(self.space, address, pc).unwrap_or_else(|| {
                    let entry = object.entry().wrapping_add(module.bias);
                    *main.get_or_insert_with(|| main_function(self.space, entry).unwrap_or_default())
                }),
            };
            let possible = function >= nearest && pc.wrapping_sub(function) < MAX_FUNCTION;
            if possible && self.may_be_in(module, lookup, function) {
                nearest = function;
            }
            let agrees = by_return.as_ref().and_then(|row| self.returns_by(row)) == Some(slot);
            // The called function may have ended with a jump to another function, which can be anywhere.
            if function != 0
                && (nearest == function || agrees)
                && let Some(row) = self.rules_from_start(module, object, function, pc)
                && self.returns_by(&row) == Some(slot)
            {
                return Some(row);
            }
            if agrees && !matches!(call, Call::Direct(_)) {
                return by_return;
            }
        }
        None
    }

    /// The address of a called function, after following the procedure linkage table and code that only jumps.
    fn jumped_to(&mut self, function: u64) -> u64 {
        match self.unbounded(|walk| walk.code_at(function)).and_then(|code| jump(function, &code)) {
            Some(Call::Direct(next)) => next,
            Some(Call::Stored(place)) => self.stored(place).unwrap_or(function),
            _ => function,
        }
    }

    /// Finds the rules by following the function from its first instruction.
    fn rules_from_start(&mut self, module: &Module, object: &ElfObject, function: u64, pc: u64) -> Option<UnwindRow> {
        let question = [object.id(), pc.wrapping_sub(module.bias), function.wrapping_sub(module.bias)];
        let space = self.space;
        let answer = |most| {
            let (row, followed) = rules(space, function, pc, most);
            (row.into_iter().collect(), followed)
        };
        self.cached_rows(question, answer).pop()
    }

    /// Finds the rules by following all paths to a return, if exactly one of them leads to a word that follows a call.
    fn rules_by_return(&mut self, module: &Module, object: &ElfObject, pc: u64) -> Option<UnwindRow> {
        let space = self.space;
        let mut rows =
            self.cached_rows([object.id(), pc.wrapping_sub(module.bias), 0], |most| rules_to_return(space, pc, most));
        rows.retain(|row| {
            let word = self.returns_by(row).and_then(|slot| self.memory.peek_u64(slot));
            word.is_some_and(|word| self.unbounded(|walk| walk.call_before(word)).is_some())
        });
        rows.pop().filter(|_| rows.is_empty())
    }

    fn cached_rows(&mut self, question: [u64; 3], answer: impl FnOnce(u32) -> FlowResult) -> Vec<UnwindRow> {
        let (rows, followed) = self.scratch.flow.get(question, || answer(MAX_FOLLOWED_ONCE)).clone();
        match self.patience.followed.checked_sub(followed) {
            Some(left) => {
                self.patience.followed = left;
                rows
            }
            None => Vec::new(),
        }
    }

    /// The address of the return address according to a row.
    fn returns_by(&self, row: &UnwindRow) -> Option<u64> {
        let Cfa::Register { register, offset } = row.cfa else { return None };
        let base = match register {
            STACK_POINTER | FRAME_POINTER => self.registers.get(register)?,
            _ => return None,
        };
        Some(base.wrapping_add_signed(offset).wrapping_sub(8))
    }
}

/// If the call before `returns` takes the function from a table (`lea table(%rip), %reg; call *(%reg,%index,8)`), the
/// function in the table nearest before `pc`.
fn function_of_table(space: &AddressSpace, returns: u64, pc: u64) -> Option<u64> {
    let mut code = [0; 10];
    if space.read_code(returns.wrapping_sub(10), &mut code) != code.len() {
        return None;
    }
    let [0x48, 0x8d, target, a, b, c, d, 0xff, 0x14, index] = code else { return None };
    // Both instructions must use the same register, one of the first eight, with a scale of 8.
    if target & 0xc7 != 5 || index & 7 != target >> 3 & 7 || index >> 6 != 3 {
        return None;
    }
    let table = returns.wrapping_sub(3).wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])));
    let mut bytes = vec![0; MAX_TABLE];
    let count = space.read_code(table, &mut bytes).min(MAX_TABLE);
    let entries = bytes[..count].chunks_exact(8).filter_map(|word| Some(u64::from_le_bytes(*word.first_chunk()?)));
    // The table ends at the first word that is not an address of code.
    let functions = entries.take_while(|function| space.find(*function).is_some());
    functions.filter(|function| *function <= pc).max()
}
