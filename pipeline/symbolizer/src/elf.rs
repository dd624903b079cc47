//! Reads the parts of an ELF file that are needed to find names.
//!
//! Tables are decoded here, field by field, because a library that needs the file as one slice would require loading or
//! mapping all of it. Supported: 64-bit ELF of either byte order ("System V Application Binary Interface", chapters 4
//! and 5).

use std::io::{self, Read};

use object::elf;
use object::read::{CompressedData, CompressionFormat};

use crate::Unknown;
use crate::input::Input;

/// The maximum number of sections: 65,535, the maximum without extended numbering.
const MAX_SECTIONS: u64 = 1 << 16;
/// The maximum size of the table of section names, in bytes.
const MAX_SECTION_NAMES: usize = 4 << 20;
/// The maximum size of a note that is read, in bytes, and the maximum number of note sections that are searched.
pub(crate) const MAX_NOTE: usize = 64 << 10;
const MAX_NOTES: usize = 64;
/// The maximum size of `.gnu_debuglink`, a file name and a checksum, in bytes.
const MAX_DEBUG_LINK: usize = 8 << 10;
/// The maximum size of a build id in bytes. It is a hash: GNU ld writes 20 bytes, LLD 8 to 20, and `--build-id=0x` any
/// number.
const MAX_BUILD_ID: usize = 64;

/// An ELF file.
#[derive(Debug)]
pub(crate) struct Elf {
    pub(crate) input: Input,
    pub(crate) little_endian: bool,
    /// The architecture (`e_machine`).
    pub(crate) machine: u16,
    /// The entry point; 0 if the file is not a program.
    pub(crate) entry: u64,
    sections: Vec<Section>,
    names: Vec<u8>,
}

/// A section header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section {
    name: u32,
    pub(crate) kind: u32,
    pub(crate) flags: u64,
    pub(crate) address: u64,
    offset: u64,
    pub(crate) size: u64,
    pub(crate) link: u32,
}

impl Section {
    /// Whether the section is loaded into memory.
    pub(crate) fn is_loaded(&self) -> bool {
        self.flags & elf::SHF_ALLOC.0 != 0
    }
}

#[derive(Debug, Clone, Copy)]
struct SectionCompression {
    format: CompressionFormat,
    /// Length of the header before the data, in bytes.
    header: usize,
    /// The uncompressed size according to the file, in bytes.
    size: u64,
}

/// The content of `.gnu_debuglink` (GDB documentation, "Debugging Information in Separate Files").
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DebugLink {
    /// A file name, never a path.
    pub(crate) name: String,
    /// The CRC-32 of the file's content.
    pub(crate) crc: u32,
}

/// Decodes integers from bytes, in the byte order of the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ElfFields<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) little_endian: bool,
}

impl ElfFields<'_> {
    fn array<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        let mut bytes: [u8; N] = self.bytes.get(at..at.checked_add(N)?)?.try_into().ok()?;
        if !self.little_endian {
            bytes.reverse();
        }
        Some(bytes)
    }

    pub(crate) fn u16(self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_le_bytes)
    }
}

impl Elf {
    /// Reads the headers.
    pub(crate) fn read(input: Input) -> Result<Self, Unknown> {
        let (header, little_endian) = header(&input)?;
        let fields = ElfFields { bytes: &header, little_endian };
        let table = fields.u64(40).ok_or(Unknown::Malformed)?;
        let size = fields.u16(58).ok_or(Unknown::Malformed)?;
        let entry = fields.u64(24).ok_or(Unknown::Malformed)?;
        let machine = fields.u16(18).ok_or(Unknown::Malformed)?;
        let mut count = u64::from(fields.u16(60).ok_or(Unknown::Malformed)?);
        let mut names_index = u32::from(fields.u16(62).ok_or(Unknown::Malformed)?);
        if table == 0 {
            // A file without section headers has no symbols.
            return Ok(Self { input, little_endian, machine, entry, sections: Vec::new(), names: Vec::new() });
        }
        if size != 64 {
            return Err(Unknown::Malformed);
        }
        // If the counts do not fit into the file header, the first section header contains them.
        if count == 0 || names_index == u32::from(elf::SHN_XINDEX.0) {
            let first = input.read(table, 64, 64)?;
            let first = section(ElfFields { bytes: &first, little_endian }).ok_or(Unknown::Malformed)?;
            if count == 0 {
                count = first.size;
            }
            if names_index == u32::from(elf::SHN_XINDEX.0) {
                names_index = first.link;
            }
        }
        if count > MAX_SECTIONS {
            return Err(Unknown::TooLarge);
        }
        let bytes = input.read(table, count * 64, MAX_SECTIONS as usize * 64)?;
        let sections: Vec<_> =
            bytes.chunks_exact(64).filter_map(|bytes| section(ElfFields { bytes, little_endian })).collect();
        let mut elf = Self { input, little_endian, machine, entry, sections, names: Vec::new() };
        if let Some(&names) = elf.sections.get(names_index as usize) {
            elf.names = elf.raw(&names, MAX_SECTION_NAMES)?;
        }
        Ok(elf)
    }

