//! Decodes `ProfilesDictionary` into tables.

use profbridge_model::{Attribute, ByteRange, Function, FunctionId, Line, Link, Location, Mapping, MappingId, Value};

use super::super::error::{Fault, Result};
use super::super::reader::ProtobufReader;
use super::Decoder;
use super::run::Run;
use super::sets::{Set, out_of_range};
use super::value::Draft;

/// Number of elements of each table; all locations share one table of lines.
#[derive(Debug, Default)]
struct Counts {
    mappings: usize,
    locations: usize,
    lines: usize,
    functions: usize,
    links: usize,
    strings: usize,
    attributes: usize,
    stacks: usize,
}

impl Counts {
    fn add(&mut self, mut reader: ProtobufReader<'_>) -> Result<()> {
        while let Some(key) = reader.key()? {
            match key {
                0x0a => self.mappings += 1,
                0x12 => {
                    self.locations += 1;
                    self.lines += super::census::count(reader.message()?, 0x1a)?;
                    continue;
                }
                0x1a => self.functions += 1,
                0x22 => self.links += 1,
                0x2a => self.strings += 1,
                0x32 => self.attributes += 1,
                0x3a => self.stacks += 1,
                _ => {}
            }
            reader.skip(key)?;
        }
        Ok(())
    }
}

impl<'a> Decoder<'a> {
    /// Decodes the dictionary, which may be in several pieces. A missing table gets its element 0.
    pub(super) fn dictionary(&mut self, pieces: &[ByteRange]) -> Result<()> {
        let request = self.request;
        let mut counts = Counts::default();
        for &piece in pieces {
            counts.add(ProtobufReader::at(request, piece))?;
        }
        self.reserve(&counts)?;
        for &piece in pieces {
            self.dictionary_piece(ProtobufReader::at(request, piece))?;
        }
        self.zero_elements()
    }

    fn reserve(&mut self, counts: &Counts) -> Result<()> {
        // Every element takes at least two bytes on the wire, so the counts fit into 31 bits.
        self.table_strings = counts.strings.max(1) as u32;
        self.table_attributes = counts.attributes.max(1) as u32;
        let budget = &mut self.budget;
        budget.charge::<Mapping>(counts.mappings)?;
        budget.charge::<Location>(counts.locations)?;
        budget.charge::<Line>(counts.lines)?;
        budget.charge::<Function>(counts.functions)?;
        budget.charge::<Link>(counts.links)?;
        budget.charge::<ByteRange>(counts.strings)?;
        budget.charge::<Attribute>(counts.attributes)?;
        budget.charge::<ByteRange>(counts.stacks)?;
        let tables = &mut self.tables;
        tables.mappings.reserve_exact(counts.mappings.max(1));
        tables.locations.reserve_exact(counts.locations.max(1));
        tables.lines.reserve_exact(counts.lines);
        tables.functions.reserve_exact(counts.functions.max(1));
        tables.links.reserve_exact(counts.links.max(1));
        tables.strings.reserve_exact(counts.strings.max(1));
        tables.attributes.reserve_exact(counts.attributes.max(1));
        tables.stacks.reserve_exact(counts.stacks.max(1));
        Ok(())
    }

    fn dictionary_piece(&mut self, mut reader: ProtobufReader<'a>) -> Result<()> {
        while let Some(key) = reader.key()? {
            match key {
                0x0a => {
                    let (message, i) = (reader.message()?, self.tables.mappings.len());
                    let mapping = self.mapping(message).map_err(|fault| at(fault, "mapping_table", i))?;
                    self.no_dangling(|| format!("mapping_table[{i}]"))?;
                    self.tables.mappings.push(mapping);
                }
                0x12 => {
                    let (message, i) = (reader.message()?, self.tables.locations.len());
                    let location = self.location(message).map_err(|fault| at(fault, "location_table", i))?;
                    self.tables.locations.push(location);
                }
                0x1a => {
                    let (message, i) = (reader.message()?, self.tables.functions.len());
                    let function = self.function(message).map_err(|fault| at(fault, "function_table", i))?;
                    self.no_dangling(|| format!("function_table[{i}]"))?;
                    self.tables.functions.push(function);
                }
                0x22 => {
                    let (message, i) = (reader.message()?, self.tables.links.len());
                    let link = self.link(message).map_err(|fault| at(fault, "link_table", i))?;
                    self.tables.links.push(link);
                }
                0x2a => self.tables.strings.push(reader.span()?),
                0x32 => {
                    let (message, i) = (reader.message()?, self.tables.attributes.len());
                    let attribute = self.attribute(message).map_err(|fault| at(fault, "attribute_table", i))?;
                    self.no_dangling(|| format!("attribute_table[{i}]"))?;
                    self.tables.attributes.push(attribute);
                }
                0x3a => {
                    let (message, i) = (reader.message()?, self.tables.stacks.len());
                    let stack = self.stack(message).map_err(|fault| at(fault, "stack_table", i))?;
                    self.tables.stacks.push(stack);
                }
                _ => self.other(&mut reader, key, 7)?,
            }
        }
        Ok(())
    }

