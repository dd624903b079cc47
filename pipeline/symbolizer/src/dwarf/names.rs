//! Finds the names of functions.

use std::sync::Arc;

use gimli::UnitOffset;
use hashbrown::HashMap;

use crate::text::{clean, cut};

use super::budget::{DwarfBudget, Error};
use super::index::UnitIndex;
use super::lines::{self, file_index};
use super::unit::{self, Reference, SharedUnit};
use super::{DwarfReader, FunctionName, UnresolvedPosition};

/// The maximum number of open units. References lead to few units.
const MAX_OPEN: usize = 16;
/// The maximum number of references that are followed to a name: inlined function, definition, declaration.
const MAX_REFERENCES: usize = 16;

/// A file with DWARF, and the supplementary file to which dwz moved data that several files share.
#[derive(Clone, Copy)]
pub(super) struct DwarfFiles<'b, 'a> {
    pub(super) own: (&'b gimli::Dwarf<DwarfReader<'a>>, &'b UnitIndex),
    pub(super) shared: Option<(&'b gimli::Dwarf<DwarfReader<'a>>, &'b UnitIndex)>,
    /// Resolves file numbers for units whose file names are in another file.
    pub(super) source_files: Option<SourceFiles<'b>>,
}

pub(super) type SourceFiles<'b> = &'b dyn Fn(u64, &mut DwarfBudget<'_>) -> Result<Option<Arc<str>>, Error>;

/// The place of a DWARF entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct EntryPlace {
    /// Whether the unit is in the supplementary file of dwz.
    pub(super) shared: bool,
    /// The offset of the unit in `.debug_info`.
    pub(super) unit: usize,
    /// The offset of the entry in the unit.
    pub(super) offset: usize,
}

impl<'b, 'a> DwarfFiles<'b, 'a> {
    fn resolve(&self, place: EntryPlace) -> Result<(&'b gimli::Dwarf<DwarfReader<'a>>, &'b UnitIndex), Error> {
        if place.shared { self.shared.ok_or(Error::Malformed) } else { Ok(self.own) }
    }

    /// Resolves a reference from an entry.
    pub(super) fn follow(&self, from: EntryPlace, reference: Reference) -> Option<EntryPlace> {
        let (shared, offset) = match reference {
            Reference::Here(offset) => return Some(EntryPlace { offset, ..from }),
            Reference::Anywhere(offset) => (from.shared, offset),
            Reference::Shared(offset) => (true, offset),
        };
        let unit = self.resolve(EntryPlace { shared, ..from }).ok()?.1.unit_around(offset)?;
        Some(EntryPlace { shared, unit, offset: offset - unit })
    }
}

/// Finds names, and caches them for one batch.
#[derive(Debug, Default)]
pub(super) struct FunctionNames<'a> {
    /// Open units. The key is whether the unit is in the shared file, and its offset in `.debug_info`.
    units: HashMap<(bool, usize), SharedUnit<'a>>,
    known: HashMap<EntryPlace, Option<FunctionName>>,
}

impl<'a> FunctionNames<'a> {
    /// Opens the unit that contains an entry.
    pub(super) fn open(
        &mut self,
        dwarf: &gimli::Dwarf<DwarfReader<'a>>,
        place: EntryPlace,
        budget: &mut DwarfBudget<'_>,
    ) -> Result<SharedUnit<'a>, Error> {
        let key = (place.shared, place.unit);
        if let Some(unit) = self.units.get(&key) {
            return Ok(Arc::clone(unit));
        }
        if self.units.len() >= MAX_OPEN {
            self.units.clear();
        }
        let unit = Arc::new(unit::open(dwarf, place.unit, budget)?);
        self.units.insert(key, Arc::clone(&unit));
        Ok(unit)
    }

    /// An instance with one open unit of the file itself (not of its supplementary file).
    pub(super) fn with_unit(offset: usize, unit: SharedUnit<'a>) -> Self {
        let mut names = Self::default();
        names.units.insert((false, offset), unit);
        names
    }

    /// The name of a function's entry.
    pub(super) fn function_name(
        &mut self,
        files: DwarfFiles<'_, 'a>,
        place: EntryPlace,
        budget: &mut DwarfBudget<'_>,
    ) -> Result<Option<FunctionName>, Error> {
        budget.spend(1)?;
        if let Some(name) = self.known.get(&place) {
            return Ok(name.clone());
        }
        let name = match self.look_up(files, place, budget) {
            Err(Error::Malformed) => None,
            result => result?,
        };
        self.known.insert(place, name.clone());
        Ok(name)
    }

