//! Reads perf maps: names of code that a process compiles at run time (perf,
//! `tools/perf/Documentation/jit-interface.txt`), and jitdump files, which also contain the code
//! (`jitdump-specification.txt` in the same folder).
//!
//! A perf map has lines of `START SIZE NAME`, with numbers in hexadecimal, which are appended while the process runs.
//! Code is moved and freed without notice, so a later line replaces earlier ones for its addresses. Earlier names are
//! kept for addresses that were executed before.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::text::MAX_NAME;

/// The number of bytes that are read at a time.
const STEP: usize = 256 << 10;
/// The magic number of a jitdump file in this machine's byte order, and the record types that are used.
const DUMP: &[u8] = b"DTiJ";
const LOAD: u64 = 0;
const MOVE: u64 = 1;
/// The maximum length of a line. Longer lines are skipped.
const MAX_LINE: usize = MAX_NAME + 64;
/// The maximum number of ranges. Large Node applications have some hundred thousand.
const MAX_RANGES: usize = 1 << 20;
/// The maximum number of replaced ranges. Above it all of them are dropped.
const MAX_PAST: usize = MAX_RANGES / 4;
/// The memory of a range without its name, in bytes.
const RANGE_BYTES: usize = 64;

/// The number of low bits of an encoded place that contain the address; the bits above them contain the moment.
const ADDRESS_BITS: u32 = 47;

/// Encodes an address and the moment at which it was executed, as an address for the symbolizer. `moment` is an index
/// into the recorded lengths of the map, below [`MAX_MOMENTS`].
#[must_use]
pub fn perf_map_place(address: u64, moment: usize) -> u64 {
    address & ((1 << ADDRESS_BITS) - 1) | (moment.min(MAX_MOMENTS - 1) as u64) << ADDRESS_BITS
}

/// The maximum number of moments that can be distinguished in a perf map.
pub const MAX_MOMENTS: usize = 1 << (u64::BITS - ADDRESS_BITS);

/// The part of a perf map that was read so far.
#[derive(Debug, Default)]
pub(crate) struct PerfMap {
    /// Current ranges, by start.
    ranges: BTreeMap<u64, NamedRange>,
    /// Ranges that later lines replaced.
    past: Vec<NamedRange>,
    /// The length of the file at each moment.
    pub(crate) lengths: Arc<Vec<u32>>,
    names: Vec<u8>,
    /// Offset of the first line that was not read yet.
    offset: u64,
    /// Whether this is a jitdump file.
    is_dump: bool,
    /// Whether the rest of a line is being skipped because the line is too long.
    skipping: bool,
    pub(crate) malformed_lines: usize,
    /// Whether reading stopped before the end and will not continue.
    pub(crate) full: bool,
}

#[derive(Debug, Clone, Copy)]
struct NamedRange {
    end: u64,
    name: u32,
    name_length: u32,
    /// The length of the file after this line. The range is valid once the file had this length.
    line_end: u64,
    /// Index in `past` of the range that had these addresses before.
    before: Option<u32>,
}

impl PerfMap {
    /// Reads the data that was appended since the last call, up to `limit` bytes of the file in total. An incomplete
    /// last line is left for the next call. Returns whether there was new data.
    pub(crate) fn read(&mut self, file: &File, limit: u64) -> io::Result<bool> {
        let mut buffer = vec![0; STEP];
        let mut grown = false;
        while !self.full {
            let room = limit.saturating_sub(self.offset);
            let wanted = usize::try_from(room).unwrap_or(STEP).min(STEP);
            let count = match file.read_at(&mut buffer[..wanted], self.offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            };
            if wanted == 0 {
                // One more byte shows whether the limit cuts off any data.
                self.full = file.read_at(&mut buffer[..1], self.offset)? > 0;
                break;
            }
            let used = self.parse(&buffer[..count]);
            self.offset += used as u64;
            grown |= used > 0;
            if used == 0 || count < wanted {
                // This is either the end of the file, or a line that exceeds the limit.
                self.full |= used == 0 && count as u64 == room && count > 0;
                break;
            }
        }
        Ok(grown)
    }

    /// Parses complete lines and returns their length in bytes.
    pub(crate) fn parse(&mut self, bytes: &[u8]) -> usize {
        self.is_dump |= self.offset == 0 && bytes.starts_with(DUMP);
        if self.is_dump {
            return self.parse_records(bytes);
        }
        let mut used = 0;
        while let Some(length) = bytes[used..].iter().position(|&byte| byte == b'\n') {
            let line = &bytes[used..used + length];
            used += length + 1;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if self.ranges.len() >= MAX_RANGES {
                self.full = true;
                break;
            }
            if self.parse_line(line, self.offset + used as u64).is_none() {
                self.malformed_lines += 1;
            }
        }
        // A line that is already too long is skipped without waiting for its end.
        if bytes.len() - used > MAX_LINE {
            self.malformed_lines += usize::from(!self.skipping);
            self.skipping = true;
            used = bytes.len();
        }
        used
    }

