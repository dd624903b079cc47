//! Growing tables: the only storage for the values of an [`Arena`](super::Arena) or of a new batch.

use bytes::Bytes;

use super::source::{SourceData, TableSource};
use super::transfer::TableWriter;
use super::{Full, GROWTH};
use crate::buffer::{Buffer, ByteRange};
use crate::dictionary::{Attribute, Function, Line, Link, Location, Mapping, Tables, Value};
use crate::id::{AttributeId, AttributeSetId, FunctionId, LinkId, LocationId, MappingId, StackId, StringId};

/// The tables and the bytes behind them.
///
/// Appending only checks that the bytes stay addressable by a [`ByteRange`]. Every table element needs at least one
/// byte of memory, so no table outgrows its 32-bit ids before a memory limit is reached.
#[derive(Debug)]
pub(crate) struct TableStore {
    pub(crate) data: Vec<u8>,
    /// The columns. Their own buffer is empty until [`TableStore::into_tables`] moves `data` into it.
    pub(crate) tables: Tables,
    /// The heap memory of nested attribute values, in bytes.
    nested: usize,
}

/// Appends a value. A full column grows by a quarter: a vector that doubles is a third empty on average.
pub(crate) fn push<T>(column: &mut Vec<T>, value: T) {
    make_room(column, 1);
    column.push(value);
}

/// Reserves room for `more` elements, and at least a quarter of the current length.
pub(crate) fn make_room<T>(column: &mut Vec<T>, more: usize) {
    if column.capacity() - column.len() < more {
        column.reserve_exact(more.max(column.len() / GROWTH).max(4));
    }
}

impl Default for TableStore {
    fn default() -> Self {
        Self { data: Vec::new(), tables: Tables::empty(), nested: 0 }
    }
}

/// The heap memory behind a value, in bytes.
fn nested_bytes(value: &Value) -> usize {
    match value {
        Value::Array(values) => size_of_val::<[Value]>(values) + values.iter().map(nested_bytes).sum::<usize>(),
        Value::KeyValueList(list) => {
            size_of_val::<[Attribute]>(list) + list.iter().map(|item| nested_bytes(&item.value)).sum::<usize>()
        }
        _ => 0,
    }
}

fn index(len: usize) -> u32 {
    // A column of 2^32 elements exceeds every limit on bytes, so this never saturates in practice.
    u32::try_from(len).unwrap_or(u32::MAX)
}

impl TableStore {
    /// Appends bytes.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<ByteRange, Full> {
        let (Ok(start), Ok(len)) = (u32::try_from(self.data.len()), u32::try_from(bytes.len())) else {
            return Err(Full::addressable());
        };
        if start.checked_add(len).is_none() {
            return Err(Full::addressable());
        }
        make_room(&mut self.data, bytes.len());
        self.data.extend_from_slice(bytes);
        Ok(ByteRange { start, len })
    }

    /// Appends zeros, to be overwritten.
    pub(crate) fn put_zeros(&mut self, len: u64) -> Result<(), Full> {
        let end = (self.data.len() as u64).checked_add(len).filter(|&end| end <= u64::from(u32::MAX));
        let end = end.ok_or(Full::addressable())?;
        make_room(&mut self.data, len as usize);
        self.data.resize(end as usize, 0);
        Ok(())
    }

    pub(crate) fn bytes(&self, span: ByteRange) -> &[u8] {
        self.data.get(span.start as usize..).and_then(|rest| rest.get(..span.len as usize)).unwrap_or_default()
    }

    /// The memory of all columns as allocated, in bytes.
    pub(crate) fn allocated(&self) -> usize {
        self.data.capacity() + self.tables.column_bytes().1 + self.nested
    }

    /// The memory of the columns' contents, without reserved capacity, in bytes.
    pub(crate) fn used(&self) -> usize {
        self.data.len() + self.tables.column_bytes().0 + self.nested
    }

    /// The tables, for reading.
    pub(crate) fn source(&self) -> TableSource<'_> {
        TableSource { data: SourceData::Bytes(&self.data), tables: &self.tables }
    }

    /// Converts the store into the tables of a dictionary without copying.
    pub(crate) fn into_tables(self) -> Tables {
        let buffer = Buffer::new(Bytes::from(self.data), Bytes::new());
        Tables { buffer, table_strings: index(self.tables.strings.len()), ..self.tables }
    }
}

/// Appends without looking for an equal element.
impl TableWriter for TableStore {
    fn put_string(&mut self, bytes: &[u8]) -> Result<Option<StringId>, Full> {
        let span = self.put(bytes)?;
        push(&mut self.tables.strings, span);
        Ok(StringId::new(index(self.tables.strings.len() - 1)))
    }

    fn put_blob(&mut self, bytes: &[u8]) -> Result<ByteRange, Full> {
        self.put(bytes)
    }

    fn put_mapping(&mut self, mapping: Mapping) -> Result<Option<MappingId>, Full> {
        push(&mut self.tables.mappings, mapping);
        Ok(MappingId::new(index(self.tables.mappings.len() - 1)))
    }

    fn put_function(&mut self, function: Function) -> Result<Option<FunctionId>, Full> {
        push(&mut self.tables.functions, function);
        Ok(FunctionId::new(index(self.tables.functions.len() - 1)))
    }

    fn put_location(&mut self, location: Location, lines: &[Line]) -> Result<Option<LocationId>, Full> {
        let (lines_start, lines_len) = (index(self.tables.lines.len()), index(lines.len()));
        make_room(&mut self.tables.lines, lines.len());
        self.tables.lines.extend_from_slice(lines);
        push(&mut self.tables.locations, Location { lines_start, lines_len, ..location });
        Ok(LocationId::new(index(self.tables.locations.len() - 1)))
    }

    fn put_link(&mut self, link: Link) -> Result<Option<LinkId>, Full> {
        push(&mut self.tables.links, link);
        Ok(LinkId::new(index(self.tables.links.len() - 1)))
    }

    fn put_attribute(&mut self, attribute: Attribute) -> Result<Option<AttributeId>, Full> {
        self.nested += nested_bytes(&attribute.value);
        push(&mut self.tables.attributes, attribute);
        Ok(AttributeId::new(index(self.tables.attributes.len() - 1)))
    }

    fn put_attribute_set(&mut self, items: &[Option<AttributeId>]) -> Result<Option<AttributeSetId>, Full> {
        let span = ByteRange { start: index(self.tables.attribute_set_items.len()), len: index(items.len()) };
        make_room(&mut self.tables.attribute_set_items, items.len());
        self.tables.attribute_set_items.extend_from_slice(items);
        push(&mut self.tables.attribute_sets, span);
        Ok(AttributeSetId::new(index(self.tables.attribute_sets.len() - 1)))
    }

    fn put_stack(&mut self, packed: &[u8]) -> Result<Option<StackId>, Full> {
        let span = self.put(packed)?;
        push(&mut self.tables.stacks, span);
        Ok(StackId::new(index(self.tables.stacks.len() - 1)))
    }
}
