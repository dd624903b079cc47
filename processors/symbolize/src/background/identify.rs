//! Checks whether a file is the one that the profiler saw. Files are hostile: sizes are checked before reading, and
//! nothing is mapped.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::names::FileId;

/// More program headers than any linker writes.
const MAX_HEADERS: u16 = 1024;

/// Longer notes are not read, in bytes.
const MAX_NOTE: u64 = 64 << 10;

/// The htlhash covers pages of this size, in bytes.
const PAGE: u64 = 4096;

/// Whether a file has an id.
pub(super) fn has_id(file: &File, id: &FileId) -> bool {
    let (found, digits) = match id {
        FileId::Gnu(digits) => (build_id(file), digits),
        FileId::Htlhash(digits) => (htlhash(file), digits),
    };
    found.is_some_and(|found| found.iter().map(|byte| format!("{byte:02x}")).collect::<String>() == **digits)
}

/// The htlhash of a test file.
#[cfg(test)]
pub(super) fn id_of(file: &File) -> FileId {
    let digits: String = htlhash(file).unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    FileId::Htlhash(digits.into())
}

/// The first 16 bytes of the SHA-256 of the first and last 4096 bytes and the big-endian length. The two pages may
/// overlap (opentelemetry-specification `specification/profiles/mappings.md`).
fn htlhash(file: &File) -> Option<Vec<u8>> {
    let length = file.metadata().ok()?.len();
    let size = length.min(PAGE);
    let mut text = read_range(file, 0, size)?;
    text.extend(read_range(file, length - size, size)?);
    text.extend(length.to_be_bytes());
    Some(hmac_sha256::Hash::hash(&text)[..16].to_vec())
}

/// The GNU build id of a 64-bit ELF file, by its program headers, which survive stripping ("System V Application Binary
/// Interface", chapter 5, "Program Header" and "Note Section").
fn build_id(file: &File) -> Option<Vec<u8>> {
    let header = read_range(file, 0, 64)?;
    if header.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let little_endian = header[5] == 1;
    let number = |bytes: &[u8], at: usize, len: usize| number(bytes, at, len, little_endian);
    let table = number(&header, 32, 8)?;
    let count = number(&header, 56, 2)?;
    if number(&header, 54, 2)? != 56 || count > u64::from(MAX_HEADERS) {
        return None;
    }
    let headers = read_range(file, table, count * 56)?;
    headers.chunks_exact(56).find_map(|header| {
        let (offset, size) = (number(header, 8, 8)?, number(header, 32, 8)?);
        if number(header, 0, 4)? != 4 || size > MAX_NOTE {
            return None;
        }
        let alignment = if number(header, 48, 8)? == 8 { 8 } else { 4 };
        in_notes(&read_range(file, offset, size)?, alignment, little_endian)
    })
}

fn in_notes(notes: &[u8], alignment: usize, little_endian: bool) -> Option<Vec<u8>> {
    let mut at = 0_usize;
    loop {
        let number = |at: usize| number(notes, at, 4, little_endian).and_then(|number| usize::try_from(number).ok());
        let (name, size, kind) = (number(at)?, number(at + 4)?, number(at + 8)?);
        let content = at.checked_add(12)?.checked_add(name)?.checked_next_multiple_of(alignment)?;
        let end = content.checked_add(size)?;
        if kind == 3 && notes.get(at + 12..(at + 12).checked_add(name)?)? == b"GNU\0" {
            return notes.get(content..end).filter(|id| !id.is_empty()).map(<[u8]>::to_vec);
        }
        at = end.checked_next_multiple_of(alignment)?;
    }
}

fn number(bytes: &[u8], at: usize, len: usize, little_endian: bool) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(len)?)?;
    let add = |sum: u64, &byte: &u8| sum << 8 | u64::from(byte);
    Some(if little_endian { bytes.iter().rev().fold(0, add) } else { bytes.iter().fold(0, add) })
}

/// Reads `length` bytes. The caller must limit the length.
fn read_range(file: &File, offset: u64, length: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests;
