//! Decodes x86-64 instructions: their length, and their effect on the stack pointer, the frame pointer and the words of
//! memory that matter to unwinding.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, chapter 2 (prefixes, ModR/M, SIB,
//! VEX, EVEX) and appendix A (opcode maps). Registers are numbered as in the encoding: RAX, RCX, RDX, RBX, RSP, RBP,
//! RSI, RDI, R8 to R15.

/// The stack pointer's number in an instruction.
pub(super) const RSP: u8 = 4;
/// The frame pointer's number in an instruction.
pub(super) const RBP: u8 = 5;
/// The longest instruction, in bytes.
pub(super) const LONGEST: usize = 15;

/// The registers that instructions with fixed operands change: RAX, RCX, RDX, RSI and RDI.
const FIXED: u16 = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 6 | 1 << 7;
/// All registers but the stack pointer and the frame pointer.
const OTHERS: u16 = !(1 << RSP | 1 << RBP);

/// A memory operand as encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemoryOperand {
    /// The base register; `None` if the address has no base register, or cannot be evaluated.
    pub(super) base: Option<u8>,
    /// The displacement.
    pub(super) distance: i32,
}

/// The effect of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Changes these registers (bit N for register N) to unknown values, and has no other effect that matters.
    Changes(u16),
    /// Pushes a register's value, or an unknown one.
    Push(Option<u8>),
    /// Pops a word from the stack, into a register or elsewhere.
    Pop(Option<u8>),
    /// Copies a register.
    Copy { to: u8, from: u8 },
    /// Reads a word from memory.
    Load { to: u8, from: MemoryOperand },
    /// Reads one or two bytes from an address in a register.
    Fetch { to: u8, from: MemoryOperand },
    /// Writes a word to memory.
    Store { to: MemoryOperand, from: u8 },
    /// Computes an address.
    Point { to: u8, at: MemoryOperand },
    /// Computes an address plus a multiple of another register.
    PointBeyond { to: u8, at: MemoryOperand },
    /// Adds a constant.
    Add { to: u8, value: i32 },
    /// Adds another register.
    AddRegister { to: u8, from: u8 },
    /// Adds a word of memory.
    AddWord { to: u8, from: MemoryOperand },
    /// Clears the bits that are not in `value`.
    Mask { to: u8, value: i32 },
    /// `leave`.
    Leave,
    /// Calls.
    Call,
    /// Returns.
    Return,
    /// Jumps by this distance from the end of the instruction.
    Jump(i32),
    /// Continues at the next instruction, or jumps by this distance from its end.
    Branch(i32),
    /// Jumps to an address in a register or in memory.
    JumpThrough(Option<u8>),
    /// Execution does not continue after this instruction.
    End,
}

impl Effect {
    /// The registers that the effect writes (bit N for register N); none for a call.
    pub(super) fn targets(self) -> u16 {
        match self {
            Self::Changes(registers) => registers,
            Self::Push(_) => bit(RSP),
            Self::Pop(register) => bit(RSP) | register.map_or(0, bit),
            Self::Leave => bit(RSP) | bit(RBP),
            Self::Copy { to, .. }
            | Self::Load { to, .. }
            | Self::Fetch { to, .. }
            | Self::Point { to, .. }
            | Self::PointBeyond { to, .. }
            | Self::Add { to, .. }
            | Self::AddRegister { to, .. }
            | Self::AddWord { to, .. }
            | Self::Mask { to, .. } => bit(to),
            Self::Store { .. } | Self::Call | Self::Return | Self::End => 0,
            Self::Jump(_) | Self::Branch(_) | Self::JumpThrough(_) => 0,
        }
    }
}

/// One instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    /// The length in bytes.
    pub(super) length: usize,
    pub(super) effect: Effect,
    /// The registers on which the written value depends (bit N for register N), possibly among others.
    pub(super) sources: u16,
}

/// The prefixes before an opcode.
#[derive(Debug, Clone, Copy, Default)]
struct Prefixes {
    operand_size: bool,
    /// Whether the memory operand is relative to a segment's base.
    segment: bool,
    wide: bool,
    reg: u8,
    index: u8,
    base: u8,
}

