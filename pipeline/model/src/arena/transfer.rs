//! Copies elements from one set of tables into another, each once.
//!
//! An element is copied on demand, together with the elements it refers to. Its new id is stored in a vector beside the
//! table, so that the next request for it is an array access. The vectors are invalidated by a new stamp instead of
//! being cleared: the cost of copying from another dictionary depends on the requested elements, not on the
//! dictionary's size.

use super::Full;
use super::source::TableSource;
use crate::buffer::ByteRange;
use crate::dictionary::{Attribute, Function, Line, Link, Location, Mapping, Value};
use crate::id::{AttributeId, AttributeSetId, FunctionId, LinkId, LocationId, MapIds, MappingId, StackId, StringId};
use crate::varint;

/// Adds elements to its own tables, to which the ids inside the elements refer. Only the thread of the [`Transfer`]
/// calls it, so a writer needs no lock.
pub trait TableWriter {
    /// Adds a string, which is UTF-8.
    fn put_string(&mut self, bytes: &[u8]) -> Result<Option<StringId>, Full>;
    /// Adds bytes that are not a string.
    fn put_blob(&mut self, bytes: &[u8]) -> Result<ByteRange, Full>;
    /// Adds a mapping.
    fn put_mapping(&mut self, mapping: Mapping) -> Result<Option<MappingId>, Full>;
    /// Adds a function.
    fn put_function(&mut self, function: Function) -> Result<Option<FunctionId>, Full>;
    /// Adds a location; its own range of lines is ignored.
    fn put_location(&mut self, location: Location, lines: &[Line]) -> Result<Option<LocationId>, Full>;
    /// Adds a link.
    fn put_link(&mut self, link: Link) -> Result<Option<LinkId>, Full>;
    /// Adds an attribute.
    fn put_attribute(&mut self, attribute: Attribute) -> Result<Option<AttributeId>, Full>;
    /// Adds a list of attributes.
    fn put_attribute_set(&mut self, items: &[Option<AttributeId>]) -> Result<Option<AttributeSetId>, Full>;
    /// Adds a stack as packed location indices.
    fn put_stack(&mut self, packed: &[u8]) -> Result<Option<StackId>, Full>;
}

/// The stamp of an element that was never copied.
const NEVER: u32 = u32::MAX;

/// The state of the elements of one table: a stamp and the new index.
#[derive(Debug, Default)]
struct Memo(Vec<(u32, u32)>);

impl Memo {
    #[inline]
    fn get(&self, index: usize, stamp: u32) -> Option<u32> {
        match self.0.get(index) {
            Some(&(at, value)) if at == stamp => Some(value),
            _ => None,
        }
    }

    fn set(&mut self, index: usize, stamp: u32, value: u32) {
        if self.0.len() <= index {
            self.0.resize(index + 1, (NEVER, 0));
        }
        self.0[index] = (stamp, value);
    }

    fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<(u32, u32)>()
    }
}

/// Stores which elements were copied. A `Transfer` is used for one source and one writer at a time; [`Transfer::begin`]
/// resets it for others.
#[derive(Debug, Default)]
pub struct Transfer {
    stamp: u32,
    strings: Memo,
    mappings: Memo,
    functions: Memo,
    locations: Memo,
    links: Memo,
    attributes: Memo,
    attribute_sets: Memo,
    stacks: Memo,
    packed: Vec<u8>,
    lines: Vec<Line>,
    items: Vec<Option<AttributeId>>,
}

/// Maps the ids inside an element, such as a profile, by copying the elements that they refer to.
pub(crate) struct Carry<'a, 'b, W> {
    pub(crate) transfer: &'a mut Transfer,
    pub(crate) from: &'a TableSource<'b>,
    pub(crate) to: &'a mut W,
}

impl<W: TableWriter> MapIds for Carry<'_, '_, W> {
    type Error = Full;

    #[inline]
    fn string(&mut self, id: Option<StringId>, _field: &str) -> Result<Option<StringId>, Full> {
        self.transfer.string(self.from, self.to, id)
    }

