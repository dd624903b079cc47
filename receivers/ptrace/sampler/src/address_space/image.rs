//! Reads a mapped file from memory: for files that cannot be opened (deleted, and without the right to follow
//! `/proc/PID/map_files`), and for the vDSO, which has no file.

use std::io;

use super::maps::MapsLine;
use super::view::{CodeMemory, FileId};
use crate::elf::ByteSource;

/// A mapped part of a file: its offset, length and address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ImagePart {
    offset: u64,
    length: u64,
    address: u64,
}

/// Reads a mapped file by file offset.
#[derive(Debug)]
pub(super) struct MappedImage<'a> {
    memory: &'a dyn CodeMemory,
    parts: Vec<ImagePart>,
}

/// The largest number of parts; linkers create four or five.
const MAX_PARTS: usize = 64;

impl<'a> MappedImage<'a> {
    /// The image that contains the executable mapping at `start`. It begins with the last mapping, at or before
    /// `start`, of the beginning of `file`.
    pub(super) fn new(memory: &'a dyn CodeMemory, lines: &[MapsLine], file: FileId, start: u64) -> Self {
        let mut parts = Vec::new();
        for line in lines.iter().filter(|line| line.readable && line.entry.file == file) {
            if line.entry.offset == 0 {
                if line.entry.start > start {
                    break;
                }
                parts.clear();
            }
            if parts.len() < MAX_PARTS {
                let length = line.entry.end - line.entry.start;
                parts.push(ImagePart { offset: line.entry.offset, length, address: line.entry.start });
            }
        }
        Self { memory, parts }
    }

    /// The address where the first part is mapped.
    pub(super) fn base(&self) -> u64 {
        self.parts.first().map_or(0, |part| part.address)
    }
}

impl ByteSource for MappedImage<'_> {
    fn len(&self) -> u64 {
        self.parts.iter().map(|part| part.offset.saturating_add(part.length)).max().unwrap_or(0)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let Some((part, distance)) = self.parts.iter().find_map(|part| {
            let distance = offset.checked_sub(part.offset)?;
            (distance < part.length).then_some((part, distance))
        }) else {
            return Ok(0);
        };
        let length = usize::try_from(part.length - distance).unwrap_or(usize::MAX).min(bytes.len());
        Ok(self.memory.read(part.address + distance, &mut bytes[..length]).min(length))
    }
}
