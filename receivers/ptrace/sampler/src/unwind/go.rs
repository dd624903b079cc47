//! Unwinds stack frames of Go by its own table of functions.
//!
//! Go's code keeps frame pointers, but the frame pointer of a blocked thread is unknown, and functions in assembly have
//! none. For every instruction, `runtime.pclntab` has the distance from the stack pointer to the return address, in
//! stripped programs as well, since the runtime unwinds with it. The table's layout has been the same since Go 1.18
//! except for one field (`src/runtime/symtab.go` pcHeader, `src/runtime/runtime2.go` _func,
//! `src/internal/abi/symtab.go` FuncFlag).

use super::cache::Cache;
use super::fallback::Maker;
use super::registers::{FRAME_POINTER, INSTRUCTION_POINTER, STACK_POINTER};
use super::step::WalkEnd;
use super::walk::{Caller, Walk};
use crate::address_space::{AddressSpace, Module};

/// The largest number of functions of a program; the largest known programs have a million.
const MAX_FUNCTIONS: u64 = 1 << 24;
/// How many bytes of a function's table of stack sizes are read; a step takes about two bytes, and few functions have
/// ten steps.
const MAX_STEPS: usize = 4096;
/// The largest stack of a goroutine: 1 GiB (`src/runtime/proc.go` main).
const MAX_SIZE: u64 = 1 << 30;

/// The offset of the module's text start in Go 1.26's `runtime.moduledata`, since the table's header no longer has it.
const TEXT_IN_MODULE_DATA: u64 = 176;

/// The range of stack addresses: above the page that is never mapped, and below the kernel's half (47 bits on Linux,
/// unless a process requests more).
const LEAST_POINTER: u64 = 0x1000;
const MOST_POINTER: u64 = 1 << 47;

const TOP_FRAME: u8 = 1;
const WRITES_STACK_POINTER: u8 = 2;

/// An entry of the table, for one instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GoFrame {
    /// The distance from the stack pointer to the return address, in bytes.
    size: u64,
    /// Whether the function is the first one of its stack.
    top: bool,
}

/// Table entries by address space and address. A process may write to its table, so processes do not share entries.
pub(super) type GoCache = Cache<2, Option<GoFrame>, 1024>;

impl Walk<'_> {
    /// Finds the caller of Go's code by the size of its frame. `None` if the table does not contain the code, or the
    /// stack contradicts it.
    pub(super) fn by_go_table(&mut self, module: &Module, lookup: u64) -> Result<Option<Caller>, WalkEnd> {
        let space = self.space;
        let frame = *self.scratch.go.get([space.id(), lookup], || look_up(space, module, lookup));
        let Some(frame) = frame else { return Ok(None) };
        if frame.top {
            return Err(WalkEnd::Root);
        }
        let place = self.register(STACK_POINTER)?.wrapping_add(frame.size);
        let returns = self.memory.read_u64(place).ok_or(WalkEnd::Memory(place))?;
        if !self.returns(returns, Maker::Go) {
            return Ok(None);
        }
        let mut registers = self.registers;
        // Go's functions preserve no registers except the frame pointer, which is stored below the return address if
        // there is a frame.
        registers.known &= 1 << FRAME_POINTER;
        let mut saved = self.saved;
        if frame.size >= 8 {
            registers.forget(FRAME_POINTER);
            match self.saved_frame_pointer(place.wrapping_sub(8)) {
                Ok(Some(pointer)) => registers.set(FRAME_POINTER, pointer),
                Ok(None) => {}
                // In functions called by `systemstack`, the frame pointer is on the goroutine's stack, but the stack
                // pointer is on the thread's.
                Err(missing) => saved.lose(FRAME_POINTER, missing),
            }
        }
        registers.set(STACK_POINTER, place.wrapping_add(8));
        registers.set(INSTRUCTION_POINTER, returns);
        Ok(Some(Caller { registers, saved, interrupted: false }))
    }

    /// A frame pointer, if it is plausible: some functions in assembly store something else there. The error is the
    /// address that is not in the copy.
    fn saved_frame_pointer(&mut self, place: u64) -> Result<Option<u64>, u64> {
        let pointer = self.memory.read_u64(place).ok_or(place)?;
        if pointer == 0 {
            return Ok(Some(pointer));
        }
        if !pointer.is_multiple_of(8) || !(LEAST_POINTER..MOST_POINTER).contains(&pointer) {
            return Ok(None);
        }
        let place = pointer + 8;
        let returns = self.memory.read_u64(place).ok_or(place)?;
        Ok(self.returns(returns, Maker::Go).then_some(pointer))
    }
}

