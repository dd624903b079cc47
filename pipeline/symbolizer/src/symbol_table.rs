//! Which symbol an address belongs to.
//!
//! Symbols nest and overlap, have aliases, and have no size in assembly. All of that is settled once, when the table is
//! made: what is kept are disjoint ranges of addresses, in order, each with the one name it shall have, and the other
//! names of their starts, by which debug information may call them.

use hashbrown::HashMap;
use object::elf;

use crate::Unknown;
use crate::elf::{Elf, Fields};
use crate::text::MAX_NAME;

/// How many names of one address are looked at. glibc has up to ten.
const MAX_ALIASES: usize = 64;

/// A symbol, as a builder takes it.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    start: u64,
    /// 0 where it is unknown.
    size: u64,
    /// A function; otherwise a label of no type.
    function: bool,
    /// Seen outside of its own object file.
    global: bool,
    /// Where its name starts.
    name: u32,
}

impl Candidate {
    /// The order in which symbols at one address are preferred, the best first.
    ///
    /// Labels come last: those that only their own file sees, and those that linkers make (`__start_SECTION`). Then a
    /// global (or weak, which is how glibc exports its standard names) comes before a local one, the name with fewer
    /// leading underscores (`malloc` before `__libc_malloc`), a function before what has no type, one with a size
    /// before one without, the shorter name, and the first in alphabetical order.
    fn rank<'n>(&self, names: &'n [u8]) -> impl Ord + use<'n> {
        let name = name_at(names, self.name);
        let underscores = name.iter().take_while(|&&byte| byte == b'_').count();
        let label = !self.function && (!self.global || self.size == 0 && underscores > 0);
        (label, !self.global, underscores, !self.function, self.size == 0, name.len(), name)
    }
}

/// Makes a [`SymbolTable`].
#[derive(Debug)]
pub(crate) struct Builder {
    /// Where code is, in order. A symbol without a size ends with its range, and none reaches beyond it.
    code: Vec<(u64, u64)>,
    candidates: Vec<Candidate>,
    /// Where indirect functions have their resolvers, and where the shortest of their names starts.
    resolvers: HashMap<u64, u32>,
    names: Vec<u8>,
    /// How many bytes of names and symbols are taken at most: names may lie inside of each other in a file, and do not
    /// here.
    limit: usize,
}

/// Names by address.
#[derive(Debug, Default)]
pub(crate) struct SymbolTable {
    ranges: Vec<Range>,
    /// Starts of ranges and the further names that they have there, in order.
    aliases: Vec<(u64, u32)>,
    /// The names, each ended by a zero.
    names: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
    name: u32,
}

impl Builder {
    pub(crate) fn new(code: Vec<(u64, u64)>, limit: usize) -> Self {
        Self { code, candidates: Vec::new(), resolvers: HashMap::default(), names: Vec::new(), limit }
    }