    fn mapping(&mut self, mut reader: ProtobufReader<'a>) -> Result<Mapping> {
        let mut mapping = Mapping::default();
        let mut attributes = Run::default();
        while let Some(key) = reader.key()? {
            match key {
                0x08 => mapping.memory_start = reader.varint()?,
                0x10 => mapping.memory_limit = reader.varint()?,
                0x18 => mapping.file_offset = reader.varint()?,
                0x20 => mapping.filename = self.table_string(reader.varint()?, "filename_strindex"),
                0x2a => attributes.add(reader.span()?, self.request, &mut self.scratch.attributes)?,
                0x28 => attributes.add(reader.varint_bytes()?, self.request, &mut self.scratch.attributes)?,
                _ => self.other(&mut reader, key, 5)?,
            }
        }
        mapping.attributes = self.attribute_list(attributes)?;
        Ok(mapping)
    }

    fn location(&mut self, mut reader: ProtobufReader<'a>) -> Result<Location> {
        let lines_start = self.tables.lines.len();
        let mut location = Location { lines_start: lines_start as u32, ..Location::default() };
        let mut attributes = Run::default();
        while let Some(key) = reader.key()? {
            match key {
                0x08 => location.mapping = MappingId::new(reader.varint()? as u32),
                0x10 => location.address = reader.varint()?,
                0x1a => {
                    let line = self.line(reader.message()?);
                    self.tables.lines.push(line.map_err(|fault| fault.within("lines"))?);
                }
                0x22 => attributes.add(reader.span()?, self.request, &mut self.scratch.attributes)?,
                0x20 => attributes.add(reader.varint_bytes()?, self.request, &mut self.scratch.attributes)?,
                _ => self.other(&mut reader, key, 4)?,
            }
        }
        let lines = self.tables.lines.len() - lines_start;
        if lines > self.limits.max_lines {
            return Err(Fault::limit("lines of one location", self.limits.max_lines as u64));
        }
        location.lines_len = lines as u32;
        location.attributes = self.attribute_list(attributes)?;
        Ok(location)
    }

    fn line(&mut self, mut reader: ProtobufReader<'a>) -> Result<Line> {
        let mut line = Line::default();
        while let Some(key) = reader.key()? {
            match key {
                0x08 => line.function = FunctionId::new(reader.varint()? as u32),
                0x10 => line.line = reader.varint()? as i64,
                0x18 => line.column = reader.varint()? as i64,
                _ => self.other(&mut reader, key, 3)?,
            }
        }
        Ok(line)
    }

    fn function(&mut self, mut reader: ProtobufReader<'a>) -> Result<Function> {
        let mut function = Function::default();
        while let Some(key) = reader.key()? {
            match key {
                0x08 => function.name = self.table_string(reader.varint()?, "name_strindex"),
                0x10 => function.system_name = self.table_string(reader.varint()?, "system_name_strindex"),
                0x18 => function.filename = self.table_string(reader.varint()?, "filename_strindex"),
                0x20 => function.start_line = reader.varint()? as i64,
                _ => self.other(&mut reader, key, 4)?,
            }
        }
        Ok(function)
    }

    fn link(&mut self, mut reader: ProtobufReader<'a>) -> Result<Link> {
        let mut link = Link::default();
        while let Some(key) = reader.key()? {
            match key {
                0x0a => link.trace_id = id(reader.bytes()?, "trace_id")?,
                0x12 => link.span_id = id(reader.bytes()?, "span_id")?,
                _ => self.other(&mut reader, key, 2)?,
            }
        }
        Ok(link)
    }

