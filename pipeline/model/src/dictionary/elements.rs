//! The elements of the tables, with OTLP's fields.

use crate::buffer::ByteRange;
use crate::id::{AttributeSetId, FunctionId, MapIds, MappingId, StringId};

/// An element of `mapping_table`: a file mapped into a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Mapping {
    /// The address at which the mapping starts.
    pub memory_start: u64,
    /// The first address after the mapping.
    pub memory_limit: u64,
    /// The offset in the file that corresponds to `memory_start`, in bytes.
    pub file_offset: u64,
    /// The file's name.
    pub filename: Option<StringId>,
    /// The attributes, such as `process.executable.build_id.gnu`.
    pub attributes: Option<AttributeSetId>,
}

impl Mapping {
    #[inline(always)]
    pub(crate) fn map_ids<M: MapIds>(self, map: &mut M) -> Result<Self, M::Error> {
        let Self { memory_start, memory_limit, file_offset, filename, attributes } = self;
        let filename = map.string(filename, "filename_strindex")?;
        Ok(Self { memory_start, memory_limit, file_offset, filename, attributes: map.attribute_set(attributes)? })
    }

    /// Whether the mapping contains an address.
    pub fn contains(&self, address: u64) -> bool {
        (self.memory_start..self.memory_limit).contains(&address)
    }

    /// How far the mapping's addresses were moved when the file was loaded, in bytes; 0 if they are the addresses for
    /// which the file was linked.
    ///
    /// OTLP profiles contain both kinds. The eBPF profiler sends virtual addresses of the ELF file, wherever the
    /// process has it mapped (open-telemetry/opentelemetry-ebpf-profiler `processmanager/manager.go`). pprof has
    /// addresses in the process's memory (google/pprof `proto/profile.proto`, `Mapping`): they equal the file's own if
    /// it was linked for a fixed address (`ET_EXEC`), and are moved if it is position-independent (`ET_DYN`). The
    /// profile does not say which kind it has, but no file is linked for an address of 4 GiB or more (the medium code
    /// model ends at 2 GiB), and Linux maps position-independent files above 4 GiB on every 64-bit machine (the lowest,
    /// in 39-bit address spaces, at 0x2a_aaaa_a000).
    ///
    /// A position-independent file is linked from address 0 on. So code at an offset in the file has that offset as its
    /// address, and the difference to the mapped address is how far the file was moved. This is exact for GNU ld and
    /// for Go. LLD places each segment one page further behind its file offset than the segment before, which a mapping
    /// does not show: for LLD the result is exact for the first segment, and one page too much for each segment before
    /// this one.
    pub fn moved_by(&self) -> u64 {
        Some(self.memory_start.saturating_sub(self.file_offset)).filter(|&by| by >= MOVED).unwrap_or(0)
    }

    /// The 4 KiB page of an address, as an address for which the file was linked: so the same code has the same name
    /// even if another process maps the file elsewhere.
    ///
    /// Without the file it is unknown where functions start. With a name per address, a loop would look like as many
    /// functions as it has instructions. A page contains about ten functions, and is small enough to be looked up
    /// (`objdump --start-address`).
    pub fn page_of(&self, address: u64) -> Option<u64> {
        self.contains(address).then(|| address.saturating_sub(self.moved_by()) & !(PAGE - 1))
    }

    /// The offset in the file of an address in the mapping, in bytes. Exact for every linker.
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        self.contains(address).then(|| address - self.memory_start)?.checked_add(self.file_offset)
    }
}

/// How many bytes of code share a name if function boundaries are unknown.
const PAGE: u64 = 4096;

/// Mappings from this address on belong to relocated files.
const MOVED: u64 = 1 << 32;

/// An element of `function_table`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Function {
    /// The name, human-readable where possible.
    pub name: Option<StringId>,
    /// The name in the system's form, for instance mangled.
    pub system_name: Option<StringId>,
    /// The source file.
    pub filename: Option<StringId>,
    /// The line on which the function starts; 0 if unknown.
    pub start_line: i64,
}

impl Function {
    #[inline(always)]
    pub(crate) fn map_ids<M: MapIds>(self, map: &mut M) -> Result<Self, M::Error> {
        let Self { name, system_name, filename, start_line } = self;
        let name = map.string(name, "name_strindex")?;
        let system_name = map.string(system_name, "system_name_strindex")?;
        Ok(Self { name, system_name, filename: map.string(filename, "filename_strindex")?, start_line })
    }
}

/// An element of `Location.lines`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Line {
    /// The function.
    pub function: Option<FunctionId>,
    /// The line, 1-based; 0 if unknown.
    pub line: i64,
    /// The column, 1-based; 0 if unknown.
    pub column: i64,
}

impl Line {
    #[inline(always)]
    pub(crate) fn map_ids<M: MapIds>(self, map: &mut M) -> Result<Self, M::Error> {
        let Self { function, line, column } = self;
        Ok(Self { function: map.function(function)?, line, column })
    }
}

/// An element of `location_table`: an instruction, or a place in an interpreted program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Location {
    /// The mapping that contains the address.
    pub mapping: Option<MappingId>,
    /// The address. For native frames of the eBPF profiler an address in the ELF file's address space.
    pub address: u64,
    /// The attributes, such as `profile.frame.type`.
    pub attributes: Option<AttributeSetId>,
    /// The position of the first line in the table of lines.
    pub lines_start: u32,
    /// The number of lines. More than one means that functions were inlined: the first line is that of the innermost
    /// callee.
    pub lines_len: u32,
}

impl Location {
    /// Keeps the range of lines, which are mapped separately.
    #[inline(always)]
    pub(crate) fn map_ids<M: MapIds>(self, map: &mut M) -> Result<Self, M::Error> {
        let Self { mapping, address, attributes, lines_start, lines_len } = self;
        let mapping = map.mapping(mapping)?;
        Ok(Self { mapping, address, attributes: map.attribute_set(attributes)?, lines_start, lines_len })
    }
}

/// An element of `link_table`: the span during which a sample was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Link {
    /// The trace.
    pub trace_id: [u8; 16],
    /// The span.
    pub span_id: [u8; 8],
}

/// OTLP's `AnyValue`. Strings are elements of the string table, whether they were inline or references.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value {
    /// Not set.
    #[default]
    Empty,
    /// A string; `None` is the empty string.
    String(Option<StringId>),
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Double(f64),
    /// Bytes, in the buffer.
    Bytes(ByteRange),
    /// An array.
    Array(Box<[Value]>),
    /// A list of keys and values.
    KeyValueList(Box<[Attribute]>),
}

/// An element of `attribute_table` (`KeyValueAndUnit`), or an attribute of a resource or scope (`KeyValue`).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Attribute {
    /// The key.
    pub key: Option<StringId>,
    /// The value.
    pub value: Value,
    /// The unit, in UCUM; never set on attributes of resources and scopes.
    pub unit: Option<StringId>,
}
