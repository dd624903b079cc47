//! Maps addresses to units and to the functions in them. The index contains offsets instead of references, so it can be
//! stored beside the sections.

use crate::intervals::Intervals;

use super::budget::{DwarfBudget, Error};
use super::sections::Sections;
use super::unit::{self, Extent, Opened};
use super::{DwarfReader, MAX_CLAIMS, MAX_STEPS};

/// The maximum size of the index beyond that of the sections, in bytes.
const SLACK: usize = 16 << 20;

#[derive(Debug)]
pub(super) struct UnitIndex {
    /// Address ranges of code, in order.
    code: Vec<(u64, u64)>,
    /// Units in order of their offsets.
    units: Vec<IndexedUnit>,
    /// Address ranges and positions in `units`.
    ranges: Intervals,
    bytes: usize,
    limit: usize,
}

#[derive(Debug)]
struct IndexedUnit {
    /// Offset of the unit in `.debug_info`.
    offset: usize,
    /// Address ranges of functions, and their offsets in the unit. Loaded on first use.
    functions: Option<Intervals>,
}

impl UnitIndex {
    pub(super) fn new(sections: &Sections, code: Vec<(u64, u64)>, budget: &mut DwarfBudget<'_>) -> Result<Self, Error> {
        let dwarf = sections.dwarf();
        let limit = sections.bytes().saturating_add(SLACK);
        let mut index = Self { code, units: Vec::new(), ranges: Intervals::default(), bytes: 0, limit };
        let mut headers = dwarf.debug_info.units();
        // A malformed header makes all units after it unreadable; the units before it are used.
        while let Ok(Some(header)) = headers.next() {
            let Some(offset) = header.debug_info_offset() else { continue };
            index.grow(size_of::<IndexedUnit>())?;
            let position = index.units.len();
            index.units.push(IndexedUnit { offset: offset.0, functions: None });
            match index.add_ranges(&dwarf, position, budget) {
                Err(Error::GaveUp) => return Err(Error::GaveUp),
                Ok(()) | Err(Error::Malformed) => {}
            }
        }
        index.ranges.sort();
        Ok(index)
    }

    /// The index of the unit at an offset of `.debug_info`, without its functions. `bytes` is the size of the file that
    /// contains the unit.
    pub(super) fn of_unit(offset: usize, code: &[(u64, u64)], bytes: usize) -> Self {
        let units = vec![IndexedUnit { offset, functions: None }];
        Self { code: code.to_vec(), units, ranges: Intervals::default(), bytes: 0, limit: bytes.saturating_add(SLACK) }
    }

    pub(super) fn code(&self) -> &[(u64, u64)] {
        &self.code
    }

    fn add_ranges(
        &mut self,
        dwarf: &gimli::Dwarf<DwarfReader<'_>>,
        position: usize,
        budget: &mut DwarfBudget<'_>,
    ) -> Result<(), Error> {
        let opened = unit::open(dwarf, self.units[position].offset, budget)?;
        if !opened.has_code {
            return Ok(());
        }
        let mut any = false;
        opened.extent.each(dwarf, &opened.unit, budget, |_, start, end| {
            any = true;
            self.add_range(start, end, position)
        })?;
        if !any {
            // Uses the ranges of the functions if the unit itself has none.
            let mut ranges = Vec::new();
            self.each_function(dwarf, &opened, budget, |index, start, end, _| {
                index.grow(Intervals::BYTES)?;
                ranges.push((start, end));
                Ok(())
            })?;
            for (start, end) in ranges {
                self.ranges.push(start, end, position);
            }
        }
        Ok(())
    }

    fn add_range(&mut self, start: u64, end: u64, position: usize) -> Result<(), Error> {
        if self.is_code(start) {
            self.grow(Intervals::BYTES)?;
            self.ranges.push(start, end, position);
        }
        Ok(())
    }

    fn grow(&mut self, bytes: usize) -> Result<(), Error> {
        self.bytes += bytes;
        if self.bytes > self.limit { Err(Error::GaveUp) } else { Ok(()) }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_code(&self, address: u64) -> bool {
        let after = self.code.partition_point(|&(start, _)| start <= address);
        after.checked_sub(1).is_some_and(|at| address < self.code[at].1)
    }

    pub(super) fn unit_offset(&self, unit: usize) -> usize {
        self.units[unit].offset
    }

    /// The offset of the unit that contains an offset of `.debug_info`.
    pub(super) fn unit_around(&self, offset: usize) -> Option<usize> {
        let after = self.units.partition_point(|unit| unit.offset <= offset);
        after.checked_sub(1).map(|at| self.units[at].offset)
    }

    pub(super) fn units_at(&self, address: u64) -> impl Iterator<Item = usize> + '_ {
        self.ranges.find(address, MAX_STEPS).take(MAX_CLAIMS)
    }

    /// The offset of the function at an address in a unit whose functions are loaded. If several match, the one that
    /// starts last.
    pub(super) fn function_at(&self, unit: usize, address: u64) -> Option<usize> {
        self.units[unit].functions.as_ref()?.find(address, MAX_STEPS).next()
    }

    /// Loads the functions of a unit, once.
    pub(super) fn load_functions(
        &mut self,
        unit: usize,
        dwarf: &gimli::Dwarf<DwarfReader<'_>>,
        opened: &Opened<'_>,
        budget: &mut DwarfBudget<'_>,
    ) -> Result<(), Error> {
        if self.units[unit].functions.is_some() {
            return Ok(());
        }
        let mut functions = Intervals::default();
        let result = self.each_function(dwarf, opened, budget, |index, start, end, offset| {
            index.grow(Intervals::BYTES)?;
            functions.push(start, end, offset);
            Ok(())
        });
        functions.sort();
        // Malformed data ends the unit; the functions before it are used.
        self.units[unit].functions = Some(functions);
        match result {
            Err(Error::GaveUp) => Err(Error::GaveUp),
            Ok(()) | Err(Error::Malformed) => Ok(()),
        }
    }

    fn each_function(
        &mut self,
        dwarf: &gimli::Dwarf<DwarfReader<'_>>,
        opened: &Opened<'_>,
        budget: &mut DwarfBudget<'_>,
        mut each: impl FnMut(&mut Self, u64, u64, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut entries = opened.unit.entries_raw(None)?;
        while !entries.is_empty() {
            let offset = entries.next_offset();
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            budget.spend(1 + abbreviation.attributes().len())?;
            if abbreviation.tag() != gimli::DW_TAG_subprogram {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            let mut extent = Extent::default();
            for &specification in abbreviation.attributes() {
                let attribute = entries.read_attribute(specification)?;
                extent.set_attribute(attribute.name(), attribute.value());
            }
            let result = extent.each(dwarf, &opened.unit, budget, |_, start, end| {
                if self.is_code(start) { each(self, start, end, offset.0) } else { Ok(()) }
            });
            match result {
                Err(Error::GaveUp) => return Err(Error::GaveUp),
                Ok(()) | Err(Error::Malformed) => {}
            }
        }
        Ok(())
    }
}
