//! Unwind tables: `.eh_frame`, with an index by address.
//!
//! Source of the formats: Linux Standard Base 5.0, "Exception Frames" (`.eh_frame`, `.eh_frame_hdr`), and DWARF 5
//! section 6.4. If the file has an index (`.eh_frame_hdr`, which a program header points to), it is used, and its entry
//! with the highest offset shows where `.eh_frame` ends: the size itself is only in section headers, which may be
//! missing. Otherwise the index is built here.

use gimli::{
    BaseAddresses, EhFrame, EhFrameHdr, EhFrameOffset, EndianSlice, LittleEndian, Pointer, UnwindContext,
    UnwindContextStorage, UnwindExpression, UnwindSection, UnwindTableRow,
};

use super::Malformed;
use super::headers::{ElfSegment, Headers, PT_GNU_EH_FRAME, u32_at};
use super::source::{ByteSource, read_range};

/// The largest `.eh_frame` that is read, in bytes. Chromium has 25 MiB.
const MAX_TABLE: u64 = 128 << 20;
/// The largest `.eh_frame_hdr` that is read, in bytes. It has eight bytes per function.
const MAX_INDEX: u64 = 32 << 20;
/// The maximum number of functions.
const MAX_FUNCTIONS: usize = 4 << 20;
/// The largest entry of a function (FDE) that is used, in bytes. The limit bounds a lookup to about a millisecond. The
/// largest entries of node, Python and OpenSSL have a few kilobytes.
const MAX_ENTRY: u32 = 64 << 10;
/// The largest common entry (CIE) that is used, in bytes; about 20 are usual.
const MAX_COMMON: u32 = 1 << 10;

pub(crate) type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Storage for evaluating one function's entry without allocation: the general registers and a few more, and as many
/// remembered states as gimli allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room;

impl UnwindContextStorage<usize> for Room {
    type Rules = [(gimli::Register, gimli::RegisterRule<usize>); 40];
    type Stack = [UnwindTableRow<usize, Self>; 6];
}

/// Scratch space for lookups.
pub type Context = UnwindContext<usize, Room>;

/// The rules for unwinding from one address.
#[derive(Debug)]
pub struct FoundRow<'c> {
    /// The rules.
    pub row: &'c UnwindTableRow<usize, Room>,
    /// Whether the kernel created this frame for a signal handler, so that its caller did not make a call but was
    /// interrupted.
    pub signal: bool,
}

/// A file's unwind tables.
#[derive(Debug)]
pub struct UnwindTables {
    section: Vec<u8>,
    bases: BaseAddresses,
    /// The lowest address of the file; the function starts in the index are relative to it.
    base: u64,
    /// For every function, by address: its start, and the offset of its entry in `section`.
    index: Vec<(u32, u32)>,
}

impl UnwindTables {
    /// Reads the tables of a file; `None` if it has none.
    pub(super) fn read<S: ByteSource + ?Sized>(source: &S, headers: &Headers) -> Result<Option<Self>, Malformed> {
        let base = lowest_address(&headers.segments);
        if let Some(index) = headers.segments.iter().find(|segment| segment.kind == PT_GNU_EH_FRAME)
            && let Some(tables) = Self::read_indexed(source, headers, index, base)?
        {
            return Ok(Some(tables));
        }
        let Some((address, offset, size)) = headers.eh_frame_section(source) else { return Ok(None) };
        let section = read_range(source, ".eh_frame", offset, size, MAX_TABLE)?;
        Self::index(section, address, base).map(Some)
    }

