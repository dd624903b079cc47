//! Tables for reading: those of a dictionary or of an arena, which only differ in how they store bytes.

use crate::buffer::{Buffer, ByteRange};
use crate::dictionary::{Dictionary, Tables};

/// The tables that a [`Transfer`](super::Transfer) reads. Every index in them is valid.
#[derive(Debug, Clone, Copy)]
pub struct TableSource<'a> {
    pub(super) data: SourceData<'a>,
    pub(crate) tables: &'a Tables,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum SourceData<'a> {
    Buffer(&'a Buffer),
    Bytes(&'a [u8]),
}

impl<'a> From<&'a Dictionary> for TableSource<'a> {
    fn from(dictionary: &'a Dictionary) -> Self {
        let tables = dictionary.tables();
        Self { data: SourceData::Buffer(&tables.buffer), tables }
    }
}

impl<'a> TableSource<'a> {
    /// The bytes of a range; empty if the range lies outside.
    #[inline]
    pub fn bytes(&self, span: ByteRange) -> &'a [u8] {
        match self.data {
            SourceData::Buffer(buffer) => buffer.get(span),
            SourceData::Bytes(bytes) => bytes.get(span.start as usize..).and_then(|rest| rest.get(..span.len as usize)),
        }
        .unwrap_or_default()
    }
}
