//! The bytes of a batch: strings, stacks, timestamps and values are slices of them.

use bytes::Bytes;

/// A range of a [`Buffer`], in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct ByteRange {
    /// The offset of the first byte.
    pub start: u32,
    /// The number of bytes.
    pub len: u32,
}

impl ByteRange {
    /// Whether the range has no bytes.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// The bytes of a request, followed by the spill: data that the request did not contain in the needed form.
///
/// A decoder uses the request's bytes without copying them. It rewrites data in another form (such as an integer list
/// that was not packed) into the spill. Offsets continue from the request into the spill.
#[derive(Debug, Clone, Default)]
pub struct Buffer {
    request: Bytes,
    spill: Bytes,
}

impl Buffer {
    /// Creates a buffer of a request and its spill. Together they must be shorter than 4 GiB, which
    /// [`Tables`](crate::Tables) checks.
    pub fn new(request: Bytes, spill: Bytes) -> Self {
        Self { request, spill }
    }

    /// The bytes of a range; `None` if the range lies outside, or crosses the border between request and spill.
    #[inline]
    pub fn get(&self, span: ByteRange) -> Option<&[u8]> {
        let (start, len) = (span.start as usize, span.len as usize);
        match start.checked_sub(self.request.len()) {
            None => self.request.get(start..start.checked_add(len)?),
            // An empty range at the very end of the request is inside as well.
            Some(start) => self.spill.get(start..start.checked_add(len)?),
        }
    }

    /// Appends to the spill; existing offsets stay valid. Copies the spill, but not the request.
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

    /// The length of the spill, in bytes.
    pub fn spill_len(&self) -> usize {
        self.spill.len()
    }

    /// Whether there are no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
