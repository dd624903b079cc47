//! The elements of the tables, one by one.

use profbridge_model::{Attribute, AttributeId, Function, FunctionId, Line, Link, Location, Mapping, MappingId, Value};

use super::super::super::error::{Fault, Result};
use super::super::super::reader::Reader;
use super::super::Decoder;
use super::super::dictionary::id;
use super::release::{FunctionField, LocationField, MappingField, Release, each};
use super::tables::Parts;

/// `Mapping.build_id` by its kind: the linker's, and one whose algorithm is the producer's own.
const BUILD_IDS: [&str; 2] = ["process.executable.build_id.gnu", "process.executable.build_id.profiling"];

impl<'a> Decoder<'a> {
    pub(super) fn link_of(&mut self, reader: Reader<'a>) -> Result<Link> {
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

    pub(super) fn function_of(
        &mut self,
        release: &Release,
        reader: Reader<'a>,
        parts: &mut Parts,
        i: usize,
    ) -> Result<Function> {
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

    pub(super) fn mapping_of(
        &mut self,
        release: &Release,
        reader: Reader<'a>,
        parts: &mut Parts,
        i: usize,
    ) -> Result<Mapping> {
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

    pub(super) fn location_of(
        &mut self,
        release: &Release,
        reader: Reader<'a>,
        parts: &mut Parts,
        i: usize,
    ) -> Result<Location> {
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
