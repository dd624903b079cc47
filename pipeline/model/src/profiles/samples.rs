//! The samples of a batch in columns, and a view of one of them.

use std::ops::Deref;

use crate::arena::{Full, TableSource, TableWriter, Transfer};
use crate::buffer::ByteRange;
use crate::dictionary::{Dictionary, Invalid, check_index};
use crate::id::{AttributeSetId, LinkId, StackId};
use crate::varint;

/// The samples of all profiles of a batch, in columns of equal length. Only the column `values` is shorter: it ends
/// with the last row that has values, so that on-CPU profiles, whose samples only have timestamps, do not need it.
///
/// `timestamps` are packed little-endian 64-bit integers (nanoseconds since the Unix epoch), `values` are packed
/// varints. Both are in the dictionary's buffer in their wire encoding.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    /// The elements that the samples refer to.
    pub ids: Vec<SampleIds>,
    /// The times of observation: eight bytes each.
    pub timestamps: Vec<ByteRange>,
    /// The observed amounts, in the profile's `sample_type`. See [`Samples::values_at`].
    pub values: Vec<ByteRange>,
}

impl Samples {
    /// The memory of a row with values, in bytes.
    pub const ROW_BYTES: usize = size_of::<(SampleIds, [ByteRange; 2])>();

    /// Creates empty columns with capacity for this many rows. `values` allocates its capacity when a row has values.
    pub fn with_capacity(rows: usize) -> Self {
        Self { ids: Vec::with_capacity(rows), timestamps: Vec::with_capacity(rows), values: Vec::new() }
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The values of a row; an empty range if the row has none.
    #[inline]
    pub fn values_at(&self, row: usize) -> ByteRange {
        self.values.get(row).copied().unwrap_or_default()
    }

    /// Whether all columns have the required length.
    pub(super) fn has_equal_columns(&self) -> bool {
        let Self { ids, timestamps, values } = self;
        timestamps.len() == ids.len() && values.len() <= ids.len()
    }

    /// Allocated memory, in bytes.
    pub fn heap_bytes(&self) -> usize {
        fn of<T>(column: &Vec<T>) -> usize {
            column.capacity() * size_of::<T>()
        }
        let Self { ids, timestamps, values } = self;
        of(ids) + of(timestamps) + of(values)
    }

    #[inline]
    pub(super) fn sample<'a>(&self, row: u32, dictionary: &'a Dictionary) -> Sample<'a> {
        let row = row as usize;
        Sample {
            ids: self.ids[row],
            timestamps: dictionary.bytes(self.timestamps[row]),
            values: dictionary.bytes(self.values_at(row)),
        }
    }

    /// Replaces samples by their parts. `splits` are in order of rows, and no row is there twice.
    pub(super) fn split(&mut self, splits: &[SampleSplit]) {
        fn column<T: Copy>(column: &mut Vec<T>, splits: &[SampleSplit], of: impl Fn(T, &SamplePiece) -> T) {
            let more: usize = splits.iter().map(|split| split.pieces.len() - 1).sum();
            let mut new = Vec::with_capacity(column.len() + more);
            let mut done = 0;
            for split in splits {
                let row = split.row as usize;
                new.extend_from_slice(&column[done..row]);
                new.extend(split.pieces.iter().map(|piece| of(column[row], piece)));
                done = row + 1;
            }
            new.extend_from_slice(&column[done..]);
            *column = new;
        }
        let Samples { ids, timestamps, values } = self;
        column(ids, splits, |ids, piece| SampleIds { link: piece.link, ..ids });
        column(timestamps, splits, |_, piece| piece.timestamps);
        if !values.is_empty() {
            // The column ends with the last row that has values.
            let last = splits.last().map_or(0, |split| split.row as usize + 1);
            values.resize(values.len().max(last), ByteRange::default());
            column(values, splits, |_, piece| piece.values);
        }
    }

    /// Appends the rows once more, without their values.
    pub fn repeat(&mut self, rows: usize) {
        self.ids.extend_from_within(..rows);
        self.timestamps.extend_from_within(..rows);
    }

    /// Appends a row. Keeps the columns equally long.
    #[inline]
    pub fn push(&mut self, ids: SampleIds, timestamps: ByteRange, values: ByteRange) {
        self.ids.push(ids);
        self.timestamps.push(timestamps);
        if !values.is_empty() {
            if self.values.capacity() == 0 {
                // The same capacity as the other columns, since a decoder knows the number of samples.
                self.values.reserve_exact(self.ids.capacity());
            }
            self.values.resize(self.ids.len() - 1, ByteRange::default());
            self.values.push(values);
        }
    }
}