    /// Reads the tables using `.eh_frame_hdr`; `None` if that has no index.
    fn read_indexed<S: ByteSource + ?Sized>(
        source: &S,
        headers: &Headers,
        segment: &ElfSegment,
        base: u64,
    ) -> Result<Option<Self>, Malformed> {
        let bytes = read_range(source, ".eh_frame_hdr", segment.offset, segment.file_size, MAX_INDEX)?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(segment.address);
        let header =
            EhFrameHdr::new(&bytes, LittleEndian).parse(&bases, 8).map_err(|error| nonsense(".eh_frame_hdr", error))?;
        let Pointer::Direct(start) = header.eh_frame_ptr() else { return Ok(None) };
        let Some(table) = header.table() else { return Ok(None) };
        let (file_offset, reach) =
            headers.offset_of(start).ok_or(Malformed::OutOfFile { what: ".eh_frame", offset: start, length: 0 })?;
        let reach = reach.min(MAX_TABLE);
        let mut index = Vec::new();
        let mut iter = table.iter(&bases);
        // The number of entries may be wrong, but parsing stops at the end of the bytes, so the result is never longer
        // than the file.
        while let Ok(Some((function, entry))) = iter.next() {
            let (Pointer::Direct(function), Pointer::Direct(entry)) = (function, entry) else { continue };
            let offset =
                entry.checked_sub(start).filter(|offset| *offset < reach).and_then(|offset| u32::try_from(offset).ok());
            let function = function.checked_sub(base).and_then(|start| u32::try_from(start).ok());
            if let (Some(function), Some(offset)) = (function, offset) {
                if index.len() == MAX_FUNCTIONS {
                    return Err(too_many());
                }
                index.push((function, offset));
            }
        }
        let Some(last) = index.iter().map(|(_, offset)| u64::from(*offset)).max() else { return Ok(None) };
        let length = read_range(source, "last entry of .eh_frame", file_offset + last, 4, 4)?;
        let end = (last + 4 + u64::from(u32_at(&length, 0))).min(reach);
        let section = read_range(source, ".eh_frame", file_offset, end, MAX_TABLE)?;
        Ok(Some(Self::new(section, start, base, index)))
    }

    /// Builds the index by reading all entries.
    fn index(section: Vec<u8>, address: u64, base: u64) -> Result<Self, Malformed> {
        let bases = bases(address);
        let mut index = Vec::new();
        let mut at = 0usize;
        let mut last_common = None;
        let table = EhFrame::new(&section, LittleEndian);
        while let Some(length) = section.get(at..).filter(|rest| rest.len() >= 8).map(|rest| u32_at(rest, 0)) {
            // A length of zero ends the table of one input file of the linker, which should keep only the last of
            // these. The 64-bit format is not used in practice.
            if length == u32::MAX {
                break;
            }
            let is_function = length > 4 && u32_at(&section, at + 4) != 0 && length <= MAX_ENTRY;
            if is_function && let Ok(partial) = table.partial_fde_from_offset(&bases, EhFrameOffset(at)) {
                let entry = partial.parse(|table, bases, offset| match &last_common {
                    Some((at, common)) if *at == offset => Ok(Clone::clone(common)),
                    _ => {
                        let common = common_entry(table, bases, offset)?;
                        last_common = Some((offset, common.clone()));
                        Ok(common)
                    }
                });
                let start = entry.ok().and_then(|entry| u32::try_from(entry.initial_address().checked_sub(base)?).ok());
                if let (Some(start), Ok(at)) = (start, u32::try_from(at)) {
                    if index.len() == MAX_FUNCTIONS {
                        return Err(too_many());
                    }
                    index.push((start, at));
                }
            }
            at = at.saturating_add(4).saturating_add(length as usize);
        }
        Ok(Self::new(section, address, base, index))
    }

    fn new(section: Vec<u8>, address: u64, base: u64, mut index: Vec<(u32, u32)>) -> Self {
        if !index.is_sorted() {
            index.sort_unstable();
        }
        index.shrink_to_fit();
        Self { section, bases: bases(address), base, index }
    }

