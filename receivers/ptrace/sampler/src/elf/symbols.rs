//! Looks up a few symbols of a file: those that tell where an interpreter has its state, and for `thread_local`.
//!
//! They are in the table that the dynamic linker uses, which stripping leaves. Looked up by its hash table
//! (`.gnu.hash`), which says that a name is missing with one or two small reads. Source of the layouts: the System V
//! ABI's generic part ("Symbol Table", "Dynamic Section") and binutils `bfd/elflink.c` for the hash table.

use super::headers::{Headers, PT_LOAD, u32_at, u64_at};
use super::source::{Source, read_range};

/// Python's state, its evaluation function and its version. The other names are looked up only where the first is
/// found.
pub const PYTHON: [&str; 3] = ["_PyRuntime", "_PyEval_EvalFrameDefault", "Py_Version"];

/// PHP's state, its evaluation function, and the function that tells how that is built. Threads of thread-safe builds
/// have states of their own, of which only the last one tells.
pub const PHP: [&str; 4] = ["executor_globals", "execute_ex", "zend_vm_kind", "executor_globals_offset"];

/// What stands in front of the version in a file with [`PHP`], and the name of the symbol that tells where: no symbol
/// of PHP's own has the version in all builds (php-src `main/SAPI.h`, `SAPI_PHP_VERSION_HEADER`).
pub const PHP_VERSION: &str = "X-Powered-By: PHP/";

/// The most bytes of a file in which the version is looked for. Builds of PHP have about 20 MB, with all extensions.
const MAX_SEARCHED: u64 = 64 << 20;

/// V8's version; the first one tells that a file has V8.
pub const V8_VERSION: [&str; 2] = ["_ZN2v88internal7Version6major_E", "_ZN2v88internal7Version6minor_E"];

/// How long V8's byte code instructions are.
pub const V8_BYTECODE_SIZES: &str = "_ZN2v88internal11interpreter9Bytecodes14kBytecodeSizesE";

/// V8's constants for debuggers (v8/v8 `tools/gen-postmortem-metadata.py`): sizes and offsets, each by the names that
/// it has had. The size of a tagged word, the context's and the function's places by the frame pointer, and fields.
pub const V8_NUMBERS: [&[&str]; 8] = [
    &["v8dbg_TaggedSize"],
    &["v8dbg_off_fp_context_or_frame_type"],
    &["v8dbg_off_fp_function"],
    &["v8dbg_class_JSFunction__shared__SharedFunctionInfo"],
    &[
        "v8dbg_class_SharedFunctionInfo__name_or_scope_info__Object",
        "v8dbg_class_SharedFunctionInfo__name_or_scope_info__Tagged_Object_",
        "v8dbg_class_SharedFunctionInfo__name_or_scope_info__Tagged_NameOrScopeInfoT_",
    ],
    &[
        "v8dbg_class_SharedFunctionInfo__script_or_debug_info__HeapObject",
        "v8dbg_class_SharedFunctionInfo__script__Tagged_HeapObject_",
    ],
    &["v8dbg_scopeinfo_idx_first_vars"],
    &["v8dbg_class_BytecodeArray__data__uintptr_t"],
];

/// The types of V8's objects; the last two are not in every version.
pub const V8_TYPES: [&str; 12] = [
    "v8dbg_type_JSFunction__JS_FUNCTION_TYPE",
    "v8dbg_type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE",
    "v8dbg_type_ScopeInfo__SCOPE_INFO_TYPE",
    "v8dbg_type_Code__CODE_TYPE",
    "v8dbg_type_BytecodeArray__BYTECODE_ARRAY_TYPE",
    "v8dbg_type_ByteArray__BYTE_ARRAY_TYPE",
    "v8dbg_type_FixedArray__FIXED_ARRAY_TYPE",
    "v8dbg_type_Script__SCRIPT_TYPE",
    "v8dbg_type_Oddball__ODDBALL_TYPE",
    "v8dbg_type_DebugInfo__DEBUG_INFO_TYPE",
    "v8dbg_type_TrustedByteArray__TRUSTED_BYTE_ARRAY_TYPE",
    "v8dbg_type_SharedFunctionInfoWrapper__SHARED_FUNCTION_INFO_WRAPPER_TYPE",
];

