//! Tables to read from: a dictionary's or an arena's, which lie in memory alike but for their bytes.

use super::store::Store;
use crate::buffer::{Buffer, ByteRange};
use crate::dictionary::{Attribute, Dictionary, Function, Line, Link, Location, Mapping};
use crate::id::{AttributeId, AttributeSetId};

/// The tables that a [`Transfer`](super::Transfer) reads. Every index in them is valid.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    data: Data<'a>,
    pub(crate) strings: &'a [ByteRange],
    pub(crate) mappings: &'a [Mapping],
    pub(crate) functions: &'a [Function],
    pub(crate) locations: &'a [Location],
    pub(crate) lines: &'a [Line],
    pub(crate) links: &'a [Link],
    pub(crate) attributes: &'a [Attribute],
    pub(crate) attribute_sets: &'a [ByteRange],
    pub(crate) attribute_set_items: &'a [Option<AttributeId>],
    pub(crate) stacks: &'a [ByteRange],
}

#[derive(Debug, Clone, Copy)]
enum Data<'a> {
    Buffer(&'a Buffer),
    Bytes(&'a [u8]),
}

impl<'a> From<&'a Dictionary> for Source<'a> {
    fn from(dictionary: &'a Dictionary) -> Self {
        let tables = dictionary.tables();
        Self {
            data: Data::Buffer(&tables.buffer),
            strings: &tables.strings,
            mappings: &tables.mappings,
            functions: &tables.functions,
            locations: &tables.locations,
            lines: &tables.lines,
            links: &tables.links,
            attributes: &tables.attributes,
            attribute_sets: &tables.attribute_sets,
            attribute_set_items: &tables.attribute_set_items,
            stacks: &tables.stacks,
        }
    }
}

impl<'a> Source<'a> {
    pub(crate) fn of_store(store: &'a Store) -> Self {
        Self {
            data: Data::Bytes(&store.data),
            strings: &store.strings,
            mappings: &store.mappings,
            functions: &store.functions,
            locations: &store.locations,
            lines: &store.lines,
            links: &store.links,
            attributes: &store.attributes,
            attribute_sets: &store.attribute_sets,
            attribute_set_items: &store.attribute_set_items,
            stacks: &store.stacks,
        }
    }

    /// The bytes at a place; none where it is outside.
    #[inline]
    pub fn bytes(&self, span: ByteRange) -> &'a [u8] {
        match self.data {
            Data::Buffer(buffer) => buffer.get(span),
            Data::Bytes(bytes) => bytes.get(span.start as usize..).and_then(|rest| rest.get(..span.len as usize)),
        }
        .unwrap_or_default()
    }

    /// An attribute of the attribute table.
    pub(crate) fn attribute(&self, id: AttributeId) -> &'a Attribute {
        &self.attributes[id.index()]
    }

    /// The ids of a list of attributes; empty where it is not set.
    pub(crate) fn set(&self, id: Option<AttributeSetId>) -> &'a [Option<AttributeId>] {
        let span = id.map(|id| self.attribute_sets[id.index()]).unwrap_or_default();
        &self.attribute_set_items[span.start as usize..][..span.len as usize]
    }
}
