//! DWARF: which functions were inlined at an address, and the lines.
//!
//! It is read with gimli directly, where addr2line would offer itself: that follows nested inlined functions by
//! recursion, one level for each byte of a file if the file wills it, and a stack that overflows takes the process
//! along; and it keeps every range that units and functions refer to, which is the square of the file's size where all
//! refer to the same list. Here every step is paid from a [`Budget`], nothing recurses, only an index of units and
//! functions is kept, and the rest is read again for the addresses of one batch at a time. addr2line is what the tests
//! compare with.

mod budget;
mod function;
mod index;
mod lines;
mod names;
mod sections;
mod unit;

use std::sync::Arc;

use crate::Unknown;
use crate::elf::Elf;
pub(crate) use budget::{Budget, Error};
use function::Inlines;
use index::Index;
use lines::Lines;
use names::Names;
use sections::Sections;

/// How many units and functions that claim the same address are looked into.
const MAX_CLAIMS: usize = 8;
/// How many ranges are looked at for them.
const MAX_STEPS: usize = 256;

type Reader<'a> = gimli::EndianSlice<'a, gimli::RunTimeEndian>;

/// The DWARF of a file.
#[derive(Debug)]
pub(crate) struct Dwarf {
    sections: Sections,
    index: Index,
}

/// What DWARF says about an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceFrames {
    /// The innermost first. Not empty.
    pub(crate) frames: Vec<SourceFrame>,
}

/// One function of a [`SourceFrames`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SourceFrame {
    pub(crate) name: Option<Name>,
    pub(crate) file: Option<Arc<str>>,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// A function's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) text: Arc<str>,
    /// It is the symbol's name (`DW_AT_linkage_name`), not just the source's.
    pub(crate) linkage: bool,
}

/// Something in a source file, before the file has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Position {
    file: Option<u64>,
    line: u32,
    column: u32,
}

impl Dwarf {
    /// Whether a file has any.
    pub(crate) fn is_in(elf: &Elf) -> bool {
        elf.debug_section(".debug_info").is_some_and(|section| section.size > 0)
    }

    /// Reads the sections and makes the index. `limit` is what the sections may have, decompressed and in total. Code
    /// outside of `code` was removed by the linker, which leaves its addresses at 0 or thereabouts.
    pub(crate) fn load(
        elf: &Elf,
        code: Vec<(u64, u64)>,
        limit: usize,
        budget: &mut Budget<'_>,
    ) -> Result<Self, Failure> {
        let sections = Sections::load(elf, limit).map_err(Failure::Unreadable)?;
        budget.allow(sections.bytes());
        let index = Index::new(&sections, code, budget).map_err(Failure::Broken)?;
        Ok(Self { sections, index })
    }

    /// What it costs in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.sections.bytes() + self.index.bytes()
    }

    /// What is known about addresses, which are in ascending order. What makes no sense in one unit costs that unit's
    /// answers.
    pub(crate) fn find(
        &mut self,
        addresses: &[u64],
        budget: &mut Budget<'_>,
    ) -> Result<Vec<Option<SourceFrames>>, Error> {
        budget.allow(self.sections.bytes());
        let dwarf = self.sections.dwarf();
        let places = vec![None; addresses.len()];
        let mut pass = Pass { dwarf: &dwarf, index: &mut self.index, names: Names::default(), addresses, places };
        // Several units may claim an address, so they take turns until one has a function for it.
        let mut claims: Vec<(usize, usize)> = Vec::new();
        for (at, &address) in addresses.iter().enumerate() {
            claims.extend(pass.index.units_at(address).map(|unit| (unit, at)));
            budget.spend(MAX_CLAIMS)?;
        }
        claims.sort_unstable();
        for claims in claims.chunk_by(|a, b| a.0 == b.0) {
            let open: Vec<_> = claims.iter().map(|&(_, at)| at).filter(|&at| pass.needs_more(at)).collect();
            match pass.unit(claims[0].0, &open, budget) {
                Err(Error::GaveUp) => return Err(Error::GaveUp),
                Ok(()) | Err(Error::Malformed) => {}
            }
        }
        Ok(pass.places)
    }
}

/// One pass over the units that some addresses belong to.
struct Pass<'a, 'b> {
    dwarf: &'b gimli::Dwarf<Reader<'a>>,
    index: &'b mut Index,
    names: Names<'a>,
    addresses: &'b [u64],
    places: Vec<Option<SourceFrames>>,
}

impl Pass<'_, '_> {
    /// Whether another unit may know more: so far there is no function.
    fn needs_more(&self, at: usize) -> bool {
        self.places[at].as_ref().is_none_or(|place| place.frames.iter().all(|frame| frame.name.is_none()))
    }

    /// Looks up those addresses of a unit that have the positions `open`.
    fn unit(&mut self, unit: usize, open: &[usize], budget: &mut Budget<'_>) -> Result<(), Error> {
        if open.is_empty() {
            return Ok(());
        }
        let opened = self.names.open(self.dwarf, self.index.unit_offset(unit), budget)?;
        self.index.load_functions(unit, self.dwarf, &opened, budget)?;
        let wanted: Vec<_> = open.iter().map(|&at| self.addresses[at]).collect();
        let mut lines = Lines::read(self.dwarf, &opened, &wanted, |address| self.index.is_code(address), budget)?;

        // Addresses of the same function are looked up in one pass over it.
        let mut functions: Vec<(usize, usize)> = Vec::with_capacity(wanted.len());
        for (position, &address) in wanted.iter().enumerate() {
            budget.spend(MAX_CLAIMS)?;
            if let Some(die) = self.index.function_at(unit, address) {
                functions.push((die, position));
                continue;
            }
            let frame = lines.frame(self.dwarf, &opened, lines.at(position), None, budget)?;
            if frame.file.is_some() {
                self.places[open[position]].get_or_insert(SourceFrames { frames: vec![frame] });
            }
        }
        functions.sort_unstable();
        for same in functions.chunk_by(|a, b| a.0 == b.0) {
            let die = same[0].0;
            let inside: Vec<_> = same.iter().map(|&(_, position)| wanted[position]).collect();
            let inlines = Inlines::read(self.dwarf, &opened, die, &inside, budget)?;
            let function = self.names.of(self.dwarf, self.index, self.index.unit_offset(unit), die, budget)?;
            for (nth, &(_, position)) in same.iter().enumerate() {
                let mut frames = Vec::new();
                let mut here = lines.at(position);
                for inline in inlines.at(nth).iter().rev() {
                    let name = match inline.origin {
                        Some(origin) => self.names.of_reference(self.dwarf, self.index, &opened, origin, budget)?,
                        None => None,
                    };
                    frames.push(lines.frame(self.dwarf, &opened, here, name, budget)?);
                    here = inline.call;
                }
                frames.push(lines.frame(self.dwarf, &opened, here, function.clone(), budget)?);
                self.places[open[position]] = Some(SourceFrames { frames });
            }
        }
        Ok(())
    }
}

/// Why the DWARF of a file cannot be used at all.
#[derive(Debug)]
pub(crate) enum Failure {
    Unreadable(Unknown),
    Broken(Error),
}
