//! The DWARF sections with functions and lines.

use gimli::Reader as _;

use crate::Unknown;
use crate::elf::Elf;

use super::DwarfReader;

/// The sections that are read. Those about variables, such as `.debug_loc`, are not.
const WANTED: [gimli::SectionId; 9] = [
    gimli::SectionId::DebugInfo,
    gimli::SectionId::DebugAbbrev,
    gimli::SectionId::DebugLine,
    gimli::SectionId::DebugLineStr,
    gimli::SectionId::DebugStr,
    gimli::SectionId::DebugStrOffsets,
    gimli::SectionId::DebugAddr,
    gimli::SectionId::DebugRanges,
    gimli::SectionId::DebugRngLists,
];

/// DWARF sections in memory, decompressed.
#[derive(Debug)]
pub(super) struct Sections {
    data: [Vec<u8>; WANTED.len()],
    endian: gimli::RunTimeEndian,
}

impl Sections {
    pub(super) fn load(elf: &Elf, limit: usize) -> Result<Self, Unknown> {
        let found = WANTED.map(|id| elf.debug_section(id.name()));
        // Checks all sizes before any allocation.
        let mut total = 0_u64;
        for section in found.iter().flatten() {
            total = total.saturating_add(elf.uncompressed_size(section)?.max(section.size));
        }
        if total > limit as u64 {
            return Err(Unknown::TooLarge);
        }
        let mut data = [const { Vec::new() }; WANTED.len()];
        for (data, section) in data.iter_mut().zip(found) {
            if let Some(section) = section {
                *data = elf.data(section, limit)?;
            }
        }
        Ok(Self { data, endian: elf.reader(&[]).endian() })
    }

    /// The sections of a split unit, each loaded by `read`.
    pub(super) fn of_split(
        elf: &Elf,
        limit: usize,
        read: impl Fn(gimli::SectionId) -> Result<Vec<u8>, Unknown>,
    ) -> Result<Self, Unknown> {
        let mut data = [const { Vec::new() }; WANTED.len()];
        let mut left = limit;
        for (data, id) in data.iter_mut().zip(WANTED) {
            if id.dwo_name().is_some() && id != gimli::SectionId::DebugLine {
                *data = read(id)?;
                left = left.checked_sub(data.len()).ok_or(Unknown::TooLarge)?;
            }
        }
        Ok(Self { data, endian: elf.reader(&[]).endian() })
    }

    pub(super) fn bytes(&self) -> usize {
        self.data.iter().map(Vec::len).sum()
    }

    pub(super) fn get(&self, id: gimli::SectionId) -> DwarfReader<'_> {
        self.reader(WANTED.iter().position(|&wanted| wanted == id).map_or(&[][..], |at| &self.data[at]))
    }

    /// Wraps bytes for gimli, in the byte order of these sections.
    pub(super) fn reader<'a>(&self, bytes: &'a [u8]) -> DwarfReader<'a> {
        gimli::EndianSlice::new(bytes, self.endian)
    }

    /// A view for gimli. It is cheap, since gimli parses on demand.
    pub(super) fn dwarf(&self) -> gimli::Dwarf<DwarfReader<'_>> {
        let Ok(dwarf) = gimli::Dwarf::load(|id| Ok::<_, std::convert::Infallible>(self.get(id)));
        dwarf
    }
}
