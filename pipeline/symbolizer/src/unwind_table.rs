//! Finds function starts in files without a symbol table, from unwind information, which stripping keeps.
//!
//! `.eh_frame` has an entry with start and length for each function or part of one ("Linux Standard Base Core
//! Specification", 10.6). A start is not a name, but it distinguishes functions.

use gimli::{BaseAddresses, CieOrFde, CommonInformationEntry, EhFrame, EndianSlice, RunTimeEndian, UnwindSection};
use hashbrown::HashMap;

use crate::Unknown;
use crate::elf::Elf;

type FrameReader<'a> = EndianSlice<'a, RunTimeEndian>;

/// The functions with unwind information, by address.
#[derive(Debug, Default)]
pub(crate) struct UnwindTable {
    /// Start and end of each function, in order of the starts.
    ranges: Vec<(u64, u64)>,
}

impl UnwindTable {
    /// Reads at most `limit` bytes of `.eh_frame`, once from start to end. Entries outside of `code` belong to
    /// functions that the linker removed.
    ///
    /// An entry is used only if the common part (CIE) that it refers to came before it: otherwise many entries could
    /// each cause a long CIE to be read again.
    pub(crate) fn read(elf: &Elf, code: &[(u64, u64)], limit: usize) -> Result<Self, Unknown> {
        let Some(section) = elf.section(b".eh_frame") else { return Ok(Self::default()) };
        let bytes = elf.data(section, limit)?;
        let endian = if elf.little_endian { RunTimeEndian::Little } else { RunTimeEndian::Big };
        let table = EhFrame::new(&bytes, endian);
        let bases = BaseAddresses::default().set_eh_frame(section.address);
        let mut common: HashMap<usize, CommonInformationEntry<FrameReader<'_>>> = HashMap::default();
        let mut ranges = Vec::new();
        let mut entries = table.entries(&bases);
        // The entries after a malformed one cannot be located.
        while let Ok(Some(entry)) = entries.next() {
            match entry {
                CieOrFde::Cie(cie) => {
                    common.insert(cie.offset(), cie);
                }
                CieOrFde::Fde(partial) => {
                    let known = |_: &EhFrame<_>, _: &BaseAddresses, offset: gimli::EhFrameOffset| {
                        common.get(&offset.0).cloned().ok_or(gimli::Error::NoEntryAtGivenOffset(offset.0 as u64))
                    };
                    let Ok(function) = partial.parse(known) else { continue };
                    let (start, length) = (function.initial_address(), function.len());
                    if let Some(end) = end_of_code(code, start).map(|end| end.min(start.saturating_add(length)))
                        && start < end
                    {
                        ranges.push((start, end));
                    }
                }
            }
        }
        ranges.sort_unstable();
        ranges.dedup_by_key(|&mut (start, _)| start);
        ranges.shrink_to_fit();
        Ok(Self { ranges })
    }

    /// The start of the function that contains an address.
    pub(crate) fn start(&self, address: u64) -> Option<u64> {
        let after = self.ranges.partition_point(|&(start, _)| start <= address);
        let &(start, end) = self.ranges.get(after.checked_sub(1)?)?;
        (address < end).then_some(start)
    }

    /// Approximate heap size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.ranges.capacity() * size_of::<(u64, u64)>()
    }
}

fn end_of_code(code: &[(u64, u64)], address: u64) -> Option<u64> {
    let after = code.partition_point(|&(start, _)| start <= address);
    let &(_, end) = code.get(after.checked_sub(1)?)?;
    (address < end).then_some(end)
}
