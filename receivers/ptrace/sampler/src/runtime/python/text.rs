//! Reads strings and bytes in Python's memory (CPython `Include/cpython/unicodeobject.h`, `bytesobject.h`).

use super::layout::ObjectLayout;
use crate::runtime::target::{TargetMemory, half_at, word_at};

/// How many bytes of a string are read at first: the header, and most names completely.
const FIRST: usize = 256;
/// The shortest read, for strings at the end of a mapping.
const LEAST: usize = 64;
/// The hash that Python stores in the string at an address; it helps to tell strings apart.
pub(super) fn hash(layout: &ObjectLayout, target: &mut dyn TargetMemory, address: u64) -> Option<u64> {
    // The hash follows the length, in all versions.
    crate::runtime::target::word(target, address.wrapping_add(u64::from(layout.text_length) + 8))
}

/// Reads the string at an address, at most `limit` characters.
pub(super) fn string(
    layout: &ObjectLayout,
    target: &mut dyn TargetMemory,
    address: u64,
    limit: usize,
) -> Option<String> {
    let mut bytes = vec![0; FIRST];
    if !target.read(address, &mut bytes) {
        bytes.truncate(LEAST);
        if !target.read(address, &mut bytes) {
            return None;
        }
    }
    let state = half_at(&bytes, layout.text_state as usize) >> layout.text_interned_bits;
    let (kind, is_compact, is_ascii) = ((state & 7) as usize, state >> 3 & 1 == 1, state >> 4 & 1 == 1);
    let width = matches!(kind, 1 | 2 | 4).then_some(kind).filter(|_| is_compact)?;
    let length = usize::try_from(word_at(&bytes, layout.text_length as usize)).ok()?.min(limit);
    let start = if is_ascii { layout.text_data } else { layout.text_other_data };
    let end = start as usize + length * width;
    let data = match bytes.get(start as usize..end) {
        Some(data) => data,
        None => {
            bytes.resize(length * width, 0);
            let read = target.read(address.wrapping_add(u64::from(start)), &mut bytes);
            read.then_some(&bytes[..])?
        }
    };
    let character = |code: u32| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    Some(match width {
        1 => data.iter().map(|byte| char::from(*byte)).collect(),
        2 => data.as_chunks::<2>().0.iter().map(|unit| character(u16::from_le_bytes(*unit).into())).collect(),
        _ => data.as_chunks::<4>().0.iter().map(|unit| character(u32::from_le_bytes(*unit))).collect(),
    })
}

/// Whether the string at an address equals this ASCII text.
pub(super) fn is(layout: &ObjectLayout, target: &mut dyn TargetMemory, address: u64, text: &str) -> bool {
    let start = layout.text_data as usize;
    let mut bytes = vec![0; start + text.len()];
    target.read(address, &mut bytes)
        && word_at(&bytes, layout.text_length as usize) == text.len() as u64
        && half_at(&bytes, layout.text_state as usize) >> layout.text_interned_bits & 0x1f == 0x19
        && bytes.ends_with(text.as_bytes())
}

/// The contents of a bytes object; `None` if it has more than `limit` bytes.
pub(super) fn bytes(
    layout: &ObjectLayout,
    target: &mut dyn TargetMemory,
    address: u64,
    limit: usize,
) -> Option<Vec<u8>> {
    let length = length(layout, target, address).filter(|length| *length <= limit as u64)?;
    let mut bytes = vec![0; length as usize];
    target.read(address.wrapping_add(u64::from(layout.bytes_data)), &mut bytes).then_some(bytes)
}

/// The number of items of an object.
pub(super) fn length(layout: &ObjectLayout, target: &mut dyn TargetMemory, address: u64) -> Option<u64> {
    crate::runtime::target::word(target, address.wrapping_add(u64::from(layout.items)))
}

#[cfg(test)]
mod tests {
    use super::super::layout::PythonLayout;
    use super::*;
    use crate::runtime::Recording;

    fn made(state: u32, length: u64, start: usize, data: &[u8]) -> Recording {
        let mut bytes = vec![0; start];
        bytes[16..24].copy_from_slice(&length.to_le_bytes());
        bytes[32..36].copy_from_slice(&(state << 2).to_le_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().max(LEAST), 0);
        let mut recording = Recording::default();
        recording.add(4096, &bytes);
        recording
    }

    /// Guarantees: ASCII, Latin-1, and characters of two and four bytes are read, also in long strings; strings that
    /// are not compact, or longer than their memory, are rejected; unpaired surrogates are replaced.
    #[test]
    fn strings() {
        let layout = PythonLayout::of_minor(12).unwrap().object;
        let read = |mut recording: Recording| string(&layout, &mut recording, 4096, 4096);
        let (ascii, compact) = (1 << 4, 1 << 3);
        assert_eq!(read(made(ascii | compact | 1, 4, 40, b"main")).as_deref(), Some("main"));
        let long = "x".repeat(1000);
        assert_eq!(read(made(ascii | compact | 1, 1000, 40, long.as_bytes())), Some(long));
        assert_eq!(read(made(compact | 1, 2, 56, &[b'S', 0xe4])).as_deref(), Some("Sä"));
        assert_eq!(read(made(compact | 2, 2, 56, &[0x42, 0x26, 0, 0xd8])).as_deref(), Some("♂\u{fffd}"));
        assert_eq!(read(made(compact | 4, 1, 56, &[0x00, 0xf6, 1, 0])).as_deref(), Some("😀"));
        assert_eq!(read(made(1, 4, 40, b"main")), None);
        assert_eq!(read(made(compact | 3, 4, 40, b"main")), None);
        assert_eq!(read(made(ascii | compact | 1, u64::MAX, 40, b"main")), None);
    }

    /// Guarantees: a string is compared by its length, its kind and all of its characters.
    #[test]
    fn compared() {
        let layout = PythonLayout::of_minor(12).unwrap().object;
        let is = |mut recording: Recording, text: &str| is(&layout, &mut recording, 4096, text);
        let (ascii, compact) = (1 << 4, 1 << 3);
        assert!(is(made(ascii | compact | 1, 5, 40, b"_name"), "_name"));
        assert!(!is(made(ascii | compact | 1, 5, 40, b"_namE"), "_name"));
        assert!(!is(made(ascii | compact | 1, 6, 40, b"_name_"), "_name"));
        assert!(!is(made(compact | 1, 5, 40, b"_name"), "_name"));
        assert!(!is(Recording::default(), "_name"));
    }
}
