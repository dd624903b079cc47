//! Finds the symbol that contains an address.
//!
//! Symbols nest, overlap, have aliases, and lack a size in assembly. All of this is resolved once, when the table is
//! built: the table contains disjoint ranges in order, each with its preferred name, and the aliases of each range's
//! start, since debug information may use one of them.

use hashbrown::HashMap;
use object::elf;

use crate::Unknown;
use crate::elf::{Elf, ElfFields};
use crate::text::MAX_NAME;

/// The maximum number of names of one address that are considered. glibc has up to ten.
const MAX_ALIASES: usize = 64;

/// A symbol before overlaps are resolved.
#[derive(Debug, Clone, Copy)]
struct SymbolCandidate {
    start: u64,
    /// The size in bytes; 0 if unknown.
    size: u64,
    /// Whether the symbol is a function; otherwise it is an untyped label.
    function: bool,
    /// Whether the symbol is visible outside of its object file.
    global: bool,
    /// Offset of the name in `names`.
    name: u32,
}

impl SymbolCandidate {
    /// The order in which symbols at one address are preferred, the best first.
    ///
    /// Labels come last: local ones, and those that linkers generate (`__start_SECTION`). The others are compared, in
    /// this order: global or weak symbols (glibc exports its standard names as weak) before local ones, fewer leading
    /// underscores (`malloc` before `__libc_malloc`), functions before untyped symbols, symbols with a size before
    /// those without, shorter names, alphabetical order.
    fn rank<'n>(&self, names: &'n [u8]) -> impl Ord + use<'n> {
        let name = name_at(names, self.name);
        let underscores = name.iter().take_while(|&&byte| byte == b'_').count();
        let label = !self.function && (!self.global || self.size == 0 && underscores > 0);
        (label, !self.global, underscores, !self.function, self.size == 0, name.len(), name)
    }
}

/// Builds a [`SymbolTable`].
#[derive(Debug)]
pub(crate) struct SymbolTableBuilder {
    /// Address ranges of code, in order. A symbol without a size ends with its range, and no symbol extends beyond its
    /// range.
    code: Vec<(u64, u64)>,
    candidates: Vec<SymbolCandidate>,
    /// Resolvers of indirect functions, by address, with the offset of the shortest name.
    resolvers: HashMap<u64, u32>,
    names: Vec<u8>,
    /// The maximum number of bytes of names and symbols. Names may overlap in a file but not here, so the file's size
    /// is not a bound.
    limit: usize,
}

/// Maps addresses to names.
#[derive(Debug, Default)]
pub(crate) struct SymbolTable {
    ranges: Vec<SymbolRange>,
    /// Start address and name offset of each alias, in order.
    aliases: Vec<(u64, u32)>,
    /// The names, each terminated by a zero byte.
    names: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SymbolRange {
    start: u64,
    end: u64,
    name: u32,
}

impl SymbolTableBuilder {
    pub(crate) fn new(code: Vec<(u64, u64)>, limit: usize) -> Self {
        Self { code, candidates: Vec::new(), resolvers: HashMap::default(), names: Vec::new(), limit }
    }

    /// Adds the symbols of both tables of an ELF file: a program without `.symtab` may still have `.dynsym`. Duplicates
    /// are merged later.
    pub(crate) fn add_elf(&mut self, file: &Elf) -> Result<(), Unknown> {
        for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            let Some(table) = file.sections().iter().find(|section| section.kind == kind.0) else { continue };
            let Some(strings) = file.sections().get(table.link as usize) else { return Err(Unknown::Malformed) };
            if strings.kind != elf::SHT_STRTAB.0 && strings.kind != elf::SHT_NOBITS.0 {
                return Err(Unknown::Malformed);
            }
            if table.size.saturating_add(strings.size) > self.limit as u64 {
                return Err(Unknown::TooLarge);
            }
            let symbols = file.raw(table, self.limit)?;
            let strings = file.raw(strings, self.limit)?;
            for bytes in symbols.chunks_exact(24) {
                self.add_elf_symbol(ElfFields { bytes, little_endian: file.little_endian }, &strings)?;
            }
        }
        Ok(())
    }

