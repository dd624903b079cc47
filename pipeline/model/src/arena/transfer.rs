//! Carries elements from one set of tables into another, each once.
//!
//! An element is carried when something asks for it and what it refers to comes along. Its id over there is kept in a
//! vector beside the table, so that the next one who asks pays an array access. The vectors are stamped instead of
//! cleared: carrying from the next dictionary costs what that dictionary is asked for and not its size.

use super::Full;
use super::source::Source;
use crate::buffer::ByteRange;
use crate::dictionary::{Attribute, Function, Line, Link, Location, Mapping, Value};
use crate::id::{AttributeId, AttributeSetId, FunctionId, LinkId, LocationId, MappingId, StackId, StringId};
use crate::varint;

/// Where elements are carried to. Ids in what is handed over are ids of the sink.
pub trait Sink {
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
            self.0.resize(index + 1, (0, 0));
        }
        self.0[index] = (stamp, value);
    }

    fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<(u32, u32)>()
    }
}

/// The memory of which elements were carried. One `Transfer` serves one source and one sink at a time;
/// [`Transfer::begin`] makes it forget both.
#[derive(Debug)]
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

impl Default for Transfer {
    fn default() -> Self {
        Self {
            // Slots that were never set carry stamp 0.
            stamp: 1,
            strings: Memo::default(),
            mappings: Memo::default(),
            functions: Memo::default(),
            locations: Memo::default(),
            links: Memo::default(),
            attributes: Memo::default(),
            attribute_sets: Memo::default(),
            stacks: Memo::default(),
            packed: Vec::new(),
            lines: Vec::new(),
            items: Vec::new(),
        }
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
    /// Starts over with another source or sink.
    pub fn begin(&mut self) {
        match self.stamp.checked_add(1) {
            Some(stamp) => self.stamp = stamp,
            None => *self = Self::default(),
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
    /// As all of these: the sink is full. What was carried until then stays there.
    pub fn string<S: Sink>(
        &mut self,
        from: &Source<'_>,
        to: &mut S,
        id: Option<StringId>,
    ) -> Result<Option<StringId>, Full> {
        carried!(self, strings, id, StringId, |index: usize| to.put_string(from.bytes(from.strings[index])))
    }

    /// Carries a mapping.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    pub fn mapping<S: Sink>(
        &mut self,
        from: &Source<'_>,
        to: &mut S,
        id: Option<MappingId>,
    ) -> Result<Option<MappingId>, Full> {
        carried!(self, mappings, id, MappingId, |index: usize| {
            let mapping = from.mappings[index];
            let filename = self.string(from, to, mapping.filename)?;
            let attributes = self.attribute_set(from, to, mapping.attributes)?;
            to.put_mapping(Mapping { filename, attributes, ..mapping })
        })
    }

    /// Carries a function.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    pub fn function<S: Sink>(
        &mut self,
        from: &Source<'_>,
        to: &mut S,
        id: Option<FunctionId>,
    ) -> Result<Option<FunctionId>, Full> {
        carried!(self, functions, id, FunctionId, |index: usize| {
            let function = from.functions[index];
            let name = self.string(from, to, function.name)?;
            let system_name = self.string(from, to, function.system_name)?;
            let filename = self.string(from, to, function.filename)?;
            to.put_function(Function { name, system_name, filename, ..function })
        })
    }

    /// Carries a location and its lines.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    pub fn location<S: Sink>(
        &mut self,
        from: &Source<'_>,
        to: &mut S,
        id: Option<LocationId>,
    ) -> Result<Option<LocationId>, Full> {
        carried!(self, locations, id, LocationId, |index: usize| {
            let location = from.locations[index];
            let mapping = self.mapping(from, to, location.mapping)?;
            let attributes = self.attribute_set(from, to, location.attributes)?;
            self.lines.clear();
            for line in &from.lines[location.lines_start as usize..][..location.lines_len as usize] {
                let function = self.function(from, to, line.function)?;
                self.lines.push(Line { function, ..*line });
            }
            to.put_location(Location { mapping, attributes, ..location }, &self.lines)
        })
    }

    /// Carries a link.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    pub fn link<S: Sink>(&mut self, from: &Source<'_>, to: &mut S, id: Option<LinkId>) -> Result<Option<LinkId>, Full> {
        carried!(self, links, id, LinkId, |index: usize| to.put_link(from.links[index]))
    }

    /// Carries an attribute of the attribute table.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    pub fn attribute<S: Sink>(
        &mut self,
        from: &Source<'_>,
        to: &mut S,
        id: Option<AttributeId>,
    ) -> Result<Option<AttributeId>, Full> {
        carried!(self, attributes, id, AttributeId, |index: usize| {
            let attribute = self.key_value(from, to, &from.attributes[index])?;
            to.put_attribute(attribute)
        })
    }

    /// Carries a list of attributes.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    pub fn attribute_set<S: Sink>(
        &mut self,
        from: &Source<'_>,
        to: &mut S,
        id: Option<AttributeSetId>,
    ) -> Result<Option<AttributeSetId>, Full> {
        carried!(self, attribute_sets, id, AttributeSetId, |index: usize| {
            let span = from.attribute_sets[index];
            let items = &from.attribute_set_items[span.start as usize..][..span.len as usize];
            self.some_attributes(from, to, items.iter().copied())
        })
    }

    /// Carries a list of attributes that may be no list of the source.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    pub fn some_attributes<S: Sink>(
        &mut self,
        from: &Source<'_>,
        to: &mut S,
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
    pub fn stack<S: Sink>(
        &mut self,
        from: &Source<'_>,
        to: &mut S,
        id: Option<StackId>,
    ) -> Result<Option<StackId>, Full> {
        carried!(self, stacks, id, StackId, |index: usize| {
            let mut packed = std::mem::take(&mut self.packed);
            packed.clear();
            for location in varint::Packed::new(from.bytes(from.stacks[index])) {
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
    pub fn key_value<S: Sink>(
        &mut self,
        from: &Source<'_>,
        to: &mut S,
        attribute: &Attribute,
    ) -> Result<Attribute, Full> {
        Ok(Attribute {
            key: self.string(from, to, attribute.key)?,
            value: self.value(from, to, &attribute.value)?,
            unit: self.string(from, to, attribute.unit)?,
        })
    }

    fn value<S: Sink>(&mut self, from: &Source<'_>, to: &mut S, value: &Value) -> Result<Value, Full> {
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
