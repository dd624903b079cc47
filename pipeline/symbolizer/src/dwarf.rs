//! Reads DWARF: functions inlined at an address, and source lines.
//!
//! Uses gimli directly, since addr2line is not safe for hostile files. addr2line recurses into nested inlined
//! functions, so a file can overflow the stack and kill the process. It also stores every range that units and
//! functions refer to, which is quadratic in the file's size if all refer to the same list. Here every step is charged
//! to a [`DwarfBudget`], nothing recurses, and only an index of units and functions stays in memory; all other data is
//! read again for each batch of addresses. Tests compare the results with addr2line.

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
pub(crate) use budget::{DwarfBudget, Error};
use function::Inlines;
use index::UnitIndex;
use lines::LineTable;
use names::{DwarfFiles, EntryPlace, FunctionNames};
use sections::Sections;
use split::{Package, Splits};
use unit::Opened;

/// The maximum number of units and functions that claim the same address and are tried.
const MAX_CLAIMS: usize = 8;
/// The maximum number of ranges that are searched for claims.
const MAX_STEPS: usize = 256;

type DwarfReader<'a> = gimli::EndianSlice<'a, gimli::RunTimeEndian>;

/// The DWARF of a file.
#[derive(Debug)]
pub(crate) struct Dwarf {
    sections: Sections,
    index: UnitIndex,
    /// The sections and the index of the file to which dwz moved data that several files share.
    shared: Option<(Sections, UnitIndex)>,
    package: Option<Package>,
    limit: usize,
}

/// The files with the DWARF of an object.
#[derive(Debug)]
pub(crate) struct Sources {
    /// The file with its units, or their skeletons.
    pub(crate) file: Elf,
    /// The file with data shared between objects.
    pub(crate) shared: Option<Elf>,
    /// The `.dwp` file with the units of the skeletons.
    pub(crate) package: Option<Elf>,
}

/// The result of DWARF for an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceFrames {
    /// The frames, innermost first. Never empty.
    pub(crate) frames: Vec<SourceFrame>,
}

/// One function of a [`SourceFrames`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SourceFrame {
    pub(crate) name: Option<FunctionName>,
    pub(crate) file: Option<Arc<str>>,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// A function's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FunctionName {
    pub(crate) text: Arc<str>,
    /// Whether this is the linker's name (`DW_AT_linkage_name`) rather than only the source's name.
    pub(crate) linkage: bool,
}

/// A source position whose file number is not yet resolved to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct UnresolvedPosition {
    file: Option<u64>,
    line: u32,
    column: u32,
}

impl Dwarf {
    /// Whether a file has DWARF.
    pub(crate) fn is_in(elf: &Elf) -> bool {
        elf.debug_section(".debug_info").is_some_and(|section| section.size > 0)
    }

    /// Reads the sections and builds the index. `limit` bounds the total decompressed size of all sections. Addresses
    /// outside of `code` belong to removed functions, which the linker leaves at or near address 0.
    pub(crate) fn load(
        sources: Sources,
        code: Vec<(u64, u64)>,
        limit: usize,
        budget: &mut DwarfBudget<'_>,
    ) -> Result<Self, DwarfFailure> {
        let sections = Sections::load(&sources.file, limit).map_err(DwarfFailure::Unreadable)?;
        let left = limit - sections.bytes();
        // The other files are optional: if one cannot be read, only its data is missing.
        let shared = sources.shared.and_then(|shared| Sections::load(&shared, left).ok());
        let left = left - shared.as_ref().map_or(0, Sections::bytes);
        let package = sources.package.and_then(|package| Package::load(package, left / 2).ok());
        budget.allow(sections.bytes() + shared.as_ref().map_or(0, Sections::bytes));
        let index = UnitIndex::new(&sections, code, budget).map_err(DwarfFailure::Broken)?;
        let shared = shared.map(|shared| Ok((UnitIndex::new(&shared, Vec::new(), budget)?, shared)));
        let shared = shared.transpose().map_err(DwarfFailure::Broken)?.map(|(index, shared)| (shared, index));
        Ok(Self { sections, index, shared, package, limit })
    }

    /// Approximate heap size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let shared = self.shared.as_ref().map_or(0, |(sections, index)| sections.bytes() + index.bytes());
        self.sections.bytes() + self.index.bytes() + shared + self.package.as_ref().map_or(0, Package::bytes)
    }

    /// Looks up addresses, which must be in ascending order. In a malformed unit, only that unit's answers are lost.
    /// `open` opens a file at a path from the DWARF.
    pub(crate) fn find(
        &mut self,
        addresses: &[u64],
        open: &dyn Fn(&Path) -> Option<Elf>,
        budget: &mut DwarfBudget<'_>,
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
            names: FunctionNames::default(),
            addresses,
            places: vec![None; addresses.len()],
        };
        // Several units may claim an address, so each is tried until one has a function for it.
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

/// One pass over the units that contain the requested addresses.
struct Pass<'a, 'b> {
    dwarf: &'b gimli::Dwarf<DwarfReader<'a>>,
    index: &'b mut UnitIndex,
    shared: Option<(&'b gimli::Dwarf<DwarfReader<'a>>, &'b UnitIndex)>,
    splits: Splits<'b>,
    names: FunctionNames<'a>,
    addresses: &'b [u64],
    places: Vec<Option<SourceFrames>>,
}

impl<'a> Pass<'a, '_> {
    /// Whether no function was found yet, so that another unit has to be tried.
    fn needs_more(&self, at: usize) -> bool {
        self.places[at].as_ref().is_none_or(|place| place.frames.iter().all(|frame| frame.name.is_none()))
    }

