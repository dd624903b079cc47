//! The samples of a batch in columns, and a view of one of them.

use crate::buffer::ByteRange;
use crate::dictionary::Dictionary;
use crate::id::{AttributeSetId, LinkId, StackId};
use crate::varint;

/// The samples of all profiles of a batch, in columns of equal length. Only the column `values` is shorter: it ends
/// with the last row that has values, so that on-CPU profiles, whose samples only have timestamps, do not need it.
///
/// `timestamps` are packed little-endian 64-bit integers (nanoseconds since the Unix epoch), `values` are packed
/// varints. Both are in the dictionary's buffer in their wire encoding.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    /// The stack.
    pub stack: Vec<Option<StackId>>,
    /// The attributes, such as `thread.id`.
    pub attributes: Vec<Option<AttributeSetId>>,
    /// The span during which the sample was taken.
    pub link: Vec<Option<LinkId>>,
    /// The times of observation: eight bytes each.
    pub timestamps: Vec<ByteRange>,
    /// The observed amounts, in the profile's `sample_type`. See [`Samples::values_at`].
    pub values: Vec<ByteRange>,
}

impl Samples {
    /// Creates empty columns with capacity for this many rows. `values` allocates its capacity when a row has values.
    pub fn with_capacity(rows: usize) -> Self {
        Self {
            stack: Vec::with_capacity(rows),
            attributes: Vec::with_capacity(rows),
            link: Vec::with_capacity(rows),
            timestamps: Vec::with_capacity(rows),
            values: Vec::new(),
        }
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        self.stack.len()
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.stack.is_empty()
    }

    /// The values of a row; an empty range if the row has none.
    #[inline]
    pub fn values_at(&self, row: usize) -> ByteRange {
        self.values.get(row).copied().unwrap_or_default()
    }

    /// Whether all columns have the required length.
    pub(super) fn has_equal_columns(&self) -> bool {
        let Self { stack, attributes, link, timestamps, values } = self;
        let rows = stack.len();
        [attributes.len(), link.len(), timestamps.len()] == [rows; 3] && values.len() <= rows
    }

    /// Allocated memory, in bytes.
    pub fn heap_bytes(&self) -> usize {
        fn of<T>(column: &Vec<T>) -> usize {
            column.capacity() * size_of::<T>()
        }
        let Self { stack, attributes, link, timestamps, values } = self;
        of(stack) + of(attributes) + of(link) + of(timestamps) + of(values)
    }

    #[inline]
    pub(super) fn sample<'a>(&self, row: u32, dictionary: &'a Dictionary) -> Sample<'a> {
        let row = row as usize;
        Sample {
            stack: self.stack[row],
            attributes: self.attributes[row],
            link: self.link[row],
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
        let Samples { stack, attributes, link, timestamps, values } = self;
        column(stack, splits, |stack, _| stack);
        column(attributes, splits, |attributes, _| attributes);
        column(link, splits, |_, piece| piece.link);
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
        let Self { stack, attributes, link, timestamps, values: _ } = self;
        stack.extend_from_within(..rows);
        attributes.extend_from_within(..rows);
        link.extend_from_within(..rows);
        timestamps.extend_from_within(..rows);
    }

    /// Appends a row. Keeps the columns equally long.
    #[inline]
    pub fn push(&mut self, ids: SampleIds, timestamps: ByteRange, values: ByteRange) {
        let SampleIds { stack, attributes, link } = ids;
        self.stack.push(stack);
        self.attributes.push(attributes);
        self.link.push(link);
        self.timestamps.push(timestamps);
        if !values.is_empty() {
            if self.values.capacity() == 0 {
                // The same capacity as the other columns, since a decoder knows the number of samples.
                self.values.reserve_exact(self.stack.capacity());
            }
            self.values.resize(self.stack.len() - 1, ByteRange::default());
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

/// One sample.
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    /// The stack.
    pub stack: Option<StackId>,
    /// The attributes.
    pub attributes: Option<AttributeSetId>,
    /// The span during which the sample was taken.
    pub link: Option<LinkId>,
    pub(super) timestamps: &'a [u8],
    pub(super) values: &'a [u8],
}

/// All references of a sample. Code that copies samples destructures this without `..`, so that a new field cannot be
/// forgotten.
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
}

impl<'a> Sample<'a> {
    /// The references of the sample.
    #[inline]
    pub fn ids(&self) -> SampleIds {
        let Self { stack, attributes, link, timestamps: _, values: _ } = *self;
        SampleIds { stack, attributes, link }
    }

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
