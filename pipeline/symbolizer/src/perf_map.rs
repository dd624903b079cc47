//! Perf maps: the names of what a process compiles at run time (perf, `tools/perf/Documentation/jit-interface.txt`).
//!
//! Lines of `START SIZE NAME`, the numbers hexadecimal, appended while the process runs. Code is moved and freed
//! without notice, so a later line has the addresses it names from then on, whatever was said of them before. What was
//! said before is kept for addresses that were executed earlier.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::text::MAX_NAME;

/// How much is read at a time, in bytes.
const STEP: usize = 256 << 10;
/// A line that is longer names nothing.
const MAX_LINE: usize = MAX_NAME + 64;
/// How many ranges are kept. Large Node applications have some hundred thousand.
const MAX_RANGES: usize = 1 << 20;
/// Beyond this number, all ranges are forgotten whose addresses others have by now.
const MAX_PAST: usize = MAX_RANGES / 4;
/// What a range costs in memory, beside its name.
const RANGE_BYTES: usize = 64;

/// How many bits of a place the address has; above them is the number of the moment.
const ADDRESS_BITS: u32 = 47;

/// An address that was executed at a moment, as it is asked for: `moment` is an index into the lengths that the map had,
/// below [`MAX_MOMENTS`].
#[must_use]
pub fn perf_map_place(address: u64, moment: usize) -> u64 {
    address & ((1 << ADDRESS_BITS) - 1) | (moment.min(MAX_MOMENTS - 1) as u64) << ADDRESS_BITS
}

/// How many moments of a perf map are told apart.
pub const MAX_MOMENTS: usize = 1 << (u64::BITS - ADDRESS_BITS);

/// A perf map, as far as it has been read.
#[derive(Debug, Default)]
pub(crate) struct PerfMap {
    /// By start.
    ranges: BTreeMap<u64, Range>,
    /// Ranges whose addresses others have by now.
    past: Vec<Range>,
    /// The lengths of the file by moments.
    pub(crate) lengths: Arc<Vec<u32>>,
    names: Vec<u8>,
    /// Up to here it has been read: the start of a line.
    offset: u64,
    /// The rest of a line that is too long is being skipped.
    skipping: bool,
    pub(crate) malformed_lines: usize,
    /// It was not read to its end, and will not be.
    pub(crate) full: bool,
}

#[derive(Debug, Clone, Copy)]
struct Range {
    end: u64,
    name: u32,
    name_length: u32,
    /// Where the line ends in the file: it counts from when the file was that long.
    line_end: u64,
    /// The range that had these addresses before, among the past ones.
    before: Option<u32>,
}

impl PerfMap {
    /// Reads what has been appended, up to `limit` bytes in all. A last line without its end is left for the next time.
    /// Returns whether there was anything.
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
                // Whether there is more decides whether something is missing.
                self.full = file.read_at(&mut buffer[..1], self.offset)? > 0;
                break;
            }
            let used = self.take(&buffer[..count]);
            self.offset += used as u64;
            grown |= used > 0;
            if used == 0 || count < wanted {
                // The end, or the limit in the middle of a line.
                self.full |= used == 0 && count as u64 == room && count > 0;
                break;
            }
        }
        Ok(grown)
    }

    /// Takes whole lines, and returns how many bytes they had.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> usize {
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
            if self.line(line, self.offset + used as u64).is_none() {
                self.malformed_lines += 1;
            }
        }
        // Nobody waits for the end of a line without end.
        if bytes.len() - used > MAX_LINE {
            self.malformed_lines += usize::from(!self.skipping);
            self.skipping = true;
            used = bytes.len();
        }
        used
    }

    fn line(&mut self, line: &[u8], line_end: u64) -> Option<()> {
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
        let at = u32::try_from(self.names.len()).ok()?;
        self.names.extend_from_slice(name);
        let (name, name_length) = (at, name.len() as u32);
        self.insert(start, Range { end, name, name_length, line_end, before: None });
        Some(())
    }

    /// Takes the addresses from whoever had them, piece by piece.
    fn insert(&mut self, start: u64, range: Range) {
        if self.past.len() >= MAX_PAST {
            self.past.clear();
            self.ranges.values_mut().for_each(|range| range.before = None);
        }
        self.cut(start);
        self.cut(range.end);
        let mut at = start;
        while let Some((&inside, &other)) = self.ranges.range(at..range.end).next() {
            if at < inside {
                self.ranges.insert(at, Range { end: inside, ..range });
            }
            let before = u32::try_from(self.past.len()).ok();
            self.past.push(other);
            self.ranges.insert(inside, Range { end: other.end, before, ..range });
            at = other.end;
        }
        if at < range.end {
            self.ranges.insert(at, range);
        }
    }

    /// Divides the range that has an address within.
    fn cut(&mut self, at: u64) {
        if let Some((&start, &range)) = self.ranges.range(..at).next_back()
            && range.end > at
        {
            self.ranges.insert(start, Range { end: at, ..range });
            self.ranges.insert(at, range);
        }
    }

    /// The name for an address at a moment, see [`perf_map_place`]: that of the last line by then. Code is executed
    /// before its line is written, so the first line that ever names an address stands for earlier moments, too.
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

    /// What it costs in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.ranges.len() * RANGE_BYTES + self.past.capacity() * size_of::<Range>() + self.names.capacity()
    }
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