    /// The unwind rules for an address of the file; `None` if the tables have no function there.
    ///
    /// # Errors
    ///
    /// When the entry of the function is malformed or exceeds a limit.
    pub fn row<'c>(&self, address: u64, context: &'c mut Context) -> gimli::Result<Option<FoundRow<'c>>> {
        let Some(entry) = self.entry_before(address) else { return Ok(None) };
        if self.length_at(entry as usize) > MAX_ENTRY {
            return Err(gimli::Error::OffsetOutOfBounds(u64::from(entry)));
        }
        let table = self.eh_frame();
        let partial = table.partial_fde_from_offset(&self.bases, EhFrameOffset(entry as usize))?;
        let entry = partial.parse(common_entry)?;
        if !entry.contains(address) {
            return Ok(None);
        }
        let signal = entry.is_signal_trampoline();
        if entry.cie().return_address_register() != gimli::X86_64::RA {
            return Err(gimli::Error::UnsupportedRegister(entry.cie().return_address_register().0.into()));
        }
        let row = entry.unwind_info_for_address(&table, &self.bases, context, address)?;
        Ok(Some(FoundRow { row, signal }))
    }

    /// The start of the function that contains an address of the file; `None` if the tables have none there.
    pub(crate) fn function(&self, address: u64) -> Option<u64> {
        let entry = self.entry_before(address)?;
        if self.length_at(entry as usize) > MAX_ENTRY {
            return None;
        }
        let partial = self.eh_frame().partial_fde_from_offset(&self.bases, EhFrameOffset(entry as usize)).ok()?;
        let entry = partial.parse(common_entry).ok()?;
        entry.contains(address).then(|| entry.initial_address())
    }

    /// The bytes of an expression in a rule.
    pub(crate) fn expression(&self, expression: UnwindExpression<usize>) -> Option<Slice<'_>> {
        expression.get(&self.eh_frame()).ok().map(|expression| expression.0)
    }

    /// The largest range of addresses between two functions that the table does not cover.
    pub(crate) fn largest_gap(&self) -> Option<std::ops::Range<u64>> {
        let (before, after) =
            self.index.windows(2).map(|pair| (pair[0], pair[1])).max_by_key(|(one, next)| next.0 - one.0)?;
        if self.length_at(before.1 as usize) > MAX_ENTRY {
            return None;
        }
        let partial = self.eh_frame().partial_fde_from_offset(&self.bases, EhFrameOffset(before.1 as usize)).ok()?;
        let entry = partial.parse(common_entry).ok()?;
        let start = entry.initial_address().checked_add(entry.len())?;
        let end = self.base.wrapping_add(u64::from(after.0));
        (start < end).then_some(start..end)
    }

    /// Whether two addresses lie in the same gap between functions that the tables know.
    pub(crate) fn same_gap(&self, one: u64, other: u64) -> bool {
        let place = |address: u64| {
            let relative = address.saturating_sub(self.base);
            self.index.partition_point(|(start, _)| u64::from(*start) <= relative)
        };
        place(one) == place(other)
    }

    /// The number of functions.
    pub fn functions(&self) -> usize {
        self.index.len()
    }

    /// Start addresses of all functions, ascending.
    pub fn starts(&self) -> impl Iterator<Item = u64> + '_ {
        self.index.iter().map(|(start, _)| self.base.wrapping_add(u64::from(*start)))
    }

    /// The memory used, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.section.capacity() + self.index.capacity() * size_of::<(u32, u32)>()
    }

    /// The section, for other parsers.
    pub fn eh_frame(&self) -> EhFrame<Slice<'_>> {
        EhFrame::new(&self.section, LittleEndian)
    }

    /// The base addresses for pointers in the section.
    pub fn bases(&self) -> &BaseAddresses {
        &self.bases
    }

    fn entry_before(&self, address: u64) -> Option<u32> {
        let relative = u32::try_from(address.checked_sub(self.base)?).ok()?;
        let after = self.index.partition_point(|(start, _)| *start <= relative);
        Some(self.index.get(after.checked_sub(1)?)?.1)
    }

    fn length_at(&self, at: usize) -> u32 {
        self.section.get(at..).map_or(0, |rest| u32_at(rest, 0))
    }
}

/// Reads a common entry (CIE), unless it is too long.
fn common_entry<'a>(
    table: &EhFrame<Slice<'a>>,
    bases: &BaseAddresses,
    offset: EhFrameOffset<usize>,
) -> gimli::Result<gimli::CommonInformationEntry<Slice<'a>>> {
    let section = gimli::Section::reader(table).slice();
    if section.get(offset.0..).is_none_or(|rest| u32_at(rest, 0) > MAX_COMMON) {
        return Err(gimli::Error::OffsetOutOfBounds(offset.0 as u64));
    }
    table.cie_from_offset(bases, offset)
}

/// On x86-64 pointers are relative to their own addresses. The other bases are set as well: otherwise gimli would
/// reject entries that use one for a field that is not needed here (the personality routine).
fn bases(address: u64) -> BaseAddresses {
    BaseAddresses::default().set_eh_frame(address).set_text(0).set_got(0)
}

fn lowest_address(segments: &[ElfSegment]) -> u64 {
    let loads = segments.iter().filter(|segment| segment.kind == super::headers::PT_LOAD);
    loads.map(|segment| segment.address).min().unwrap_or(0)
}

fn nonsense(what: &'static str, error: gimli::Error) -> Malformed {
    Malformed::Nonsense { what, reason: error.to_string() }
}

fn too_many() -> Malformed {
    Malformed::TooLarge { what: "functions", length: MAX_FUNCTIONS as u64 + 1, limit: MAX_FUNCTIONS as u64 }
}
