//! Fields as protobuf writes them, and how many bytes each takes. Every field number here is below 16, so every key
//! is one byte.

use profbridge_model::varint;

/// The size of an integer field, which is left out where it is zero.
#[inline]
pub(crate) fn int_size(value: u64) -> usize {
    if value == 0 { 0 } else { 1 + varint::len(value) }
}

/// Writes an integer field unless it is zero.
#[inline]
pub(crate) fn int(out: &mut Vec<u8>, key: u8, value: u64) {
    if value != 0 {
        out.push(key);
        varint::put(out, value);
    }
}

/// The size of an eight-byte field, which is left out where it is zero.
pub(crate) fn fixed64_size(value: u64) -> usize {
    if value == 0 { 0 } else { 9 }
}

/// Writes an eight-byte field unless it is zero.
pub(crate) fn fixed64(out: &mut Vec<u8>, key: u8, value: u64) {
    if value != 0 {
        out.push(key);
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// The size of bytes, a string or a packed list, which are left out where they are empty.
#[inline]
pub(crate) fn bytes_size(len: usize) -> usize {
    if len == 0 { 0 } else { message_size(len) }
}

/// Writes bytes, a string or a packed list unless they are empty.
#[inline]
pub(crate) fn bytes(out: &mut Vec<u8>, key: u8, bytes: &[u8]) {
    if !bytes.is_empty() {
        head(out, key, bytes.len());
        out.extend_from_slice(bytes);
    }
}

/// The size of a message with this much in it, which stands there even if that is nothing.
#[inline]
pub(crate) fn message_size(len: usize) -> usize {
    1 + varint::len(len as u64) + len
}

/// Writes what stands before a message's contents.
#[inline]
pub(crate) fn head(out: &mut Vec<u8>, key: u8, len: usize) {
    out.push(key);
    varint::put(out, len as u64);
}
