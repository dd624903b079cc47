//! Reads the ELF header and the program headers; and the section headers, for files whose unwind tables have no index.
//!
//! Source of the layouts: the System V ABI's generic part (ELF header, program header, section header), 64-bit
//! little-endian.

use super::Malformed;
use super::source::{ByteSource, read_range};

/// The largest number of program headers that is accepted. Linkers write about a dozen.
const MAX_SEGMENTS: u64 = 512;
/// The largest number of section headers that is accepted. `-ffunction-sections` multiplies them in object files, not
/// in linked ones.
const MAX_SECTIONS: u64 = 65_536;
/// The largest table of section names that is accepted, in bytes.
const MAX_NAMES: u64 = 4 << 20;

const HEADER: u64 = 64;
const SEGMENT: usize = 56;
const SECTION: usize = 64;

pub(super) const PT_LOAD: u32 = 1;
pub(super) const PT_NOTE: u32 = 4;
pub(super) const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PF_X: u32 = 1;
const EM_X86_64: u16 = 62;

/// A program header: a part of the file that is loaded, or that holds information such as notes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElfSegment {
    /// The type, `PT_LOAD` for instance.
    pub kind: u32,
    /// Whether the segment's memory is executable.
    pub executable: bool,
    /// The offset in the file.
    pub offset: u64,
    /// The address in memory (ELF virtual address).
    pub address: u64,
    /// The size in the file, in bytes.
    pub file_size: u64,
    /// The size in memory, in bytes.
    pub memory_size: u64,
    /// The alignment, in bytes.
    pub align: u64,
}

impl ElfSegment {
    /// The file offset of an address, and how many bytes of the segment follow.
    fn offset_of(&self, address: u64) -> Option<(u64, u64)> {
        let distance = address.checked_sub(self.address)?;
        let rest = self.file_size.checked_sub(distance).filter(|rest| *rest > 0)?;
        Some((self.offset.checked_add(distance)?, rest))
    }
}

/// The contents of the headers.
#[derive(Debug)]
pub(super) struct Headers {
    pub(super) segments: Vec<ElfSegment>,
    pub(super) entry: u64,
    sections_at: u64,
    section_count: u16,
    names_section: u16,
}

impl Headers {
    pub(super) fn read<S: ByteSource + ?Sized>(source: &S) -> Result<Self, Malformed> {
        if source.len() < HEADER {
            return Err(Malformed::NotElf);
        }
        let header = read_range(source, "ELF header", 0, HEADER, HEADER)?;
        check_identity(&header)?;
        let count = u64::from(u16_at(&header, 56));
        let size = u64::from(u16_at(&header, 54));
        if size != SEGMENT as u64 && count > 0 {
            return Err(Malformed::Nonsense { what: "ELF header", reason: format!("program headers of {size} bytes") });
        }
        if count > MAX_SEGMENTS {
            return Err(Malformed::TooLarge { what: "program headers", length: count, limit: MAX_SEGMENTS });
        }
        let limit = MAX_SEGMENTS * SEGMENT as u64;
        let bytes = read_range(source, "program headers", u64_at(&header, 32), count * size, limit)?;
        let section_size = u16_at(&header, 58);
        Ok(Self {
            segments: bytes.chunks_exact(SEGMENT).map(segment).collect(),
            entry: u64_at(&header, 24),
            sections_at: u64_at(&header, 40),
            section_count: if usize::from(section_size) == SECTION { u16_at(&header, 60) } else { 0 },
            names_section: u16_at(&header, 62),
        })
    }

    /// The file offset of an address, and how many bytes of its segment follow.
    pub(super) fn offset_of(&self, address: u64) -> Option<(u64, u64)> {
        self.segments.iter().filter(|segment| segment.kind == PT_LOAD).find_map(|segment| segment.offset_of(address))
    }

    /// The address, the file offset, and the size of `.eh_frame` from the section headers: for files without
    /// `.eh_frame_hdr`.
    pub(super) fn eh_frame_section<S: ByteSource + ?Sized>(&self, source: &S) -> Option<(u64, u64, u64)> {
        self.sections(source)?.find(b".eh_frame\0")
    }

    /// Reads the section headers. They are not mapped at run time and may be missing, so they are used as little as
    /// possible.
    pub(super) fn sections<S: ByteSource + ?Sized>(&self, source: &S) -> Option<Sections> {
        let length = u64::from(self.section_count) * SECTION as u64;
        let limit = MAX_SECTIONS * SECTION as u64;
        let headers = read_range(source, "section headers", self.sections_at, length, limit).ok()?;
        let header = headers.chunks_exact(SECTION).nth(usize::from(self.names_section))?;
        let names = read_range(source, "section names", u64_at(header, 24), u64_at(header, 32), MAX_NAMES).ok()?;
        Some(Sections { headers, names })
    }
}

/// The section headers and their names.
#[derive(Debug)]
pub(super) struct Sections {
    headers: Vec<u8>,
    names: Vec<u8>,
}

impl Sections {
    /// The address, the file offset, and the size of the section with this name, which must end with a zero byte.
    pub(super) fn find(&self, name: &[u8]) -> Option<(u64, u64, u64)> {
        let section = self.headers.chunks_exact(SECTION).find(|section| {
            let found = usize::try_from(u32_at(section, 0)).ok().and_then(|at| self.names.get(at..));
            found.is_some_and(|found| found.starts_with(name))
        })?;
        Some((u64_at(section, 16), u64_at(section, 24), u64_at(section, 32)))
    }
}

fn check_identity(header: &[u8]) -> Result<(), Malformed> {
    if header.get(..4) != Some(b"\x7fELF") {
        return Err(Malformed::NotElf);
    }
    let (class, data, kind, machine) = (header[4], header[5], u16_at(header, 16), u16_at(header, 18));
    match (class, data, machine) {
        (2, 1, EM_X86_64) => {}
        (1, _, 3) => return Err(Malformed::Architecture("32-bit x86".into())),
        (1, _, EM_X86_64) => return Err(Malformed::Architecture("x32".into())),
        (1, 1, 40) => return Err(Malformed::Architecture("32-bit ARM".into())),
        (2, 1, 183) => return Err(Malformed::Architecture("64-bit ARM".into())),
        (2, 1, 243) => return Err(Malformed::Architecture("RISC-V".into())),
        (_, 2, _) => return Err(Malformed::Architecture("big-endian".into())),
        _ => {
            return Err(Malformed::Architecture(format!("for another machine (ELF class {class}, machine {machine})")));
        }
    }
    match kind {
        // ET_EXEC, ET_DYN
        2 | 3 => Ok(()),
        _ => Err(Malformed::Type(kind)),
    }
}

fn segment(bytes: &[u8]) -> ElfSegment {
    ElfSegment {
        kind: u32_at(bytes, 0),
        executable: u32_at(bytes, 4) & PF_X != 0,
        offset: u64_at(bytes, 8),
        address: u64_at(bytes, 16),
        file_size: u64_at(bytes, 32),
        memory_size: u64_at(bytes, 40),
        align: u64_at(bytes, 48),
    }
}

/// Reads a little-endian number; 0 beyond the end, which does not happen, since callers pass slices of a fixed length.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u16::from_le_bytes(*chunk))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u64::from_le_bytes(*chunk))
}
