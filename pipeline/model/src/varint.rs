//! Protobuf's base-128 integers, the encoding of stacks and values in a batch.
//!
//! Stacks and values keep their wire encoding (protobuf encoding guide, "Base 128 Varints"): an index takes about two
//! bytes instead of four, decoding a request does not copy them, and encoding a request copies them unchanged.

/// The longest encoding of a 64-bit integer, in bytes.
pub const MAX_LEN: usize = 10;

/// Appends the shortest encoding of `value`.
#[inline]
pub fn put(buffer: &mut Vec<u8>, mut value: u64) {
    // Most integers here are two-byte indices, so they are written with one capacity check.
    if (0x80..0x4000).contains(&value) {
        return buffer.extend_from_slice(&[value as u8 | 0x80, (value >> 7) as u8]);
    }
    while value >= 0x80 {
        buffer.push(value as u8 | 0x80);
        value >>= 7;
    }
    buffer.push(value as u8);
}

/// The number of bytes that [`put`] appends.
#[inline]
pub const fn len(value: u64) -> usize {
    ((64 - (value | 1).leading_zeros()) as usize).div_ceil(7)
}

/// Takes one integer off the front of `bytes`; `None` if it is cut off, longer than [`MAX_LEN`], or has more than 64
/// bits. Some protobuf decoders refuse integers of more than 64 bits (prost, Go) and some truncate them (C++), but
/// forwarded data must mean the same to all.
#[inline]
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    // Most integers here are indices of up to three bytes.
    match *bytes {
        [first, rest @ ..] if *first < 0x80 => {
            *bytes = rest;
            return Some(u64::from(*first));
        }
        [first, second, rest @ ..] if *second < 0x80 => {
            *bytes = rest;
            return Some(u64::from(*first & 0x7f) | u64::from(*second) << 7);
        }
        [first, second, third, rest @ ..] if *third < 0x80 => {
            *bytes = rest;
            return Some(u64::from(*first & 0x7f) | u64::from(*second & 0x7f) << 7 | u64::from(*third) << 14);
        }
        _ => {}
    }
    take_long(bytes)
}

fn take_long(bytes: &mut &[u8]) -> Option<u64> {
    // Decodes up to eight bytes at once, since differences of timestamps take four to six.
    if let Some(first) = bytes.first_chunk::<8>() {
        let word = u64::from_le_bytes(*first);
        let ends = !word & CONTINUED;
        if ends != 0 {
            let bits = ends.trailing_zeros() + 1;
            *bytes = &bytes[bits as usize / 8..];
            return Some(squeeze(word & (u64::MAX >> (64 - bits))));
        }
    }
    let mut value = 0u64;
    for (position, &byte) in bytes.iter().take(MAX_LEN).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * position);
        if position + 1 == MAX_LEN && byte > 1 {
            return None;
        }
        if byte < 0x80 {
            *bytes = &bytes[position + 1..];
            return Some(value);
        }
    }
    None
}

/// The continuation bit of each byte in a word.
const CONTINUED: u64 = 0x8080_8080_8080_8080;

/// Joins the lower seven bits of eight bytes.
#[inline]
fn squeeze(word: u64) -> u64 {
    let word = word & !CONTINUED;
    let word = (word & 0x007f_007f_007f_007f) | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let word = (word & 0x0000_3fff_0000_3fff) | (word & 0x3fff_0000_3fff_0000) >> 2;
    (word & 0x0fff_ffff) | (word & 0x0fff_ffff_0000_0000) >> 4
}

/// The reverse of [`squeeze`], for 56 bits.
#[inline]
fn spread(value: u64) -> u64 {
    let word = (value & 0x0fff_ffff) | (value & 0x00ff_ffff_f000_0000) << 4;
    let word = (word & 0x0000_3fff_0000_3fff) | (word & 0x0fff_c000_0fff_c000) << 2;
    (word & 0x007f_007f_007f_007f) | (word & 0x3f80_3f80_3f80_3f80) << 1
}

/// Like [`put`], for a buffer with room for [`MAX_LEN`] bytes. In another buffer, more capacity than needed may be
/// allocated.
#[inline]
pub fn put_in_room(buffer: &mut Vec<u8>, value: u64) {
    let len = len(value);
    if len > 8 {
        return put(buffer, value);
    }
    let end = buffer.len() + len;
    let marks = CONTINUED & !(u64::MAX << (8 * (len - 1)));
    buffer.extend_from_slice(&(spread(value) | marks).to_le_bytes());
    buffer.truncate(end);
}

/// The number of integers in a packed run: each ends in a byte with a clear top bit.
#[inline]
pub fn count(packed: &[u8]) -> usize {
    packed.iter().filter(|&&byte| byte < 0x80).count()
}

/// Iterates over packed varints that were validated before; ends early at a malformed one.
#[derive(Debug, Clone)]
pub struct Packed<'a>(&'a [u8]);

impl<'a> Packed<'a> {
    /// An iterator over `packed`.
    #[inline]
    pub fn new(packed: &'a [u8]) -> Self {
        Self(packed)
    }
}

impl Iterator for Packed<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Guarantees: every integer is read back and takes `len` bytes, and packed runs keep their order and count.
        #[test]
        fn round_trip(
            values in proptest::collection::vec((any::<u64>(), 0u32..64).prop_map(|(all, bits)| all >> bits), 0..50),
        ) {
            let mut buffer = Vec::new();
            let mut lengths = 0;
            let mut quick = Vec::with_capacity(values.len() * MAX_LEN);
            for &value in &values {
                put(&mut buffer, value);
                put_in_room(&mut quick, value);
                lengths += len(value);
            }
            prop_assert_eq!(&quick, &buffer);
            prop_assert_eq!(buffer.len(), lengths);
            prop_assert_eq!(count(&buffer), values.len());
            prop_assert_eq!(Packed::new(&buffer).collect::<Vec<_>>(), values);
        }

        /// Guarantees: no input makes the reader panic or loop forever.
        #[test]
        fn arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
            prop_assert!(Packed::new(&bytes).count() <= bytes.len());
        }
    }

    /// Guarantees: an integer that is cut off, too long, or has more than 64 bits is refused.
    #[test]
    fn malformed() {
        assert_eq!(take(&mut &[][..]), None);
        assert_eq!(take(&mut &[0x80][..]), None);
        assert_eq!(take(&mut &[0xff; 11][..]), None);
        assert_eq!(take(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02][..]), None);
    }
}