    fn parse_line(&mut self, line: &[u8], line_end: u64) -> Option<()> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > MAX_LINE {
            return None;
        }
        let mut parts = line.splitn(3, |&byte| byte == b' ');
        let start = hexadecimal(parts.next()?)?;
        let size = hexadecimal(parts.next()?)?;
        let name = parts.next()?;
        let end = start.checked_add(size)?;
        if size == 0 || name.is_empty() {
            return None;
        }
        self.add_range(start..end, name, line_end)
    }

    fn add_range(&mut self, range: std::ops::Range<u64>, name: &[u8], line_end: u64) -> Option<()> {
        let at = u32::try_from(self.names.len()).ok()?;
        self.names.extend_from_slice(name);
        let (name, name_length) = (at, name.len() as u32);
        self.insert(range.start, NamedRange { end: range.end, name, name_length, line_end, before: None });
        Some(())
    }

    /// Parses jitdump records whose headers are complete, and returns their length in bytes. This may exceed the length
    /// of `bytes`, because the code of the last record is not needed and may be missing.
    fn parse_records(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        if self.offset == 0 {
            // The header's length follows the magic number and the version.
            let Some(length) = number(bytes, 8, 4).filter(|length| *length >= 40) else { return 0 };
            used = length as usize;
        }
        while let Some(record) = bytes.get(used..).filter(|_| !self.full)
            && let (Some(kind), Some(length)) = (number(record, 0, 4), number(record, 4, 4))
        {
            if length < 16 || self.ranges.len() >= MAX_RANGES {
                // Without a valid size, the start of the next record is unknown.
                self.full = true;
                break;
            }
            let Some(head) = record.get(..(length as usize).min(MAX_LINE)) else { break };
            let known = match kind {
                LOAD => self.parse_code_load(head, self.offset + used as u64 + length),
                MOVE => self.parse_code_move(head, self.offset + used as u64 + length),
                _ => Some(()),
            };
            self.malformed_lines += usize::from(known.is_none());
            used += length as usize;
        }
        used
    }

    /// Parses a record `JIT_CODE_LOAD`: after the record header come process, thread, a number, the address, the
    /// length, another number, and the name.
    fn parse_code_load(&mut self, record: &[u8], end: u64) -> Option<()> {
        let (start, size) = (number(record, 32, 8)?, number(record, 40, 8)?);
        let name = record.get(56..)?.split(|byte| *byte == 0).next().filter(|name| !name.is_empty())?;
        let range = start..start.checked_add(size).filter(|end| *end > start)?;
        self.add_range(range, name, end)
    }

    /// Parses a record `JIT_CODE_MOVE`: the old address, the new address, and the length.
    fn parse_code_move(&mut self, record: &[u8], end: u64) -> Option<()> {
        let (old, start, size) = (number(record, 32, 8)?, number(record, 40, 8)?, number(record, 48, 8)?);
        let (_, range) = self.ranges.range(..=old).next_back().filter(|(_, range)| old < range.end)?;
        let range = NamedRange {
            end: start.checked_add(size).filter(|end| *end > start)?,
            line_end: end,
            before: None,
            ..*range
        };
        self.insert(start, range);
        Some(())
    }

    /// Inserts a range and removes its addresses from all others.
    fn insert(&mut self, start: u64, range: NamedRange) {
        if self.past.len() >= MAX_PAST {
            self.past.clear();
            self.ranges.values_mut().for_each(|range| range.before = None);
        }
        self.cut(start);
        self.cut(range.end);
        let mut at = start;
        while let Some((&inside, &other)) = self.ranges.range(at..range.end).next() {
            if at < inside {
                self.ranges.insert(at, NamedRange { end: inside, ..range });
            }
            let before = u32::try_from(self.past.len()).ok();
            self.past.push(other);
            self.ranges.insert(inside, NamedRange { end: other.end, before, ..range });
            at = other.end;
        }
        if at < range.end {
            self.ranges.insert(at, range);
        }
    }

    /// Splits the range that contains an address at that address.
    fn cut(&mut self, at: u64) {
        if let Some((&start, &range)) = self.ranges.range(..at).next_back()
            && range.end > at
        {
            self.ranges.insert(start, NamedRange { end: at, ..range });
            self.ranges.insert(at, range);
        }
    }

    /// The name of a place (see [`perf_map_place`]), from the last line written before its moment. Code runs before its
    /// line is written, so the first line for an address is also valid for earlier moments.
    pub(crate) fn find(&self, place: u64) -> Option<&[u8]> {
        let address = place & ((1 << ADDRESS_BITS) - 1);
        let length = self.lengths.get((place >> ADDRESS_BITS) as usize).map_or(0, |length| u64::from(*length));
        let (_, mut range) = self.ranges.range(..=address).next_back().filter(|(_, range)| address < range.end)?;
        while range.line_end > length
            && let Some(before) = range.before.and_then(|before| self.past.get(before as usize))
        {
            range = before;
        }
        let start = range.name as usize;
        self.names.get(start..start + range.name_length as usize)
    }

    /// Approximate heap size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.ranges.len() * RANGE_BYTES + self.past.capacity() * size_of::<NamedRange>() + self.names.capacity()
    }
}

/// A little-endian integer of `length` bytes.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    Some(bytes.get(at..at + length)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let digits = digits.strip_prefix(b"0x").unwrap_or(digits);
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, &digit| Some(number << 4 | u64::from((digit as char).to_digit(16)?)))
}

#[cfg(test)]
mod tests;
