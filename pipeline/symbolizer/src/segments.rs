//! Maps file offsets to virtual addresses.

use std::fs::File;

use crate::elf::Fields;
use crate::input::Input;
use crate::{Settings, Unknown};

/// The most program headers: linkers make about ten.
const MAX_HEADERS: u64 = 4096;

/// `PT_LOAD` and `PF_X` ("System V Application Binary Interface", chapter 5).
const LOAD: u32 = 1;
const EXECUTABLE: u32 = 1;

/// The executable segments of an ELF file. Linkers may shift a segment by pages, so the virtual address differs from
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
        let (header, little_endian) = crate::elf::header(&input)?;
        let fields = Fields { bytes: &header, little_endian };
        let (Some(table), Some(size), Some(count)) = (fields.u64(32), fields.u16(54), fields.u16(56)) else {
            return Err(Unknown::Malformed);
        };
        if size != 56 || u64::from(count) > MAX_HEADERS {
            return Err(Unknown::Malformed);
        }
        let bytes = input.read(table, u64::from(count) * 56, MAX_HEADERS as usize * 56)?;
        // Type, flags, offset, virtual address, physical address, size in the file.
        let code = bytes.chunks_exact(56).filter_map(|bytes| {
            let fields = Fields { bytes, little_endian };
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
