//! The bytes behind a batch: strings, stacks, timestamps and values are slices of them.

use bytes::Bytes;

/// A place in a [`Buffer`]: where a slice starts and how long it is, both in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct ByteRange {
    /// The first byte.
    pub start: u32,
    /// The number of bytes.
    pub len: u32,
}

impl ByteRange {
    /// Whether nothing lies behind this place.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// A request's own bytes, followed by what had to be written anew because the request did not hold it in one piece.
///
/// A decoder hands over the request and needs no copy of it; whatever stood there in another form (an integer list
/// that was not packed, say) goes into the spill. Offsets run through both as if they were one.
#[derive(Debug, Clone, Default)]
pub struct Buffer {
    request: Bytes,
    spill: Bytes,
}

impl Buffer {
    /// A buffer of a request and its spill. Both together must be shorter than 4 GiB, which
    /// [`Tables`](crate::Tables) checks.
    pub fn new(request: Bytes, spill: Bytes) -> Self {
        Self { request, spill }
    }

    /// The bytes at a place; `None` where it is outside, or lies across the two parts.
    #[inline]
    pub fn get(&self, span: ByteRange) -> Option<&[u8]> {
        let (start, len) = (span.start as usize, span.len as usize);
        match start.checked_sub(self.request.len()) {
            None => self.request.get(start..start.checked_add(len)?),
            // An empty place at the very end of the request is inside as well.
            Some(start) => self.spill.get(start..start.checked_add(len)?),
        }
    }

    /// Writes more behind the spill: what was there stays where it is. Copies the spill, not the request.
    pub fn append(&mut self, more: &[u8]) {
        if more.is_empty() {
            return;
        }
        let mut spill = Vec::with_capacity(self.spill.len() + more.len());
        spill.extend_from_slice(&self.spill);
        spill.extend_from_slice(more);
        self.spill = spill.into();
    }

    /// The length of both parts, in bytes.
    pub fn len(&self) -> usize {
        self.request.len() + self.spill.len()
    }

    /// The length of what was written anew, in bytes.
    pub fn spill_len(&self) -> usize {
        self.spill.len()
    }

    /// Whether there are no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
