//! Decodes the elements of a profile's tables.

use profbridge_model::{Function, FunctionId, Line, Location, Mapping, MappingId, Value, ValueType};

use super::super::keys::{BUILD_ID, HAS, IS_FOLDED};
use super::Decoder;
use crate::otlp::error::{Fault, Result};
use crate::otlp::reader::ProtobufReader;

impl<'a> Decoder<'a> {
    pub(super) fn value_type(&mut self, mut reader: ProtobufReader<'a>) -> Result<ValueType> {
        let mut value_type = ValueType::default();
        while let Some(key) = reader.key()? {
            match key {
                0x08 => value_type.kind = self.string(reader.varint()?, "type")?,
                0x10 => value_type.unit = self.string(reader.varint()?, "unit")?,
                _ => reader.other(key, 2)?,
            }
        }
        Ok(value_type)
    }

    pub(super) fn function(&mut self, mut reader: ProtobufReader<'a>) -> Result<()> {
        let (mut function, mut id) = (Function::default(), 0);
        while let Some(key) = reader.key()? {
            match key {
                0x08 => id = reader.varint()?,
                0x10 => function.name = self.string(reader.varint()?, "name")?,
                0x18 => function.system_name = self.string(reader.varint()?, "system_name")?,
                0x20 => function.filename = self.string(reader.varint()?, "filename")?,
                0x28 => function.start_line = reader.varint()? as i64,
                _ => reader.other(key, 5)?,
            }
        }
        self.functions.add(id, &mut self.budget)?;
        self.left_out_references += u64::from(id == 0);
        self.tables.functions.push(function);
        Ok(())
    }

    pub(super) fn mapping(&mut self, mut reader: ProtobufReader<'a>) -> Result<()> {
        let (mut mapping, mut id, mut build_id, mut has) = (Mapping::default(), 0, None, [false; HAS.len()]);
        while let Some(key) = reader.key()? {
            match key {
                0x08 => id = reader.varint()?,
                0x10 => mapping.memory_start = reader.varint()?,
                0x18 => mapping.memory_limit = reader.varint()?,
                0x20 => mapping.file_offset = reader.varint()?,
                0x28 => mapping.filename = self.string(reader.varint()?, "filename")?,
                0x30 => build_id = self.string(reader.varint()?, "build_id")?,
                0x38 | 0x40 | 0x48 | 0x50 => has[(key >> 3) as usize - 7] = reader.varint()? != 0,
                _ => reader.other(key, 10)?,
            }
        }
        self.mappings.add(id, &mut self.budget)?;
        self.left_out_references += u64::from(id == 0);
        let mut ids = std::mem::take(&mut self.sample_attributes);
        ids.clear();
        if !self.bytes_of(build_id).is_empty() {
            let key = self.text(BUILD_ID)?;
            ids.push(self.attribute(key, Value::String(build_id), None)?);
        }
        for (key, _) in HAS.into_iter().zip(has).filter(|(_, has)| *has) {
            ids.push(self.flag(key)?);
        }
        mapping.attributes = self.set(&ids)?;
        self.sample_attributes = ids;
        self.tables.mappings.push(mapping);
        Ok(())
    }

    pub(super) fn location(&mut self, mut reader: ProtobufReader<'a>) -> Result<()> {
        let lines_start = self.tables.lines.len();
        let mut location = Location { lines_start: lines_start as u32, ..Location::default() };
        let (mut id, mut folded) = (0, false);
        while let Some(key) = reader.key()? {
            match key {
                0x08 => id = reader.varint()?,
                0x10 => {
                    let mapping = reader.varint()?;
                    location.mapping = self.mappings.get(mapping).and_then(MappingId::new);
                    self.left_out_references += u64::from(mapping != 0 && location.mapping.is_none());
                }
                0x18 => location.address = reader.varint()?,
                0x22 => {
                    let position = self.tables.lines.len() - lines_start;
                    let line = self.line(reader.message()?);
                    let line = line.map_err(|fault| fault.within(format_args!("line[{position}]")))?;
                    self.tables.lines.push(line);
                }
                0x28 => folded = reader.varint()? != 0,
                _ => reader.other(key, 5)?,
            }
        }
        if id == 0 {
            return Err(Fault::value("id", "is 0, which stands for none"));
        }
        self.locations.add(id, &mut self.budget)?;
        let lines = self.tables.lines.len() - lines_start;
        if lines > self.limits.max_lines {
            return Err(Fault::limit("lines of one location", self.limits.max_lines as u64));
        }
        location.lines_len = lines as u32;
        if folded {
            let flag = self.flag(IS_FOLDED)?;
            location.attributes = self.set(&[flag])?;
        }
        self.tables.locations.push(location);
        Ok(())
    }

    fn line(&mut self, mut reader: ProtobufReader<'a>) -> Result<Line> {
        let mut line = Line::default();
        while let Some(key) = reader.key()? {
            match key {
                0x08 => line.function = self.functions.get(reader.varint()?).and_then(FunctionId::new),
                0x10 => line.line = reader.varint()? as i64,
                0x18 => line.column = reader.varint()? as i64,
                _ => reader.other(key, 3)?,
            }
        }
        // A location may lack a mapping, but every line should have a function.
        self.left_out_references += u64::from(line.function.is_none());
        Ok(line)
    }
}
