//! The tables of the releases up to 1.7, appended to those of the batch.
//!
//! There a table has no zero element, so that index 0 is its first element, and a profile may have tables of its own.
//! An element is read where it is, and each index moved by where its table starts in the batch. A reference to an
//! element that is all zero says as much as none, and becomes none.

use std::collections::HashMap;

use profbridge_model::dictionary::Invalid;
use profbridge_model::{AttributeId, AttributeSetId, Function, Link, LinkId, Location, Mapping, StringId, Value};

use super::super::super::error::{Fault, Result};
use super::super::super::reader::Reader;
use super::super::Decoder;
use super::release::{Release, Table, each};

/// Where a table lies among those of the batch.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Part {
    start: u32,
    len: u32,
}

impl Part {
    fn of<T>(start: usize, table: &[T]) -> Self {
        // There are fewer elements than bytes in the request, of which there are fewer than 2^31.
        Self { start: start as u32, len: (table.len() - start) as u32 }
    }

    /// The element of the batch's table at this index of the request's.
    pub(super) fn get(self, index: u64) -> Option<u32> {
        (index < u64::from(self.len)).then(|| self.start + index as u32)
    }

    pub(super) fn len(self) -> u32 {
        self.len
    }

    pub(super) fn range(self) -> std::ops::Range<usize> {
        self.start as usize..(self.start + self.len) as usize
    }
}

/// The tables that the indices of a message refer to.
#[derive(Debug, Clone, Default)]
pub(super) struct Parts {
    pub(super) strings: Part,
    pub(super) mappings: Part,
    pub(super) locations: Part,
    pub(super) functions: Part,
    pub(super) links: Part,
    pub(super) attributes: Part,
    /// `attribute_units`: the keys of attributes, and their units.
    units: Vec<[Option<StringId>; 2]>,
    /// The attribute `profile.frame.type` of each type of frame, by its string.
    pub(super) frame_types: HashMap<u32, Option<AttributeId>>,
    /// What is wrong in the tables, if anything: what was named first.
    pub(super) invalid: Option<Invalid>,
}

impl Parts {
    /// Notes an index that is out of range.
    #[cold]
    pub(super) fn dangling(&mut self, place: String, index: u64, table: &str, len: u32) {
        let rule = format!("index {} is out of range, {table} has {len} elements", index as i64);
        self.invalid.get_or_insert(Invalid { place, rule });
    }
}