/// The operands encoded by a ModR/M byte.
#[derive(Debug, Clone, Copy)]
struct Operands {
    /// The register, or an extension of the opcode.
    reg: u8,
    /// The other operand, if it is a register.
    register: Option<u8>,
    /// The other operand, if it is in memory.
    memory: MemoryOperand,
    /// The base register, if the address also depends on an index register.
    indexed: Option<u8>,
    /// The registers on which the other operand depends (bit N for register N).
    parts: u16,
    /// The length of ModR/M, SIB and displacement in bytes.
    length: usize,
}

/// Decodes the instruction at the start of `code`; `None` if it is cut off, or is not used by 64-bit programs.
pub(super) fn decode(code: &[u8]) -> Option<Instruction> {
    let mut at = 0;
    let mut prefixes = Prefixes::default();
    loop {
        match *code.get(at)? {
            0x66 => prefixes.operand_size = true,
            0x64 | 0x65 => prefixes.segment = true,
            0x26 | 0x2e | 0x36 | 0x3e | 0xf0 | 0xf2 | 0xf3 => {}
            _ => break,
        }
        at += 1;
    }
    let mut opcode = *code.get(at)?;
    if opcode & 0xf0 == 0x40 {
        prefixes.wide = opcode & 8 != 0;
        (prefixes.reg, prefixes.index, prefixes.base) = (opcode << 1 & 8, opcode << 2 & 8, opcode << 3 & 8);
        at += 1;
        opcode = *code.get(at)?;
    }
    let rest = code.get(at + 1..)?;
    let (length, (effect, sources)) = match opcode {
        0x0f => {
            let (length, made) = secondary(rest, prefixes)?;
            (length + 1, made)
        }
        0xc5 => {
            prefixes.reg = !rest.first()? >> 4 & 8;
            let (length, effect) = vector(1, rest.get(1..)?, prefixes)?;
            (length + 2, (effect, 0))
        }
        0xc4 => {
            let second = *rest.first()?;
            prefixes.reg = !second >> 4 & 8;
            prefixes.index = !second >> 3 & 8;
            prefixes.base = !second >> 2 & 8;
            let (length, effect) = vector(second & 0x1f, rest.get(2..)?, prefixes)?;
            (length + 3, (effect, 0))
        }
        0x62 => {
            let (length, effect) = vector(*rest.first()? & 7, rest.get(3..)?, prefixes)?;
            (length + 4, (effect, 0))
        }
        _ => {
            let (length, made) = primary(opcode, rest, prefixes)?;
            (length + 1, made)
        }
    };
    let length = at + length;
    (length <= code.len().min(LONGEST)).then_some(Instruction { length, effect, sources })
}

fn operands(bytes: &[u8], prefixes: Prefixes) -> Option<Operands> {
    let byte = *bytes.first()?;
    let (mode, reg, low) = (byte >> 6, byte >> 3 & 7 | prefixes.reg, byte & 7);
    let elsewhere = MemoryOperand { base: None, distance: 0 };
    if mode == 3 {
        let register = Some(low | prefixes.base);
        let parts = bit(low | prefixes.base);
        return Some(Operands { reg, register, memory: elsewhere, indexed: None, parts, length: 1 });
    }
    let (mut base, mut indexed, mut length) = (Some(low | prefixes.base), None, 1);
    let mut parts = bit(low | prefixes.base);
    let mut distance_length = [0, 1, 4][usize::from(mode)];
    if low == 4 {
        let scale = *bytes.get(1)?;
        length = 2;
        indexed = Some(scale & 7 | prefixes.base).filter(|_| mode != 0 || scale & 7 != 5);
        let index = Some(scale >> 3 & 7 | prefixes.index).filter(|index| *index != RSP);
        base = indexed.filter(|_| index.is_none());
        parts = indexed.map_or(0, bit) | index.map_or(0, bit);
        if mode == 0 && scale & 7 == 5 {
            distance_length = 4;
        }
    } else if mode == 0 && low == 5 {
        (base, parts, distance_length) = (None, 0, 4);
    }
    let distance = match distance_length {
        1 => i32::from(bytes.get(length)?.cast_signed()),
        4 => number(bytes.get(length..)?)?,
        _ => 0,
    };
    let base = base.filter(|_| !prefixes.segment);
    let memory = MemoryOperand { base, distance };
    let indexed = indexed.filter(|_| base.is_none());
    Some(Operands { reg, register: None, memory, indexed, parts, length: length + distance_length })
}

fn number(bytes: &[u8]) -> Option<i32> {
    Some(i32::from_le_bytes(*bytes.first_chunk()?))
}

