//! One ELF file.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::go_table::GoTable;
use super::headers::{ElfSegment, Headers, PT_LOAD};
use super::notes::ElfNotes;
use super::source::ByteSource;
use super::symbols::{self, GREENLET_START, Symbol, SymbolTable};
use super::tables::UnwindTables;
use super::thread_local::{self, ThreadLocal};
use super::{Malformed, htlhash};

/// The id of the next object. Caches use it as a key, so that an entry never applies to another object.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The page size, which aligns mappings.
const PAGE: u64 = 4096;

/// The parts of an ELF file that unwinding needs.
#[derive(Debug)]
pub struct ElfObject {
    id: u64,
    segments: Vec<ElfSegment>,
    entry: u64,
    go: bool,
    go_table: Option<GoTable>,
    pub(super) tables: Option<UnwindTables>,
    fault: Option<Malformed>,
    build_id: Option<Vec<u8>>,
    htlhash: Option<[u8; 16]>,
    symbols: Vec<Symbol>,
    greenlet_start: Option<Symbol>,
    thread_local: Option<ThreadLocal>,
}

impl ElfObject {
    /// Reads a file. Malformed unwind tables are left out, see [`Self::fault`].
    ///
    /// # Errors
    ///
    /// When it is not an ELF file for x86-64, or its headers are malformed.
    pub fn read<S: ByteSource + ?Sized>(source: &S) -> Result<Self, Malformed> {
        let mut object = Self::read_image(source)?;
        object.htlhash = Some(htlhash(source)?);
        Ok(object)
    }

    /// Reads an image from memory, of a file or of the vDSO. It has no file hash, since not the whole file is in
    /// memory.
    ///
    /// # Errors
    ///
    /// See [`Self::read`].
    pub fn read_image<S: ByteSource + ?Sized>(source: &S) -> Result<Self, Malformed> {
        let headers = Headers::read(source)?;
        let notes = ElfNotes::read(source, &headers.segments);
        let (tables, fault) = match UnwindTables::read(source, &headers) {
            Ok(tables) => (tables, None),
            Err(fault) => (None, Some(fault)),
        };
        let go_table = if notes.go { GoTable::find(source, &headers) } else { None };
        let table = SymbolTable::read(source, &headers);
        let find = |names| symbols::find(source, &headers, table.as_ref(), names);
        let symbols = crate::runtime::symbols().flat_map(find).collect();
        let greenlet_start = table.as_ref().and_then(|table| table.find(GREENLET_START)).map(|entry| entry.symbol);
        let thread_local = table.and_then(|table| thread_local::find(&table));
        let mut segments = headers.segments;
        segments.retain(|segment| segment.kind == PT_LOAD);
        Ok(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            segments,
            entry: headers.entry,
            go: notes.go,
            go_table,
            tables,
            fault,
            build_id: notes.build_id,
            htlhash: None,
            symbols,
            greenlet_start,
            thread_local,
        })
    }

    /// The id, which no other object of this process ever has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The unwind tables; `None` if the file has none.
    pub fn tables(&self) -> Option<&UnwindTables> {
        self.tables.as_ref()
    }

    /// Why there are no unwind tables although the file has some.
    pub fn fault(&self) -> Option<&Malformed> {
        self.fault.as_ref()
    }

    /// Whether Go compiled the file: then code without tables keeps frame pointers.
    pub fn is_go(&self) -> bool {
        self.go
    }

    /// The addresses of Go's function table.
    pub fn go_table(&self) -> Option<GoTable> {
        self.go_table
    }

    /// The interpreter symbols that the file defines.
    pub fn symbols(&self) -> &[Symbol] {
        &self.symbols
    }

    /// The symbol with this name, if it is an interpreter symbol.
    pub(crate) fn symbol(&self, name: &str) -> Option<Symbol> {
        self.symbols.iter().find(|symbol| symbol.name == name).copied()
    }

    /// Whether an address of the file is in the function on whose stack a Python greenlet begins.
    pub(crate) fn starts_greenlet(&self, address: u64) -> bool {
        self.greenlet_start.is_some_and(|start| address.wrapping_sub(start.address) < start.size)
    }

    /// The thread-local variable by which a program publishes its threads' trace contexts, if the file defines one.
    pub fn thread_local(&self) -> Option<&ThreadLocal> {
        self.thread_local.as_ref()
    }

    /// The address of the first instruction of the program, or of the dynamic linker.
    pub fn entry(&self) -> u64 {
        self.entry
    }

    /// The GNU build id.
    pub fn build_id(&self) -> Option<&[u8]> {
        self.build_id.as_deref()
    }

    /// The file's hash, see [`htlhash`].
    pub fn htlhash(&self) -> Option<[u8; 16]> {
        self.htlhash
    }

    /// The bias of an executable mapping of `offset` in the file at address `start`: added (wrapping) to an address of
    /// the file, it gives the address in the process. `None` if no segment has that offset.
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        // A page at the border of two segments is mapped with both, so executable segments are tried first.
        let holds = |segment: &&ElfSegment| {
            let first = segment.offset & !(PAGE - 1);
            offset >= first && offset < segment.offset.saturating_add(segment.file_size)
        };
        let executable = self.segments.iter().filter(|segment| segment.executable).find(holds);
        let segment = executable.or_else(|| self.segments.iter().find(holds))?;
        let address = segment.address.wrapping_add(offset.wrapping_sub(segment.offset));
        Some(start.wrapping_sub(address))
    }

    /// The addresses where the executable segments start and end, and the offset in the file where they start.
    pub fn executable_range(&self) -> Option<(u64, u64, u64)> {
        let executable = || self.segments.iter().filter(|segment| segment.executable);
        let first = executable().min_by_key(|segment| segment.address)?;
        let end = executable().map(|segment| segment.address.saturating_add(segment.file_size)).max()?;
        Some((first.address, end, first.offset))
    }

    /// The file offsets of executable bytes within a range of file addresses, each with its address: at most `count`
    /// pieces of `length` bytes, evenly spread.
    pub(crate) fn text_within(&self, range: Range<u64>, length: u64, count: u64) -> Vec<(u64, u64)> {
        let executable = self.segments.iter().filter(|segment| segment.executable);
        let parts = executable.filter_map(|segment| {
            let start = segment.address.max(range.start);
            let end = segment.address.saturating_add(segment.file_size).min(range.end);
            (start.saturating_add(length) <= end).then(|| (segment, start, end - length))
        });
        let Some((segment, start, last)) = parts.max_by_key(|(_, start, last)| last - start) else { return Vec::new() };
        let step = ((last - start) / count.max(1)).max(length);
        let addresses = (0..count).map_while(|nth| Some(start + nth * step).filter(|address| *address <= last));
        addresses.map(|address| (segment.offset.saturating_add(address - segment.address), address)).collect()
    }

    /// The memory used by this object, in bytes.
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + self.tables.as_ref().map_or(0, UnwindTables::memory)
            + self.segments.capacity() * size_of::<ElfSegment>()
            + self.build_id.as_ref().map_or(0, Vec::capacity)
    }
}