impl<'a> Decoder<'a> {
    /// Reads the tables of a message that stands in these pieces.
    pub(super) fn tables_of(&mut self, release: &Release, pieces: &[Reader<'a>]) -> Result<Parts> {
        let mut parts = Parts::default();
        self.strings_of(release, pieces, &mut parts)?;
        self.attributes_of(release, pieces, &mut parts)?;
        let starts = [self.tables.links.len(), self.tables.functions.len(), self.tables.mappings.len()];
        let [links, functions, mappings] = starts;
        self.each_element(release, pieces, |this, table, element| match table {
            Table::Link => {
                let i = this.tables.links.len() - links;
                let link = this.link_of(element).map_err(|fault| at(fault, "link_table", i))?;
                this.budget.charge::<Link>(1)?;
                this.tables.links.push(link);
                Ok(())
            }
            Table::Function => {
                let i = this.tables.functions.len() - functions;
                let function = this.function_of(release, element, &mut parts, i);
                let function = function.map_err(|fault| at(fault, "function_table", i))?;
                this.budget.charge::<Function>(1)?;
                this.tables.functions.push(function);
                Ok(())
            }
            Table::Mapping => {
                let i = this.tables.mappings.len() - mappings;
                let mapping = this.mapping_of(release, element, &mut parts, i);
                let mapping = mapping.map_err(|fault| at(fault, "mapping_table", i))?;
                this.budget.charge::<Mapping>(1)?;
                this.tables.mappings.push(mapping);
                Ok(())
            }
            _ => Ok(()),
        })?;
        parts.links = Part::of(links, &self.tables.links);
        parts.functions = Part::of(functions, &self.tables.functions);
        parts.mappings = Part::of(mappings, &self.tables.mappings);
        let locations = self.tables.locations.len();
        self.each_element(release, pieces, |this, table, element| {
            if table != Table::Location {
                return Ok(());
            }
            let i = this.tables.locations.len() - locations;
            let location = this.location_of(release, element, &mut parts, i);
            let location = location.map_err(|fault| at(fault, "location_table", i))?;
            this.budget.charge::<Location>(1)?;
            this.tables.locations.push(location);
            Ok(())
        })?;
        parts.locations = Part::of(locations, &self.tables.locations);
        Ok(parts)
    }

    fn each_element(
        &mut self,
        release: &Release,
        pieces: &[Reader<'a>],
        mut visit: impl FnMut(&mut Self, Table, Reader<'a>) -> Result<()>,
    ) -> Result<()> {
        for &piece in pieces {
            each(piece, release.tables, |table, wire| visit(self, table, wire.message()?))?;
        }
        Ok(())
    }

    fn strings_of(&mut self, release: &Release, pieces: &[Reader<'a>], parts: &mut Parts) -> Result<()> {
        let start = self.tables.strings.len();
        self.each_element(release, pieces, |this, table, text| {
            if table == Table::String {
                // Their number was charged before.
                this.tables.strings.push(text.place());
            }
            Ok(())
        })?;
        parts.strings = Part::of(start, &self.tables.strings);
        if self.tables.strings.get(start).is_some_and(|first| !first.is_empty()) {
            let rule = "is not the empty string, which element 0 has to be".to_owned();
            parts.invalid.get_or_insert(Invalid { place: "string_table[0]".to_owned(), rule });
        }
        Ok(())
    }

    /// Reads `attribute_table`, and gives the attributes the units that `attribute_units` has for their keys.
    fn attributes_of(&mut self, release: &Release, pieces: &[Reader<'a>], parts: &mut Parts) -> Result<()> {
        let start = self.tables.attributes.len();
        self.each_element(release, pieces, |this, table, element| {
            match table {
                Table::Attribute => {
                    let i = this.tables.attributes.len() - start;
                    let attribute = this.key_value(element, 0).map_err(|fault| at(fault, "attribute_table", i))?;
                    if let Some(invalid) = this.take_dangling(|| format!("attribute_table[{i}]")) {
                        parts.invalid.get_or_insert(invalid);
                    }
                    this.add_attribute(attribute)?;
                }
                Table::Unit => {
                    let (mut key, mut unit) = (0, 0);
                    each(element, &[(1, true), (2, false)], |is_key, wire| {
                        *(if is_key { &mut key } else { &mut unit }) = wire.number()?;
                        Ok(())
                    })?;
                    let unit = this.string_at(unit, parts, || "attribute_units.unit_strindex".to_owned());
                    let key = this.string_at(key, parts, || "attribute_units.attribute_key_strindex".to_owned());
                    // With its place in the hash table below.
                    this.budget.charge::<[u64; 5]>(1)?;
                    parts.units.push([key, unit]);
                }
                _ => {}
            }
            Ok(())
        })?;
        parts.attributes = Part::of(start, &self.tables.attributes);
        self.give_units(parts, start..self.tables.attributes.len());
        Ok(())
    }

    /// Gives these attributes the units that `attribute_units` has for their keys.
    pub(super) fn give_units(&mut self, parts: &Parts, attributes: impl Iterator<Item = usize>) {
        if parts.units.is_empty() {
            return;
        }
        let units: HashMap<&[u8], Option<StringId>> =
            parts.units.iter().map(|&[key, unit]| (self.bytes_of(key), unit)).collect();
        for i in attributes {
            let key = self.bytes_of(self.tables.attributes[i].key);
            if let Some(&unit) = units.get(key) {
                self.tables.attributes[i].unit = unit;
            }
        }
    }

    /// The bytes of a string that the request holds.
    pub(super) fn bytes_of(&self, id: Option<StringId>) -> &'a [u8] {
        let Some(id) = id else { return &[] };
        let inline = || self.inline.get(id.index() - self.table_strings as usize);
        let table = (id.get() < self.table_strings).then(|| self.tables.strings.get(id.index())).flatten();
        let Some(span) = table.or_else(|| (id.get() >= self.table_strings).then(inline).flatten()) else { return &[] };
        self.request.get(span.start as usize..span.start as usize + span.len as usize).unwrap_or_default()
    }

    /// The string at an index; none where it is empty, and where it is not there, which is noted.
    pub(super) fn string_at(
        &mut self,
        index: u64,
        parts: &mut Parts,
        place: impl FnOnce() -> String,
    ) -> Option<StringId> {
        match parts.strings.get(index) {
            Some(string) if self.tables.strings[string as usize].is_empty() => None,
            Some(string) => StringId::new(string),
            None if index == 0 => None,
            None => {
                parts.dangling(place(), index, "string_table", parts.strings.len());
                None
            }
        }
    }

    /// The attribute at an index; none where it is all zero, and where it is not there, which is noted.
    pub(super) fn attribute_at(
        &mut self,
        index: u64,
        parts: &mut Parts,
        place: impl FnOnce() -> String,
    ) -> Option<AttributeId> {
        let Some(found) = parts.attributes.get(index) else {
            parts.dangling(place(), index, "attribute_table", parts.attributes.len());
            return None;
        };
        let attribute = &self.tables.attributes[found as usize];
        if attribute.key.is_none() && attribute.unit.is_none() && attribute.value == Value::Empty {
            return None;
        }
        AttributeId::new(found)
    }

    /// The link at an index, as [`attribute_at`](Self::attribute_at).
    pub(super) fn link_at(&mut self, index: u64, parts: &mut Parts, place: impl FnOnce() -> String) -> Option<LinkId> {
        let Some(found) = parts.links.get(index) else {
            parts.dangling(place(), index, "link_table", parts.links.len());
            return None;
        };
        LinkId::new(found).filter(|_| self.tables.links[found as usize] != Link::default())
    }

    /// A list of attributes that is there.
    pub(super) fn set_of(&mut self, ids: &[Option<AttributeId>]) -> Result<Option<AttributeSetId>> {
        self.sets.extended(None, ids, &mut self.budget)
    }
}

#[cold]
fn at(fault: Fault, table: &str, element: usize) -> Fault {
    fault.within(format_args!("{table}[{element}]"))
}
