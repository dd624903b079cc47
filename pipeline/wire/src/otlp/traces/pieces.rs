//! Assembles a message from parts of a received one and newly written parts.
//!
//! A message's length precedes it, but is only known at its end. So the pieces and the lengths are determined first;
//! then each byte is copied once, into memory of the right size. Adjacent pieces of the received message are merged:
//! without removals, all spans of a scope are one piece.

use profbridge_model::{ByteRange, varint};

use super::super::encode::put;

/// The pieces of a message, in order.
#[derive(Debug)]
pub(super) struct Pieces<'a> {
    received: &'a [u8],
    written: Vec<u8>,
    list: Vec<Piece>,
    len: usize,
}

#[derive(Debug, Clone, Copy)]
enum Piece {
    Received(ByteRange),
    Written(ByteRange),
}

/// An open nested message: the position for its key and length, and the total length before it.
#[derive(Debug)]
#[must_use = "a message that is not closed has no length"]
pub(super) struct NestedMessage {
    key: u8,
    at: usize,
    before: usize,
}

impl<'a> Pieces<'a> {
    /// An empty message that may use ranges of `received`.
    pub(super) fn new(received: &'a [u8]) -> Self {
        Self { received, written: Vec::new(), list: Vec::new(), len: 0 }
    }

    /// Length of the message, in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Opens a nested message with this one-byte key. Everything added until it is closed is inside.
    pub(super) fn open(&mut self, key: u8) -> NestedMessage {
        let open = NestedMessage { key, at: self.list.len(), before: self.len };
        self.list.push(Piece::Written(ByteRange::default()));
        open
    }

    pub(super) fn close(&mut self, NestedMessage { key, at, before }: NestedMessage) {
        let len = self.len - before;
        let head = self.write(|out| put::head(out, key, len));
        if let Some(piece) = self.list.get_mut(at) {
            *piece = head;
        }
    }

    /// Adds a range of the received message.
    pub(super) fn received(&mut self, at: ByteRange) {
        self.len += at.len as usize;
        match self.list.last_mut() {
            Some(Piece::Received(last)) if last.start + last.len == at.start => last.len += at.len,
            _ => self.list.push(Piece::Received(at)),
        }
    }

    /// Adds a nested message from a range of the received one, with a one-byte key and its length. If key and length
    /// are already there in the same form, they are copied with it.
    pub(super) fn received_message(&mut self, key: u8, at: ByteRange) {
        let head = 1 + varint::len(u64::from(at.len)) as u32;
        let stands_there = |start: u32| {
            let Some([first, length @ ..]) = self.received.get(start as usize..at.start as usize) else { return false };
            let mut length = length;
            *first == key && varint::take(&mut length) == Some(u64::from(at.len)) && length.is_empty()
        };
        match at.start.checked_sub(head).filter(|start| stands_there(*start)) {
            Some(start) => self.received(ByteRange { start, len: head + at.len }),
            None => {
                self.written(|out| put::head(out, key, at.len as usize));
                self.received(at);
            }
        }
    }

    /// Adds the bytes that `write` appends.
    pub(super) fn written(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let piece = self.write(write);
        self.list.push(piece);
    }

    fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Piece {
        let start = self.written.len();
        write(&mut self.written);
        let len = self.written.len() - start;
        self.len += len;
        Piece::Written(ByteRange { start: start as u32, len: len as u32 })
    }

    /// Builds the message.
    pub(super) fn join(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len);
        for piece in &self.list {
            let (of, at) = match piece {
                Piece::Received(at) => (self.received, at),
                Piece::Written(at) => (&self.written[..], at),
            };
            let start = at.start as usize;
            out.extend_from_slice(of.get(start..start + at.len as usize).unwrap_or_default());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: nested messages get their lengths, adjacent pieces are merged, and a length that was not in the
    /// shortest form is re-encoded.
    #[test]
    fn pieces_become_a_message() {
        // A two-byte message, the same with a longer length, and one with another key.
        let received = [0x12, 2, 7, 8, 0x12, 0x82, 0, 7, 8, 0x1a, 1, 9];
        let mut pieces = Pieces::new(&received);
        let (outer, inner) = (pieces.open(0x0a), pieces.open(0x22));
        pieces.received_message(0x12, ByteRange { start: 2, len: 2 });
        pieces.received_message(0x12, ByteRange { start: 7, len: 2 });
        pieces.close(inner);
        pieces.received_message(0x12, ByteRange { start: 11, len: 1 });
        pieces.written(|out| out.extend_from_slice(&[0x28, 1]));
        pieces.close(outer);
        let expected = [0x0a, 15, 0x22, 8, 0x12, 2, 7, 8, 0x12, 2, 7, 8, 0x12, 1, 9, 0x28, 1];
        assert_eq!(pieces.len(), expected.len());
        assert_eq!(pieces.join(), expected);

        let mut pieces = Pieces::new(&received);
        pieces.received(ByteRange { start: 0, len: 0 });
        pieces.received(ByteRange { start: 0, len: 2 });
        pieces.received_message(0x12, ByteRange { start: 2, len: 2 });
        assert!(matches!(pieces.list[..], [Piece::Received(ByteRange { start: 0, len: 2 }), ..]));
        let mut pieces = Pieces::new(&received);
        pieces.received_message(0x12, ByteRange { start: 2, len: 2 });
        pieces.received(ByteRange { start: 4, len: 5 });
        assert!(matches!(pieces.list[..], [Piece::Received(ByteRange { start: 0, len: 9 })]));
    }
}