    /// Takes the symbols of an ELF file, of both tables: a program without `.symtab` may still have `.dynsym`, and
    /// where there are both, what stands in both is one.
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
                self.add_elf_symbol(Fields { bytes, little_endian: file.little_endian }, &strings)?;
            }
        }
        Ok(())
    }

    /// `Elf64_Sym`: name, info, other, section, value, size.
    fn add_elf_symbol(&mut self, fields: Fields<'_>, strings: &[u8]) -> Result<(), Unknown> {
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
        // Mapping symbols of ARM and RISC-V say what kind of bytes follow; `.L` are labels inside of functions.
        if name.is_empty() || !function && (name.starts_with(b"$") || name.starts_with(b".L")) {
            return Ok(());
        }
        // An indirect function's address is its resolver's, which is not what the name stands for.
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

    /// The name of the indirect function that has a resolver at an address.
    pub(crate) fn resolved_by(&self, address: u64) -> Option<&[u8]> {
        self.resolvers.get(&address).map(|&name| name_at(&self.names, name))
    }

    fn keep(&mut self, name: &[u8]) -> Result<u32, Unknown> {
        let taken = self.names.len() + name.len() + self.candidates.len() * size_of::<Candidate>();
        let taken = taken + self.resolvers.len() * size_of::<(u64, u32)>();
        let at = u32::try_from(self.names.len()).ok().filter(|_| taken <= self.limit).ok_or(Unknown::TooLarge)?;
        self.names.extend_from_slice(name);
        self.names.push(0);
        Ok(at)
    }

    /// Takes a symbol. One that lies in no code is left out.
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
        self.candidates.push(Candidate { start, size, function, global, name: at });
        Ok(())
    }

    fn end_of_code(&self, address: u64) -> Option<u64> {
        let after = self.code.partition_point(|&(start, _)| start <= address);
        // Sections may overlap in a file that makes no sense: the nearest one decides.
        let (_, end) = *self.code.get(after.checked_sub(1)?)?;
        (address < end).then_some(end)
    }

    /// Settles who has which address.
    pub(crate) fn build(mut self) -> SymbolTable {
        let (candidates, mut aliases) = self.one_per_start();
        let mut ranges = Ranges::default();
        for (position, candidate) in candidates.iter().enumerate() {
            let section_end = self.end_of_code(candidate.start).unwrap_or(candidate.start);
            let end = if candidate.size > 0 {
                candidate.start.saturating_add(candidate.size)
            } else if ranges.covers(candidate.start) {
                // A label inside of a function.
                continue;
            } else {
                candidates.get(position + 1).map_or(u64::MAX, |next| next.start)
            };
            ranges.open(Range { start: candidate.start, end: end.min(section_end), name: candidate.name });
        }
        let mut ranges = ranges.close();
        ranges.shrink_to_fit();
        aliases.shrink_to_fit();
        self.names.shrink_to_fit();
        SymbolTable { ranges, aliases, names: self.names }
    }

    /// The best symbol at each address, in order, and the other names there. It has a size where any of them has one.
    fn one_per_start(&mut self) -> (Vec<Candidate>, Vec<(u64, u32)>) {
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
            Some(Candidate { size, ..best })
        });
        (best.collect(), aliases)
    }
}

/// Turns nested ranges that arrive in order of their starts into disjoint ones: the innermost has the address.
#[derive(Debug, Default)]
struct Ranges {
    done: Vec<Range>,
    /// What is open, the innermost last.
    open: Vec<Range>,
    /// What ends last of all that was opened.
    furthest: u64,
    /// Up to here it is decided.
    cursor: u64,
}

impl Ranges {
    /// Whether an address, not before any that was opened, lies in something open.
    fn covers(&self, address: u64) -> bool {
        address < self.furthest
    }

    fn open(&mut self, range: Range) {
        if range.start >= range.end {
            return;
        }
        self.advance(range.start);
        self.cursor = range.start;
        self.furthest = self.furthest.max(range.end);
        self.open.push(range);
    }

    /// Decides what lies before an address.
    fn advance(&mut self, to: u64) {
        while let Some(&inner) = self.open.last() {
            let end = inner.end.min(to);
            if self.cursor < end {
                self.done.push(Range { start: self.cursor, end, name: inner.name });
                self.cursor = end;
            }
            if inner.end > to {
                return;
            }
            self.open.pop();
        }
    }

    fn close(mut self) -> Vec<Range> {
        self.advance(u64::MAX);
        self.done
    }
}

impl SymbolTable {
    /// The name for an address, as it stands in the file.
    pub(crate) fn find(&self, address: u64) -> Option<&[u8]> {
        let after = self.ranges.partition_point(|range| range.start <= address);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        (address < range.end).then(|| name_at(&self.names, range.name))
    }

    /// Whether a name is another one of the symbol that an address belongs to.
    pub(crate) fn is_alias(&self, address: u64, name: &[u8]) -> bool {
        let after = self.ranges.partition_point(|range| range.start <= address);
        let Some(range) = after.checked_sub(1).map(|at| self.ranges[at]) else { return false };
        let first = self.aliases.partition_point(|&(start, _)| start < range.start);
        let same = self.aliases[first..].iter().take_while(|&&(start, _)| start == range.start).take(MAX_ALIASES);
        same.map(|&(_, alias)| name_at(&self.names, alias)).any(|alias| alias == name)
    }

    /// What it costs in memory.
    pub(crate) fn bytes(&self) -> usize {
        let aliases = self.aliases.capacity() * size_of::<(u64, u32)>();
        self.ranges.capacity() * size_of::<Range>() + aliases + self.names.capacity()
    }
}

fn name_at(names: &[u8], at: u32) -> &[u8] {
    let name = names.get(at as usize..).unwrap_or_default();
    name.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests;
