//! Reads protobuf's wire format: keys, lengths, and skipped fields.
//!
//! A [`ProtobufReader`] knows its position in the request, so that results can be kept as a [`ByteRange`] and errors
//! have offsets. Source: protobuf encoding guide.

use profbridge_model::{ByteRange, varint};

use super::error::{Fault, Result};

/// Maximum nesting of groups in unknown fields, the same as prost's.
const MAX_GROUP_DEPTH: u32 = 100;

/// Wire type of varints.
pub(crate) const VARINT: u32 = 0;
/// Wire type of eight bytes.
pub(crate) const FIXED64: u32 = 1;
/// Wire type of length-delimited bytes.
pub(crate) const LEN: u32 = 2;
const GROUP: u32 = 3;
const END_GROUP: u32 = 4;
/// Wire type of four bytes.
pub(super) const FIXED32: u32 = 5;

/// Reads one message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProtobufReader<'a> {
    rest: &'a [u8],
    /// The offset in the request of the end of `rest`.
    end: usize,
}

impl<'a> ProtobufReader<'a> {
    /// Starts at the beginning of a request, which must be shorter than 4 GiB.
    pub(crate) fn new(request: &'a [u8]) -> Self {
        Self { rest: request, end: request.len() }
    }

    /// Reads the message at a byte range of the request.
    pub(crate) fn at(request: &'a [u8], span: ByteRange) -> Self {
        let end = span.start as usize + span.len as usize;
        Self { rest: request.get(span.start as usize..end).unwrap_or_default(), end }
    }

    /// The remaining bytes.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The offset of the next byte in the request.
    #[inline]
    pub(crate) fn position(&self) -> usize {
        self.end - self.rest.len()
    }

    /// The range of the remaining bytes.
    #[inline]
    pub(crate) fn place(&self) -> ByteRange {
        ByteRange { start: self.position() as u32, len: self.rest.len() as u32 }
    }

    /// The next key (field number and wire type); `None` at the message's end.
    #[inline]
    pub(crate) fn key(&mut self) -> Result<Option<u32>> {
        match self.rest {
            [] => Ok(None),
            [first @ 8..0x80, rest @ ..] => {
                self.rest = rest;
                Ok(Some(u32::from(*first)))
            }
            _ => self.long_key(),
        }
    }

    #[inline(never)]
    fn long_key(&mut self) -> Result<Option<u32>> {
        let position = self.position();
        match u32::try_from(self.varint()?) {
            Ok(key) if key >> 3 > 0 => Ok(Some(key)),
            _ => Err(Fault::wire(position, "is not a field number")),
        }
    }

    /// Reads a varint.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64> {
        match varint::take(&mut self.rest) {
            Some(value) => Ok(value),
            None => Err(Fault::wire(self.position(), "an integer is cut off or too long")),
        }
    }

    /// Reads a varint as its byte range.
    #[inline]
    pub(crate) fn varint_bytes(&mut self) -> Result<ByteRange> {
        let start = self.position();
        self.varint()?;
        Ok(ByteRange { start: start as u32, len: (self.position() - start) as u32 })
    }

    /// Reads an eight-byte integer.
    #[inline]
    pub(crate) fn fixed64(&mut self) -> Result<u64> {
        match self.rest.split_first_chunk() {
            Some((bytes, rest)) => {
                self.rest = rest;
                Ok(u64::from_le_bytes(*bytes))
            }
            None => Err(Fault::wire(self.position(), "an eight-byte number is cut off")),
        }
    }

    /// Reads a four-byte integer.
    #[inline]
    pub(super) fn fixed32(&mut self) -> Result<u32> {
        match self.rest.split_first_chunk() {
            Some((bytes, rest)) => {
                self.rest = rest;
                Ok(u32::from_le_bytes(*bytes))
            }
            None => Err(Fault::wire(self.position(), "a four-byte number is cut off")),
        }
    }

    /// Reads a length-delimited value as its range: bytes, a string, a packed list, or a message.
    #[inline]
    pub(crate) fn span(&mut self) -> Result<ByteRange> {
        Ok(self.message()?.place())
    }

    /// Reads length-delimited bytes.
    #[inline]
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        Ok(self.message()?.rest)
    }

    /// Reads a length-delimited message as a reader.
    #[inline(always)]
    pub(crate) fn message(&mut self) -> Result<ProtobufReader<'a>> {
        let len = self.varint()?;
        if len > self.rest.len() as u64 {
            return Err(self.cut_off(len));
        }
        let (inner, rest) = self.rest.split_at(len as usize);
        self.rest = rest;
        Ok(ProtobufReader { rest: inner, end: self.end - rest.len() })
    }

    #[cold]
    fn cut_off(&self, claimed: u64) -> Fault {
        Fault::wire(self.position(), format!("claims {claimed} bytes where {} are left", self.rest.len()))
    }

    /// Reads an eight-byte number as its byte range.
    #[inline]
    pub(crate) fn fixed64_bytes(&mut self) -> Result<ByteRange> {
        let start = self.position() as u32;
        self.fixed64()?;
        Ok(ByteRange { start, len: 8 })
    }

    /// Skips the value of an unknown field.
    pub(crate) fn skip(&mut self, key: u32) -> Result<()> {
        self.skip_nested(key, 0)
    }

    fn skip_nested(&mut self, key: u32, depth: u32) -> Result<()> {
        let position = self.position();
        match key & 7 {
            VARINT => self.varint().map(drop),
            FIXED64 => self.fixed64().map(drop),
            LEN => self.message().map(drop),
            FIXED32 => self.fixed32().map(drop),
            GROUP if depth >= MAX_GROUP_DEPTH => Err(Fault::limit("nested groups", u64::from(MAX_GROUP_DEPTH))),
            GROUP => loop {
                match self.key()? {
                    None => return Err(Fault::wire(position, "a group does not end")),
                    Some(inner) if inner & 7 != END_GROUP => self.skip_nested(inner, depth + 1)?,
                    Some(end) if end >> 3 == key >> 3 => return Ok(()),
                    Some(_) => return Err(Fault::wire(position, "a group ends as another one")),
                }
            },
            END_GROUP => Err(Fault::wire(position, "a group ends that did not start")),
            _ => Err(Fault::wire(position, format!("there is no wire type {}", key & 7))),
        }
    }

    /// Handles a field that a message does not expect: rejects the first `known` field numbers, because they then have
    /// the wrong wire type, and skips all others.
    #[cold]
    pub(crate) fn other(&mut self, key: u32, known: u32) -> Result<()> {
        if key >> 3 <= known {
            let rule = format!("field {} has wire type {}, which is not its own", key >> 3, key & 7);
            return Err(Fault::wire(self.position(), rule));
        }
        self.skip(key)
    }
}
