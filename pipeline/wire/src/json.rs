//! Writes the JSON fragments of chunks, transactions and OTLP requests.

/// Two digits for each number below 100.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut n = 0;
    while n < 100 {
        pairs[n] = [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
        n += 1;
    }
    pairs
};

/// Maximum number of decimal digits of a 64-bit number.
const MAX_DIGITS: usize = 20;

/// Appends a number in decimal.
#[inline]
pub(crate) fn number(out: &mut Vec<u8>, mut value: u64) {
    if value < 10 {
        out.push(b'0' + value as u8);
        return;
    }
    let mut digits = [0; MAX_DIGITS];
    let mut at = MAX_DIGITS;
    while value >= 100 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[(value % 100) as usize]);
        value /= 100;
    }
    at -= 2;
    digits[at..at + 2].copy_from_slice(&PAIRS[value as usize]);
    if value < 10 {
        at += 1;
    }
    out.extend_from_slice(&digits[at..]);
}

/// The decimal text of a list element: its digits and a comma in the low bytes of a word, the first character lowest,
/// and the number of these bytes in the highest byte. Writing it takes one load, one store and one addition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Index(u64);

impl Index {
    /// The first number that does not fit.
    pub(crate) const END: usize = 1_000_000;

    /// The text of a number below [`Index::END`].
    #[inline]
    pub(crate) fn new(value: u32) -> Self {
        let [a, b, c, d, e, f] = six_digits(value);
        let digits = u64::from_le_bytes([a, b, c, d, e, f, b',', 0]);
        let zeroes = u32::from(value < 100_000)
            + u32::from(value < 10_000)
            + u32::from(value < 1_000)
            + u32::from(value < 100)
            + u32::from(value < 10);
        Self(digits >> (zeroes * 8) | u64::from(7 - zeroes) << 56)
    }

    /// Length of the text including the comma; 0 for no number.
    #[inline]
    pub(crate) fn len(self) -> usize {
        (self.0 >> 56) as usize
    }

    /// Writes all eight bytes, of which only the first [`len`](Self::len) are text.
    #[inline]
    pub(crate) fn write(self, out: &mut [u8], at: usize) {
        out[at..at + 8].copy_from_slice(&self.0.to_le_bytes());
    }
}

/// Six digits with leading zeros.
#[inline]
pub(crate) fn six_digits(value: u32) -> [u8; 6] {
    let [a, b] = PAIRS[(value / 10_000 % 100) as usize];
    let [c, d] = PAIRS[(value / 100 % 100) as usize];
    let [e, f] = PAIRS[(value % 100) as usize];
    [a, b, c, d, e, f]
}

/// Appends a number as a hexadecimal string with the prefix `0x` (getsentry/relay `relay-profiling/src/types.rs`).
pub(crate) fn address(out: &mut Vec<u8>, value: u64) {
    out.push(b'"');
    hexadecimal(out, value);
    out.push(b'"');
}

/// Appends a number as hexadecimal digits with the prefix `0x`, as part of a string.
pub(crate) fn hexadecimal(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(b"0x");
    let digits = (64 - (value | 1).leading_zeros()).div_ceil(4);
    for digit in (0..digits).rev() {
        out.push(b"0123456789abcdef"[(value >> (digit * 4) & 0xf) as usize]);
    }
}

/// Appends the content of a JSON string (RFC 8259 section 7): quotes, backslashes and control characters are escaped,
/// everything else is copied. `text` is UTF-8.
#[inline]
pub(crate) fn escaped(out: &mut Vec<u8>, text: &[u8]) {
    let clean = clean_prefix(text);
    out.extend_from_slice(&text[..clean]);
    if clean < text.len() {
        escape_rest(out, &text[clean..]);
    }
}

/// The number of leading bytes that need no escape, checked eight at a time.
#[inline]
fn clean_prefix(text: &[u8]) -> usize {
    let (words, rest) = text.as_chunks::<8>();
    for (position, word) in words.iter().enumerate() {
        if needs_escape(u64::from_le_bytes(*word)) {
            return position * 8;
        }
    }
    if rest.is_empty() {
        return text.len();
    }
    let mut last = [b' '; 8];
    last[..rest.len()].copy_from_slice(rest);
    if needs_escape(u64::from_le_bytes(last)) { words.len() * 8 } else { text.len() }
}

/// Whether one of eight bytes is a quote, a backslash or below a space: the usual test for a zero byte in a word,
/// applied to the word XORed with each of the two characters, and to the word minus a space in each byte.
#[inline]
fn needs_escape(word: u64) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    (zero(word ^ (ONES * b'"' as u64)) | zero(word ^ (ONES * b'\\' as u64)) | control) & TOPS != 0
}

#[cold]
fn escape_rest(out: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\r' => out.extend_from_slice(b"\\r"),
            0..0x20 => {
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[b"01"[usize::from(byte >> 4)], b"0123456789abcdef"[usize::from(byte & 15)]]);
            }
            _ => out.push(byte),
        }
    }
}

/// The longest prefix of at most `max` bytes that does not split a character.
pub(crate) fn cut(text: &[u8], max: usize) -> &[u8] {
    if text.len() <= max {
        return text;
    }
    let mut end = max;
    // A byte of the form 10xxxxxx continues a character (RFC 3629).
    while end > 0 && text[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Guarantees: any text survives the round trip through a JSON parser, including control characters and U+2028.
        #[test]
        fn escapes(text in "[\\x00-\\x7f\u{2028}\u{2029}é😀\"\\\\]{0,40}") {
            let mut out = vec![b'"'];
            escaped(&mut out, text.as_bytes());
            out.push(b'"');
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }

        /// Guarantees: numbers are written as the standard library writes them.
        /// rule: event-schema#image-addr
        #[test]
        fn numbers(value: u64, shift in 0..64_u32) {
            let value = value >> shift;
            let mut out = Vec::new();
            number(&mut out, value);
            prop_assert_eq!(String::from_utf8(out).unwrap(), value.to_string());
            let mut out = Vec::new();
            address(&mut out, value);
            prop_assert_eq!(String::from_utf8(out).unwrap(), format!("\"{value:#x}\""));
            let six = (value % 1_000_000) as u32;
            prop_assert_eq!(String::from_utf8(six_digits(six).to_vec()).unwrap(), format!("{six:06}"));
            let mut text = [0; 9];
            Index::new(six).write(&mut text, 1);
            prop_assert_eq!(text[1..1 + Index::new(six).len()].to_vec(), format!("{six},").into_bytes());
        }

        /// Guarantees: a truncated text is a prefix, valid UTF-8, and at most three bytes shorter than allowed.
        #[test]
        fn cuts(text in "[aé€😀]{0,20}", max in 0..40_usize) {
            let front = std::str::from_utf8(cut(text.as_bytes(), max)).unwrap();
            prop_assert!(text.starts_with(front) && front.len() <= max);
            prop_assert!(front.len() == text.len() || front.len() + 3 >= max);
        }
    }
}
