//! Checks whether a file is the one that the profiler saw. Files are hostile: sizes are checked before reading, and
//! files are never mapped.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::names::FileId;

/// The htlhash covers pages of this size, in bytes.
const PAGE: u64 = 4096;

pub(super) fn has_id(file: &File, id: &FileId) -> bool {
    let (found, digits) = match id {
        FileId::Gnu(digits) => (profbridge_symbolizer::build_id(file), digits),
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

/// Reads `length` bytes. The caller must limit the length.
fn read_range(file: &File, offset: u64, length: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests;
