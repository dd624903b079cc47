//! The names of functions.

use std::sync::Arc;

use foldhash::fast::RandomState;
use gimli::UnitOffset;
use hashbrown::HashMap;

use crate::text::clean;

use super::budget::{Budget, Error};
use super::index::Index;
use super::unit::{self, Opened, Reference, Shared};
use super::{Name, Reader};

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
        mut unit: usize,
        mut offset: usize,
        budget: &mut Budget<'_>,
    ) -> Result<Option<Name>, Error> {
        let mut plain = None;
        for _ in 0..MAX_REFERENCES {
            let opened = self.open(dwarf, unit, budget)?;
            let mut entries = opened.unit.entries_raw(Some(UnitOffset(offset)))?;
            let abbreviation = entries.read_abbreviation()?.ok_or(Error::Malformed)?;
            budget.spend(1 + abbreviation.attributes().len())?;
            let mut next = None;
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
                        next = Reference::of(attribute.value());
                    }
                    _ => {}
                }
            }
            (unit, offset) = match next {
                None => break,
                Some(Reference::Here(offset)) => (unit, offset),
                Some(Reference::Anywhere(offset)) => match index.unit_around(offset) {
                    Some(unit) => (unit, offset - unit),
                    None => break,
                },
            };
        }
        Ok(plain)
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
