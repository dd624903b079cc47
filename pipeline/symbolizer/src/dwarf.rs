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
mod split;
mod unit;

use std::path::Path;
use std::sync::Arc;

use crate::Unknown;
use crate::elf::Elf;
pub(crate) use budget::{Budget, Error};
use function::Inlines;
use index::Index;
use lines::Lines;
use names::{Files, Names, Place};
use sections::Sections;
use split::{Package, Splits};
use unit::Opened;

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
    /// What dwz moved to a file that several share.
    shared: Option<(Sections, Index)>,
    package: Option<Package>,
    limit: usize,
}

/// The files that have the DWARF of an object.
#[derive(Debug)]
pub(crate) struct Sources {
    /// With its units, or their skeletons.
    pub(crate) file: Elf,
    /// With what it shares with others.
    pub(crate) shared: Option<Elf>,
    /// With the units of its skeletons.
    pub(crate) package: Option<Elf>,
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
        sources: Sources,
        code: Vec<(u64, u64)>,
        limit: usize,
        budget: &mut Budget<'_>,
    ) -> Result<Self, Failure> {
        let sections = Sections::load(&sources.file, limit).map_err(Failure::Unreadable)?;
        let left = limit - sections.bytes();
        // What cannot be read of other files is missing, and no more.
        let shared = sources.shared.and_then(|shared| Sections::load(&shared, left).ok());
        let left = left - shared.as_ref().map_or(0, Sections::bytes);
        let package = sources.package.and_then(|package| Package::load(package, left / 2).ok());
        budget.allow(sections.bytes() + shared.as_ref().map_or(0, Sections::bytes));
        let index = Index::new(&sections, code, budget).map_err(Failure::Broken)?;
        let shared = shared.map(|shared| Ok((Index::new(&shared, Vec::new(), budget)?, shared)));
        let shared = shared.transpose().map_err(Failure::Broken)?.map(|(index, shared)| (shared, index));
        Ok(Self { sections, index, shared, package, limit })
    }

    /// What it costs in memory.
    pub(crate) fn bytes(&self) -> usize {
        let shared = self.shared.as_ref().map_or(0, |(sections, index)| sections.bytes() + index.bytes());
        self.sections.bytes() + self.index.bytes() + shared + self.package.as_ref().map_or(0, Package::bytes)
    }

    /// What is known about addresses, which are in ascending order. What makes no sense in one unit costs that unit's
    /// answers. `open` opens a file by a path that the DWARF has.
    pub(crate) fn find(
        &mut self,
        addresses: &[u64],
        open: &dyn Fn(&Path) -> Option<Elf>,
        budget: &mut Budget<'_>,
    ) -> Result<Vec<Option<SourceFrames>>, Error> {
        budget.allow(self.sections.bytes() + self.shared.as_ref().map_or(0, |(sections, _)| sections.bytes()));
        let mut dwarf = self.sections.dwarf();
        let shared = self.shared.as_ref().map(|(sections, index)| (sections.dwarf(), index));
        if let Some((sections, _)) = &self.shared {
            dwarf.set_sup(sections.dwarf());
        }
        let mut pass = Pass {
            dwarf: &dwarf,
            index: &mut self.index,
            shared: shared.as_ref().map(|(dwarf, index)| (dwarf, *index)),
            splits: Splits { package: self.package.as_ref(), open, left: self.limit },
            names: Names::default(),
            addresses,
            places: vec![None; addresses.len()],
        };
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
    shared: Option<(&'b gimli::Dwarf<Reader<'a>>, &'b Index)>,
    splits: Splits<'b>,
    names: Names<'a>,
    addresses: &'b [u64],
    places: Vec<Option<SourceFrames>>,
}

impl<'a> Pass<'a, '_> {
    /// Whether another unit may know more: so far there is no function.
    fn needs_more(&self, at: usize) -> bool {
        self.places[at].as_ref().is_none_or(|place| place.frames.iter().all(|frame| frame.name.is_none()))
    }

    /// Looks up those addresses of a unit that have the positions `open`.
    fn unit(&mut self, unit: usize, open: &[usize], budget: &mut Budget<'_>) -> Result<(), Error> {
        if open.is_empty() {
            return Ok(());
        }
        let place = Place { shared: false, unit: self.index.unit_offset(unit), offset: 0 };
        let opened = self.names.open(self.dwarf, place, budget)?;
        let wanted: Vec<_> = open.iter().map(|&at| self.addresses[at]).collect();
        let lines = Lines::read(self.dwarf, &opened, &wanted, |address| self.index.is_code(address), budget)?;
        let mut of_unit = OfUnit { dwarf: self.dwarf, opened: &opened, wanted: &wanted, lines };
        let split = match self.splits.load(&opened, budget)? {
            Some((sections, strings)) => match of_unit.frames_of_split(&sections, strings, self.index.code(), budget) {
                Err(Error::GaveUp) => return Err(Error::GaveUp),
                Err(Error::Malformed) => None,
                Ok(frames) => frames,
            },
            None => None,
        };
        // A skeleton has lines as well.
        let frames = match split {
            Some(frames) => frames,
            None => {
                self.index.load_functions(unit, self.dwarf, &opened, budget)?;
                let files = Files { own: (self.dwarf, self.index), shared: self.shared, source_files: None };
                of_unit.frames(files, &mut self.names, unit, &opened, budget)?
            }
        };
        for (&at, frames) in open.iter().zip(frames) {
            // Several units may have a line for an address: the first one counts, unless another has a function.
            if let Some(frames) = frames
                && (self.places[at].is_none() || frames.iter().any(|frame| frame.name.is_some()))
            {
                self.places[at] = Some(SourceFrames { frames });
            }
        }
        Ok(())
    }
}

