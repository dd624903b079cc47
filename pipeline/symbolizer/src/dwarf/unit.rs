//! Opens a unit: header, abbreviations, and attributes of the root entry.

use std::sync::Arc;

use gimli::{AttributeValue, DebugInfoOffset, Reader as _, Section as _, UnitOffset};

use super::DwarfReader;
use super::budget::{DwarfBudget, Error};
use super::split::Skeleton;

/// The maximum size of the table of abbreviations of one unit, in bytes. Compilers write a few kilobytes; in memory the
/// table is thirty times as large.
const MAX_ABBREVIATIONS: usize = 256 << 10;

/// An opened unit. gimli's own type would also read the header of the line program, without a limit.
#[derive(Debug)]
pub(super) struct Opened<'a> {
    pub(super) unit: gimli::Unit<DwarfReader<'a>>,
    /// The unit's code.
    pub(super) extent: Extent<'a>,
    /// The unit's line program.
    pub(super) lines: Option<gimli::DebugLineOffset>,
    /// Set if this unit is only a skeleton, whose unit is in another file.
    pub(super) skeleton: Option<Skeleton<'a>>,
    /// Whether the unit has code. Otherwise other units refer to its entries.
    pub(super) has_code: bool,
}

/// The attributes that describe ranges of code (DWARF 5, 2.17).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extent<'a> {
    low: Option<AttributeValue<DwarfReader<'a>>>,
    high: Option<AttributeValue<DwarfReader<'a>>>,
    ranges: Option<AttributeValue<DwarfReader<'a>>>,
}

impl<'a> Extent<'a> {
    /// Stores an attribute if it describes a range.
    pub(super) fn set_attribute(&mut self, name: gimli::DwAt, value: AttributeValue<DwarfReader<'a>>) {
        match name {
            gimli::DW_AT_low_pc => self.low = Some(value),
            gimli::DW_AT_high_pc => self.high = Some(value),
            gimli::DW_AT_ranges => self.ranges = Some(value),
            _ => {}
        }
    }

    /// Calls `each` for every range.
    pub(super) fn each(
        &self,
        dwarf: &gimli::Dwarf<DwarfReader<'a>>,
        unit: &gimli::Unit<DwarfReader<'a>>,
        budget: &mut DwarfBudget<'_>,
        mut each: impl FnMut(&mut DwarfBudget<'_>, u64, u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if let Some(ranges) = self.ranges
            && let Some(offset) = dwarf.attr_ranges_offset(unit, ranges)?
        {
            let mut ranges = dwarf.ranges(unit, offset)?;
            while let Some(range) = ranges.next()? {
                budget.spend(4)?;
                if range.begin < range.end {
                    each(budget, range.begin, range.end)?;
                }
            }
            return Ok(());
        }
        let Some(low) = self.low else { return Ok(()) };
        let Some(low) = dwarf.attr_address(unit, low)? else { return Ok(()) };
        let high = match self.high {
            None => return Ok(()),
            // A constant is a length, and not an address.
            Some(high) => match high.udata_value() {
                Some(length) => low.checked_add(length),
                None => dwarf.attr_address(unit, high)?,
            },
        };
        match high {
            Some(high) if low < high => each(budget, low, high),
            _ => Ok(()),
        }
    }
}

/// Opens the unit at an offset of `.debug_info`.
pub(super) fn open<'a>(
    dwarf: &gimli::Dwarf<DwarfReader<'a>>,
    offset: usize,
    budget: &mut DwarfBudget<'_>,
) -> Result<Opened<'a>, Error> {
    let header = dwarf.debug_info.header_from_offset(DebugInfoOffset(offset))?;
    let mut table = *dwarf.debug_abbrev.reader();
    table.skip(header.debug_abbrev_offset().0)?;
    budget.spend(64 + length_of_abbreviations(&table)?)?;
    let abbreviations = dwarf.abbreviations(&header)?;

    let has_code = matches!(header.type_(), gimli::UnitType::Compilation | gimli::UnitType::Skeleton(_));
    let encoding = header.encoding();
    let mut unit = gimli::Unit {
        abbreviations,
        name: None,
        comp_dir: None,
        low_pc: 0,
        str_offsets_base: gimli::DebugStrOffsetsBase::default_for_encoding_and_file(encoding, dwarf.file_type),
        addr_base: gimli::DebugAddrBase(0),
        loclists_base: gimli::DebugLocListsBase::default_for_encoding_and_file(encoding, dwarf.file_type),
        rnglists_base: gimli::DebugRngListsBase::default_for_encoding_and_file(encoding, dwarf.file_type),
        line_program: None,
        dwo_id: None,
        header,
    };
    let mut extent = Extent::default();
    let mut lines = None;
    let (mut name, mut folder, mut split) = (None, None, None);
    if let gimli::UnitType::Skeleton(id) | gimli::UnitType::SplitCompilation(id) = unit.header.type_() {
        unit.dwo_id = Some(id);
    }
    let mut entries = unit.header.entries_raw(&unit.abbreviations, None)?;
    let root = entries.read_abbreviation()?.ok_or(Error::Malformed)?;
    let has_code = has_code && root.tag() != gimli::DW_TAG_partial_unit;
    budget.spend(root.attributes().len())?;
    for &specification in root.attributes() {
        let attribute = entries.read_attribute(specification)?;
        let value = attribute.value();
        extent.set_attribute(attribute.name(), value);
        match (attribute.name(), value) {
            (gimli::DW_AT_name, _) => name = Some(value),
            (gimli::DW_AT_comp_dir, _) => folder = Some(value),
            (gimli::DW_AT_dwo_name | gimli::DW_AT_GNU_dwo_name, _) => split = Some(value),
            (gimli::DW_AT_GNU_dwo_id, AttributeValue::DwoId(id)) => unit.dwo_id = Some(id),
            (gimli::DW_AT_stmt_list, AttributeValue::DebugLineRef(offset)) => lines = Some(offset),
            (gimli::DW_AT_str_offsets_base, AttributeValue::DebugStrOffsetsBase(base)) => unit.str_offsets_base = base,
            (gimli::DW_AT_addr_base | gimli::DW_AT_GNU_addr_base, AttributeValue::DebugAddrBase(base)) => {
                unit.addr_base = base;
            }
            (gimli::DW_AT_rnglists_base | gimli::DW_AT_GNU_ranges_base, AttributeValue::DebugRngListsBase(base)) => {
                unit.rnglists_base = base;
            }
            _ => {}
        }
    }
    unit.name = text(dwarf, &unit, name, budget)?;
    unit.comp_dir = text(dwarf, &unit, folder, budget)?;
    let skeleton = match (unit.dwo_id, split) {
        (Some(id), Some(_)) => Some(Skeleton { name: text(dwarf, &unit, split, budget)?, id }),
        _ => None,
    };
    if let Some(low) = extent.low {
        unit.low_pc = dwarf.attr_address(&unit, low)?.unwrap_or(0);
    }
    Ok(Opened { unit, extent, lines, skeleton, has_code })
}