/// Looks up an address in a module's table, reading the table where it is mapped.
fn look_up(space: &AddressSpace, module: &Module, address: u64) -> Option<GoFrame> {
    let place = module.object.as_ref()?.go_table()?;
    let table = place.address.wrapping_add(module.bias);
    let header: [u8; 72] = read(space, table)?;
    // The header: magic number, two zeros, unit of instructions, size of addresses.
    let has_lines = match header.first_chunk()? {
        [0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8] => true,
        [0xf0, 0xff, 0xff, 0xff, 0, 0, 1, 8] => false,
        _ => return None,
    };
    let word = |at: usize| header.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_le_bytes(*word));
    let (functions, steps, index) = (word(8), table.wrapping_add(word(56)), table.wrapping_add(word(64)));
    let text = match (word(24), place.module_data) {
        (0, None) => return None,
        (0, Some(data)) => {
            let data = data.wrapping_add(module.bias);
            let first = u64::from_le_bytes(read(space, data)?);
            // The first field has to be the address of the table, which shows that the layout is the expected one.
            (first == table).then_some(())?;
            u64::from_le_bytes(read(space, data.wrapping_add(TEXT_IN_MODULE_DATA))?)
        }
        (text, _) => text,
    };
    if functions > MAX_FUNCTIONS {
        return None;
    }
    let distance = u32::try_from(address.checked_sub(text)?).ok()?;
    let entry = |place: u64| {
        let words: [u8; 8] = read(space, index.wrapping_add(8 * place))?;
        let [start, at] = [0, 4].map(|at| u32::from_le_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]]));
        Some((start, at))
    };
    let (mut low, mut high) = (0, functions);
    while low < high {
        let middle = low.midpoint(high);
        if entry(middle)?.0 <= distance { low = middle + 1 } else { high = middle }
    }
    let (start, at) = entry(low.checked_sub(1)?)?;
    // The entry after the last function contains the end of that function.
    if distance >= entry(low)?.0 {
        return None;
    }
    let function: [u8; 44] = read(space, index.wrapping_add(u64::from(at)))?;
    let field = |at: usize| u32::from_le_bytes([function[at], function[at + 1], function[at + 2], function[at + 3]]);
    let flags = function[if has_lines { 41 } else { 37 }];
    let offset = field(16);
    if field(0) != start || flags & WRITES_STACK_POINTER != 0 && flags & TOP_FRAME == 0 || offset == 0 {
        return None;
    }
    let mut bytes = [0; MAX_STEPS];
    let count = space.read_code(steps.wrapping_add(u64::from(offset)), &mut bytes).min(MAX_STEPS);
    let size = stack_size(&bytes[..count], distance - start)?;
    let top = flags & TOP_FRAME != 0;
    (size.is_multiple_of(8) && size <= MAX_SIZE).then_some(GoFrame { size, top })
}

fn read<const LENGTH: usize>(space: &AddressSpace, address: u64) -> Option<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    (space.read_code(address, &mut bytes) == LENGTH).then_some(bytes)
}

/// The value for an instruction at a distance from its function's start. The table consists of pairs: a signed
/// increment of the value, and the number of bytes it then applies to (`src/runtime/symtab.go` step).
fn stack_size(mut bytes: &[u8], distance: u32) -> Option<u64> {
    let (mut value, mut end) = (-1i32, 0u32);
    loop {
        let change = number(&mut bytes)?;
        if change == 0 && end != 0 {
            return None;
        }
        value = value.wrapping_add((change >> 1).cast_signed() ^ (change & 1).cast_signed().wrapping_neg());
        let length = number(&mut bytes)?;
        end = end.checked_add(length).filter(|_| length > 0)?;
        if distance < end {
            return u64::try_from(value).ok();
        }
    }
}

/// A number in groups of seven bits, lowest first.
fn number(bytes: &mut &[u8]) -> Option<u32> {
    let mut value = 0u32;
    for shift in (0..32).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests;
