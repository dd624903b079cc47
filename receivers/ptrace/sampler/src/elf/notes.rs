//! Reads notes: the GNU build id, and whether Go compiled the file.
//!
//! Source of the layout: the System V ABI's generic part, "Note Section"; `NT_GNU_BUILD_ID` is type 3 of name `GNU`; Go
//! writes its own id as type 4 of name `Go` (`src/cmd/link/internal/ld/elf.go`).

use super::headers::{ElfSegment, PT_NOTE, u32_at};
use super::source::{ByteSource, read_range};

/// The largest note segment that is read, in bytes. The vDSO and distributions have a few hundred.
const MAX_NOTES: u64 = 64 << 10;
/// The largest number of note segments that are read.
const MAX_SEGMENTS: usize = 8;
/// The largest build id that is accepted, in bytes. Linkers write 8, 16 or 20.
const MAX_BUILD_ID: usize = 64;

/// The contents of the notes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ElfNotes {
    pub(super) build_id: Option<Vec<u8>>,
    pub(super) go: bool,
}

impl ElfNotes {
    /// Reads all notes. A malformed note ends its segment: the file is still unwound, without a build id.
    pub(super) fn read<S: ByteSource + ?Sized>(source: &S, segments: &[ElfSegment]) -> Self {
        let mut notes = Self::default();
        for segment in segments.iter().filter(|segment| segment.kind == PT_NOTE).take(MAX_SEGMENTS) {
            if let Ok(bytes) = read_range(source, "notes", segment.offset, segment.file_size, MAX_NOTES) {
                notes.parse(&bytes, if segment.align == 8 { 8 } else { 4 });
            }
        }
        notes
    }

    fn parse(&mut self, mut bytes: &[u8], align: usize) {
        while let Some(note) = Note::first(bytes, align) {
            match (note.name, note.kind) {
                (b"GNU\0", 3) if self.build_id.is_none() && (1..=MAX_BUILD_ID).contains(&note.description.len()) => {
                    self.build_id = Some(note.description.to_vec());
                }
                (b"Go\0\0", 4) => self.go = true,
                _ => {}
            }
            bytes = note.rest;
        }
    }
}

struct Note<'a> {
    name: &'a [u8],
    kind: u32,
    description: &'a [u8],
    /// The bytes after this note.
    rest: &'a [u8],
}

impl<'a> Note<'a> {
    fn first(bytes: &'a [u8], align: usize) -> Option<Self> {
        let (name_size, size) = (u32_at(bytes, 0) as usize, u32_at(bytes, 4) as usize);
        let name = bytes.get(12..)?.get(..name_size)?;
        let start = (12 + name_size).checked_next_multiple_of(align)?;
        let description = bytes.get(start..)?.get(..size)?;
        let end = (start + size).checked_next_multiple_of(align)?;
        Some(Self { name, kind: u32_at(bytes, 8), description, rest: bytes.get(end..).unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(name: &[u8], kind: u32, description: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((name.len() as u32).to_le_bytes());
        bytes.extend((description.len() as u32).to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(name);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend(description);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// Guarantees: the build id is found after other notes, the first one counts, and Go's note is recognized.
    #[test]
    fn build_id() {
        let mut bytes = made(b"GNU\0", 1, &[0; 16]);
        bytes.extend(made(b"Go\0\0", 4, b"abc"));
        bytes.extend(made(b"GNU\0", 3, &[7; 20]));
        bytes.extend(made(b"GNU\0", 3, &[8; 20]));
        let mut notes = ElfNotes::default();
        notes.parse(&bytes, 4);
        assert_eq!(notes, ElfNotes { build_id: Some(vec![7; 20]), go: true });
    }

    /// Guarantees: sizes beyond the end of the notes, also ones that overflow, end the parser without a result.
    #[test]
    fn attack_sizes() {
        for sizes in [[u32::MAX, u32::MAX], [4, u32::MAX], [u32::MAX, 20], [4, 65]] {
            let mut bytes = made(b"GNU\0", 3, &[7; 65]);
            bytes[0..4].copy_from_slice(&sizes[0].to_le_bytes());
            bytes[4..8].copy_from_slice(&sizes[1].to_le_bytes());
            let mut notes = ElfNotes::default();
            notes.parse(&bytes, 4);
            assert_eq!(notes, ElfNotes::default());
        }
    }
}
