//! Source files and lines.

use std::sync::Arc;

use gimli::{Reader as _, Section as _};
use hashbrown::HashMap;

use crate::text::{MAX_NAME, clean, cut};

use super::budget::{DwarfBudget, Error};
use super::unit::{self, Opened};
use super::{DwarfReader, FunctionName, SourceFrame, UnresolvedPosition};

/// The maximum size of a line program's header, in bytes. The header names all files of a unit. In memory it is up to
/// 150 times as large.
const MAX_HEADER: u64 = 1 << 20;

/// The lines of given addresses, and the files of their unit.
#[derive(Debug)]
pub(super) struct LineTable<'a> {
    at: Vec<UnresolvedPosition>,
    header: Option<gimli::LineProgramHeader<DwarfReader<'a>>>,
    files: HashMap<u64, Option<Arc<str>>>,
}

impl<'a> LineTable<'a> {
    /// Runs the line program of a unit, and stores the rows for `addresses`, which must be in ascending order.
    pub(super) fn read(
        dwarf: &gimli::Dwarf<DwarfReader<'a>>,
        opened: &Opened<'a>,
        addresses: &[u64],
        is_code: impl Fn(u64) -> bool,
        budget: &mut DwarfBudget<'_>,
    ) -> Result<Self, Error> {
        let none = UnresolvedPosition::default();
        let mut lines = Self { at: vec![none; addresses.len()], header: None, files: HashMap::default() };
        let Some(offset) = opened.lines else { return Ok(lines) };
        match lines.run(dwarf, opened, offset, addresses, is_code, budget) {
            Err(Error::GaveUp) => Err(Error::GaveUp),
            // Malformed lines do not prevent the use of function names.
            Ok(()) | Err(Error::Malformed) => Ok(lines),
        }
    }

    fn run(
        &mut self,
        dwarf: &gimli::Dwarf<DwarfReader<'a>>,
        opened: &Opened<'a>,
        offset: gimli::DebugLineOffset,
        addresses: &[u64],
        is_code: impl Fn(u64) -> bool,
        budget: &mut DwarfBudget<'_>,
    ) -> Result<(), Error> {
        let program = program(dwarf, opened, offset, budget)?;
        budget.spend(program.header().raw_program_buf().len())?;
        self.header = Some(program.header().clone());

        let mut rows = program.rows();
        // The previous row, which is valid up to the next one.
        let mut before: Option<(u64, UnresolvedPosition)> = None;
        let mut starts = true;
        let mut removed = false;
        while let Some((_, row)) = rows.next_row()? {
            let address = row.address();
            if starts {
                // The linker removed this code.
                removed = !is_code(address);
                starts = false;
            }
            if let Some((from, position)) = before
                && from < address
                && !removed
            {
                let first = addresses.partition_point(|&asked| asked < from);
                let covered = addresses[first..].iter().take_while(|&&asked| asked < address).count();
                budget.spend(covered)?;
                for at in &mut self.at[first..first + covered] {
                    if at.file.is_none() {
                        *at = position;
                    }
                }
            }
            before = (!row.end_sequence()).then(|| {
                let column = match row.column() {
                    gimli::ColumnType::LeftEdge => 0,
                    gimli::ColumnType::Column(column) => u32::try_from(column.get()).unwrap_or(0),
                };
                let line = row.line().map_or(0, |line| u32::try_from(line.get()).unwrap_or(0));
                (address, UnresolvedPosition { file: Some(row.file_index()), line, column })
            });
            if row.end_sequence() {
                starts = true;
            }
        }
        Ok(())
    }

    /// The source position of `addresses[position]`.
    pub(super) fn at(&self, position: usize) -> UnresolvedPosition {
        self.at[position]
    }

    /// A frame of a function at a source position.
    pub(super) fn frame(
        &mut self,
        dwarf: &gimli::Dwarf<DwarfReader<'a>>,
        opened: &Opened<'a>,
        position: UnresolvedPosition,
        name: Option<FunctionName>,
        budget: &mut DwarfBudget<'_>,
    ) -> Result<SourceFrame, Error> {
        let file = match position.file {
            Some(index) => self.file(dwarf, opened, index, budget)?,
            None => None,
        };
        // A column is useless without a line.
        let column = if position.line == 0 { 0 } else { position.column };
        Ok(SourceFrame { name, file, line: position.line, column })
    }

