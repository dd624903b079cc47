//! Packed integer lists: used in place if they are contiguous, otherwise rewritten.
//!
//! A protobuf sender may write a repeated integer packed, one by one, or in any mix, and the reader has to join the
//! pieces.

use bytes::Bytes;
use profbridge_model::ByteRange;

use super::super::error::{Fault, Result};

/// The rewritten bytes; their offsets continue those of the request.
#[derive(Debug)]
pub(crate) struct Spill {
    base: u32,
    bytes: Vec<u8>,
}

impl Spill {
    /// Creates a spill that follows a request of less than 2 GiB. Rewritten lists never grow. Replaced text can, so
    /// that the sum may exceed 4 GiB; this is rejected when the tables are checked.
    pub(crate) fn behind(request: &[u8]) -> Self {
        Self { base: request.len() as u32, bytes: Vec::new() }
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> ByteRange {
        let start = (self.base as usize + self.bytes.len()) as u32;
        self.bytes.extend_from_slice(bytes);
        ByteRange { start, len: bytes.len() as u32 }
    }

    /// The bytes at a range of the request or of the spill.
    #[inline]
    pub(crate) fn bytes<'a>(&'a self, request: &'a [u8], span: ByteRange) -> &'a [u8] {
        match span.start.checked_sub(self.base) {
            None => bytes(request, span),
            Some(start) => bytes(&self.bytes, ByteRange { start, ..span }),
        }
    }

    /// The spilled bytes.
    pub(crate) fn take(&mut self) -> Bytes {
        std::mem::take(&mut self.bytes).into_boxed_slice().into()
    }
}

/// Buffers to join the lists of one message. They are empty between messages.
#[derive(Debug, Default)]
pub(crate) struct Scratches {
    pub(crate) attributes: Vec<u8>,
    pub(crate) timestamps: Vec<u8>,
    /// Values, or the locations of a stack.
    pub(crate) values: Vec<u8>,
}

/// A list of one message that is being read.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Run(ByteRange);

impl Run {
    /// Appends a piece of an integer list: a packed run, or a single integer.
    #[inline]
    pub(crate) fn add(&mut self, piece: ByteRange, request: &[u8], scratch: &mut Vec<u8>) -> Result<()> {
        if self.0.is_empty() {
            self.0 = piece;
            return Ok(());
        }
        // The last byte of an integer has a clear top bit. The next piece must not complete a truncated integer.
        if bytes(request, self.0).last() >= Some(&0x80) || bytes(request, piece).last() >= Some(&0x80) {
            return Err(Fault::wire(piece.start as usize, "an integer is cut off at the end of a packed list"));
        }
        self.join(piece, request, scratch);
        Ok(())
    }

    /// Appends a piece of a list of eight-byte numbers.
    #[inline]
    pub(crate) fn add_fixed(&mut self, piece: ByteRange, request: &[u8], scratch: &mut Vec<u8>) {
        if self.0.is_empty() {
            self.0 = piece;
        } else {
            self.join(piece, request, scratch);
        }
    }

    #[cold]
    fn join(&self, piece: ByteRange, request: &[u8], scratch: &mut Vec<u8>) {
        if scratch.is_empty() && !piece.is_empty() {
            scratch.extend_from_slice(bytes(request, self.0));
        }
        scratch.extend_from_slice(bytes(request, piece));
    }

    /// The range of the whole list.
    #[inline]
    pub(crate) fn finish(self, scratch: &mut Vec<u8>, spill: &mut Spill) -> ByteRange {
        if scratch.is_empty() {
            return self.0;
        }
        let span = spill.put(scratch);
        scratch.clear();
        span
    }

    /// The bytes of the whole list, for immediate use. The caller must clear the scratch buffer afterwards.
    #[inline]
    pub(crate) fn bytes<'a>(self, request: &'a [u8], scratch: &'a [u8]) -> &'a [u8] {
        if scratch.is_empty() { bytes(request, self.0) } else { scratch }
    }
}

#[inline]
fn bytes(request: &[u8], span: ByteRange) -> &[u8] {
    request.get(span.start as usize..span.start as usize + span.len as usize).unwrap_or_default()
}