    #[inline]
    fn attribute_set(&mut self, id: Option<AttributeSetId>) -> Result<Option<AttributeSetId>, Full> {
        self.transfer.attribute_set(self.from, self.to, id)
    }

    #[inline]
    fn mapping(&mut self, id: Option<MappingId>) -> Result<Option<MappingId>, Full> {
        self.transfer.mapping(self.from, self.to, id)
    }

    #[inline]
    fn function(&mut self, id: Option<FunctionId>) -> Result<Option<FunctionId>, Full> {
        self.transfer.function(self.from, self.to, id)
    }
}

/// Returns the new id of an optional element, copying it if this is the first time.
macro_rules! carried {
    ($self:ident, $memo:ident, $id:ident, $type:ident, $carry:expr) => {{
        let Some(id) = $id else { return Ok(None) };
        if let Some(index) = $self.$memo.get(id.index(), $self.stamp) {
            return Ok($type::new(index));
        }
        let there = $carry(id.index())?;
        $self.$memo.set(id.index(), $self.stamp, $type::wire(there));
        Ok(there)
    }};
}

impl Transfer {
    /// Resets the transfer for another source or writer.
    pub fn begin(&mut self) {
        self.stamp += 1;
        if self.stamp == NEVER {
            *self = Self::default();
        }
    }

    /// The memory kept from one source to the next, in bytes.
    pub fn bytes(&self) -> usize {
        self.strings.bytes()
            + self.mappings.bytes()
            + self.functions.bytes()
            + self.locations.bytes()
            + self.links.bytes()
            + self.attributes.bytes()
            + self.attribute_sets.bytes()
            + self.stacks.bytes()
            + self.packed.capacity()
            + self.lines.capacity() * size_of::<Line>()
            + self.items.capacity() * size_of::<Option<AttributeId>>()
    }

    /// Copies a string.
    ///
    /// # Errors
    ///
    /// As with all of these methods, the writer is full. Elements copied before stay in the writer.
    pub fn string<W: TableWriter>(
        &mut self,
        from: &TableSource<'_>,
        to: &mut W,
        id: Option<StringId>,
    ) -> Result<Option<StringId>, Full> {
        carried!(self, strings, id, StringId, |index: usize| to.put_string(from.bytes(from.tables.strings[index])))
    }

