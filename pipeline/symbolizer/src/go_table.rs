//! Reads Go's own table of functions, files and lines (`pclntab`). Stripping keeps it, because Go's runtime needs it.
//!
//! Supported formats: Go 1.2 to 1.15, 1.16 and 1.17, 1.18 and 1.19, and since 1.20 (golang/go
//! `src/debug/gosym/pclntab.go`, `src/runtime/symtab.go`). In each format, a sorted table maps an address to a
//! function, which has the offset of its name and of runs of variable-length integers that encode file and line. Every
//! offset is checked before it is used, nothing recurses, and [`Steps`] limits how many runs are decoded.
//!
//! The names of inlined functions are in data without a section of its own. This table says only whether an address is
//! in an inlined function. File and line of such an address belong to a function whose name is unknown, so they are
//! omitted.

use crate::Unknown;
use crate::elf::{Elf, ElfFields};
use crate::text::MAX_NAME;

/// The format of a table, by its first four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    Go1_2,
    Go1_16,
    Go1_18,
    Go1_20,
}

/// The maximum number of runs that are decoded for one address. The longest functions in Go programs, which are
/// generated, have about ten thousand.
const MAX_RUNS: u32 = 1 << 16;

/// The maximum number of runs that are decoded for one batch: 16,384 addresses in long functions.
const MAX_STEPS: u64 = 1 << 26;

/// The index of the table that marks addresses in inlined functions (golang/go `src/internal/abi/symtab.go`,
/// `PCDATA_InlTreeIndex`). The table exists since Go 1.9 and has this index since 1.12.
const INLINED: u32 = 2;

/// The index of the field `text` in `runtime.moduledata`, in words (golang/go `src/runtime/symtab.go`, since Go 1.18).
const TEXT_IN_MODULE: u64 = 22;

/// The number of runs that may still be decoded.
#[derive(Debug)]
pub(crate) struct Steps(u64);

impl Steps {
    /// The number of runs for one batch of addresses.
    pub(crate) fn new() -> Self {
        Self(MAX_STEPS)
    }
}

/// The function table of one file.
#[derive(Debug)]
pub(crate) struct GoTable {
    bytes: Vec<u8>,
    little_endian: bool,
    version: Version,
    /// Instruction addresses are multiples of this.
    quantum: u64,
    /// Pointer size in bytes: 4 or 8.
    word: usize,
    /// The address to which function starts are relative since Go 1.18; 0 before.
    text: u64,
    functions: usize,
    names: usize,
    /// Offset of the file numbers of compilation units, since Go 1.16.
    units: usize,
    files: usize,
    runs: usize,
    /// The offset to which the functions' offsets are relative.
    data: usize,
    /// Offset of the table of function starts.
    table: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GoFunction<'a> {
    /// The name as Go writes it: package path, receiver and name.
    pub(crate) name: &'a [u8],
    entry: u64,
    /// Offset of the function's description.
    at: usize,
}

