//! Perf maps: the names of what a process compiles at run time (perf, `tools/perf/Documentation/jit-interface.txt`).
//!
//! Lines of `START SIZE NAME`, the numbers hexadecimal, appended while the process runs. Code is moved and freed
//! without notice, so a later line has the addresses it names, whatever was said of them before.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::text::MAX_NAME;

/// How much is read at a time, in bytes.
const STEP: usize = 256 << 10;
/// A line that is longer names nothing.
const MAX_LINE: usize = MAX_NAME + 64;
/// How many ranges are kept. Large Node applications have some hundred thousand.
const MAX_RANGES: usize = 1 << 20;
/// What a range costs in memory, beside its name.
const RANGE_BYTES: usize = 48;

/// A perf map, as far as it has been read.
#[derive(Debug, Default)]
pub(crate) struct PerfMap {
    /// By start.
    ranges: BTreeMap<u64, Range>,
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
            if self.line(line).is_none() {
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

    fn line(&mut self, line: &[u8]) -> Option<()> {
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
        self.insert(start, Range { end, name: at, name_length: name.len() as u32 });
        Some(())
    }

    /// Takes the addresses from whoever had them.
    fn insert(&mut self, start: u64, range: Range) {
        if let Some((&before, &other)) = self.ranges.range(..start).next_back()
            && other.end > start
        {
            self.ranges.insert(before, Range { end: start, ..other });
            if other.end > range.end {
                self.ranges.insert(range.end, other);
            }
        }
        while let Some((&inside, &other)) = self.ranges.range(start..range.end).next() {
            self.ranges.remove(&inside);
            if other.end > range.end {
                self.ranges.insert(range.end, other);
            }
        }
        self.ranges.insert(start, range);
    }

    /// The name for an address.
    pub(crate) fn find(&self, address: u64) -> Option<&[u8]> {
        let (_, range) = self.ranges.range(..=address).next_back()?;
        let start = range.name as usize;
        (address < range.end).then(|| &self.names[start..start + range.name_length as usize])
    }

    /// What it costs in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.ranges.len() * RANGE_BYTES + self.names.capacity()
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