    /// Copies a mapping.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    pub fn mapping<W: TableWriter>(
        &mut self,
        from: &TableSource<'_>,
        to: &mut W,
        id: Option<MappingId>,
    ) -> Result<Option<MappingId>, Full> {
        carried!(self, mappings, id, MappingId, |index: usize| {
            let mapping = from.tables.mappings[index].map_ids(&mut Carry { transfer: self, from, to })?;
            to.put_mapping(mapping)
        })
    }

    /// Copies a function.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    pub fn function<W: TableWriter>(
        &mut self,
        from: &TableSource<'_>,
        to: &mut W,
        id: Option<FunctionId>,
    ) -> Result<Option<FunctionId>, Full> {
        carried!(self, functions, id, FunctionId, |index: usize| {
            let function = from.tables.functions[index].map_ids(&mut Carry { transfer: self, from, to })?;
            to.put_function(function)
        })
    }

    /// Copies a location and its lines.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    pub fn location<W: TableWriter>(
        &mut self,
        from: &TableSource<'_>,
        to: &mut W,
        id: Option<LocationId>,
    ) -> Result<Option<LocationId>, Full> {
        carried!(self, locations, id, LocationId, |index: usize| {
            let lines = from.tables.lines(&from.tables.locations[index]);
            let location = from.tables.locations[index].map_ids(&mut Carry { transfer: self, from, to })?;
            self.lines.clear();
            for line in lines {
                let line = line.map_ids(&mut Carry { transfer: self, from, to })?;
                self.lines.push(line);
            }
            to.put_location(location, &self.lines)
        })
    }

    /// Copies a link.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    pub fn link<W: TableWriter>(
        &mut self,
        from: &TableSource<'_>,
        to: &mut W,
        id: Option<LinkId>,
    ) -> Result<Option<LinkId>, Full> {
        carried!(self, links, id, LinkId, |index: usize| to.put_link(from.tables.links[index]))
    }

    /// Copies an attribute of the attribute table.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    pub fn attribute<W: TableWriter>(
        &mut self,
        from: &TableSource<'_>,
        to: &mut W,
        id: Option<AttributeId>,
    ) -> Result<Option<AttributeId>, Full> {
        carried!(self, attributes, id, AttributeId, |index: usize| {
            let attribute = self.key_value(from, to, &from.tables.attributes[index])?;
            to.put_attribute(attribute)
        })
    }

    /// Copies a list of attributes.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    pub fn attribute_set<W: TableWriter>(
        &mut self,
        from: &TableSource<'_>,
        to: &mut W,
        id: Option<AttributeSetId>,
    ) -> Result<Option<AttributeSetId>, Full> {
        carried!(self, attribute_sets, id, AttributeSetId, |index: usize| {
            let items = from.tables.attribute_set(AttributeSetId::new(index as u32));
            self.some_attributes(from, to, items.iter().copied())
        })
    }

    /// Copies a list of attributes that need not be in the source as a list.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    pub fn some_attributes<W: TableWriter>(
        &mut self,
        from: &TableSource<'_>,
        to: &mut W,
        items: impl Iterator<Item = Option<AttributeId>>,
    ) -> Result<Option<AttributeSetId>, Full> {
        let mut carried = std::mem::take(&mut self.items);
        carried.clear();
        for item in items {
            carried.push(self.attribute(from, to, item)?);
        }
        let set = to.put_attribute_set(&carried);
        self.items = carried;
        set
    }

    /// Copies a stack and its locations.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    #[inline]
    pub fn stack<W: TableWriter>(
        &mut self,
        from: &TableSource<'_>,
        to: &mut W,
        id: Option<StackId>,
    ) -> Result<Option<StackId>, Full> {
        carried!(self, stacks, id, StackId, |index: usize| {
            let mut packed = std::mem::take(&mut self.packed);
            packed.clear();
            for location in varint::Packed::new(from.bytes(from.tables.stacks[index])) {
                let there = match self.locations.get(location as usize, self.stamp) {
                    Some(known) => known,
                    None => LocationId::wire(self.location(from, to, LocationId::new(location as u32))?),
                };
                varint::put(&mut packed, u64::from(there));
            }
            let stack = to.put_stack(&packed);
            self.packed = packed;
            stack
        })
    }

    /// Copies an attribute that is not in the attribute table, such as a resource's.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    pub fn key_value<W: TableWriter>(
        &mut self,
        from: &TableSource<'_>,
        to: &mut W,
        attribute: &Attribute,
    ) -> Result<Attribute, Full> {
        let Attribute { key, value, unit } = attribute;
        let (key, value) = (self.string(from, to, *key)?, self.value(from, to, value)?);
        Ok(Attribute { key, value, unit: self.string(from, to, *unit)? })
    }

    fn value<W: TableWriter>(&mut self, from: &TableSource<'_>, to: &mut W, value: &Value) -> Result<Value, Full> {
        Ok(match value {
            Value::Empty => Value::Empty,
            Value::String(id) => Value::String(self.string(from, to, *id)?),
            Value::Bool(value) => Value::Bool(*value),
            Value::Int(value) => Value::Int(*value),
            Value::Double(value) => Value::Double(*value),
            Value::Bytes(span) => Value::Bytes(to.put_blob(from.bytes(*span))?),
            Value::Array(values) => {
                Value::Array(values.iter().map(|value| self.value(from, to, value)).collect::<Result<_, _>>()?)
            }
            Value::KeyValueList(list) => {
                Value::KeyValueList(list.iter().map(|item| self.key_value(from, to, item)).collect::<Result<_, _>>()?)
            }
        })
    }
}
