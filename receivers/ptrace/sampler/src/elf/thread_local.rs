//! The thread-local variable by which a program publishes the trace contexts of its threads, and the words in memory
//! that give its position in each thread.
//!
//! Relocations identify these words: the dynamic linker writes the position of a thread-local variable where the
//! file's own code looks for it. Sources: OpenTelemetry's `oteps/profiles/4947-thread-ctx.md` for the name, the System
//! V ABI for x86-64 ("Relocation", "Thread-Local Storage") and "ELF Handling For Thread-Local Storage" for the
//! layouts, binutils `bfd/elfxx-x86.c` for the distance of a program's own variables from the thread pointer.

use super::headers::{ElfSegment, u32_at, u64_at};
use super::source::{ByteSource, read_range};
use super::symbols::SymbolTable;

/// The name of the variable: a pointer to the record of the thread (OTEP 4947).
pub const THREAD_CONTEXT: &str = "otel_thread_ctx_v1";

const STT_TLS: u8 = 6;
const PT_TLS: u32 = 7;

/// Tags of the dynamic section: the addresses of relocation tables, and their sizes in bytes.
const TABLES: [(u64, u64); 2] = [(7, 8), (23, 2)];

const R_X86_64_DTPMOD64: u32 = 16;
const R_X86_64_TPOFF64: u32 = 18;
const R_X86_64_TLSDESC: u32 = 36;

/// The size of a relocation with an addend.
const RELOCATION: u64 = 24;
/// How many bytes of relocations are read at once.
const STEP: u64 = 2048 * RELOCATION;
/// The largest table of relocations that is read, in bytes. Chromium has 10 MiB, and few files have the variable.
const MAX_TABLE: u64 = 32 << 20;
/// The maximum number of relocations of the variable that are kept. Linkers write one or two.
const MAX_RELOCATIONS: usize = 8;
/// The largest plausible thread-local data of a file, in bytes, and its largest alignment.
const MAX_BLOCK: u64 = 1 << 30;
const MAX_ALIGN: u64 = 1 << 20;

/// A thread-local variable that a file defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadLocal {
    /// The variable's offset in the thread-local data of the file.
    pub offset: u64,
    /// The variable's distance from the thread pointer, wrapping, if the file is the program itself.
    pub in_program: Option<u64>,
    /// The words where the dynamic linker writes the variable's position.
    pub relocations: Vec<Relocation>,
}

/// A word that the dynamic linker writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relocation {
    /// The kind of value in the word.
    pub kind: RelocationKind,
    /// The address of the word in the file (ELF virtual address).
    pub address: u64,
}

/// What the dynamic linker writes for a thread-local variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RelocationKind {
    /// The distance from the thread pointer (initial exec).
    Distance,
    /// A function and its argument (TLS descriptor).
    Descriptor,
    /// The TLS module id of the file, followed by the offset in its thread-local data (general dynamic).
    Module,
    /// Only the TLS module id (local dynamic): the offset is [`ThreadLocal::offset`].
    ModuleOnly,
}

/// Finds the variable, if the file defines it.
pub(super) fn find<S: ByteSource + ?Sized>(table: &SymbolTable<'_, S>) -> Option<ThreadLocal> {
    let entry = table.find(THREAD_CONTEXT).filter(|entry| entry.kind == STT_TLS)?;
    let offset = entry.symbol.address;
    let segment = table.headers.segments.iter().find(|segment| segment.kind == PT_TLS)?;
    let mut relocations = Vec::new();
    for (place, size) in TABLES {
        if let (Some(place), Some(size)) = (table.value(place), table.value(size)) {
            collect(table, place, size, entry.index, offset, &mut relocations);
        }
    }
    Some(ThreadLocal { offset, in_program: distance(segment, offset), relocations })
}

/// The distance from the thread pointer to `offset` in a program's own thread-local data, which ends at the thread
/// pointer.
fn distance(segment: &ElfSegment, offset: u64) -> Option<u64> {
    let align = segment.align.max(1);
    let sensible = segment.memory_size <= MAX_BLOCK && align <= MAX_ALIGN && align.is_power_of_two();
    sensible.then(|| offset.wrapping_sub(segment.memory_size.next_multiple_of(align)))
}

/// Adds the relocations of the variable from a relocation table. A relocation for a variable that is bound within the
/// file may contain its offset instead of its symbol.
fn collect<S: ByteSource + ?Sized>(
    table: &SymbolTable<'_, S>,
    place: u64,
    size: u64,
    symbol: u64,
    offset: u64,
    found: &mut Vec<Relocation>,
) {
    let Some((start, rest)) = table.headers.offset_of(place) else { return };
    let size = size.min(rest).min(MAX_TABLE);
    for step in (0..size).step_by(STEP as usize) {
        let length = (size - step).min(STEP);
        let Ok(bytes) = read_range(table.source, "relocations", start + step, length, STEP) else { return };
        for entry in bytes.chunks_exact(RELOCATION as usize) {
            let named = u64::from(u32_at(entry, 12));
            let own = named == symbol;
            let by_offset = named == 0 && u64_at(entry, 16) == offset;
            let kind = match u32_at(entry, 8) {
                R_X86_64_TPOFF64 if own || by_offset => RelocationKind::Distance,
                R_X86_64_TLSDESC if own || by_offset => RelocationKind::Descriptor,
                R_X86_64_DTPMOD64 if own => RelocationKind::Module,
                R_X86_64_DTPMOD64 if named == 0 => RelocationKind::ModuleOnly,
                _ => continue,
            };
            found.push(Relocation { kind, address: u64_at(entry, 0) });
            if found.len() == MAX_RELOCATIONS {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls(memory_size: u64, align: u64) -> ElfSegment {
        ElfSegment { kind: PT_TLS, executable: false, offset: 0, address: 0, file_size: 0, memory_size, align }
    }

    /// Guarantees: the distance of a program's own variable below the thread pointer follows from the size of its
    /// data, rounded up to its alignment; implausible values give no distance, and nothing overflows.
    #[test]
    fn distances() {
        assert_eq!(distance(&tls(8, 8), 0), Some(0u64.wrapping_sub(8)));
        assert_eq!(distance(&tls(0x91, 0x40), 0x10), Some(0x10u64.wrapping_sub(0xc0)));
        assert_eq!(distance(&tls(1, 0), 0), Some(u64::MAX));
        for (size, align) in [(u64::MAX, 8), (8, u64::MAX), (8, 3), (8, 1 << 63)] {
            assert_eq!(distance(&tls(size, align), 0), None);
        }
        assert_eq!(distance(&tls(8, 8), u64::MAX), Some(u64::MAX.wrapping_sub(8)));
    }
}