    /// Adds an `Elf64_Sym`. Its fields are name, info, other, section, value, size.
    fn add_elf_symbol(&mut self, fields: ElfFields<'_>, strings: &[u8]) -> Result<(), Unknown> {
        let (Some(name), Some(section), Some(start), Some(size)) =
            (fields.u32(0), fields.u16(6), fields.u64(8), fields.u64(16))
        else {
            return Ok(());
        };
        let info = fields.bytes[4];
        let function = match elf::SymbolType(info & 0xf) {
            elf::STT_FUNC => true,
            elf::STT_NOTYPE | elf::STT_GNU_IFUNC => false,
            _ => return Ok(()),
        };
        let defined = section != elf::SHN_UNDEF.0 && section != elf::SHN_ABS.0 && section != elf::SHN_COMMON.0;
        if !defined {
            return Ok(());
        }
        let Some(name) = strings.get(name as usize..) else { return Ok(()) };
        let name = &name[..name.len().min(MAX_NAME)];
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        // Mapping symbols of ARM and RISC-V mark the kind of the bytes that follow; `.L` symbols are labels inside of
        // functions.
        if name.is_empty() || !function && (name.starts_with(b"$") || name.starts_with(b".L")) {
            return Ok(());
        }
        // The symbol of an indirect function has the address of its resolver, not that of the function with this name.
        if info & 0xf == elf::STT_GNU_IFUNC.0 {
            let at = self.keep(name)?;
            let known = self.resolvers.entry(start).or_insert(at);
            if (name.len(), name) < (name_at(&self.names, *known).len(), name_at(&self.names, *known)) {
                *known = at;
            }
            return Ok(());
        }
        let global = info >> 4 != elf::STB_LOCAL.0;
        self.add(start, size, name, function, global)
    }

    /// The name of the indirect function whose resolver is at an address.
    pub(crate) fn resolved_by(&self, address: u64) -> Option<&[u8]> {
        self.resolvers.get(&address).map(|&name| name_at(&self.names, name))
    }

    fn keep(&mut self, name: &[u8]) -> Result<u32, Unknown> {
        let taken = self.names.len() + name.len() + self.candidates.len() * size_of::<SymbolCandidate>();
        let taken = taken + self.resolvers.len() * size_of::<(u64, u32)>();
        let at = u32::try_from(self.names.len()).ok().filter(|_| taken <= self.limit).ok_or(Unknown::TooLarge)?;
        self.names.extend_from_slice(name);
        self.names.push(0);
        Ok(at)
    }

    /// Adds a symbol, unless it lies outside of all code.
    pub(crate) fn add(
        &mut self,
        start: u64,
        size: u64,
        name: &[u8],
        function: bool,
        global: bool,
    ) -> Result<(), Unknown> {
        if self.end_of_code(start).is_none() {
            return Ok(());
        }
        let at = self.keep(name)?;
        self.candidates.push(SymbolCandidate { start, size, function, global, name: at });
        Ok(())
    }

    fn end_of_code(&self, address: u64) -> Option<u64> {
        let after = self.code.partition_point(|&(start, _)| start <= address);
        // In a malformed file, sections may overlap. The nearest one is used.
        let (_, end) = *self.code.get(after.checked_sub(1)?)?;
        (address < end).then_some(end)
    }

    /// Resolves overlaps.
    pub(crate) fn build(mut self) -> SymbolTable {
        let (candidates, mut aliases) = self.one_per_start();
        let mut ranges = Ranges::default();
        for (position, candidate) in candidates.iter().enumerate() {
            let section_end = self.end_of_code(candidate.start).unwrap_or(candidate.start);
            let end = if candidate.size > 0 {
                candidate.start.saturating_add(candidate.size)
            } else if ranges.covers(candidate.start) {
                // The symbol is a label inside of a function, not a function.
                continue;
            } else {
                candidates.get(position + 1).map_or(u64::MAX, |next| next.start)
            };
            ranges.open(SymbolRange { start: candidate.start, end: end.min(section_end), name: candidate.name });
        }
        let mut ranges = ranges.close();
        ranges.shrink_to_fit();
        aliases.shrink_to_fit();
        self.names.shrink_to_fit();
        SymbolTable { ranges, aliases, names: self.names }
    }

