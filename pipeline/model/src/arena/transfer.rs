//! Carries elements from one set of tables into another, each once.
//!
//! An element is carried when something asks for it and what it refers to comes along. Its id over there is kept in a
//! vector beside the table, so that the next one who asks pays an array access. The vectors are stamped instead of
//! cleared: carrying from the next dictionary costs what that dictionary is asked for and not its size.

use super::Full;
use super::source::Source;
use crate::buffer::ByteRange;
use crate::dictionary::{Attribute, Function, Line, Link, Location, Mapping, Value};
use crate::id::{AttributeId, AttributeSetId, FunctionId, LinkId, LocationId, MapIds, MappingId, StackId, StringId};
use crate::varint;

/// Takes elements into tables of its own. Ids in what is handed over are ids of these tables.
/// Called by one thread at a time, that of the [`Transfer`], so a writer needs no lock.
pub trait TableWriter {
    /// Takes a string, which is UTF-8.
    fn put_string(&mut self, bytes: &[u8]) -> Result<Option<StringId>, Full>;
    /// Takes bytes that are no string.
    fn put_blob(&mut self, bytes: &[u8]) -> Result<ByteRange, Full>;
    /// Takes a mapping.
    fn put_mapping(&mut self, mapping: Mapping) -> Result<Option<MappingId>, Full>;
    /// Takes a function.
    fn put_function(&mut self, function: Function) -> Result<Option<FunctionId>, Full>;
    /// Takes a location; its own range of lines is ignored.
    fn put_location(&mut self, location: Location, lines: &[Line]) -> Result<Option<LocationId>, Full>;
    /// Takes a link.
    fn put_link(&mut self, link: Link) -> Result<Option<LinkId>, Full>;
    /// Takes an attribute.
    fn put_attribute(&mut self, attribute: Attribute) -> Result<Option<AttributeId>, Full>;
    /// Takes a list of attributes.
    fn put_attribute_set(&mut self, items: &[Option<AttributeId>]) -> Result<Option<AttributeSetId>, Full>;
    /// Takes a stack as packed location indices.
    fn put_stack(&mut self, packed: &[u8]) -> Result<Option<StackId>, Full>;
}

/// The stamp of an element that was never carried.
const NEVER: u32 = u32::MAX;

/// What became of the elements of one table: a stamp and the index over there.
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

/// The memory of which elements were carried. One `Transfer` serves one source and one writer at a time;
/// [`Transfer::begin`] makes it forget both.
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

/// Carries the ids of an element, a profile or the like.
pub(crate) struct Carry<'a, 'b, W> {
    pub(crate) transfer: &'a mut Transfer,
    pub(crate) from: &'a Source<'b>,
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

/// Looks an optional id up, or carries it and remembers.
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
    /// Starts over with another source or writer.
    pub fn begin(&mut self) {
        self.stamp += 1;
        if self.stamp == NEVER {
            *self = Self::default();
        }
    }

    /// The memory that is kept from one source to the next, in bytes.
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

    /// Carries a string.
    ///
    /// # Errors
    ///
    /// As all of these: the writer is full. What was carried until then stays there.
    pub fn string<W: TableWriter>(
        &mut self,
        from: &Source<'_>,
        to: &mut W,
        id: Option<StringId>,
    ) -> Result<Option<StringId>, Full> {
        carried!(self, strings, id, StringId, |index: usize| to.put_string(from.bytes(from.tables.strings[index])))
    }

    /// Carries a mapping.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    pub fn mapping<W: TableWriter>(
        &mut self,
        from: &Source<'_>,
        to: &mut W,
        id: Option<MappingId>,
    ) -> Result<Option<MappingId>, Full> {
        carried!(self, mappings, id, MappingId, |index: usize| {
            let mapping = from.tables.mappings[index].map_ids(&mut Carry { transfer: self, from, to })?;
            to.put_mapping(mapping)
        })
    }

    /// Carries a function.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    pub fn function<W: TableWriter>(
        &mut self,
        from: &Source<'_>,
        to: &mut W,
        id: Option<FunctionId>,
    ) -> Result<Option<FunctionId>, Full> {
        carried!(self, functions, id, FunctionId, |index: usize| {
            let function = from.tables.functions[index].map_ids(&mut Carry { transfer: self, from, to })?;
            to.put_function(function)
        })
    }

    /// Carries a location and its lines.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    pub fn location<W: TableWriter>(
        &mut self,
        from: &Source<'_>,
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

    /// Carries a link.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    pub fn link<W: TableWriter>(
        &mut self,
        from: &Source<'_>,
        to: &mut W,
        id: Option<LinkId>,
    ) -> Result<Option<LinkId>, Full> {
        carried!(self, links, id, LinkId, |index: usize| to.put_link(from.tables.links[index]))
    }

    /// Carries an attribute of the attribute table.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    pub fn attribute<W: TableWriter>(
        &mut self,
        from: &Source<'_>,
        to: &mut W,
        id: Option<AttributeId>,
    ) -> Result<Option<AttributeId>, Full> {
        carried!(self, attributes, id, AttributeId, |index: usize| {
            let attribute = self.key_value(from, to, &from.tables.attributes[index])?;
            to.put_attribute(attribute)
        })
    }

    /// Carries a list of attributes.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    pub fn attribute_set<W: TableWriter>(
        &mut self,
        from: &Source<'_>,
        to: &mut W,
        id: Option<AttributeSetId>,
    ) -> Result<Option<AttributeSetId>, Full> {
        carried!(self, attribute_sets, id, AttributeSetId, |index: usize| {
            let items = from.tables.attribute_set(AttributeSetId::new(index as u32));
            self.some_attributes(from, to, items.iter().copied())
        })
    }

    /// Carries a list of attributes that may be no list of the source.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    pub fn some_attributes<W: TableWriter>(
        &mut self,
        from: &Source<'_>,
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

    /// Carries a stack and its locations.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    #[inline]
    pub fn stack<W: TableWriter>(
        &mut self,
        from: &Source<'_>,
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

    /// Carries an attribute that stands in no table, such as a resource's.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    pub fn key_value<W: TableWriter>(
        &mut self,
        from: &Source<'_>,
        to: &mut W,
        attribute: &Attribute,
    ) -> Result<Attribute, Full> {
        let Attribute { key, value, unit } = attribute;
        let (key, value) = (self.string(from, to, *key)?, self.value(from, to, value)?);
        Ok(Attribute { key, value, unit: self.string(from, to, *unit)? })
    }

    fn value<W: TableWriter>(&mut self, from: &Source<'_>, to: &mut W, value: &Value) -> Result<Value, Full> {
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
