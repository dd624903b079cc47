//! The output message while JSON is being read.

use profbridge_model::varint;

use crate::otlp::error::DecodeError;
use crate::otlp::json::Grant;
use crate::otlp::reader::LEN;

/// The output so far, and the reader's position for errors.
pub(super) struct ReadState<'g> {
    pub(super) out: Vec<u8>,
    most: usize,
    grant: Grant<'g>,
    /// The path of an error, the innermost step first.
    pub(super) path: Vec<PathStep>,
    /// The limit that stopped the reader, if any.
    stop: Option<DecodeError>,
}

pub(super) enum PathStep {
    Field(&'static str),
    Element(usize),
}

impl<'g> ReadState<'g> {
    /// An empty output of at most `most` bytes.
    pub(super) fn new(most: usize, grant: Grant<'g>) -> Self {
        Self { out: Vec::new(), most, grant, path: Vec::new(), stop: None }
    }

    /// Reserves space for more bytes.
    #[inline]
    pub(super) fn reserve<E: serde::de::Error>(&mut self, more: usize) -> Result<(), E> {
        if self.out.capacity() - self.out.len() >= more {
            return Ok(());
        }
        self.grow(more)
    }

    #[cold]
    fn grow<E: serde::de::Error>(&mut self, more: usize) -> Result<(), E> {
        let needed = self.out.len() + more;
        let stop = |what, limit| DecodeError::LimitExceeded { what, limit };
        if needed > self.most {
            self.stop = Some(stop("bytes of the request, read from JSON", self.most as u64));
            return Err(E::custom("too large"));
        }
        let capacity = (self.out.capacity() * 2).max(needed).max(256).min(self.most);
        if !(self.grant)(capacity) {
            self.stop = Some(stop("bytes of memory for the request read from JSON", self.out.capacity() as u64));
            return Err(E::custom("no memory"));
        }
        self.out.reserve_exact(capacity - self.out.len());
        Ok(())
    }

    /// Writes the key of a field. The space must be reserved.
    #[inline]
    pub(super) fn key(&mut self, number: u32, wire_type: u32) {
        varint::put(&mut self.out, u64::from(number << 3 | wire_type));
    }

    /// Opens a length-delimited field.
    #[inline]
    pub(super) fn open<E: serde::de::Error>(&mut self, number: u32) -> Result<usize, E> {
        self.reserve(varint::MAX_LEN + 1)?;
        self.key(number, LEN);
        self.out.push(0);
        Ok(self.out.len())
    }

    /// Closes the field that was opened at `start`.
    #[inline]
    pub(super) fn close<E: serde::de::Error>(&mut self, start: usize) -> Result<(), E> {
        let length = self.out.len() - start;
        if length < 0x80 {
            self.out[start - 1] = length as u8;
            return Ok(());
        }
        self.close_long(start, length)
    }

    fn close_long<E: serde::de::Error>(&mut self, start: usize, length: usize) -> Result<(), E> {
        let more = varint::len(length as u64) - 1;
        self.reserve(more)?;
        let end = self.out.len();
        self.out.resize(end + more, 0);
        self.out.copy_within(start..end, start + more);
        let mut rest = length;
        for byte in &mut self.out[start - 1..start + more] {
            *byte = rest as u8 & 0x7f | 0x80;
            rest >>= 7;
        }
        self.out[start - 1 + more] &= 0x7f;
        Ok(())
    }

    /// Builds the error.
    #[cold]
    pub(super) fn fault(mut self, text: &str, error: &serde_json::Error) -> DecodeError {
        if let Some(stop) = self.stop.take() {
            return stop;
        }
        let (line, column) = (error.line(), error.column());
        let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
        let message = error.to_string();
        let rule = message.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&message).to_owned();
        let offset = (line > 0).then(|| (start + column.saturating_sub(1)).min(text.len()));
        DecodeError::Malformed { place: self.place(), offset, rule }
    }

    /// The path of the error, in the terms of the protocol's definition.
    fn place(&self) -> String {
        let mut place = String::new();
        for step in self.path.iter().rev() {
            match step {
                PathStep::Field(name) if place.is_empty() => place.push_str(name),
                PathStep::Field(name) => {
                    place.push('.');
                    place.push_str(name);
                }
                PathStep::Element(index) => place.push_str(&format!("[{index}]")),
            }
        }
        if place.is_empty() { "request".to_owned() } else { place }
    }
}