    /// Looks up the addresses at the positions `open` in one unit.
    fn unit(&mut self, unit: usize, open: &[usize], budget: &mut DwarfBudget<'_>) -> Result<(), Error> {
        if open.is_empty() {
            return Ok(());
        }
        let place = EntryPlace { shared: false, unit: self.index.unit_offset(unit), offset: 0 };
        let opened = self.names.open(self.dwarf, place, budget)?;
        let wanted: Vec<_> = open.iter().map(|&at| self.addresses[at]).collect();
        let lines = LineTable::read(self.dwarf, &opened, &wanted, |address| self.index.is_code(address), budget)?;
        let mut unit_addresses = UnitAddresses { dwarf: self.dwarf, opened: &opened, wanted: &wanted, lines };
        let split = match self.splits.load(&opened, budget)? {
            Some((sections, strings)) => {
                match unit_addresses.frames_of_split(&sections, strings, self.index.code(), budget) {
                    Err(Error::GaveUp) => return Err(Error::GaveUp),
                    Err(Error::Malformed) => None,
                    Ok(frames) => frames,
                }
            }
            None => None,
        };
        // A skeleton has lines as well, which are used without the split unit.
        let frames = match split {
            Some(frames) => frames,
            None => {
                self.index.load_functions(unit, self.dwarf, &opened, budget)?;
                let files = DwarfFiles { own: (self.dwarf, self.index), shared: self.shared, source_files: None };
                unit_addresses.frames(files, &mut self.names, unit, &opened, budget)?
            }
        };
        for (&at, frames) in open.iter().zip(frames) {
            // If several units have only a line for an address, the first one is used.
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
type FoundFrames = Option<Vec<SourceFrame>>;

/// Addresses of one unit, and their lines.
struct UnitAddresses<'a, 'b> {
    dwarf: &'b gimli::Dwarf<DwarfReader<'a>>,
    /// The unit with the lines: the skeleton, if there is one.
    opened: &'b Opened<'a>,
    /// The requested addresses, in ascending order.
    wanted: &'b [u64],
    lines: LineTable<'a>,
}

impl UnitAddresses<'_, '_> {
    /// The frames of each address according to the functions of a split unit; `None` if the split unit has another id.
    fn frames_of_split(
        &mut self,
        sections: &Sections,
        strings: Option<&[u8]>,
        code: &[(u64, u64)],
        budget: &mut DwarfBudget<'_>,
    ) -> Result<Option<Vec<FoundFrames>>, Error> {
        let mut dwarf = sections.dwarf();
        dwarf.make_dwo(self.dwarf);
        if let Some(strings) = strings {
            dwarf.debug_str = gimli::DebugStr::from(sections.reader(strings));
        }
        let skeleton = &self.opened.unit;
        let id = skeleton.dwo_id.ok_or(Error::Malformed)?;
        let Some((offset, mut opened)) = split::open_unit(&dwarf, id, budget)? else { return Ok(None) };
        // The skeleton has the values that the linker decides, and the file names.
        (opened.unit.low_pc, opened.unit.addr_base) = (skeleton.low_pc, skeleton.addr_base);
        if opened.unit.header.version() < 5 {
            opened.unit.rnglists_base = skeleton.rnglists_base;
        }
        opened.lines = None;
        let opened = Arc::new(opened);
        let mut index = UnitIndex::of_unit(offset, code, sections.bytes());
        index.load_functions(0, &dwarf, &opened, budget)?;
        let mut names = FunctionNames::with_unit(offset, Arc::clone(&opened));
        let (parent, skeleton) = (self.dwarf, self.opened);
        let source_files = |file: u64, budget: &mut DwarfBudget<'_>| lines::file_name(parent, skeleton, file, budget);
        let files = DwarfFiles { own: (&dwarf, &index), shared: None, source_files: Some(&source_files) };
        self.frames(files, &mut names, 0, &opened, budget).map(Some)
    }

    /// The frames of each address according to the functions of a unit, which has position `unit` in the index.
    fn frames<'x>(
        &mut self,
        files: DwarfFiles<'_, 'x>,
        names: &mut FunctionNames<'x>,
        unit: usize,
        opened: &Opened<'x>,
        budget: &mut DwarfBudget<'_>,
    ) -> Result<Vec<FoundFrames>, Error> {
        let (dwarf, index) = files.own;
        let mut found = vec![None; self.wanted.len()];
        // One pass over a function is used for all its addresses.
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
            let here = EntryPlace { shared: false, unit: index.unit_offset(unit), offset: same[0].0 };
            let inside: Vec<_> = same.iter().map(|&(_, position)| self.wanted[position]).collect();
            let inlines = Inlines::read(dwarf, opened, here.offset, &inside, budget)?;
            let function = names.function_name(files, here, budget)?;
            for (nth, &(_, position)) in same.iter().enumerate() {
                let mut frames = Vec::new();
                let mut line = self.lines.at(position);
                for inline in inlines.at(nth).iter().rev() {
                    let name = match inline.origin.and_then(|origin| files.follow(here, origin)) {
                        Some(origin) => names.function_name(files, origin, budget)?,
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

/// Why the DWARF of a file cannot be used.
#[derive(Debug)]
pub(crate) enum DwarfFailure {
    Unreadable(Unknown),
    Broken(Error),
}