impl GoTable {
    /// Reads the table of a file, of at most `limit` bytes. `None` if the file has no such table.
    pub(crate) fn read(elf: &Elf, limit: usize) -> Result<Option<Self>, Unknown> {
        let section = elf.section(b".gopclntab").or_else(|| elf.section(b".data.rel.ro.gopclntab"));
        let Some(section) = section else { return Ok(None) };
        let bytes = elf.data(section, limit)?;
        let fields = ElfFields { bytes: &bytes, little_endian: elf.little_endian };
        let version = match fields.u32(0) {
            Some(0xffff_fffb) => Version::Go1_2,
            Some(0xffff_fffa) => Version::Go1_16,
            Some(0xffff_fff0) => Version::Go1_18,
            Some(0xffff_fff1) => Version::Go1_20,
            Some(_) => return Err(Unknown::Unsupported),
            None => return Err(Unknown::Malformed),
        };
        let &[_, _, _, _, 0, 0, quantum @ (1 | 2 | 4), word @ (4 | 8), ..] = &*bytes else {
            return Err(Unknown::Malformed);
        };
        let word = usize::from(word);
        let number = |position: usize| {
            let at = 8 + position * word;
            let number = if word == 8 { fields.u64(at) } else { fields.u32(at).map(u64::from) };
            number.ok_or(Unknown::Malformed)
        };
        let place = |position: usize| {
            let place = usize::try_from(number(position)?).ok().filter(|&place| place < bytes.len());
            place.ok_or(Unknown::Malformed)
        };
        let functions = usize::try_from(number(0)?).map_err(|_| Unknown::Malformed)?;
        let mut table = Self {
            little_endian: elf.little_endian,
            version,
            quantum: u64::from(quantum),
            word,
            text: 0,
            functions,
            names: 0,
            units: 0,
            files: 0,
            runs: 0,
            data: 0,
            table: 8 + word,
            bytes: Vec::new(),
        };
        match version {
            Version::Go1_2 => {
                // The table of files follows that of functions.
                let behind = functions.checked_mul(2 * word).and_then(|size| size.checked_add(8 + 2 * word));
                let files = behind.and_then(|at| fields.u32(at)).ok_or(Unknown::Malformed)?;
                table.files = files as usize;
            }
            Version::Go1_16 => {
                (table.names, table.units, table.files) = (place(2)?, place(3)?, place(4)?);
                (table.runs, table.data) = (place(5)?, place(6)?);
                table.table = table.data;
            }
            Version::Go1_18 | Version::Go1_20 => {
                table.text = number(2)?;
                (table.names, table.units, table.files) = (place(3)?, place(4)?, place(5)?);
                (table.runs, table.data) = (place(6)?, place(7)?);
                table.table = table.data;
            }
        }
        let entries = functions.checked_mul(2 * table.start_size()).and_then(|size| size.checked_add(table.table));
        if entries.is_none_or(|end| end > bytes.len()) {
            return Err(Unknown::Malformed);
        }
        table.bytes = bytes;
        if version >= Version::Go1_18 && table.text == 0 {
            table.text = table.find_text(elf).ok_or(Unknown::Unsupported)?;
        }
        Ok(Some(table))
    }

    /// The address of the first function, if the table lacks it: Go 1.26 no longer writes it, and in
    /// position-independent programs it is filled in at load time. Uses the address in `runtime.moduledata`, or else
    /// the start of `.text`, but only if the program's entry point is Go's: otherwise a C linker put other code there
    /// first.
    fn find_text(&self, elf: &Elf) -> Option<u64> {
        let code = elf.code();
        let in_code = |&text: &u64| code.iter().any(|&(start, end)| (start..end).contains(&text));
        let module = elf.section(b".go.module").and_then(|section| {
            let at = TEXT_IN_MODULE * self.word as u64;
            let bytes = elf.part(section, at, self.word as u64).ok()?;
            let fields = ElfFields { bytes: &bytes, little_endian: self.little_endian };
            if self.word == 8 { fields.u64(0) } else { fields.u32(0).map(u64::from) }
        });
        module.filter(in_code).or_else(|| {
            let text = elf.section(b".text")?.address;
            let entry = elf.entry.checked_sub(text)?;
            let function = self.function_at(entry)?;
            (function.entry == entry && function.name.starts_with(b"_rt0_")).then_some(text)
        })
    }

