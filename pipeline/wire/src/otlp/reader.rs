//! Protobuf's wire format: keys, lengths, and what is skipped.
//!
//! A [`Reader`] knows where in the request it stands, so what it finds can be kept as a [`ByteRange`] and named in
//! errors. Source: protobuf encoding guide.

use profbridge_model::{ByteRange, varint};

use super::error::{Fault, Result};

/// How deep groups of unknown fields may nest; as many as prost reads.
const MAX_GROUP_DEPTH: u32 = 100;

/// Wire type of integers of variable length.
pub(crate) const VARINT: u32 = 0;
/// Wire type of eight bytes.
pub(crate) const FIXED64: u32 = 1;
/// Wire type of bytes with a length in front.
pub(crate) const LEN: u32 = 2;
const GROUP: u32 = 3;
const END_GROUP: u32 = 4;
/// Wire type of four bytes.
pub(super) const FIXED32: u32 = 5;

/// Reads one message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    /// The offset in the request at which `rest` ends.
    end: usize,
}

impl<'a> Reader<'a> {
    /// Reads a whole request, which must be shorter than 4 GiB.
    pub(crate) fn new(request: &'a [u8]) -> Self {
        Self { rest: request, end: request.len() }
    }

    /// Reads the message at a place of the request.
    pub(crate) fn at(request: &'a [u8], span: ByteRange) -> Self {
        let end = span.start as usize + span.len as usize;
        Self { rest: request.get(span.start as usize..end).unwrap_or_default(), end }
    }

    /// All that is left.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Where the next byte stands in the request.
    #[inline]
    pub(crate) fn position(&self) -> usize {
        self.end - self.rest.len()
    }

    /// The place of all that is left.
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

    /// An integer of variable length.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64> {
        match varint::take(&mut self.rest) {
            Some(value) => Ok(value),
            None => Err(Fault::wire(self.position(), "an integer is cut off or too long")),
        }
    }

    /// An integer of variable length as it stands.
    #[inline]
    pub(crate) fn varint_bytes(&mut self) -> Result<ByteRange> {
        let start = self.position();
        self.varint()?;
        Ok(ByteRange { start: start as u32, len: (self.position() - start) as u32 })
    }

    /// An eight-byte integer.
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

    /// A four-byte integer.
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

    /// The place of what has a length in front: bytes, a string, a packed list, or a message.
    #[inline]
    pub(crate) fn span(&mut self) -> Result<ByteRange> {
        Ok(self.message()?.place())
    }

    /// What has a length in front.
    #[inline]
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        Ok(self.message()?.rest)
    }

    /// The reader of a message with a length in front.
    #[inline(always)]
    pub(crate) fn message(&mut self) -> Result<Reader<'a>> {
        let len = self.varint()?;
        if len > self.rest.len() as u64 {
            return Err(self.cut_off(len));
        }
        let (inner, rest) = self.rest.split_at(len as usize);
        self.rest = rest;
        Ok(Reader { rest: inner, end: self.end - rest.len() })
    }

    #[cold]
    fn cut_off(&self, claimed: u64) -> Fault {
        Fault::wire(self.position(), format!("claims {claimed} bytes where {} are left", self.rest.len()))
    }

    /// The place of an eight-byte number.
    #[inline]
    pub(crate) fn fixed64_bytes(&mut self) -> Result<ByteRange> {
        let start = self.position() as u32;
        self.fixed64()?;
        Ok(ByteRange { start, len: 8 })
    }

    /// Skips the value of a field that is not known.
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

    /// Handles a field that a message has no reading for: refuses one of the `known` first field numbers, which then
    /// has the wrong wire type, and skips any other.
    #[cold]
    pub(crate) fn other(&mut self, key: u32, known: u32) -> Result<()> {
        if key >> 3 <= known {
            let rule = format!("field {} has wire type {}, which is not its own", key >> 3, key & 7);
            return Err(Fault::wire(self.position(), rule));
        }
        self.skip(key)
    }
}