    /// Wraps bytes for gimli, in this file's byte order.
    pub(crate) fn reader<'a>(&self, bytes: &'a [u8]) -> gimli::EndianSlice<'a, gimli::RunTimeEndian> {
        let endian = if self.little_endian { gimli::RunTimeEndian::Little } else { gimli::RunTimeEndian::Big };
        gimli::EndianSlice::new(bytes, endian)
    }

    pub(crate) fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The first section with this name and with content in the file.
    pub(crate) fn section(&self, name: &[u8]) -> Option<&Section> {
        let mut with_content = self.sections.iter().filter(|section| section.kind != elf::SHT_NOBITS.0);
        with_content.find(|section| self.has_name(section, name))
    }

    /// The debug section `.debug_NAME`, or `.zdebug_NAME` if older GNU tools compressed it.
    pub(crate) fn debug_section(&self, name: &str) -> Option<&Section> {
        let compressed = || self.section(format!(".z{}", name.strip_prefix('.')?).as_bytes());
        self.section(name.as_bytes()).or_else(compressed)
    }

    fn has_name(&self, section: &Section, name: &[u8]) -> bool {
        let found = self.names.get(section.name as usize..).unwrap_or_default();
        found.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&0))
    }

    /// Whether a section's name starts with `beginning`.
    pub(crate) fn is_named_like(&self, section: &Section, beginning: &[u8]) -> bool {
        self.names.get(section.name as usize..).is_some_and(|name| name.starts_with(beginning))
    }

    /// The bytes of a section, still compressed.
    pub(crate) fn raw(&self, section: &Section, limit: usize) -> Result<Vec<u8>, Unknown> {
        if section.kind == elf::SHT_NOBITS.0 {
            return Ok(Vec::new());
        }
        self.input.read(section.offset, section.size, limit)
    }

    /// Part of a section that is not compressed.
    pub(crate) fn part(&self, section: &Section, at: u64, length: u64) -> Result<Vec<u8>, Unknown> {
        if at.checked_add(length).is_none_or(|end| end > section.size) || section.kind == elf::SHT_NOBITS.0 {
            return Err(Unknown::Malformed);
        }
        self.input.read(section.offset.checked_add(at).ok_or(Unknown::Malformed)?, length, length as usize)
    }

    /// The uncompressed size of a section according to the file, in bytes.
    pub(crate) fn uncompressed_size(&self, section: &Section) -> Result<u64, Unknown> {
        Ok(self.compression(section)?.map_or(section.size, |compression| compression.size))
    }

    /// The bytes of a section, decompressed.
    pub(crate) fn data(&self, section: &Section, limit: usize) -> Result<Vec<u8>, Unknown> {
        let Some(SectionCompression { format, header, size }) = self.compression(section)? else {
            return self.raw(section, limit);
        };
        if size > limit as u64 {
            return Err(Unknown::TooLarge);
        }
        let raw = self.raw(section, limit)?;
        let data = raw.get(header..).ok_or(Unknown::Malformed)?;
        let data = CompressedData { format, data, uncompressed_size: size };
        data.decompress().map(std::borrow::Cow::into_owned).map_err(|_| Unknown::Malformed)
    }

    /// Decodes the header of a compressed section (`Elf64_Chdr`) or of GNU's older format: `ZLIB` and the size,
    /// big-endian.
    fn compression(&self, section: &Section) -> Result<Option<SectionCompression>, Unknown> {
        let older = self.is_named_like(section, b".zdebug");
        if section.kind == elf::SHT_NOBITS.0 || section.flags & elf::SHF_COMPRESSED.0 == 0 && !older {
            return Ok(None);
        }
        let length = if older { 12 } else { 24 };
        let bytes = self.input.read(section.offset, section.size.min(length as u64), length)?;
        let fields = ElfFields { bytes: &bytes, little_endian: self.little_endian && !older };
        let format = match fields.u32(0).map(elf::CompressionType) {
            _ if older && bytes.starts_with(b"ZLIB") => CompressionFormat::Zlib,
            Some(elf::ELFCOMPRESS_ZLIB) if !older => CompressionFormat::Zlib,
            Some(elf::ELFCOMPRESS_ZSTD) if !older => CompressionFormat::Zstandard,
            _ => return Err(Unknown::Unsupported),
        };
        let size = fields.u64(if older { 4 } else { 8 }).ok_or(Unknown::Malformed)?;
        Ok(Some(SectionCompression { format, header: length, size }))
    }

    /// The ELF file embedded in a stripped file, with the names of functions that `.dynsym` lacks (`.gnu_debugdata`,
    /// GDB documentation, "MiniDebugInfo"). `limit` separately bounds, in bytes, the compressed data, the decompressed
    /// file, and the decompressor's memory.
    pub(crate) fn mini_debug_info(&self, limit: usize) -> Option<Result<Self, Unknown>> {
        let section = self.section(b".gnu_debugdata")?;
        let decompress = || {
            let raw = self.raw(section, limit)?;
            let kib = u32::try_from(limit >> 10).unwrap_or(u32::MAX);
            let mut inner = Vec::new();
            let mut reader = lzma_rust2::XzReader::new_mem_limit(&*raw, true, kib).take(limit as u64 + 1);
            reader.read_to_end(&mut inner).map_err(|error| match error.kind() {
                io::ErrorKind::OutOfMemory => Unknown::TooLarge,
                _ => Unknown::Malformed,
            })?;
            if inner.len() > limit {
                return Err(Unknown::TooLarge);
            }
            Self::read(Input::from_memory(inner.into()))
        };
        Some(decompress())
    }

    /// Address ranges of code, in order.
    pub(crate) fn code(&self) -> Vec<(u64, u64)> {
        let executable = elf::SHF_EXECINSTR.0 | elf::SHF_ALLOC.0;
        let mut ranges: Vec<_> = self
            .sections
            .iter()
            .filter(|section| section.flags & executable == executable && section.size > 0)
            .filter_map(|section| Some((section.address, section.address.checked_add(section.size)?)))
            .collect();
        ranges.sort_unstable();
        ranges
    }

    /// Whether the file has `.symtab`, in addition to the dynamic symbols.
    pub(crate) fn has_symbol_table(&self) -> bool {
        self.section(b".symtab").is_some_and(|section| section.size > 0)
    }

    /// The GNU build id.
    pub(crate) fn build_id(&self) -> Option<Vec<u8>> {
        self.sections.iter().filter(|section| section.kind == elf::SHT_NOTE.0).take(MAX_NOTES).find_map(|section| {
            let bytes = self.raw(section, MAX_NOTE).ok()?;
            build_id_of(ElfFields { bytes: &bytes, little_endian: self.little_endian }, 4)
        })
    }

    /// The link to the file with data that several debug files share: its path and its build id (dwz(1)).
    pub(crate) fn shared_debug_link(&self) -> Option<(String, Vec<u8>)> {
        let bytes = self.raw(self.section(b".gnu_debugaltlink")?, MAX_DEBUG_LINK).ok()?;
        let end = bytes.iter().position(|&byte| byte == 0)?;
        let id = bytes.get(end + 1..).filter(|id| (1..=MAX_BUILD_ID).contains(&id.len()))?;
        Some((std::str::from_utf8(&bytes[..end]).ok()?.to_owned(), id.to_vec()))
    }

    /// The link to a separate file with debug information.
    pub(crate) fn debug_link(&self) -> Option<DebugLink> {
        let bytes = self.raw(self.section(b".gnu_debuglink")?, MAX_DEBUG_LINK).ok()?;
        let end = bytes.iter().position(|&byte| byte == 0)?;
        let name = std::str::from_utf8(&bytes[..end]).ok()?;
        // A path could lead to another folder.
        if name.is_empty() || name.contains('/') || matches!(name, "." | "..") {
            return None;
        }
        let crc = ElfFields { bytes: &bytes, little_endian: self.little_endian }.u32((end + 4) & !3)?;
        Some(DebugLink { name: name.to_owned(), crc })
    }
}

