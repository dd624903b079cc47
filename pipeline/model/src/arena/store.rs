//! Tables that grow: the one place where the values of an [`Arena`](super::Arena) or of a new batch lie.

use bytes::Bytes;

use super::source::Source;
use super::transfer::Sink;
use super::{Full, GROWTH};
use crate::buffer::{Buffer, ByteRange};
use crate::dictionary::{Attribute, Function, Line, Link, Location, Mapping, Tables, Value};
use crate::id::{AttributeId, AttributeSetId, FunctionId, LinkId, LocationId, MappingId, StackId, StringId};

/// The tables, in the same columns as [`Tables`], and the bytes behind them.
///
/// Appending checks one thing only: that the bytes stay addressable by a [`ByteRange`]. Every table element needs at
/// least one byte of memory, so no table outgrows its 32-bit ids before a memory limit is reached.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) data: Vec<u8>,
    pub(crate) strings: Vec<ByteRange>,
    pub(crate) mappings: Vec<Mapping>,
    pub(crate) functions: Vec<Function>,
    pub(crate) locations: Vec<Location>,
    pub(crate) lines: Vec<Line>,
    pub(crate) links: Vec<Link>,
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) attribute_sets: Vec<ByteRange>,
    pub(crate) attribute_set_items: Vec<Option<AttributeId>>,
    pub(crate) stacks: Vec<ByteRange>,
    /// What nested attribute values occupy beside the columns, in bytes.
    nested: usize,
}

/// Appends and grows by a quarter where there is no room: a vector that doubles is a third empty on average.
pub(crate) fn push<T>(column: &mut Vec<T>, value: T) {
    make_room(column, 1);
    column.push(value);
}

/// Makes room for `more` elements, at least a quarter of what is there.
pub(crate) fn make_room<T>(column: &mut Vec<T>, more: usize) {
    if column.capacity() - column.len() < more {
        column.reserve_exact(more.max(column.len() / GROWTH).max(4));
    }
}

impl Default for Store {
    fn default() -> Self {
        Self {
            data: Vec::new(),
            strings: vec![ByteRange::default()],
            mappings: vec![Mapping::default()],
            functions: vec![Function::default()],
            locations: vec![Location::default()],
            lines: Vec::new(),
            links: vec![Link::default()],
            attributes: vec![Attribute::default()],
            attribute_sets: vec![ByteRange::default()],
            attribute_set_items: Vec::new(),
            stacks: vec![ByteRange::default()],
            nested: 0,
        }
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
    // A column of 2^32 elements is larger than any limit on bytes; saturating keeps the arithmetic total.
    u32::try_from(len).unwrap_or(u32::MAX)
}

impl Store {
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

    /// Appends zeros, to be written over.
    pub(crate) fn put_zeros(&mut self, len: u64) -> Result<(), Full> {
        let end = (self.data.len() as u64).checked_add(len).filter(|&end| end <= u64::from(u32::MAX));
        let end = end.ok_or(Full::addressable())?;
        make_room(&mut self.data, len as usize);
        self.data.resize(end as usize, 0);
        Ok(())
    }

    /// The bytes at a place.
    pub(crate) fn bytes(&self, span: ByteRange) -> &[u8] {
        self.data.get(span.start as usize..).and_then(|rest| rest.get(..span.len as usize)).unwrap_or_default()
    }

    /// What the lines of a location are.
    pub(crate) fn lines(&self, location: &Location) -> &[Line] {
        &self.lines[location.lines_start as usize..][..location.lines_len as usize]
    }

    /// What a set of attributes holds.
    pub(crate) fn set(&self, span: ByteRange) -> &[Option<AttributeId>] {
        &self.attribute_set_items[span.start as usize..][..span.len as usize]
    }

    /// The memory of all columns as allocated, in bytes.
    pub(crate) fn allocated(&self) -> usize {
        fn of<T>(column: &Vec<T>) -> usize {
            column.capacity() * size_of::<T>()
        }
        of(&self.data)
            + of(&self.strings)
            + of(&self.mappings)
            + of(&self.functions)
            + of(&self.locations)
            + of(&self.lines)
            + of(&self.links)
            + of(&self.attributes)
            + of(&self.attribute_sets)
            + of(&self.attribute_set_items)
            + of(&self.stacks)
            + self.nested
    }