fn bit(register: u8) -> u16 {
    1 << register
}

/// Decodes an instruction of the one-byte map: returns the length without opcode and prefixes, the effect, and
/// [`Instruction::sources`].
fn primary(opcode: u8, rest: &[u8], prefixes: Prefixes) -> Option<(usize, (Effect, u16))> {
    let low = opcode & 7 | prefixes.base;
    let immediate = if prefixes.operand_size { 2 } else { 4 };
    let simple = |length, effect| {
        let sources = if let Effect::Changes(registers) = effect { registers } else { 0 };
        Some((length, (effect, sources)))
    };
    match opcode {
        0x50..=0x57 => return simple(0, Effect::Push(Some(low))),
        0x58..=0x5f => return simple(0, Effect::Pop(Some(low))),
        0x68 => return simple(immediate, Effect::Push(None)),
        0x6a => return simple(1, Effect::Push(None)),
        0x70..=0x7f | 0xe0..=0xe3 => return simple(1, Effect::Branch(i32::from(rest.first()?.cast_signed()))),
        0x90..=0x97 => return simple(0, Effect::Changes(if low == 0 { 0 } else { bit(0) | bit(low) })),
        0xb0..=0xb7 => return simple(1, Effect::Changes(byte(bit(low)))),
        0xb8..=0xbf => return simple(if prefixes.wide { 8 } else { immediate }, Effect::Changes(bit(low))),
        0xa0..=0xa3 => return simple(8, Effect::Changes(FIXED)),
        0xa8 | 0xe4..=0xe7 => return simple(1, Effect::Changes(FIXED)),
        0xa9 => return simple(immediate, Effect::Changes(FIXED)),
        0x98 => return simple(0, Effect::Changes(bit(0))),
        0x99 => return simple(0, Effect::Changes(bit(2))),
        0x6c..=0x6f | 0x9b | 0x9e | 0x9f | 0xa4..=0xa7 | 0xaa..=0xaf | 0xd7 | 0xec..=0xef => {
            return simple(0, Effect::Changes(FIXED));
        }
        0xf5 | 0xf8..=0xfd => return simple(0, Effect::Changes(0)),
        0x9c => return simple(0, Effect::Push(None)),
        0x9d => return simple(0, Effect::Pop(None)),
        0xc3 => return simple(0, Effect::Return),
        0xc2 => return simple(2, Effect::Return),
        0xc9 => return simple(0, Effect::Leave),
        0xcc | 0xf4 => return simple(0, Effect::End),
        0xe8 => return simple(4, Effect::Call),
        0xe9 => return simple(4, Effect::Jump(number(rest)?)),
        0xeb => return simple(1, Effect::Jump(i32::from(rest.first()?.cast_signed()))),
        0x00..=0x3f if opcode & 7 == 4 => return simple(1, Effect::Changes(compared(opcode, bit(0)))),
        0x00..=0x3f if opcode & 7 == 5 => return simple(immediate, Effect::Changes(compared(opcode, bit(0)))),
        0x00..=0x3f if opcode & 7 > 5 => return None,
        0x00..=0x3f | 0x63 | 0x69 | 0x6b | 0x80 | 0x81 | 0x83..=0x8f | 0xc0 | 0xc1 | 0xc6 | 0xc7 | 0xd0..=0xd3 => {}
        0xd8..=0xdf | 0xf6 | 0xf7 | 0xfe | 0xff => {}
        _ => return None,
    }
    let Operands { reg, register, memory, indexed, parts, length } = operands(rest, prefixes)?;
    let operation = reg & 7;
    let both = bit(reg) | register.map_or(0, bit);
    let target = register.map_or(0, bit);
    let after = rest.get(length..)?;
    let whole = prefixes.wide && !prefixes.operand_size;
    let (more, effect) = match opcode {
        0x01 if whole => match register {
            Some(to) => (0, Effect::AddRegister { to, from: reg }),
            None => (0, Effect::Changes(0)),
        },
        0x03 if whole => match register {
            Some(from) => (0, Effect::AddRegister { to: reg, from }),
            None => (0, Effect::AddWord { to: reg, from: memory }),
        },
        0x00..=0x3f if opcode & 1 == 0 => (0, Effect::Changes(compared(opcode, byte(both)))),
        0x00..=0x3f => (0, Effect::Changes(compared(opcode, both))),
        0x63 => (0, Effect::Changes(bit(reg))),
        0x69 => (immediate, Effect::Changes(bit(reg))),
        0x6b => (1, Effect::Changes(bit(reg))),
        0x80 => (1, Effect::Changes(if operation == 7 { 0 } else { byte(target) })),
        0x81 | 0x83 => {
            let (more, value) = if opcode == 0x83 {
                (1, i32::from(after.first()?.cast_signed()))
            } else if prefixes.operand_size {
                (2, 0)
            } else {
                (4, number(after)?)
            };
            let effect = match (register, operation) {
                (_, 7) => Effect::Changes(0),
                (Some(to), 0) if whole => Effect::Add { to, value },
                (Some(to), 5) if whole => Effect::Add { to, value: value.wrapping_neg() },
                (Some(to), 4) if whole => Effect::Mask { to, value },
                _ => Effect::Changes(target),
            };
            (more, effect)
        }
        0x84 | 0x85 => (0, Effect::Changes(0)),
        0x89 if whole => match register {
            Some(to) => (0, Effect::Copy { to, from: reg }),
            None => (0, Effect::Store { to: memory, from: reg }),
        },
        0x88 => (0, Effect::Changes(byte(target))),
        0xc6 => (1, Effect::Changes(byte(target))),
        0xc7 => (immediate, Effect::Changes(target)),
        0x89 | 0x8c => (0, Effect::Changes(target)),
        0x8b if whole => match register {
            Some(from) => (0, Effect::Copy { to: reg, from }),
            None => (0, Effect::Load { to: reg, from: memory }),
        },
        0x8d if whole && register.is_none() => match indexed {
            Some(_) => (0, Effect::PointBeyond { to: reg, at: MemoryOperand { base: indexed, ..memory } }),
            None => (0, Effect::Point { to: reg, at: memory }),
        },
        0x8a => (0, Effect::Changes(byte(bit(reg)))),
        0x8b | 0x8d => (0, Effect::Changes(bit(reg))),
        0x8e => (0, Effect::Changes(0)),
        0x8f => (0, Effect::Pop(register)),
        0xc0 => (1, Effect::Changes(byte(target))),
        0xc1 => (1, Effect::Changes(target)),
        0xd0 | 0xd2 | 0xfe => (0, Effect::Changes(byte(target))),
        0xd1 | 0xd3 => (0, Effect::Changes(target)),
        0xd8..=0xdf => (0, Effect::Changes(bit(0))),
        0xf6 | 0xf7 if operation < 2 => (if opcode == 0xf6 { 1 } else { immediate }, Effect::Changes(0)),
        0xf6 if operation < 4 => (0, Effect::Changes(byte(target))),
        0xf7 if operation < 4 => (0, Effect::Changes(target)),
        0xf6 => (0, Effect::Changes(byte(target) | bit(0))),
        0xf7 => (0, Effect::Changes(target | bit(0) | bit(2))),
        0xff if operation == 6 => (0, Effect::Push(register)),
        0xff if operation == 2 => (0, Effect::Call),
        0xff if operation == 4 => (0, Effect::JumpThrough(register)),
        // These are calls of and jumps to another segment.
        0xff if matches!(operation, 3 | 5) => (0, Effect::End),
        0xff => (0, Effect::Changes(target)),
        _ => (0, Effect::Changes(both)),
    };
    let sources = match opcode {
        0x63 | 0x69 | 0x6b | 0x8b | 0x8d => parts,
        0x89 => bit(reg),
        // For these opcodes, the register field extends the opcode.
        0x80..=0x83 | 0xc0 | 0xc1 | 0xd0..=0xd3 | 0xf6 | 0xf7 | 0xfe | 0xff => parts,
        // Subtracting a register from itself, or XOR with itself, gives a result that does not depend on its value.
        0x18..=0x1b | 0x28..=0x2b | 0x30..=0x33 if register == Some(reg) => 0,
        _ => parts | bit(reg),
    };
    Some((length + more, (effect, sources)))
}