pub(super) struct SampleSplit {
    pub(super) row: u32,
    pub(super) pieces: Vec<SamplePiece>,
}

/// A part of a split sample.
#[derive(Clone, Copy)]
pub(super) struct SamplePiece {
    pub(super) link: Option<LinkId>,
    pub(super) timestamps: ByteRange,
    pub(super) values: ByteRange,
}

/// One sample. Its ids are also its own fields: `sample.stack`.
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    /// The elements that the sample refers to.
    pub ids: SampleIds,
    pub(super) timestamps: &'a [u8],
    pub(super) values: &'a [u8],
}

/// All references of a sample. Code that copies samples copies this as a whole; code that handles single fields
/// destructures it without `..`, so that a new field cannot be forgotten.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SampleIds {
    /// The stack.
    pub stack: Option<StackId>,
    /// The attributes.
    pub attributes: Option<AttributeSetId>,
    /// The span during which the sample was taken.
    pub link: Option<LinkId>,
}

impl SampleIds {
    /// Combines the ids of a sample.
    pub fn new(stack: Option<StackId>, attributes: Option<AttributeSetId>, link: Option<LinkId>) -> Self {
        Self { stack, attributes, link }
    }

    /// Checks that the elements exist. `at` describes the place of a field.
    #[inline]
    pub(super) fn check(self, dictionary: &Dictionary, at: impl Fn(&str) -> String) -> Result<(), Invalid> {
        let (tables, Self { stack, attributes, link }) = (dictionary.tables(), self);
        check_index(StackId::wire(stack), "stack_table", tables.stacks.len(), || at("stack_index"))?;
        check_index(LinkId::wire(link), "link_table", tables.links.len(), || at("link_index"))?;
        let sets = tables.attribute_sets.len();
        check_index(AttributeSetId::wire(attributes), "the attribute sets", sets, || at("attribute_indices"))
    }

    /// Copies the elements into other tables.
    ///
    /// # Errors
    ///
    /// See [`Transfer::string`].
    #[inline]
    pub fn transfer<W: TableWriter>(
        self,
        transfer: &mut Transfer,
        from: &TableSource<'_>,
        to: &mut W,
    ) -> Result<Self, Full> {
        let Self { stack, attributes, link } = self;
        let stack = transfer.stack(from, to, stack)?;
        let attributes = transfer.attribute_set(from, to, attributes)?;
        Ok(Self { stack, attributes, link: transfer.link(from, to, link)? })
    }
}

impl Deref for Sample<'_> {
    type Target = SampleIds;

    #[inline]
    fn deref(&self) -> &SampleIds {
        &self.ids
    }
}

impl<'a> Sample<'a> {
    /// The times of observation in nanoseconds since the Unix epoch, in the order in which they were sent.
    #[inline]
    pub fn timestamps(&self) -> impl ExactSizeIterator<Item = u64> + Clone + 'a {
        self.timestamps.chunks_exact(8).map(|bytes| bytes.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte)))
    }

    /// The values. With timestamps there are as many values, or none (each timestamp then counts 1); without timestamps
    /// the sum of the values is the total.
    #[inline]
    pub fn values(&self) -> impl Iterator<Item = i64> + Clone + 'a {
        varint::Packed::new(self.values).map(|value| value as i64)
    }

    /// The packed timestamps, eight little-endian bytes each.
    pub fn timestamps_bytes(&self) -> &'a [u8] {
        self.timestamps
    }

    /// The packed values.
    pub fn values_bytes(&self) -> &'a [u8] {
        self.values
    }

    /// The number of observations: one per timestamp, or one for a sample without timestamps.
    #[inline]
    pub fn observations(&self) -> u64 {
        (self.timestamps.len() as u64 / 8).max(1)
    }
}
