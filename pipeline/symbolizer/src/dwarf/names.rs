//! The names of functions.

use std::sync::Arc;

use foldhash::fast::RandomState;
use gimli::UnitOffset;
use hashbrown::HashMap;

use crate::text::{clean, cut};

use super::budget::{Budget, Error};
use super::index::Index;
use super::lines::{self, file_index};
use super::unit::{self, Opened, Reference, Shared};
use super::{Name, Position, Reader};

/// How many units are kept open. References lead to few.
const MAX_OPEN: usize = 16;
/// How far a name may be: an inlined function's is with its definition, that one's with its declaration.
const MAX_REFERENCES: usize = 16;

/// Finds names, and remembers them for one batch.
#[derive(Debug, Default)]
pub(super) struct Names<'a> {
    units: HashMap<usize, Shared<'a>, RandomState>,
    /// By the offset in `.debug_info`.
    known: HashMap<usize, Option<Name>, RandomState>,
}

impl<'a> Names<'a> {
    /// The unit at an offset of `.debug_info`.
    pub(super) fn open(
        &mut self,
        dwarf: &gimli::Dwarf<Reader<'a>>,
        offset: usize,
        budget: &mut Budget<'_>,
    ) -> Result<Shared<'a>, Error> {
        if let Some(unit) = self.units.get(&offset) {
            return Ok(Arc::clone(unit));
        }
        if self.units.len() >= MAX_OPEN {
            self.units.clear();
        }
        let unit = Arc::new(unit::open(dwarf, offset, budget)?);
        self.units.insert(offset, Arc::clone(&unit));
        Ok(unit)
    }

    /// The name of what an attribute of a unit refers to.
    pub(super) fn of_reference(
        &mut self,
        dwarf: &gimli::Dwarf<Reader<'a>>,
        index: &Index,
        from: &Opened<'a>,
        reference: Reference,
        budget: &mut Budget<'_>,
    ) -> Result<Option<Name>, Error> {
        let here = from.unit.header.debug_info_offset().map_or(0, |offset| offset.0);
        match reference {
            Reference::Here(offset) => self.of(dwarf, index, here, offset, budget),
            Reference::Anywhere(offset) => match index.unit_around(offset) {
                Some(unit) => self.of(dwarf, index, unit, offset - unit, budget),
                None => Ok(None),
            },
        }
    }

    /// The name of the function at an offset in the unit at an offset of `.debug_info`.
    pub(super) fn of(
        &mut self,
        dwarf: &gimli::Dwarf<Reader<'a>>,
        index: &Index,
        unit: usize,
        offset: usize,
        budget: &mut Budget<'_>,
    ) -> Result<Option<Name>, Error> {
        budget.spend(1)?;
        let key = unit.saturating_add(offset);
        if let Some(name) = self.known.get(&key) {
            return Ok(name.clone());
        }
        let name = match self.look_up(dwarf, index, unit, offset, budget) {
            Err(Error::Malformed) => None,
            result => result?,
        };
        self.known.insert(key, name.clone());
        Ok(name)
    }

    fn look_up(
        &mut self,
        dwarf: &gimli::Dwarf<Reader<'a>>,
        index: &Index,
        unit: usize,
        offset: usize,
        budget: &mut Budget<'_>,
    ) -> Result<Option<Name>, Error> {
        let mut plain = None;
        let mut object = None;
        let mut here = Some((unit, offset));
        for _ in 0..MAX_REFERENCES {
            let Some((unit, offset)) = here else { break };
            here = None;
            let opened = self.open(dwarf, unit, budget)?;
            let mut entries = opened.unit.entries_raw(Some(UnitOffset(offset)))?;
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
                        here = place(index, unit, attribute.value());
                    }
                    gimli::DW_AT_object_pointer => object = place(index, unit, attribute.value()).or(object),
                    _ => {}
                }
            }
        }
        let Some(Name { text, .. }) = &plain else { return Ok(plain) };
        match self.class(dwarf, index, object, text, budget) {
            Ok(Some(class)) => {
                let text = cut(format!("{class}::{text}"));
                budget.keep(&text)?;
                Ok(Some(Name { text: text.into(), linkage: false }))
            }
            Err(Error::GaveUp) => Err(Error::GaveUp),
            Ok(None) | Err(Error::Malformed) => Ok(plain),
        }
    }

    /// The class of a method that is only known by its source's name, from the parameter for its object. One without a
    /// name, as each lambda has one, is told apart by its place: all their methods have the same name.
    fn class(
        &mut self,
        dwarf: &gimli::Dwarf<Reader<'a>>,
        index: &Index,
        mut here: Option<(usize, usize)>,
        method: &str,
        budget: &mut Budget<'_>,
    ) -> Result<Option<String>, Error> {
        for _ in 0..MAX_REFERENCES {
            let Some((unit, offset)) = here else { break };
            here = None;
            let opened = self.open(dwarf, unit, budget)?;
            let mut entries = opened.unit.entries_raw(Some(UnitOffset(offset)))?;
            let abbreviation = entries.read_abbreviation()?.ok_or(Error::Malformed)?;
            budget.spend(1 + abbreviation.attributes().len())?;
            let mut class_name = None;
            let mut at = Position::default();
            for &specification in abbreviation.attributes() {
                let attribute = entries.read_attribute(specification)?;
                let number = || attribute.udata_value().and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
                match attribute.name() {
                    gimli::DW_AT_name => {
                        let text = unit::text(dwarf, &opened.unit, Some(attribute.value()), budget)?;
                        class_name = text.map(|text| clean(text.slice()).into_owned()).filter(|text| !text.is_empty());
                    }
                    gimli::DW_AT_type => here = place(index, unit, attribute.value()),
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
                let file = at.file.map(|file| lines::file_name(dwarf, &opened, file, budget)).transpose()?.flatten();
                let file = file.as_deref().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
                let kind = if method == "operator()" { "lambda" } else { "unnamed" };
                let Position { line, column, .. } = at;
                return Ok(Some(format!("{{{kind} at {file}:{line}:{column}}}")));
            }
        }
        Ok(None)
    }
}

/// The unit and the place in it that an attribute of a unit refers to.
fn place(index: &Index, unit: usize, value: gimli::AttributeValue<Reader<'_>>) -> Option<(usize, usize)> {
    match Reference::of(value)? {
        Reference::Here(offset) => Some((unit, offset)),
        Reference::Anywhere(offset) => index.unit_around(offset).map(|unit| (unit, offset - unit)),
    }
}

fn name(text: Reader<'_>, linkage: bool, budget: &mut Budget<'_>) -> Result<Option<Name>, Error> {
    let text = clean(text.slice());
    if text.is_empty() {
        return Ok(None);
    }
    budget.keep(&text)?;
    Ok(Some(Name { text: text.into(), linkage }))
}
