//! Reads program headers, which stripping keeps: they map file offsets to virtual addresses, and contain the position
//! of the build id.

use std::fs::File;

use crate::elf::{self, ElfFields, MAX_NOTE};
use crate::input::Input;
use crate::{Settings, Unknown};

/// The maximum number of program headers: linkers write about ten.
const MAX_HEADERS: u64 = 4096;

/// `PT_LOAD`, `PT_NOTE` and `PF_X` ("System V Application Binary Interface", chapter 5).
const LOAD: u32 = 1;
const NOTE: u32 = 4;
const EXECUTABLE: u32 = 1;

/// The executable segments of an ELF file. Linkers may shift a segment by pages, so its virtual address differs from
/// the file offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segments {
    /// File offset, length in the file, and virtual address of each segment.
    code: Vec<(u64, u64, u64)>,
}

impl Segments {
    /// Reads the program headers of a file.
    ///
    /// # Errors
    ///
    /// If the file is not safe to read, or not well-formed ELF.
    pub fn read(file: &File, settings: &Settings) -> Result<Self, Unknown> {
        let input = Input::new(file.try_clone().map_err(|_| Unknown::NoFile)?, settings)?;
        let (bytes, little_endian) = program_headers(&input)?;
        // The fields: type, flags, offset, virtual address, physical address, size in the file.
        let code = bytes.chunks_exact(56).filter_map(|bytes| {
            let fields = ElfFields { bytes, little_endian };
            let executable = fields.u32(0)? == LOAD && fields.u32(4)? & EXECUTABLE > 0;
            executable.then_some((fields.u64(8)?, fields.u64(32)?, fields.u64(16)?))
        });
        Ok(Self { code: code.collect() })
    }

    /// The virtual address of the code at a file offset.
    #[must_use]
    pub fn address(&self, offset: u64) -> Option<u64> {
        self.code.iter().find_map(|&(start, size, address)| {
            let inside = offset.checked_sub(start).filter(|&inside| inside < size)?;
            address.checked_add(inside)
        })
    }
}

/// The program headers of a file, and whether it is little-endian.
fn program_headers(input: &Input) -> Result<(Vec<u8>, bool), Unknown> {
    let (header, little_endian) = elf::header(input)?;
    let fields = ElfFields { bytes: &header, little_endian };
    let (Some(table), Some(size), Some(count)) = (fields.u64(32), fields.u16(54), fields.u16(56)) else {
        return Err(Unknown::Malformed);
    };
    if size != 56 || u64::from(count) > MAX_HEADERS {
        return Err(Unknown::Malformed);
    }
    Ok((input.read(table, u64::from(count) * 56, MAX_HEADERS as usize * 56)?, little_endian))
}

/// The GNU build id of a 64-bit ELF file, of any size and on any file system. `None` if the file has none, or is not
/// well-formed.
#[must_use]
pub fn build_id(file: &File) -> Option<Vec<u8>> {
    let settings = Settings { fuse: true, max_object_bytes: u64::MAX, ..Settings::default() };
    let input = Input::new(file.try_clone().ok()?, &settings).ok()?;
    let (headers, little_endian) = program_headers(&input).ok()?;
    headers.chunks_exact(56).find_map(|bytes| {
        let header = ElfFields { bytes, little_endian };
        if header.u32(0)? != NOTE {
            return None;
        }
        let notes = input.read(header.u64(8)?, header.u64(32)?, MAX_NOTE).ok()?;
        let alignment = if header.u64(48)? == 8 { 8 } else { 4 };
        elf::build_id_of(ElfFields { bytes: &notes, little_endian }, alignment)
    })
}
