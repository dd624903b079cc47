//! The tables of the releases up to 1.7, appended to those of the batch.
//!
//! There a table has no zero element, so that index 0 is its first element, and a profile may have tables of its own.
//! An element is read where it is, and each index moved by where its table starts in the batch. A reference to an
//! element that is all zero says as much as none, and becomes none.

use std::collections::HashMap;

use profbridge_model::dictionary::Invalid;
use profbridge_model::{
    Attribute, AttributeId, AttributeSetId, Function, FunctionId, Line, Link, LinkId, Location, Mapping, MappingId,
    StringId, Value,
};

use super::super::super::error::{Fault, Result};
use super::super::super::reader::Reader;
use super::super::Decoder;
use super::super::dictionary::id;
use super::release::{FunctionField, LocationField, MappingField, Release, Table, each};

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
    frame_types: HashMap<u32, Option<AttributeId>>,
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

/// `Mapping.build_id` by its kind: the linker's, and one whose algorithm is the producer's own.
const BUILD_IDS: [&str; 2] = ["process.executable.build_id.gnu", "process.executable.build_id.profiling"];

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

    fn link_of(&mut self, reader: Reader<'a>) -> Result<Link> {
        let mut link = Link::default();
        each(reader, &[(1, true), (2, false)], |is_trace, wire| {
            let bytes = wire.message()?.rest();
            if is_trace {
                link.trace_id = id(bytes, "trace_id")?;
            } else {
                link.span_id = id(bytes, "span_id")?;
            }
            Ok(())
        })?;
        Ok(link)
    }

    fn function_of(&mut self, release: &Release, reader: Reader<'a>, parts: &mut Parts, i: usize) -> Result<Function> {
        let mut function = Function::default();
        each(reader, release.function, |field, wire| {
            let number = wire.number()?;
            let mut string = |name| self.string_at(number, parts, || format!("function_table[{i}].{name}"));
            match field {
                FunctionField::Name => function.name = string("name_strindex"),
                FunctionField::SystemName => function.system_name = string("system_name_strindex"),
                FunctionField::Filename => function.filename = string("filename_strindex"),
                FunctionField::StartLine => function.start_line = number as i64,
            }
            Ok(())
        })?;
        Ok(function)
    }

    fn mapping_of(&mut self, release: &Release, reader: Reader<'a>, parts: &mut Parts, i: usize) -> Result<Mapping> {
        let mut mapping = Mapping::default();
        let mut ids = std::mem::take(&mut self.older.ids);
        ids.clear();
        let (mut build_id, mut kind) = (None, 0);
        each(reader, release.mapping, |field, wire| {
            match field {
                MappingField::Start => mapping.memory_start = wire.number()?,
                MappingField::Limit => mapping.memory_limit = wire.number()?,
                MappingField::Offset => mapping.file_offset = wire.number()?,
                MappingField::Filename => {
                    let place = || format!("mapping_table[{i}].filename_strindex");
                    mapping.filename = self.string_at(wire.number()?, parts, place);
                }
                MappingField::BuildId => {
                    build_id = self.string_at(wire.number()?, parts, || format!("mapping_table[{i}].build_id"));
                }
                MappingField::BuildIdKind => kind = wire.number()?,
                MappingField::Attributes => wire.list(|index| {
                    let place = || format!("mapping_table[{i}].attribute_indices");
                    ids.push(self.attribute_at(index, parts, place));
                    Ok(())
                })?,
                MappingField::Flag(key) => {
                    if wire.number()? != 0 {
                        ids.push(self.flag(key)?);
                    }
                }
            }
            Ok(())
        })?;
        if build_id.is_some() {
            let Some(&key) = BUILD_IDS.get(kind as usize) else {
                return Err(Fault::value("build_id_kind", format!("{kind} is no kind of a build id")));
            };
            let has = |id: &Option<AttributeId>| {
                id.is_some_and(|id| self.bytes_of(self.tables.attributes[id.index()].key) == key.as_bytes())
            };
            if !ids.iter().any(has) {
                let key = self.text(key)?;
                ids.push(self.add_attribute(Attribute { key, value: Value::String(build_id), unit: None })?);
            }
        }
        mapping.attributes = self.set_of(&ids)?;
        self.older.ids = ids;
        Ok(mapping)
    }

    fn location_of(&mut self, release: &Release, reader: Reader<'a>, parts: &mut Parts, i: usize) -> Result<Location> {
        let lines_start = self.tables.lines.len();
        let mut location = Location { lines_start: lines_start as u32, ..Location::default() };
        let mut ids = std::mem::take(&mut self.older.ids);
        ids.clear();
        each(reader, release.location, |field, wire| {
            match field {
                LocationField::Mapping => {
                    let index = wire.number()?;
                    if index != 0 || !release.zero_is_none {
                        location.mapping = self.mapping_at(index, parts, i);
                    }
                }
                LocationField::Address => location.address = wire.number()?,
                LocationField::Line => {
                    self.budget.charge::<Line>(1)?;
                    let line = self.line_of(wire.message()?, parts, i).map_err(|fault| fault.within("line"))?;
                    self.tables.lines.push(line);
                }
                LocationField::Folded => {
                    if wire.number()? != 0 {
                        ids.push(self.flag("pprof.location.is_folded")?);
                    }
                }
                LocationField::Type => {
                    let kind = wire.number()?;
                    ids.extend(self.frame_type(kind, parts, i)?.map(Some));
                }
                LocationField::Attributes => wire.list(|index| {
                    let place = || format!("location_table[{i}].attribute_indices");
                    ids.push(self.attribute_at(index, parts, place));
                    Ok(())
                })?,
            }
            Ok(())
        })?;
        let lines = self.tables.lines.len() - lines_start;
        if lines > self.limits.max_lines {
            return Err(Fault::limit("lines of one location", self.limits.max_lines as u64));
        }
        location.lines_len = lines as u32;
        location.attributes = self.set_of(&ids)?;
        self.older.ids = ids;
        Ok(location)
    }

    fn mapping_at(&mut self, index: u64, parts: &mut Parts, i: usize) -> Option<MappingId> {
        let Some(found) = parts.mappings.get(index) else {
            let place = format!("location_table[{i}].mapping_index");
            parts.dangling(place, index, "mapping_table", parts.mappings.len());
            return None;
        };
        MappingId::new(found).filter(|_| self.tables.mappings[found as usize] != Mapping::default())
    }

    /// Reads a line. Its function has no presence, but a line is there for nothing else, so 0 is the first.
    fn line_of(&mut self, reader: Reader<'a>, parts: &mut Parts, i: usize) -> Result<Line> {
        let (mut line, mut function) = (Line::default(), 0);
        each(reader, &[(1, 1), (2, 2), (3, 3)], |field, wire| {
            let number = wire.number()?;
            match field {
                1 => function = number,
                2 => line.line = number as i64,
                _ => line.column = number as i64,
            }
            Ok(())
        })?;
        line.function = match parts.functions.get(function) {
            Some(found) => {
                FunctionId::new(found).filter(|_| self.tables.functions[found as usize] != Function::default())
            }
            None if function == 0 => None,
            None => {
                let place = format!("location_table[{i}].line.function_index");
                parts.dangling(place, function, "function_table", parts.functions.len());
                None
            }
        };
        Ok(line)
    }

    /// The attribute for a type of frame that a field names.
    fn frame_type(&mut self, index: u64, parts: &mut Parts, i: usize) -> Result<Option<AttributeId>> {
        let Some(kind) = self.string_at(index, parts, || format!("location_table[{i}].type_index")) else {
            return Ok(None);
        };
        if let Some(&known) = parts.frame_types.get(&kind.get()) {
            return Ok(known);
        }
        let value = match self.bytes_of(Some(kind)) {
            // OTEP 0239 calls it by the virtual machine, the conventions by what it runs.
            b"hotspot" => self.text("jvm")?,
            _ => Some(kind),
        };
        let key = self.text("profile.frame.type")?;
        let id = self.add_attribute(Attribute { key, value: Value::String(value), unit: None })?;
        self.budget.charge::<[u64; 2]>(1)?;
        parts.frame_types.insert(kind.get(), id);
        Ok(id)
    }
}

#[cold]
fn at(fault: Fault, table: &str, element: usize) -> Fault {
    fault.within(format_args!("{table}[{element}]"))
}
