//! Writes protobuf fields into a buffer, or only counts their bytes. Every field number here is below 16, so every key
//! is one byte.

use profbridge_model::varint;

/// A destination for fields.
pub(crate) trait FieldSink {
    /// Appends bytes unmodified.
    fn raw(&mut self, bytes: &[u8]);

    fn varint(&mut self, value: u64);

    /// Appends the content of a message, which has `size` bytes.
    fn contents(&mut self, size: usize, write: impl FnOnce(&mut Self));

    /// Opens a large message, whose size is counted once and remembered.
    fn open(&mut self, key: u8, sizes: &mut Sizes) -> OpenMessage;

    fn close(&mut self, open: OpenMessage, sizes: &mut Sizes);
}

/// The sizes of messages, in the order in which they are opened.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    list: Vec<usize>,
    next: usize,
}

/// An open message: its index among the sizes, and the number of bytes before it.
#[derive(Debug)]
#[must_use = "a message that is not closed has no size"]
pub(crate) struct OpenMessage {
    slot: usize,
    before: usize,
}

impl FieldSink for Vec<u8> {
    #[inline]
    fn raw(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn varint(&mut self, value: u64) {
        varint::put(self, value);
    }

    #[inline]
    fn contents(&mut self, _: usize, write: impl FnOnce(&mut Self)) {
        write(self);
    }

    fn open(&mut self, key: u8, sizes: &mut Sizes) -> OpenMessage {
        let slot = sizes.next;
        sizes.next += 1;
        head(self, key, sizes.list.get(slot).copied().unwrap_or_default());
        OpenMessage { slot, before: self.len() }
    }

    fn close(&mut self, OpenMessage { slot, before }: OpenMessage, sizes: &mut Sizes) {
        debug_assert_eq!(sizes.list.get(slot), Some(&(self.len() - before)));
    }
}

/// Counts the bytes of fields.
#[derive(Debug, Default)]
pub(crate) struct FieldSize(pub(crate) usize);

impl FieldSink for FieldSize {
    #[inline]
    fn raw(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }

    #[inline]
    fn varint(&mut self, value: u64) {
        self.0 += varint::len(value);
    }

    #[inline]
    fn contents(&mut self, size: usize, _: impl FnOnce(&mut Self)) {
        self.0 += size;
    }

    fn open(&mut self, _: u8, sizes: &mut Sizes) -> OpenMessage {
        sizes.list.push(0);
        OpenMessage { slot: sizes.list.len() - 1, before: self.0 }
    }

    fn close(&mut self, OpenMessage { slot, before }: OpenMessage, sizes: &mut Sizes) {
        let size = self.0 - before;
        sizes.list[slot] = size;
        self.0 += 1 + varint::len(size as u64);
    }
}

/// Writes an integer field, unless it is zero.
#[inline]
pub(crate) fn int(out: &mut impl FieldSink, key: u8, value: u64) {
    if value != 0 {
        out.raw(&[key]);
        out.varint(value);
    }
}

/// Writes an eight-byte field, unless it is zero.
pub(crate) fn fixed64(out: &mut impl FieldSink, key: u8, value: u64) {
    if value != 0 {
        out.raw(&[key]);
        out.raw(&value.to_le_bytes());
    }
}

/// Writes bytes, a string or a packed list, unless empty.
#[inline]
pub(crate) fn bytes(out: &mut impl FieldSink, key: u8, bytes: &[u8]) {
    if !bytes.is_empty() {
        encoded(out, key, bytes);
    }
}

/// Writes bytes, a string, or an encoded message, even if empty.
#[inline]
pub(crate) fn encoded(out: &mut impl FieldSink, key: u8, bytes: &[u8]) {
    head(out, key, bytes.len());
    out.raw(bytes);
}

/// Writes the key and the length of a message.
#[inline]
pub(crate) fn head(out: &mut impl FieldSink, key: u8, len: usize) {
    out.raw(&[key]);
    out.varint(len as u64);
}

/// Writes a message, even if empty. Its content is produced twice: to count it and to write it.
#[inline]
pub(crate) fn message<S: FieldSink>(
    out: &mut S,
    key: u8,
    count: impl FnOnce(&mut FieldSize),
    write: impl FnOnce(&mut S),
) {
    let mut size = FieldSize(0);
    count(&mut size);
    head(out, key, size.0);
    out.contents(size.0, write);
}

/// Writes a message, unless it is empty.
pub(crate) fn some_message<S: FieldSink>(
    out: &mut S,
    key: u8,
    count: impl FnOnce(&mut FieldSize),
    write: impl FnOnce(&mut S),
) {
    let mut size = FieldSize(0);
    count(&mut size);
    if size.0 > 0 {
        head(out, key, size.0);
        out.contents(size.0, write);
    }
}
