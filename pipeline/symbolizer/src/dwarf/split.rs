//! Split DWARF: units in separate files (`.dwo`), or packed together (`.dwp`). The program contains a skeleton of each
//! unit (DWARF 5, 3.1.2 and 7.3.5; before that a GNU extension).

use std::path::{Path, PathBuf};

use super::DwarfReader;
use super::budget::{DwarfBudget, Error};
use super::sections::Sections;
use super::unit::{self, Opened};
use crate::Unknown;
use crate::elf::Elf;

/// The cost of an attempt to open a file, in units of work.
const OPENING: usize = 256 << 10;

/// The location of the split unit of a skeleton, from the skeleton's attributes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Skeleton<'a> {
    /// The file's path, relative to the compilation folder.
    pub(super) name: Option<DwarfReader<'a>>,
    pub(super) id: gimli::DwoId,
}

/// A `.dwp` file with the split units of a program.
#[derive(Debug)]
pub(super) struct Package {
    file: Elf,
    index: Vec<u8>,
    strings: Vec<u8>,
}

impl Package {
    /// Reads the parts that all units share.
    pub(super) fn load(file: Elf, limit: usize) -> Result<Self, Unknown> {
        let read =
            |name: &str| file.section(name.as_bytes()).map_or(Ok(Vec::new()), |section| file.data(section, limit));
        let (index, strings) = (read(".debug_cu_index")?, read(".debug_str.dwo")?);
        Ok(Self { file, index, strings })
    }

    pub(super) fn bytes(&self) -> usize {
        self.index.len() + self.strings.len()
    }

    /// The sections of one unit, without the shared strings.
    fn unit(&self, id: gimli::DwoId, limit: usize) -> Option<Sections> {
        let index = gimli::DebugCuIndex::from(self.file.reader(&self.index)).index().ok()?;
        let parts: Vec<_> = index.sections(index.find(id.0)?).ok()?.collect();
        Sections::of_split(&self.file, limit, |section| {
            if section == gimli::SectionId::DebugStr {
                return Ok(Vec::new());
            }
            let Some(part) = parts.iter().find(|part| part.section.section_id() == section) else {
                return Ok(Vec::new());
            };
            let name = section.dwo_name().unwrap_or_default();
            let Some(header) = self.file.section(name.as_bytes()) else { return Ok(Vec::new()) };
            self.file.part(header, part.offset.into(), part.size.into())
        })
        .ok()
    }
}

/// The sections of a split unit, and the strings that it shares with others.
pub(super) type SplitSections<'b> = (Sections, Option<&'b [u8]>);

/// Finds the split units of skeletons.
pub(super) struct Splits<'b> {
    pub(super) package: Option<&'b Package>,
    /// Opens a file at a path if that is allowed.
    pub(super) open: &'b dyn Fn(&Path) -> Option<Elf>,
    /// The number of bytes that may still be read for one batch.
    pub(super) left: usize,
}

impl Splits<'_> {
    /// Reads the split unit of a skeleton.
    pub(super) fn load(
        &mut self,
        skeleton: &Opened<'_>,
        budget: &mut DwarfBudget<'_>,
    ) -> Result<Option<SplitSections<'_>>, Error> {
        let Some(Skeleton { name, id }) = skeleton.skeleton else { return Ok(None) };
        // In a malformed index, a search may visit every entry.
        budget.spend(OPENING + self.package.map_or(0, |package| package.index.len() / 64))?;
        let packed = self.package.and_then(|package| package.unit(id, self.left));
        let alone = || {
            let path = [skeleton.unit.comp_dir, name].into_iter().flatten();
            let path: PathBuf = path.map(|part| String::from_utf8_lossy(part.slice()).into_owned()).collect();
            let file = (self.open)(&path)?;
            let read = |section: gimli::SectionId| {
                let found = file.section(section.dwo_name().unwrap_or_default().as_bytes());
                found.map_or(Ok(Vec::new()), |found| file.data(found, self.left))
            };
            Sections::of_split(&file, self.left, read).ok()
        };
        let strings = self.package.filter(|_| packed.is_some()).map(|package| &*package.strings);
        let Some(sections) = packed.or_else(alone) else { return Ok(None) };
        self.left -= sections.bytes();
        budget.add(sections.bytes());
        Ok(Some((sections, strings)))
    }
}

/// Opens the unit with an id. Also returns its offset.
pub(super) fn open_unit<'a>(
    dwarf: &gimli::Dwarf<DwarfReader<'a>>,
    id: gimli::DwoId,
    budget: &mut DwarfBudget<'_>,
) -> Result<Option<(usize, Opened<'a>)>, Error> {
    let mut headers = dwarf.debug_info.units();
    while let Ok(Some(header)) = headers.next() {
        let Some(offset) = header.debug_info_offset() else { continue };
        match unit::open(dwarf, offset.0, budget) {
            Ok(opened) if opened.unit.dwo_id == Some(id) => return Ok(Some((offset.0, opened))),
            Err(Error::GaveUp) => return Err(Error::GaveUp),
            Ok(_) | Err(Error::Malformed) => {}
        }
    }
    Ok(None)
}