    fn fields(&self) -> ElfFields<'_> {
        ElfFields { bytes: &self.bytes, little_endian: self.little_endian }
    }

    /// Size of one entry of the table of starts, in bytes.
    fn start_size(&self) -> usize {
        if self.version >= Version::Go1_18 { 4 } else { self.word }
    }

    /// An entry of the table of starts, which has two entries for each function and one for the end.
    fn start(&self, position: usize) -> Option<u64> {
        let size = self.start_size();
        let at = position.checked_mul(size)?.checked_add(self.table)?;
        if size == 8 { self.fields().u64(at) } else { self.fields().u32(at).map(u64::from) }
    }

    /// The function that contains an address.
    pub(crate) fn function(&self, address: u64) -> Option<GoFunction<'_>> {
        self.function_at(address.checked_sub(self.text)?)
    }

    fn function_at(&self, address: u64) -> Option<GoFunction<'_>> {
        // Finds the first function that starts after the address. The binary search ends even if the table is not
        // sorted.
        let (mut low, mut high) = (0, self.functions);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.start(2 * middle)? <= address { low = middle + 1 } else { high = middle }
        }
        let position = low.checked_sub(1)?;
        let (entry, end) = (self.start(2 * position)?, self.start(2 * position + 2)?);
        if !(entry..end).contains(&address) {
            return None;
        }
        let at = usize::try_from(self.start(2 * position + 1)?).ok()?.checked_add(self.data)?;
        let name = self.fields().u32(at.checked_add(self.start_size())?)?;
        let name = text(&self.bytes, self.names.checked_add(name as usize)?)?;
        (!name.is_empty()).then_some(GoFunction { name, entry, at })
    }

    /// File and line of an address in a function. `None` if they are unknown or belong to an inlined function.
    pub(crate) fn line(&self, function: &GoFunction<'_>, address: u64, steps: &mut Steps) -> Option<(&[u8], u32)> {
        let target = address.checked_sub(self.text)?;
        let fields = self.fields();
        // After the start and the name come: arguments, deferred calls, then the offsets of the runs for stack sizes,
        // files and lines, and the number of further runs. The offsets of the further runs follow the unit (since Go
        // 1.16), the first line (since 1.20), and four more bytes.
        let field =
            |position: usize| fields.u32(function.at.checked_add(self.start_size())?.checked_add(4 * position)?);
        let others = match self.version {
            Version::Go1_2 => 8,
            Version::Go1_16 | Version::Go1_18 => 9,
            Version::Go1_20 => 10,
        };
        if field(6)? > INLINED {
            let runs = field(others + INLINED as usize)?;
            let inlined = if runs == 0 { -1 } else { self.value(runs, function.entry, target, steps)? };
            if inlined != -1 {
                return None;
            }
        }
        let line = u32::try_from(self.value(field(5)?, function.entry, target, steps)?).ok()?;
        let number = u32::try_from(self.value(field(4)?, function.entry, target, steps)?).ok()?;
        let at = if self.version == Version::Go1_2 {
            fields.u32(self.files.checked_add(4 * number as usize)?)? as usize
        } else {
            let unit = (field(7)? as usize).checked_add(number as usize)?;
            let offset = fields.u32(self.units.checked_add(unit.checked_mul(4)?)?)?;
            self.files.checked_add(offset as usize)?
        };
        Some((text(&self.bytes, at)?, line)).filter(|(file, _)| !file.is_empty())
    }

    /// The value that a sequence of runs gives for an address. Each run consists of a change of the value and the
    /// length of code for which the value holds. The value starts at -1; a change of 0, except for the first, ends the
    /// sequence.
    fn value(&self, runs: u32, entry: u64, target: u64, steps: &mut Steps) -> Option<i32> {
        let mut rest = self.bytes.get(self.runs.checked_add(runs as usize)?..)?;
        let (mut value, mut reach) = (-1_i32, entry);
        for run in 0..MAX_RUNS {
            steps.0 = steps.0.checked_sub(1)?;
            let change = number(&mut rest)?;
            if change == 0 && run > 0 {
                return None;
            }
            value = value.wrapping_add((change >> 1) as i32 ^ -((change & 1) as i32));
            reach = reach.checked_add(u64::from(number(&mut rest)?).checked_mul(self.quantum)?)?;
            if target < reach {
                return Some(value);
            }
        }
        None
    }

    /// Approximate heap size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

/// Decodes an unsigned LEB128 integer of at most 32 bits.
fn number(bytes: &mut &[u8]) -> Option<u32> {
    let mut number = 0_u32;
    for shift in (0..35).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u32::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// A zero-terminated string, truncated if it is too long.
fn text(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let rest = bytes.get(at..)?;
    let rest = &rest[..rest.len().min(MAX_NAME)];
    Some(rest.split(|&byte| byte == 0).next().unwrap_or_default())
}