    /// Returns the preferred symbol at each address, in order, and its aliases. The symbol gets a size if any alias has
    /// one.
    fn one_per_start(&mut self) -> (Vec<SymbolCandidate>, Vec<(u64, u32)>) {
        let names = &self.names;
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.sort_unstable_by_key(|candidate| candidate.start);
        let mut aliases = Vec::new();
        let best = candidates.chunk_by(|a, b| a.start == b.start).filter_map(|same| {
            let best = *same.iter().min_by(|a, b| a.rank(names).cmp(&b.rank(names)))?;
            let others = same.iter().map(|other| (other.start, other.name)).filter(|&(_, name)| name != best.name);
            aliases.extend(others);
            let size_of_same = same.iter().filter(|other| name_at(names, other.name) == name_at(names, best.name));
            let size = size_of_same.map(|other| other.size).max().filter(|&size| size > 0);
            let size = size.or_else(|| same.iter().map(|other| other.size).max()).unwrap_or_default();
            Some(SymbolCandidate { size, ..best })
        });
        (best.collect(), aliases)
    }
}

/// Converts nested ranges, added in order of their starts, into disjoint ones: the innermost range takes precedence.
#[derive(Debug, Default)]
struct Ranges {
    done: Vec<SymbolRange>,
    /// Ranges that have not ended yet, innermost last.
    open: Vec<SymbolRange>,
    /// The largest end of all ranges so far.
    furthest: u64,
    /// All addresses below this one are final.
    cursor: u64,
}

impl Ranges {
    /// Whether an open range contains an address, which must not be before the start of any opened range.
    fn covers(&self, address: u64) -> bool {
        address < self.furthest
    }

    fn open(&mut self, range: SymbolRange) {
        if range.start >= range.end {
            return;
        }
        self.advance(range.start);
        self.cursor = range.start;
        self.furthest = self.furthest.max(range.end);
        self.open.push(range);
    }

    /// Finishes all addresses below `to`.
    fn advance(&mut self, to: u64) {
        while let Some(&inner) = self.open.last() {
            let end = inner.end.min(to);
            if self.cursor < end {
                self.done.push(SymbolRange { start: self.cursor, end, name: inner.name });
                self.cursor = end;
            }
            if inner.end > to {
                return;
            }
            self.open.pop();
        }
    }

    fn close(mut self) -> Vec<SymbolRange> {
        self.advance(u64::MAX);
        self.done
    }
}

impl SymbolTable {
    /// The mangled name for an address.
    pub(crate) fn find(&self, address: u64) -> Option<&[u8]> {
        let after = self.ranges.partition_point(|range| range.start <= address);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        (address < range.end).then(|| name_at(&self.names, range.name))
    }

    /// Whether `name` is another name of the symbol that contains an address.
    pub(crate) fn is_alias(&self, address: u64, name: &[u8]) -> bool {
        let after = self.ranges.partition_point(|range| range.start <= address);
        let Some(range) = after.checked_sub(1).map(|at| self.ranges[at]) else { return false };
        let first = self.aliases.partition_point(|&(start, _)| start < range.start);
        let same = self.aliases[first..].iter().take_while(|&&(start, _)| start == range.start).take(MAX_ALIASES);
        same.map(|&(_, alias)| name_at(&self.names, alias)).any(|alias| alias == name)
    }

    /// Approximate heap size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let aliases = self.aliases.capacity() * size_of::<(u64, u32)>();
        self.ranges.capacity() * size_of::<SymbolRange>() + aliases + self.names.capacity()
    }
}

fn name_at(names: &[u8], at: u32) -> &[u8] {
    let name = names.get(at as usize..).unwrap_or_default();
    name.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests;