    fn attribute(&mut self, mut reader: ProtobufReader<'a>) -> Result<Attribute> {
        let mut attribute = Attribute::default();
        let mut draft = Draft::default();
        while let Some(key) = reader.key()? {
            match key {
                0x08 => attribute.key = self.table_string(reader.varint()?, "key_strindex"),
                0x12 => {
                    let value = reader.message()?;
                    self.value(value, &mut draft, 0).map_err(|fault| fault.within("value"))?;
                }
                0x18 => attribute.unit = self.table_string(reader.varint()?, "unit_strindex"),
                _ => self.other(&mut reader, key, 3)?,
            }
        }
        attribute.value = draft.finish();
        Ok(attribute)
    }

    fn stack(&mut self, mut reader: ProtobufReader<'a>) -> Result<ByteRange> {
        let mut locations = Run::default();
        while let Some(key) = reader.key()? {
            match key {
                0x0a => locations.add(reader.span()?, self.request, &mut self.scratch.values)?,
                0x08 => locations.add(reader.varint_bytes()?, self.request, &mut self.scratch.values)?,
                _ => self.other(&mut reader, key, 1)?,
            }
        }
        let depth = self.limits.max_stack_depth;
        let packed = locations.bytes(self.request, &self.scratch.values);
        // A location takes at least one byte, so the length in bytes is usually enough to see that a stack is not too
        // deep.
        if packed.len() > depth && profbridge_model::varint::count(packed) > depth {
            return Err(Fault::limit("locations of one stack", depth as u64));
        }
        Ok(locations.finish(&mut self.scratch.values, &mut self.spill))
    }

    /// The attributes of a dictionary element; an index out of range rejects the request.
    fn attribute_list(&mut self, list: Run) -> Result<Option<profbridge_model::AttributeSetId>> {
        match self.attribute_set(list)? {
            Set::Known(id) => Ok(id),
            Set::OutOfRange(index) => {
                let invalid = out_of_range(index, self.table_attributes);
                Err(Fault::value(invalid.place, invalid.rule))
            }
        }
    }

    /// Adds element 0 to each empty table, and rejects a table with another element 0, because index 0 means "not set"
    /// (opentelemetry-proto `profiles.proto`, `ProfilesDictionary`).
    pub(super) fn zero_elements(&mut self) -> Result<()> {
        let tables = &mut self.tables;
        zero(&mut tables.strings, "string_table", |span: &ByteRange| span.is_empty())?;
        zero(&mut tables.mappings, "mapping_table", |&mapping| mapping == Mapping::default())?;
        zero(&mut tables.locations, "location_table", |&location| location == Location::default())?;
        zero(&mut tables.functions, "function_table", |&function| function == Function::default())?;
        // All-zero ids are equivalent to empty ones, and preferred since 1.11.
        zero(&mut tables.links, "link_table", |&link| link == Link::default())?;
        zero(&mut tables.attributes, "attribute_table", |attribute| {
            attribute.key.is_none() && attribute.unit.is_none() && attribute.value == Value::Empty
        })?;
        zero(&mut tables.stacks, "stack_table", |span: &ByteRange| span.is_empty())
    }
}

fn zero<T: Default>(table: &mut Vec<T>, name: &str, is_zero: impl FnOnce(&T) -> bool) -> Result<()> {
    match table.first() {
        None => table.push(T::default()),
        Some(first) if is_zero(first) => {}
        Some(_) => return Err(Fault::value(format!("{name}[0]"), "is not the zero value, which element 0 has to be")),
    }
    Ok(())
}

/// An id of fixed length; empty means all zeros.
pub(super) fn id<const N: usize>(bytes: &[u8], field: &str) -> Result<[u8; N]> {
    if bytes.is_empty() {
        return Ok([0; N]);
    }
    bytes.try_into().map_err(|_| Fault::value(field, format!("has {} bytes, not {N}", bytes.len())))
}

#[cold]
fn at(fault: Fault, table: &str, element: usize) -> Fault {
    fault.within(format_args!("{table}[{element}]"))
}
