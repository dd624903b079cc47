//! The samples of a batch in columns, and one of them.

use crate::buffer::ByteRange;
use crate::id::{AttributeSetId, LinkId, StackId};
use crate::varint;

/// The samples of all profiles of a batch, in columns of equal length, but for `values`: that column ends with the last
/// row that has any, so on-CPU profiles, whose samples are timestamps only, do without it.
///
/// `timestamps` are packed little-endian 64-bit integers (nanoseconds since the Unix epoch), `values` packed varints,
/// both in the dictionary's buffer, both as they stood on the wire.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    /// The stack.
    pub stack: Vec<Option<StackId>>,
    /// The attributes, such as `thread.id`.
    pub attributes: Vec<Option<AttributeSetId>>,
    /// The span in which the time was spent.
    pub link: Vec<Option<LinkId>>,
    /// When it was observed: eight bytes for each time.
    pub timestamps: Vec<ByteRange>,
    /// How much was observed, in the profile's `sample_type`. See [`Samples::values_at`].
    pub values: Vec<ByteRange>,
}

impl Samples {
    /// The number of samples.
    pub fn len(&self) -> usize {
        self.stack.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.stack.is_empty()
    }

    /// The values of a row; an empty place where it has none.
    #[inline]
    pub fn values_at(&self, row: usize) -> ByteRange {
        self.values.get(row).copied().unwrap_or_default()
    }

    /// Appends a row. Keeps the columns equally long.
    #[inline]
    pub fn push(
        &mut self,
        stack: Option<StackId>,
        attributes: Option<AttributeSetId>,
        link: Option<LinkId>,
        timestamps: ByteRange,
        values: ByteRange,
    ) {
        self.stack.push(stack);
        self.attributes.push(attributes);
        self.link.push(link);
        self.timestamps.push(timestamps);
        if !values.is_empty() {
            if self.values.capacity() == 0 {
                // As many as there is room for in the others, whose number a decoder knows.
                self.values.reserve_exact(self.stack.capacity());
            }
            self.values.resize(self.stack.len() - 1, ByteRange::default());
            self.values.push(values);
        }
    }
}

/// One sample.
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    /// The stack.
    pub stack: Option<StackId>,
    /// The attributes.
    pub attributes: Option<AttributeSetId>,
    /// The span.
    pub link: Option<LinkId>,
    pub(super) timestamps: &'a [u8],
    pub(super) values: &'a [u8],
}

/// What a sample refers to, all of it: whoever copies a sample takes this apart without `..`, so that what is added
/// here is forgotten nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SampleIds {
    /// The stack.
    pub stack: Option<StackId>,
    /// The attributes.
    pub attributes: Option<AttributeSetId>,
    /// The span.
    pub link: Option<LinkId>,
}

impl<'a> Sample<'a> {
    /// What it refers to.
    #[inline]
    pub fn ids(&self) -> SampleIds {
        let Self { stack, attributes, link, timestamps: _, values: _ } = *self;
        SampleIds { stack, attributes, link }
    }

    /// When it was observed, in nanoseconds since the Unix epoch, in the order in which it was sent.
    #[inline]
    pub fn timestamps(&self) -> impl ExactSizeIterator<Item = u64> + Clone + 'a {
        self.timestamps.chunks_exact(8).map(|bytes| bytes.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte)))
    }

    /// The values. As many as timestamps, or none (each timestamp then counts 1), or, without timestamps, the total.
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

    /// How many observations this is: its timestamps, or one where it has none.
    #[inline]
    pub fn observations(&self) -> u64 {
        (self.timestamps.len() as u64 / 8).max(1)
    }
}