    fn look_up(
        &mut self,
        files: DwarfFiles<'_, 'a>,
        place: EntryPlace,
        budget: &mut DwarfBudget<'_>,
    ) -> Result<Option<FunctionName>, Error> {
        let mut plain = None;
        let mut object = None;
        let mut next = Some(place);
        for _ in 0..MAX_REFERENCES {
            let Some(here) = next.take() else { break };
            let (dwarf, _) = files.resolve(here)?;
            let opened = self.open(dwarf, here, budget)?;
            let mut entries = opened.unit.entries_raw(Some(UnitOffset(here.offset)))?;
            let abbreviation = entries.read_abbreviation()?.ok_or(Error::Malformed)?;
            budget.spend(1 + abbreviation.attributes().len())?;
            for &specification in abbreviation.attributes() {
                let attribute = entries.read_attribute(specification)?;
                match attribute.name() {
                    gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => {
                        let text = unit::text(dwarf, &opened.unit, Some(attribute.value()), budget)?;
                        if let Some(name) = text.map(|text| name(text, true, budget)).transpose()?.flatten() {
                            return Ok(Some(name));
                        }
                    }
                    gimli::DW_AT_name if plain.is_none() => {
                        let text = unit::text(dwarf, &opened.unit, Some(attribute.value()), budget)?;
                        plain = text.map(|text| name(text, false, budget)).transpose()?.flatten();
                    }
                    gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                        next = Reference::of(attribute.value()).and_then(|reference| files.follow(here, reference));
                    }
                    gimli::DW_AT_object_pointer => {
                        let found = Reference::of(attribute.value());
                        object = found.and_then(|reference| files.follow(here, reference)).or(object);
                    }
                    _ => {}
                }
            }
        }
        let Some(FunctionName { text, .. }) = &plain else { return Ok(plain) };
        match self.class(files, object, text, budget) {
            Ok(Some(class)) => {
                let text = cut(format!("{class}::{text}"));
                budget.keep(&text)?;
                Ok(Some(FunctionName { text: text.into(), linkage: false }))
            }
            Err(Error::GaveUp) => Err(Error::GaveUp),
            Ok(None) | Err(Error::Malformed) => Ok(plain),
        }
    }

    /// The class of a method that has only a source name, found by the type of its `this` parameter. Unnamed classes,
    /// such as those of lambdas, are named by their source position, since all their methods have the same name.
    fn class(
        &mut self,
        files: DwarfFiles<'_, 'a>,
        mut next: Option<EntryPlace>,
        method: &str,
        budget: &mut DwarfBudget<'_>,
    ) -> Result<Option<String>, Error> {
        for _ in 0..MAX_REFERENCES {
            let Some(here) = next.take() else { break };
            let (dwarf, _) = files.resolve(here)?;
            let opened = self.open(dwarf, here, budget)?;
            let mut entries = opened.unit.entries_raw(Some(UnitOffset(here.offset)))?;
            let abbreviation = entries.read_abbreviation()?.ok_or(Error::Malformed)?;
            budget.spend(1 + abbreviation.attributes().len())?;
            let mut class_name = None;
            let mut at = UnresolvedPosition::default();
            for &specification in abbreviation.attributes() {
                let attribute = entries.read_attribute(specification)?;
                let number = || attribute.udata_value().and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
                match attribute.name() {
                    gimli::DW_AT_name => {
                        let text = unit::text(dwarf, &opened.unit, Some(attribute.value()), budget)?;
                        class_name = text.map(|text| clean(text.slice()).into_owned()).filter(|text| !text.is_empty());
                    }
                    gimli::DW_AT_type => {
                        next = Reference::of(attribute.value()).and_then(|reference| files.follow(here, reference));
                    }
                    gimli::DW_AT_decl_file => at.file = file_index(&attribute),
                    gimli::DW_AT_decl_line => at.line = number(),
                    gimli::DW_AT_decl_column => at.column = number(),
                    _ => {}
                }
            }
            if matches!(
                abbreviation.tag(),
                gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type
            ) {
                if class_name.is_some() || at.line == 0 {
                    return Ok(class_name);
                }
                let file = match (at.file, files.source_files) {
                    (Some(file), Some(source_files)) => source_files(file, budget)?,
                    (Some(file), None) => lines::file_name(dwarf, &opened, file, budget)?,
                    (None, _) => None,
                };
                let file = file.as_deref().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
                let kind = if method == "operator()" { "lambda" } else { "unnamed" };
                let UnresolvedPosition { line, column, .. } = at;
                return Ok(Some(format!("{{{kind} at {file}:{line}:{column}}}")));
            }
        }
        Ok(None)
    }
}

fn name(text: DwarfReader<'_>, linkage: bool, budget: &mut DwarfBudget<'_>) -> Result<Option<FunctionName>, Error> {
    let text = clean(text.slice());
    if text.is_empty() {
        return Ok(None);
    }
    budget.keep(&text)?;
    Ok(Some(FunctionName { text: text.into(), linkage }))
}
