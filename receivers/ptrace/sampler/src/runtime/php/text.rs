//! Strings in PHP's memory (php-src `Zend/zend_types.h`, `_zend_string`).

use super::layout::string;
use crate::runtime::target::{TargetMemory, word_at};

/// How many bytes of a string are read at first: the header, and most names completely.
const FIRST: usize = 128;

/// The fields by which strings are distinguished: hash and length. The hash is 0 until PHP computes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Mark {
    hash: u64,
    length: u64,
}

/// The distinguishing fields of the string at an address; the default for address 0.
pub(super) fn mark(target: &mut dyn TargetMemory, address: u64) -> Option<Mark> {
    if address == 0 {
        return Some(Mark::default());
    }
    let mut bytes = [0; 16];
    let read = target.read(address.wrapping_add(string::HASH), &mut bytes);
    read.then(|| Mark { hash: word_at(&bytes, 0), length: word_at(&bytes, 8) })
}

/// Reads the string at an address, at most `limit` bytes and up to a zero byte: the names of anonymous classes continue
/// after it, but PHP does not show that part either.
pub(super) fn string(target: &mut dyn TargetMemory, address: u64, limit: usize) -> Option<String> {
    let mut bytes = vec![0; FIRST];
    let head = string::TEXT as usize;
    if !target.read(address, &mut bytes) {
        bytes.truncate(head);
        if !target.read(address, &mut bytes) {
            return None;
        }
    }
    let length = usize::try_from(word_at(&bytes, 16)).ok()?.min(limit);
    let text = match bytes.get(head..head + length) {
        Some(text) => text,
        None => {
            bytes.resize(length, 0);
            target.read(address.wrapping_add(string::TEXT), &mut bytes).then_some(&bytes[..])?
        }
    };
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    Some(String::from_utf8_lossy(&text[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Recording;

    fn made(length: u64, text: &[u8]) -> Recording {
        let mut bytes = [0u64, 77, length].map(u64::to_le_bytes).concat();
        bytes.extend(text);
        let mut recording = Recording::default();
        recording.add(4096, &bytes);
        recording
    }

    /// Guarantees: short and long strings are read, also at the end of a mapping; they end at a zero byte; strings
    /// that claim to be longer than their memory are rejected; invalid UTF-8 is replaced.
    #[test]
    fn strings() {
        let read = |length, text: &[u8]| string(&mut made(length, text), 4096, 4096);
        assert_eq!(read(4, b"main").as_deref(), Some("main"));
        let long = "x".repeat(1000);
        assert_eq!(read(1000, long.as_bytes()), Some(long));
        assert_eq!(read(20, b"class@anonymous\0/x.p").as_deref(), Some("class@anonymous"));
        assert_eq!(read(3, b"a\xffb").as_deref(), Some("a\u{fffd}b"));
        assert_eq!(read(u64::MAX, b"main"), None);
        assert_eq!(mark(&mut made(4, b"main"), 4096), Some(Mark { hash: 77, length: 4 }));
        assert_eq!(mark(&mut made(4, b"main"), 0), Some(Mark::default()));
    }
}