/// The frames of an address, innermost first.
type Found = Option<Vec<SourceFrame>>;

/// Addresses of one unit, and their lines.
struct OfUnit<'a, 'b> {
    dwarf: &'b gimli::Dwarf<Reader<'a>>,
    /// The unit that has the lines: the skeleton, where there is one.
    opened: &'b Opened<'a>,
    /// In ascending order.
    wanted: &'b [u64],
    lines: Lines<'a>,
}

impl OfUnit<'_, '_> {
    /// The frames of each address, by the functions in a file of its own; `None` where that has another unit.
    fn frames_of_split(
        &mut self,
        sections: &Sections,
        strings: Option<&[u8]>,
        code: &[(u64, u64)],
        budget: &mut Budget<'_>,
    ) -> Result<Option<Vec<Found>>, Error> {
        let mut dwarf = sections.dwarf();
        dwarf.make_dwo(self.dwarf);
        if let Some(strings) = strings {
            dwarf.debug_str = gimli::DebugStr::from(sections.reader(strings));
        }
        let skeleton = &self.opened.unit;
        let id = skeleton.dwo_id.ok_or(Error::Malformed)?;
        let Some((offset, mut opened)) = split::open_unit(&dwarf, id, budget)? else { return Ok(None) };
        // What the linker settles stands in the skeleton, and so do the names of files.
        (opened.unit.low_pc, opened.unit.addr_base) = (skeleton.low_pc, skeleton.addr_base);
        if opened.unit.header.version() < 5 {
            opened.unit.rnglists_base = skeleton.rnglists_base;
        }
        opened.lines = None;
        let opened = Arc::new(opened);
        let mut index = Index::of_unit(offset, code, sections.bytes());
        index.load_functions(0, &dwarf, &opened, budget)?;
        let mut names = Names::with_unit(offset, Arc::clone(&opened));
        let (parent, skeleton) = (self.dwarf, self.opened);
        let source_files = |file: u64, budget: &mut Budget<'_>| lines::file_name(parent, skeleton, file, budget);
        let files = Files { own: (&dwarf, &index), shared: None, source_files: Some(&source_files) };
        self.frames(files, &mut names, 0, &opened, budget).map(Some)
    }

    /// The frames of each address, by the functions of a unit, whose position in the index of the files is `unit`.
    fn frames<'x>(
        &mut self,
        files: Files<'_, 'x>,
        names: &mut Names<'x>,
        unit: usize,
        opened: &Opened<'x>,
        budget: &mut Budget<'_>,
    ) -> Result<Vec<Found>, Error> {
        let (dwarf, index) = files.own;
        let mut found = vec![None; self.wanted.len()];
        // Addresses of the same function are looked up in one pass over it.
        let mut functions: Vec<(usize, usize)> = Vec::with_capacity(self.wanted.len());
        for (position, &address) in self.wanted.iter().enumerate() {
            budget.spend(MAX_CLAIMS)?;
            if let Some(die) = index.function_at(unit, address) {
                functions.push((die, position));
                continue;
            }
            let frame = self.lines.frame(self.dwarf, self.opened, self.lines.at(position), None, budget)?;
            if frame.file.is_some() {
                found[position] = Some(vec![frame]);
            }
        }
        functions.sort_unstable();
        for same in functions.chunk_by(|a, b| a.0 == b.0) {
            let here = Place { shared: false, unit: index.unit_offset(unit), offset: same[0].0 };
            let inside: Vec<_> = same.iter().map(|&(_, position)| self.wanted[position]).collect();
            let inlines = Inlines::read(dwarf, opened, here.offset, &inside, budget)?;
            let function = names.of(files, here, budget)?;
            for (nth, &(_, position)) in same.iter().enumerate() {
                let mut frames = Vec::new();
                let mut line = self.lines.at(position);
                for inline in inlines.at(nth).iter().rev() {
                    let name = match inline.origin.and_then(|origin| files.follow(here, origin)) {
                        Some(origin) => names.of(files, origin, budget)?,
                        None => None,
                    };
                    frames.push(self.lines.frame(self.dwarf, self.opened, line, name, budget)?);
                    line = inline.call;
                }
                frames.push(self.lines.frame(self.dwarf, self.opened, line, function.clone(), budget)?);
                found[position] = Some(frames);
            }
        }
        Ok(found)
    }
}

/// Why the DWARF of a file cannot be used at all.
#[derive(Debug)]
pub(crate) enum Failure {
    Unreadable(Unknown),
    Broken(Error),
}
