//! Names the stubs through which code calls functions of other files (the procedure linkage table). A stub is named
//! after its target: `malloc@plt`.
//!
//! No symbol table contains stubs. A stub jumps to an address that it loads from a slot, and the relocation of that
//! slot names the function. The slot's address is decoded from the stub's instructions, so that the layouts of all
//! linkers are handled alike.

use hashbrown::HashMap;
use object::elf;

use crate::Unknown;
use crate::elf::{Elf, ElfFields};
use crate::symbol_table::SymbolTableBuilder;
use crate::text::MAX_NAME;

/// Suffix of a stub's name, as in `objdump`.
pub(crate) const SUFFIX: &str = "@plt";

/// The maximum length of a stub, in bytes.
const MAX_STUB: u64 = 24;
/// The maximum size of a table of stubs, in bytes: a million stubs.
const MAX_TABLE: usize = 16 << 20;

/// Start and end address of each stub, by the address of its slot.
type Stubs = HashMap<u64, (u64, u64)>;

/// Adds the stubs of a file. `limit` is the maximum size in bytes of each of the tables of relocations, symbols and
/// names.
pub(crate) fn add_stubs(file: &Elf, builder: &mut SymbolTableBuilder, limit: usize) -> Result<(), Unknown> {
    let Some(architecture) = Architecture::of(file) else { return Ok(()) };
    let mut stubs = Stubs::default();
    for section in file.sections() {
        if file.is_named_like(section, b".plt") || file.is_named_like(section, b".iplt") {
            let code = file.raw(section, MAX_TABLE)?;
            let mut found = architecture.slots(&code, section.address).peekable();
            let end = section.address.saturating_add(section.size);
            while let Some((start, slot)) = found.next() {
                let next = found.peek().map_or(end, |next| next.0);
                stubs.insert(slot, (start, next.min(start.saturating_add(MAX_STUB))));
            }
        }
    }
    if stubs.is_empty() {
        return Ok(());
    }
    for table in file.sections().iter().filter(|section| section.kind == elf::SHT_RELA.0 && section.is_loaded()) {
        let symbols = file.sections().get(table.link as usize);
        let strings = symbols.and_then(|symbols| file.sections().get(symbols.link as usize));
        let relocations = file.raw(table, limit)?;
        let symbols = symbols.map_or_else(|| Ok(Vec::new()), |symbols| file.raw(symbols, limit))?;
        let strings = strings.map_or_else(|| Ok(Vec::new()), |strings| file.raw(strings, limit))?;
        // `Elf64_Rela` consists of the slot, the symbol and the type, and an addend.
        for bytes in relocations.chunks_exact(24) {
            let fields = ElfFields { bytes, little_endian: file.little_endian };
            let (Some(slot), Some(kind), Some(addend)) = (fields.u64(0), fields.u64(8), fields.u64(16)) else {
                continue;
            };
            let Some((start, end)) = stubs.remove(&slot) else { continue };
            let (symbol, kind) = ((kind >> 32) as usize, kind as u32);
            let name = if kind == architecture.relative {
                builder.resolved_by(addend).map(<[u8]>::to_vec)
            } else if architecture.named.contains(&kind) {
                name_of(ElfFields { bytes: &symbols, ..fields }, symbol, &strings).map(<[u8]>::to_vec)
            } else {
                None
            };
            if let Some(mut name) = name {
                name.extend(SUFFIX.as_bytes());
                builder.add(start, end - start, &name, true, true)?;
            }
        }
    }
    Ok(())
}

fn name_of<'a>(symbols: ElfFields<'_>, number: usize, strings: &'a [u8]) -> Option<&'a [u8]> {
    let name = strings.get(symbols.u32(number.checked_mul(24)?)? as usize..)?;
    let name = name[..name.len().min(MAX_NAME)].split(|&byte| byte == 0).next()?;
    (!name.is_empty()).then_some(name)
}

/// The stubs and relocations of one architecture.
struct Architecture {
    /// The slot of a stub with this code at this address.
    slot: fn(&[u8], u64) -> Option<u64>,
    /// Alignment of stubs in bytes.
    step: usize,
    /// The types of relocations that name a symbol: for function slots, and for any address.
    named: [u32; 2],
    /// The type of relocations that contain the address of a resolver.
    relative: u32,
}