    /// The memory of what is in the columns, without what is reserved, in bytes.
    pub(crate) fn used(&self) -> usize {
        size_of_val(&self.data[..])
            + size_of_val(&self.strings[..])
            + size_of_val(&self.mappings[..])
            + size_of_val(&self.functions[..])
            + size_of_val(&self.locations[..])
            + size_of_val(&self.lines[..])
            + size_of_val(&self.links[..])
            + size_of_val(&self.attributes[..])
            + size_of_val(&self.attribute_sets[..])
            + size_of_val(&self.attribute_set_items[..])
            + size_of_val(&self.stacks[..])
            + self.nested
    }

    /// The tables as they are read.
    pub(crate) fn source(&self) -> Source<'_> {
        Source::of_store(self)
    }

    /// The tables of a dictionary; nothing is copied.
    pub(crate) fn into_tables(self) -> Tables {
        Tables {
            buffer: Buffer::new(Bytes::from(self.data), Bytes::new()),
            table_strings: index(self.strings.len()),
            references: false,
            strings: self.strings,
            mappings: self.mappings,
            functions: self.functions,
            locations: self.locations,
            lines: self.lines,
            links: self.links,
            attributes: self.attributes,
            attribute_sets: self.attribute_sets,
            attribute_set_items: self.attribute_set_items,
            stacks: self.stacks,
        }
    }
}

/// Appends without looking whether an equal element is there.
impl Sink for Store {
    fn put_string(&mut self, bytes: &[u8]) -> Result<Option<StringId>, Full> {
        let span = self.put(bytes)?;
        push(&mut self.strings, span);
        Ok(StringId::new(index(self.strings.len() - 1)))
    }

    fn put_blob(&mut self, bytes: &[u8]) -> Result<ByteRange, Full> {
        self.put(bytes)
    }

    fn put_mapping(&mut self, mapping: Mapping) -> Result<Option<MappingId>, Full> {
        push(&mut self.mappings, mapping);
        Ok(MappingId::new(index(self.mappings.len() - 1)))
    }

    fn put_function(&mut self, function: Function) -> Result<Option<FunctionId>, Full> {
        push(&mut self.functions, function);
        Ok(FunctionId::new(index(self.functions.len() - 1)))
    }

    fn put_location(&mut self, location: Location, lines: &[Line]) -> Result<Option<LocationId>, Full> {
        let (lines_start, lines_len) = (index(self.lines.len()), index(lines.len()));
        make_room(&mut self.lines, lines.len());
        self.lines.extend_from_slice(lines);
        push(&mut self.locations, Location { lines_start, lines_len, ..location });
        Ok(LocationId::new(index(self.locations.len() - 1)))
    }

    fn put_link(&mut self, link: Link) -> Result<Option<LinkId>, Full> {
        push(&mut self.links, link);
        Ok(LinkId::new(index(self.links.len() - 1)))
    }

    fn put_attribute(&mut self, attribute: Attribute) -> Result<Option<AttributeId>, Full> {
        self.nested += nested_bytes(&attribute.value);
        push(&mut self.attributes, attribute);
        Ok(AttributeId::new(index(self.attributes.len() - 1)))
    }

    fn put_attribute_set(&mut self, items: &[Option<AttributeId>]) -> Result<Option<AttributeSetId>, Full> {
        let span = ByteRange { start: index(self.attribute_set_items.len()), len: index(items.len()) };
        make_room(&mut self.attribute_set_items, items.len());
        self.attribute_set_items.extend_from_slice(items);
        push(&mut self.attribute_sets, span);
        Ok(AttributeSetId::new(index(self.attribute_sets.len() - 1)))
    }

    fn put_stack(&mut self, packed: &[u8]) -> Result<Option<StackId>, Full> {
        let span = self.put(packed)?;
        push(&mut self.stacks, span);
        Ok(StackId::new(index(self.stacks.len() - 1)))
    }
}