/// The file header, and whether the file is little-endian.
pub(crate) fn header(input: &Input) -> Result<(Vec<u8>, bool), Unknown> {
    let header = input.read(0, 64.min(input.len()), 64)?;
    if header.len() < 16 || header[..4] != elf::ELFMAG {
        return Err(Unknown::Malformed);
    }
    if header[4] != elf::ELFCLASS64.0 {
        return Err(if header[4] == elf::ELFCLASS32.0 { Unknown::Unsupported } else { Unknown::Malformed });
    }
    match header[5] {
        1 => Ok((header, true)),
        2 => Ok((header, false)),
        _ => Err(Unknown::Malformed),
    }
}

fn section(fields: ElfFields<'_>) -> Option<Section> {
    Some(Section {
        name: fields.u32(0)?,
        kind: fields.u32(4)?,
        flags: fields.u64(8)?,
        address: fields.u64(16)?,
        offset: fields.u64(24)?,
        size: fields.u64(32)?,
        link: fields.u32(40)?,
    })
}

/// Searches notes for the build id. A note consists of the sizes of name and content, the type, and then name and
/// content, each padded to the alignment.
pub(crate) fn build_id_of(fields: ElfFields<'_>, alignment: usize) -> Option<Vec<u8>> {
    let mut at = 0_usize;
    loop {
        let name_size = fields.u32(at)? as usize;
        let size = fields.u32(at.checked_add(4)?)? as usize;
        let kind = fields.u32(at.checked_add(8)?)?;
        let name_at = at.checked_add(12)?;
        let name = fields.bytes.get(name_at..name_at.checked_add(name_size)?)?;
        let content_at = name_at.checked_add(name_size)?.checked_next_multiple_of(alignment)?;
        let content = fields.bytes.get(content_at..content_at.checked_add(size)?)?;
        if kind == elf::NT_GNU_BUILD_ID.0 && name == b"GNU\0" && (1..=MAX_BUILD_ID).contains(&size) {
            return Some(content.to_vec());
        }
        at = content_at.checked_add(size)?.checked_next_multiple_of(alignment)?;
    }
}
