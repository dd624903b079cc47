//! Looks up a few symbols of a file: those that give the address of an interpreter's state, and the one for thread
//! contexts.
//!
//! The symbols are in the dynamic linker's symbol table, which stripping keeps. They are looked up in its hash table
//! (`.gnu.hash`), which needs one or two small reads to find that a name is missing. Source of the layouts: the System
//! V ABI's generic part ("Symbol Table", "Dynamic Section") and binutils `bfd/elflink.c` for the hash table.

use super::headers::{Headers, PT_LOAD, u32_at, u64_at};
use super::source::{ByteSource, read_range};

/// The symbols by which a file is recognized as an interpreter.
#[derive(Debug)]
pub struct SymbolNames {
    /// One of these must exist; otherwise the other symbols are not looked up.
    pub first: &'static [&'static str],
    /// A section that contains nothing but the object of the first symbol, for files without that symbol.
    pub section: Option<&'static [u8]>,
    /// The other symbols.
    pub others: fn() -> Vec<&'static str>,
    /// A string in the file, for data without a symbol; it is returned as a symbol with that name.
    pub text: Option<&'static str>,
}

/// The maximum number of bytes of a file that are searched for a string. Builds of PHP have about 20 MB, with all
/// extensions.
const MAX_SEARCHED: u64 = 64 << 20;

/// The function of Python's greenlet (2.0 and later) on whose stack a new greenlet begins:
/// `greenlet::UserGreenlet::g_initialstub(void*)` (python-greenlet/greenlet `src/greenlet/TUserGreenlet.cpp`).
pub(super) const GREENLET_START: &str = "_ZN8greenlet12UserGreenlet13g_initialstubEPv";

const PT_DYNAMIC: u32 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

/// The largest dynamic section that is read, in bytes; linkers write about 600.
const MAX_DYNAMIC: u64 = 64 << 10;
/// The maximum number of hash chain entries that are read. Linkers make chains of one or two on average.
const MAX_CHAIN: u64 = 4096;
/// How many entries of a chain are read at once.
const CHAIN_STEP: u64 = 16;
const SYMBOL: u64 = 24;

/// A symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol {
    /// The symbol's name.
    pub name: &'static str,
    /// The symbol's address in the file (ELF virtual address).
    pub address: u64,
    /// The size in bytes, 0 if not given.
    pub size: u64,
}

/// Finds the interpreter symbols that a file defines; nearly all files have none.
pub(super) fn find<S: ByteSource + ?Sized>(
    source: &S,
    headers: &Headers,
    table: Option<&SymbolTable<'_, S>>,
    names: &SymbolNames,
) -> Vec<Symbol> {
    let by_name = |name| Some(table?.find(name)?.symbol);
    let by_section = || {
        let (address, _, size) = headers.sections(source)?.find(names.section?)?;
        let name = names.first.first()?;
        (address != 0).then_some(Symbol { name, address, size })
    };
    let mut found: Vec<_> = names.first.iter().filter_map(|name| by_name(name)).collect();
    if found.is_empty() {
        found.extend(by_section());
    }
    if !found.is_empty() {
        found.extend((names.others)().into_iter().filter_map(by_name));
        found.extend(names.text.and_then(|text| find_text(source, headers, text)));
    }
    found
}

/// Finds a string in the loaded parts of a file.
fn find_text<S: ByteSource + ?Sized>(source: &S, headers: &Headers, text: &'static str) -> Option<Symbol> {
    const STEP: u64 = 256 << 10;
    let mut left = MAX_SEARCHED;
    let loaded = || headers.segments.iter().filter(|segment| segment.kind == PT_LOAD);
    let data = loaded().filter(|segment| !segment.executable);
    let segments = data.chain(loaded().filter(|segment| segment.executable));
    for segment in segments {
        let end = segment.file_size.min(left);
        left -= end;
        let mut from = 0;
        while from < end {
            // Parts overlap, so that a string across their border is found.
            let length = (STEP + text.len() as u64).min(end - from);
            let offset = segment.offset.checked_add(from)?;
            let bytes = read_range(source, "version", offset, length, STEP + text.len() as u64).ok()?;
            if let Some(at) = position(&bytes, text.as_bytes()) {
                let address = segment.address.wrapping_add(from).wrapping_add(at as u64);
                return Some(Symbol { name: text, address, size: text.len() as u64 });
            }
            from += STEP;
        }
    }
    None
}

fn position(bytes: &[u8], text: &[u8]) -> Option<usize> {
    let (&first, mut from) = (text.first()?, 0);
    loop {
        from += bytes.get(from..)?.iter().position(|&byte| byte == first)?;
        if bytes[from..].starts_with(text) {
            return Some(from);
        }
        from += 1;
    }
}

/// A symbol as stored in the symbol table.
#[derive(Debug, Clone, Copy)]
pub(super) struct SymbolEntry {
    pub(super) symbol: Symbol,
    /// The symbol's index in the table.
    pub(super) index: u64,
    /// The symbol's type, for example `STT_TLS`.
    pub(super) kind: u8,
}

/// The dynamic linker's symbol table, and its hash table.
pub(super) struct SymbolTable<'a, S: ?Sized> {
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

impl<'a, S: ByteSource + ?Sized> SymbolTable<'a, S> {
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

    /// The value of a tag in the dynamic section.
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
    pub(super) fn find(&self, name: &'static str) -> Option<SymbolEntry> {
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
                // The table may end right after the chain.
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
    fn symbol(&self, index: u64, name: &'static str) -> Option<SymbolEntry> {
        let bytes = self.at(self.symbols.wrapping_add(index * SYMBOL), SYMBOL)?;
        let section = u32_at(&bytes, 4) >> 16;
        let found = self.at(self.strings.wrapping_add(u64::from(u32_at(&bytes, 0))), name.len() as u64 + 1)?;
        let is_it = section != 0 && found.split_last() == Some((&0, name.as_bytes()));
        let symbol = Symbol { name, address: u64_at(&bytes, 8), size: u64_at(&bytes, 16) };
        is_it.then(|| SymbolEntry { symbol, index, kind: bytes[4] & 0xf })
    }
}

fn value_of(dynamic: &[u8], tag: u64) -> Option<u64> {
    dynamic.chunks_exact(16).find(|entry| u64_at(entry, 0) == tag).map(|entry| u64_at(entry, 8))
}

/// The hash function of `.gnu.hash`: 33 times the previous hash, plus the character, starting with 5381.
fn hash(name: &str) -> u32 {
    name.bytes().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a string is found at any position, also after a partial match, and nowhere else.
    #[test]
    fn texts() {
        let find = |bytes: &[u8]| position(bytes, b"XyX1");
        assert_eq!(find(b"XyXyX1"), Some(2));
        assert_eq!((find(b"XyX1"), find(b"..XyX1")), (Some(0), Some(2)));
        assert_eq!((find(b""), find(b"XyX"), find(b"..XyX")), (None, None, None));
    }

    /// Guarantees: the hash equals that of `.gnu.hash` (its published values).
    #[test]
    fn hashes() {
        assert_eq!(
            (hash(""), hash("printf"), hash("exit"), hash("syscall")),
            (0x1505, 0x156b_2bb8, 0x7c96_7e3f, 0xbac2_12a0)
        );
    }
}
