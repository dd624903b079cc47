//! Looks up a few symbols of a file: those that tell where an interpreter has its state, and for `thread_local`.
//!
//! They are in the table that the dynamic linker uses, which stripping leaves. Looked up by its hash table
//! (`.gnu.hash`), which says that a name is missing with one or two small reads. Source of the layouts: the System V
//! ABI's generic part ("Symbol Table", "Dynamic Section") and binutils `bfd/elflink.c` for the hash table.

use super::headers::{Headers, u32_at, u64_at};
use super::source::{Source, read_range};

/// Python's state, its evaluation function and its version. The other names are looked up only where the first is found.
pub const PYTHON: [&str; 3] = ["_PyRuntime", "_PyEval_EvalFrameDefault", "Py_Version"];

/// The section that holds `_PyRuntime` alone (from Python 3.10 on), for files without such a symbol.
const PYTHON_SECTION: &[u8] = b".PyRuntime\0";

const PT_DYNAMIC: u32 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

/// The largest dynamic section that is read, in bytes; linkers write about 600.
const MAX_DYNAMIC: u64 = 64 << 10;
/// The most entries of a hash chain that are read. Linkers make chains of one or two on average.
const MAX_CHAIN: u64 = 4096;
/// How many entries of a chain are read at once.
const CHAIN_STEP: u64 = 16;
const SYMBOL: u64 = 24;

/// A symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol {
    /// Its name.
    pub name: &'static str,
    /// Its address in the file (ELF virtual address).
    pub address: u64,
    /// Its size in bytes, 0 if that is not said.
    pub size: u64,
}

/// The symbols of interpreters that a file defines; nearly all files have none.
pub(super) fn find<S: Source + ?Sized>(source: &S, headers: &Headers, table: Option<&Table<'_, S>>) -> Vec<Symbol> {
    let [runtime, others @ ..] = PYTHON;
    let by_name = |name| table.and_then(|table| table.find(name)).map(|entry| entry.symbol);
    let by_section = || {
        let (address, _, size) = headers.sections(source)?.find(PYTHON_SECTION)?;
        (address != 0).then_some(Symbol { name: runtime, address, size })
    };
    let Some(found) = by_name(runtime).or_else(by_section) else { return Vec::new() };
    std::iter::once(found).chain(others.into_iter().filter_map(by_name)).collect()
}

/// A symbol as the table has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) symbol: Symbol,
    /// Its index in the table.
    pub(super) index: u64,
    /// Its type, `STT_TLS` for instance.
    pub(super) kind: u8,
}

/// The table of symbols for the dynamic linker, and its hash table.
pub(super) struct Table<'a, S: ?Sized> {
    pub(super) source: &'a S,
    pub(super) headers: &'a Headers,
    dynamic: Vec<u8>,
    strings: u64,
    symbols: u64,
    buckets: u64,
    bucket_count: u32,
    first: u32,
    bloom: u64,
    bloom_count: u32,
    bloom_shift: u32,
}

impl<'a, S: Source + ?Sized> Table<'a, S> {
    pub(super) fn read(source: &'a S, headers: &'a Headers) -> Option<Self> {
        let dynamic = headers.segments.iter().find(|segment| segment.kind == PT_DYNAMIC)?;
        let dynamic = read_range(source, "dynamic section", dynamic.offset, dynamic.file_size, MAX_DYNAMIC).ok()?;
        let value = |tag| value_of(&dynamic, tag);
        let hash = value(DT_GNU_HASH)?;
        let mut table = Self {
            source,
            headers,
            strings: value(DT_STRTAB)?,
            symbols: value(DT_SYMTAB)?,
            dynamic: Vec::new(),
            buckets: 0,
            bucket_count: 0,
            first: 0,
            bloom: hash.checked_add(16)?,
            bloom_count: 0,
            bloom_shift: 0,
        };
        let head = table.at(hash, 16)?;
        table.bucket_count = u32_at(&head, 0);
        table.first = u32_at(&head, 4);
        table.bloom_count = u32_at(&head, 8);
        table.bloom_shift = u32_at(&head, 12);
        table.buckets = table.bloom.checked_add(u64::from(table.bloom_count) * 8)?;
        table.dynamic = dynamic;
        (table.bucket_count > 0 && table.bloom_count > 0 && table.bloom_shift < 32).then_some(table)
    }