/// The string that an attribute refers to. The search for the end of the string is charged to the budget, even if the
/// string has no end.
pub(super) fn text<'a>(
    dwarf: &gimli::Dwarf<DwarfReader<'a>>,
    unit: &gimli::Unit<DwarfReader<'a>>,
    value: Option<AttributeValue<DwarfReader<'a>>>,
    budget: &mut DwarfBudget<'_>,
) -> Result<Option<DwarfReader<'a>>, Error> {
    let Some(value) = value else { return Ok(None) };
    match dwarf.attr_string(unit, value) {
        Ok(text) => {
            budget.spend(text.len())?;
            Ok(Some(text))
        }
        Err(_) => {
            let shared = dwarf.sup().map_or(0, |shared| shared.debug_str.reader().len());
            let longest = dwarf.debug_str.reader().len().max(dwarf.debug_line_str.reader().len());
            budget.spend(longest.max(shared))?;
            Ok(None)
        }
    }
}

/// The target of a reference: an offset in the same unit, in `.debug_info`, or in the shared file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reference {
    Here(usize),
    Anywhere(usize),
    Shared(usize),
}

impl Reference {
    pub(super) fn of(value: AttributeValue<DwarfReader<'_>>) -> Option<Self> {
        match value {
            AttributeValue::UnitRef(UnitOffset(offset)) => Some(Self::Here(offset)),
            AttributeValue::DebugInfoRef(DebugInfoOffset(offset)) => Some(Self::Anywhere(offset)),
            AttributeValue::DebugInfoRefSup(DebugInfoOffset(offset)) => Some(Self::Shared(offset)),
            _ => None,
        }
    }
}

/// The length of a table of abbreviations, computed without storing it (DWARF 5, 7.5.3).
fn length_of_abbreviations(table: &DwarfReader<'_>) -> Result<usize, Error> {
    let mut reader = *table;
    reader.truncate(reader.len().min(MAX_ABBREVIATIONS))?;
    let whole = reader.len();
    let read = |reader: &mut DwarfReader<'_>| {
        if reader.is_empty() && whole == MAX_ABBREVIATIONS {
            return Err(Error::Malformed);
        }
        Ok(reader.read_uleb128()?)
    };
    // The table may also end with the section.
    while !reader.is_empty() {
        if read(&mut reader)? == 0 {
            break;
        }
        read(&mut reader)?;
        reader.read_u8()?;
        loop {
            let (name, form) = (read(&mut reader)?, read(&mut reader)?);
            if form == u64::from(gimli::DW_FORM_implicit_const.0) {
                reader.read_sleb128()?;
            }
            if name == 0 && form == 0 {
                break;
            }
        }
    }
    Ok(whole - reader.len())
}

/// A unit that is opened often and shared.
pub(super) type SharedUnit<'a> = Arc<Opened<'a>>;