impl Architecture {
    fn of(file: &Elf) -> Option<Self> {
        match elf::Machine(file.machine) {
            elf::EM_X86_64 => Some(Self {
                slot: x86_64_slot,
                step: 8,
                named: [elf::R_X86_64_JUMP_SLOT.0, elf::R_X86_64_GLOB_DAT.0],
                relative: elf::R_X86_64_IRELATIVE.0,
            }),
            elf::EM_AARCH64 => Some(Self {
                slot: aarch64_slot,
                step: 4,
                named: [elf::R_AARCH64_JUMP_SLOT.0, elf::R_AARCH64_GLOB_DAT.0],
                relative: elf::R_AARCH64_IRELATIVE.0,
            }),
            _ => None,
        }
    }

    /// The stubs in code at an address: start and slot of each.
    fn slots<'a>(&'a self, code: &'a [u8], address: u64) -> impl Iterator<Item = (u64, u64)> + 'a {
        (0..code.len()).step_by(self.step).filter_map(move |at| {
            let start = address.checked_add(at as u64)?;
            Some((start, (self.slot)(&code[at..], start)?))
        })
    }
}

/// `jmp *slot(%rip)`, behind an optional `endbr64` and with an optional `bnd` prefix (x86-64 psABI, "Procedure Linkage
/// Table").
fn x86_64_slot(code: &[u8], address: u64) -> Option<u64> {
    let rest = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code);
    let rest = rest.strip_prefix(&[0xf2]).unwrap_or(rest).strip_prefix(&[0xff, 0x25])?;
    let displacement = i32::from_le_bytes(*rest.first_chunk()?);
    let behind = (code.len() - rest.len() + 4) as u64;
    Some(address.wrapping_add(behind).wrapping_add_signed(displacement.into()))
}

/// `adrp x16, page; ldr x17, [x16, #offset]`, behind an optional `bti c` (ABI for the Arm 64-bit Architecture).
fn aarch64_slot(code: &[u8], address: u64) -> Option<u64> {
    const BTI_C: u32 = 0xd503_245f;
    let word = |at: usize| code.get(at..at + 4)?.first_chunk().map(|word| u32::from_le_bytes(*word));
    let at = if word(0)? == BTI_C { 4 } else { 0 };
    let (adrp, ldr) = (word(at)?, word(at + 4)?);
    if adrp & 0x9f00_001f != 0x9000_0010 || ldr & 0xffc0_03ff != 0xf940_0211 {
        return None;
    }
    // Joins the upper 19 and the lower two bits, and extends the sign.
    let pages = ((adrp >> 5 & 0x7_ffff) << 2 | adrp >> 29 & 3).cast_signed() << 11 >> 11;
    let page = (address.wrapping_add(at as u64) & !0xfff).wrapping_add_signed(i64::from(pages) << 12);
    Some(page.wrapping_add(u64::from(ldr >> 10 & 0xfff) * 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: stubs of both architectures are recognised in each layout, and the entry that starts the dynamic
    /// linker is not taken for a stub.
    #[test]
    fn layouts() {
        let stub = |bytes: &[u8]| x86_64_slot(bytes, 0x1000);
        assert_eq!(stub(&[0xff, 0x25, 0x10, 0, 0, 0]), Some(0x1016));
        assert_eq!(stub(&[0xf2, 0xff, 0x25, 0xf9, 0xff, 0xff, 0xff]), Some(0x1000));
        assert_eq!(stub(&[0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0, 0x10, 0, 0]), Some(0x200a));
        assert_eq!(stub(&[0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0, 0, 0, 0, 0x90]), Some(0x100b));
        for other in [&[0xff, 0x35, 0, 0, 0, 0][..], &[0xff, 0x25, 0, 0, 0], &[0xf3, 0x0f, 0x1e, 0xfa], &[]] {
            assert_eq!(stub(other), None, "{other:x?}");
        }
        // `adrp x16, 0x1f000; ldr x17, [x16, #4056]`, at 0x5f0.
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
        assert_eq!(aarch64_slot(&words(&[0xf000_00f0, 0xf947_ee11]), 0x5f0), Some(0x1_ffd8));
        assert_eq!(aarch64_slot(&words(&[0xd503_245f, 0xf000_00f0, 0xf947_ee11]), 0x5f0), Some(0x1_ffd8));
        assert_eq!(aarch64_slot(&words(&[0xf0ff_fff0, 0xf940_0211]), 0x5000), Some(0x4000));
        assert_eq!(aarch64_slot(&words(&[0xa9bf_7bf0, 0xf000_00f0, 0xf947_ee11]), 0x5f0), None);
        assert_eq!(aarch64_slot(&words(&[0xf000_00f0]), 0x5f0), None);
    }
}