    /// What the dynamic section says under a tag.
    pub(super) fn value(&self, tag: u64) -> Option<u64> {
        value_of(&self.dynamic, tag)
    }

    /// Reads some bytes at an address of the file.
    fn at(&self, address: u64, length: u64) -> Option<Vec<u8>> {
        let (offset, rest) = self.headers.offset_of(address)?;
        if rest < length {
            return None;
        }
        read_range(self.source, "symbols", offset, length, CHAIN_STEP * SYMBOL).ok()
    }

    /// The symbol with this name, if the file defines it.
    pub(super) fn find(&self, name: &'static str) -> Option<Entry> {
        let hash = hash(name);
        let word = self.at(self.bloom.wrapping_add(u64::from(hash / 64 % self.bloom_count) * 8), 8)?;
        let both = (1u64 << (hash % 64)) | (1u64 << ((hash >> self.bloom_shift) % 64));
        if u64_at(&word, 0) & both != both {
            return None;
        }
        let bucket = self.at(self.buckets.wrapping_add(u64::from(hash % self.bucket_count) * 4), 4)?;
        let first = u64::from(u32_at(&bucket, 0).checked_sub(self.first)?);
        let chains = self.buckets.wrapping_add(u64::from(self.bucket_count) * 4);
        let mut step = Vec::new();
        for index in first..first + MAX_CHAIN {
            let within = (index - first) % CHAIN_STEP;
            if within == 0 {
                let at = chains.wrapping_add(index * 4);
                // The table may end behind the chain.
                step = self.at(at, CHAIN_STEP * 4).or_else(|| {
                    let (_, rest) = self.headers.offset_of(at)?;
                    self.at(at, rest.min(CHAIN_STEP * 4))
                })?;
            }
            let entry = step.get(within as usize * 4..).filter(|entry| entry.len() >= 4)?;
            let entry = u32_at(entry, 0);
            if (entry ^ hash) < 2
                && let Some(symbol) = self.symbol(index + u64::from(self.first), name)
            {
                return Some(symbol);
            }
            if entry & 1 != 0 {
                return None;
            }
        }
        None
    }

    /// The symbol with this index, if it has this name and is defined in this file.
    fn symbol(&self, index: u64, name: &'static str) -> Option<Entry> {
        let bytes = self.at(self.symbols.wrapping_add(index * SYMBOL), SYMBOL)?;
        let section = u32_at(&bytes, 4) >> 16;
        let said = self.at(self.strings.wrapping_add(u64::from(u32_at(&bytes, 0))), name.len() as u64 + 1)?;
        let is_it = section != 0 && said.split_last() == Some((&0, name.as_bytes()));
        let symbol = Symbol { name, address: u64_at(&bytes, 8), size: u64_at(&bytes, 16) };
        is_it.then(|| Entry { symbol, index, kind: bytes[4] & 0xf })
    }
}

fn value_of(dynamic: &[u8], tag: u64) -> Option<u64> {
    dynamic.chunks_exact(16).find(|entry| u64_at(entry, 0) == tag).map(|entry| u64_at(entry, 8))
}

/// The hash of `.gnu.hash`: 33 times the hash before, plus the character, from 5381.
fn hash(name: &str) -> u32 {
    name.bytes().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the hash is the one of `.gnu.hash` (its published values).
    #[test]
    fn hashes() {
        assert_eq!(
            (hash(""), hash("printf"), hash("exit"), hash("syscall")),
            (0x1505, 0x156b_2bb8, 0x7c96_7e3f, 0xbac2_12a0)
        );
    }
}