/// The registers of which an instruction changes one byte, given their numbers: without a prefix, numbers 4 to 7 are
/// the second bytes of the first four registers. No program changes the lowest bytes of the stack pointer and the frame
/// pointer.
fn byte(registers: u16) -> u16 {
    (registers | registers >> 4 & 0xf) & OTHERS
}

/// The registers that an arithmetic instruction changes; comparisons change none.
fn compared(opcode: u8, registers: u16) -> u16 {
    if opcode & 0xf8 == 0x38 { 0 } else { registers }
}

/// Decodes an instruction after the byte `0f`: returns the length without that byte, the effect, and
/// [`Instruction::sources`].
fn secondary(rest: &[u8], prefixes: Prefixes) -> Option<(usize, (Effect, u16))> {
    let opcode = *rest.first()?;
    let more = rest.get(1..)?;
    let low = opcode & 7 | prefixes.base;
    match opcode {
        0x0b => return Some((1, (Effect::End, 0))),
        0x05 | 0x31 | 0x77 | 0xa2 => return Some((1, (Effect::Changes(FIXED | 1 << 3 | 1 << 11), 0))),
        0x80..=0x8f => return Some((5, (Effect::Branch(number(more)?), 0))),
        0xc8..=0xcf => return Some((1, (Effect::Changes(bit(low)), bit(low)))),
        0x04 | 0x06..=0x09 | 0x0e | 0x0f | 0x30 | 0x32..=0x37 | 0xa0 | 0xa1 | 0xa8..=0xaa => return None,
        0x38 | 0x3a => {
            let Operands { reg, register, parts, length, .. } = operands(more.get(1..)?, prefixes)?;
            // Only MOVBE and CRC32 have general registers as operands.
            let general = opcode == 0x38 && matches!(more.first()?, 0xf0 | 0xf1);
            let changed = if general { bit(reg) | register.map_or(0, bit) } else { register.map_or(0, bit) & OTHERS };
            let length = 2 + length + usize::from(opcode == 0x3a);
            return Some((length, (Effect::Changes(changed), parts | changed)));
        }
        _ => {}
    }
    let Operands { reg, register, memory, indexed, parts, length } = operands(more, prefixes)?;
    // A fixed address belongs to a variable of the program, not to an object that a pointer refers to.
    let is_fixed = memory.base.is_none() && indexed.is_none();
    if matches!(opcode, 0xb6 | 0xb7) && register.is_none() && !is_fixed {
        return Some((1 + length, (Effect::Fetch { to: reg, from: memory }, parts)));
    }
    let target = register.map_or(0, bit);
    let changed = match opcode {
        0x40..=0x4f | 0xaf | 0xb6..=0xb8 | 0xbc..=0xbf => bit(reg),
        0xa4 | 0xa5 | 0xac | 0xad | 0xb3 | 0xab | 0xba | 0xbb | 0xb1 => target | bit(0),
        0xc1 => target | bit(reg),
        // Other instructions may have vector registers as operands, which are ignored.
        0x2c | 0x2d | 0x50 | 0xc5 | 0xd7 => bit(reg) & OTHERS,
        0x90..=0x9f | 0xb0 => byte(target) | bit(0),
        0xc0 => byte(target | bit(reg)),
        0x7e => target & OTHERS,
        0xc7 => FIXED | target & OTHERS,
        _ => 0,
    };
    let number = usize::from(matches!(opcode, 0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6));
    let sources = match opcode {
        0xb6 | 0xbe => byte(parts) | parts,
        0xb7 | 0xbf => parts,
        _ => parts | changed,
    };
    Some((1 + length + number, (Effect::Changes(changed), sources)))
}

/// Decodes an instruction with a VEX or EVEX prefix, from its opcode on.
fn vector(map: u8, rest: &[u8], prefixes: Prefixes) -> Option<(usize, Effect)> {
    let opcode = *rest.first()?;
    if map == 1 && opcode == 0x77 {
        return Some((1, Effect::Changes(0)));
    }
    if !(1..=3).contains(&map) {
        return None;
    }
    let Operands { reg, register, length, .. } = operands(rest.get(1..)?, prefixes)?;
    let number = map == 3 || map == 1 && matches!(opcode, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6);
    let changed = match (map, opcode) {
        // These are instructions with general registers, some of which are encoded in the prefix, and moves from vector
        // registers.
        (2, 0xf2..=0xf7) | (3, 0xf0) => OTHERS,
        (1, 0x2c | 0x2d | 0x50 | 0xc5 | 0xd7) => bit(reg) & OTHERS,
        (1, 0x7e) | (3, 0x14..=0x17) => register.map_or(0, bit) & OTHERS,
        _ => 0,
    };
    Some((1 + length + usize::from(number), Effect::Changes(changed)))
}

#[cfg(test)]
mod tests;