    fn file(
        &mut self,
        dwarf: &gimli::Dwarf<DwarfReader<'a>>,
        opened: &Opened<'a>,
        index: u64,
        budget: &mut DwarfBudget<'_>,
    ) -> Result<Option<Arc<str>>, Error> {
        if let Some(file) = self.files.get(&index) {
            return Ok(file.clone());
        }
        let file = match &self.header {
            Some(header) => path(dwarf, opened, header, index, budget)?,
            None => None,
        };
        if let Some(file) = &file {
            budget.keep(file)?;
        }
        self.files.insert(index, file.clone());
        Ok(file)
    }
}

/// Opens a line program, and charges its header to the budget.
fn program<'a>(
    dwarf: &gimli::Dwarf<DwarfReader<'a>>,
    opened: &Opened<'a>,
    offset: gimli::DebugLineOffset,
    budget: &mut DwarfBudget<'_>,
) -> Result<gimli::IncompleteLineProgram<DwarfReader<'a>>, Error> {
    let length = header_length(dwarf, offset)?;
    if length > MAX_HEADER {
        return Err(Error::Malformed);
    }
    budget.spend(length as usize)?;
    let unit = &opened.unit;
    Ok(dwarf.debug_line.program(offset, unit.header.address_size(), unit.comp_dir, unit.name)?)
}

/// The file number from an attribute.
pub(super) fn file_index(attribute: &gimli::Attribute<DwarfReader<'_>>) -> Option<u64> {
    match attribute.value() {
        gimli::AttributeValue::FileIndex(file) => Some(file),
        _ => attribute.udata_value(),
    }
}

/// The path of a file of a unit whose lines are not read.
pub(super) fn file_name<'a>(
    dwarf: &gimli::Dwarf<DwarfReader<'a>>,
    opened: &Opened<'a>,
    index: u64,
    budget: &mut DwarfBudget<'_>,
) -> Result<Option<Arc<str>>, Error> {
    let Some(offset) = opened.lines else { return Ok(None) };
    let program = program(dwarf, opened, offset, budget)?;
    path(dwarf, opened, program.header(), index, budget)
}

/// The path of a file: the compilation folder, the file's folder, and the name are joined. An absolute part replaces
/// the parts before it.
fn path<'a>(
    dwarf: &gimli::Dwarf<DwarfReader<'a>>,
    opened: &Opened<'a>,
    header: &gimli::LineProgramHeader<DwarfReader<'a>>,
    index: u64,
    budget: &mut DwarfBudget<'_>,
) -> Result<Option<Arc<str>>, Error> {
    // Up to DWARF 4, index 0 means no file.
    if index == 0 && header.version() < 5 {
        return Ok(None);
    }
    let Some(file) = header.file(index) else { return Ok(None) };
    let mut parts = Vec::new();
    parts.extend(opened.unit.comp_dir);
    if file.directory_index() != 0 {
        parts.extend(unit::text(dwarf, &opened.unit, file.directory(header), budget)?);
    }
    parts.extend(unit::text(dwarf, &opened.unit, Some(file.path_name()), budget)?);
    let mut path = String::new();
    for part in parts {
        let part = clean(part.slice());
        if part.starts_with('/') {
            path.clear();
        } else if !path.is_empty() && !path.ends_with('/') {
            path.push('/');
        }
        path.push_str(&part);
    }
    debug_assert!(path.len() <= 4 * MAX_NAME);
    let path = cut(path);
    Ok((!path.is_empty()).then(|| path.into()))
}

/// The length of the header according to the line program (DWARF 5, 6.2.4).
fn header_length(dwarf: &gimli::Dwarf<DwarfReader<'_>>, offset: gimli::DebugLineOffset) -> Result<u64, Error> {
    let mut reader = *dwarf.debug_line.reader();
    reader.skip(offset.0)?;
    let (_, format) = reader.read_initial_length()?;
    if reader.read_u16()? >= 5 {
        // Skips the sizes of addresses and of segment selectors.
        reader.skip(2)?;
    }
    Ok(reader.read_length(format)? as u64)
}