/// Ruby's version, a variable among its other ones, and the one that points to its virtual machine, which some builds
/// hide.
pub const RUBY: [&str; 3] = ["ruby_version", "rb_cObject", "ruby_current_vm_ptr"];

/// The section that holds `_PyRuntime` alone (from Python 3.10 on), for files without such a symbol.
const PYTHON_SECTION: &[u8] = b".PyRuntime\0";

/// The function of Python's greenlet (2.0 and later) on whose stack a new greenlet begins:
/// `greenlet::UserGreenlet::g_initialstub(void*)` (python-greenlet/greenlet `src/greenlet/TUserGreenlet.cpp`).
pub(super) const GREENLET_START: &str = "_ZN8greenlet12UserGreenlet13g_initialstubEPv";

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
    let mut found = python(source, headers, table);
    found.extend(table.map(php).unwrap_or_default());
    found.extend(table.into_iter().flat_map(v8));
    found.extend(table.into_iter().flat_map(ruby));
    found
}

/// V8's, of which there are none but in files that have its version.
fn v8<S: Source + ?Sized>(table: &Table<'_, S>) -> Vec<Symbol> {
    let by_name = |name| table.find(name).map(|entry| entry.symbol);
    let [major, minor] = V8_VERSION;
    let Some(major) = by_name(major) else { return Vec::new() };
    let numbers = V8_NUMBERS.iter().flat_map(|names| names.iter().copied());
    let others = [minor, V8_BYTECODE_SIZES].into_iter().chain(numbers).chain(V8_TYPES);
    std::iter::once(major).chain(others.filter_map(by_name)).collect()
}

fn python<S: Source + ?Sized>(source: &S, headers: &Headers, table: Option<&Table<'_, S>>) -> Vec<Symbol> {
    let [runtime, others @ ..] = PYTHON;
    let by_name = |name| table.and_then(|table| table.find(name)).map(|entry| entry.symbol);
    let by_section = || {
        let (address, _, size) = headers.sections(source)?.find(PYTHON_SECTION)?;
        (address != 0).then_some(Symbol { name: runtime, address, size })
    };
    let Some(found) = by_name(runtime).or_else(by_section) else { return Vec::new() };
    std::iter::once(found).chain(others.into_iter().filter_map(by_name)).collect()
}

fn ruby<S: Source + ?Sized>(table: &Table<'_, S>) -> Vec<Symbol> {
    let by_name = |name| table.find(name).map(|entry| entry.symbol);
    let [version, others @ ..] = RUBY;
    let found = by_name(version);
    found.into_iter().flat_map(|found| std::iter::once(found).chain(others.into_iter().filter_map(by_name))).collect()
}

fn php<S: Source + ?Sized>(table: &Table<'_, S>) -> Vec<Symbol> {
    let [state, .., of_threads] = PHP;
    if table.find(state).or_else(|| table.find(of_threads)).is_none() {
        return Vec::new();
    }
    let version = find_text(table.source, table.headers, PHP_VERSION);
    PHP.into_iter().filter_map(|name| table.find(name)).map(|entry| entry.symbol).chain(version).collect()
}

/// Where a text is in what a file has in memory.
fn find_text<S: Source + ?Sized>(source: &S, headers: &Headers, text: &'static str) -> Option<Symbol> {
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
            // Parts overlap, so that a text at the border of two is found.
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

/// Where a text begins.
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

    /// Guarantees: a text is found wherever it stands, after what only begins like it, and nowhere else.
    #[test]
    fn texts() {
        let find = |bytes: &[u8]| position(bytes, b"XyX1");
        assert_eq!(find(b"XyXyX1"), Some(2));
        assert_eq!((find(b"XyX1"), find(b"..XyX1")), (Some(0), Some(2)));
        assert_eq!((find(b""), find(b"XyX"), find(b"..XyX")), (None, None, None));
    }

    /// Guarantees: the hash is the one of `.gnu.hash` (its published values).
    #[test]
    fn hashes() {
        assert_eq!(
            (hash(""), hash("printf"), hash("exit"), hash("syscall")),
            (0x1505, 0x156b_2bb8, 0x7c96_7e3f, 0xbac2_12a0)
        );
    }
}
