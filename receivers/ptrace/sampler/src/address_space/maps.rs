//! Parses `/proc/PID/maps`.
//!
//! Source of the format: the kernel's `Documentation/filesystems/proc.rst` and `fs/proc/task_mmu.c` (`show_map_vma`).
//! The kernel writes it, but the paths are chosen by the target: they may end in ` (deleted)` or contain line feeds
//! (written as `\012`).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use super::view::{FileId, MapsEntry};
use crate::context::is_publication;
use crate::perf::record::Mapped;

/// The largest number of executable mappings that are kept. The kernel allows 65,530 mappings of all kinds
/// (`vm.max_map_count`).
pub const MAX_ENTRIES: usize = 32_768;
/// How much of a path is kept, in bytes. `PATH_MAX` is 4096.
const MAX_PATH: usize = 4096;

const DELETED: &[u8] = b" (deleted)";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MapsLine {
    pub(super) entry: MapsEntry,
    pub(super) readable: bool,
    pub(super) executable: bool,
    /// Whether this mapping is known only from a kernel record, so that it may be gone by now.
    pub(super) gone: bool,
}

impl MapsLine {
    /// Whether the process publishes its context in this mapping (OTEP 4719). Executable memory is never used for that.
    pub(super) fn is_publication(&self) -> bool {
        self.readable && !self.executable && is_publication(&self.entry.path)
    }
}

/// Parses all lines, in the order of their addresses. Malformed lines are left out, and lines that overlap the
/// previous one, which is possible because the kernel does not write the whole text at one moment.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = MapsLine> + '_ {
    let mut end = 0;
    text.split(|byte| *byte == b'\n').filter_map(parse_line).filter(move |line| {
        let follows = line.entry.start >= end;
        if follows {
            end = line.entry.end;
        }
        follows
    })
}

/// A hash of the executable file mappings and the addresses of process contexts. Memory without a file is not part of
/// it: programs that compile at run time keep adding such memory, and new code is noticed when it is executed. Whether
/// a file was deleted is not part of the hash either.
pub(super) fn fingerprint<'a>(lines: impl Iterator<Item = &'a MapsLine>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let counts = |line: &&MapsLine| line.executable && line.entry.file.inode != 0 || line.is_publication();
    for MapsEntry { start, end, offset, file, path, .. } in lines.filter(counts).map(|line| &line.entry) {
        (start, end, offset, file, path).hash(&mut hasher);
    }
    hasher.finish()
}

/// The executable mappings, at most [`MAX_ENTRIES`], and whether there are more.
pub fn executable(text: &[u8]) -> (Vec<MapsEntry>, bool) {
    let mut lines = lines(text).filter(|line| line.executable).map(|line| line.entry);
    let entries = lines.by_ref().take(MAX_ENTRIES).collect();
    (entries, lines.next().is_some())
}

fn parse_line(text: &[u8]) -> Option<MapsLine> {
    let mut fields = text.splitn(6, |byte| *byte == b' ');
    let (start, end) = pair(fields.next()?, b'-')?;
    let permissions = fields.next()?;
    let offset = number(fields.next()?, 16)?;
    let (major, minor) = pair(fields.next()?, b':')?;
    let inode = number(fields.next()?, 10)?;
    let path = fields.next().unwrap_or_default().trim_ascii_start();
    if start >= end || permissions.len() != 4 {
        return None;
    }
    let file = FileId { device: device_number(major, minor), inode };
    let entry = entry(start..end, offset, file, path, unescape);
    Some(MapsLine { entry, readable: permissions[0] == b'r', executable: permissions[2] == b'x', gone: false })
}

fn entry(range: Range<u64>, offset: u64, file: FileId, path: &[u8], unescape: impl Fn(&[u8]) -> Vec<u8>) -> MapsEntry {
    let (path, deleted) = match path.strip_suffix(DELETED) {
        Some(path) if file.inode != 0 => (path, true),
        _ => (path, false),
    };
    MapsEntry { start: range.start, end: range.end, offset, file, path: unescape(path), deleted }
}

/// Converts a kernel record to an entry of the maps; `None` if it is impossible.
pub(crate) fn recorded(mapped: &Mapped<'_>) -> Option<MapsEntry> {
    let Mapped { process: _, thread: _, time_nano: _, start, length, offset, device, inode, protection: _, path } =
        *mapped;
    let end = start.checked_add(length).filter(|end| *end > start)?;
    let file = FileId { device: device_number(device.0.into(), device.1.into()), inode };
    Some(entry(start..end, offset, file, path, |path| path[..path.len().min(MAX_PATH)].to_vec()))
}

/// Inserts a mapping, and removes whatever else was mapped at its addresses.
pub(super) fn insert_mapping(lines: &mut Vec<MapsLine>, entry: &MapsEntry) {
    let is_same = |line: &MapsLine| {
        let place = entry.start.checked_sub(line.entry.start);
        line.executable
            && line.entry.is_of(entry)
            && entry.end <= line.entry.end
            && place.is_some_and(|place| line.entry.offset.wrapping_add(place) == entry.offset)
    };
    if lines.iter().any(is_same) {
        return;
    }
    let mut put = Vec::with_capacity(lines.len() + 2);
    for line in lines.drain(..) {
        let before = Range { start: line.entry.start, end: line.entry.end.min(entry.start) };
        let behind = Range { start: line.entry.start.max(entry.end), end: line.entry.end };
        for part in [before, behind].into_iter().filter(|part| !part.is_empty()) {
            let offset = line.entry.offset.wrapping_add(part.start - line.entry.start);
            let entry = MapsEntry { start: part.start, end: part.end, offset, ..line.entry.clone() };
            put.push(MapsLine { entry, ..line });
        }
    }
    let place = put.partition_point(|line| line.entry.start < entry.start);
    put.insert(place, MapsLine { entry: entry.clone(), readable: true, executable: true, gone: true });
    *lines = put;
}

fn pair(text: &[u8], separator: u8) -> Option<(u64, u64)> {
    let at = text.iter().position(|byte| *byte == separator)?;
    Some((number(&text[..at], 16)?, number(&text[at + 1..], 16)?))
}

fn number(text: &[u8], radix: u32) -> Option<u64> {
    let digits = std::str::from_utf8(text).ok().filter(|digits| !digits.starts_with('+'))?;
    u64::from_str_radix(digits, radix).ok()
}

/// The device number in the format of `stat` (glibc's `makedev`).
fn device_number(major: u64, minor: u64) -> u64 {
    (major & 0xffff_f000) << 32 | (major & 0xfff) << 8 | (minor & 0xffff_ff00) << 12 | minor & 0xff
}

fn unescape(path: &[u8]) -> Vec<u8> {
    let mut rest = &path[..path.len().min(MAX_PATH)];
    let mut plain = Vec::with_capacity(rest.len());
    while let Some((first, more)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(b"\\012") {
            plain.push(b'\n');
            rest = after;
        } else {
            plain.push(*first);
            rest = more;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "\
55d0c0000000-55d0c0001000 r--p 00000000 fe:01 131 /usr/bin/a b
55d0c0001000-55d0c0005000 r-xp 00001000 fe:01 131                        /usr/bin/a b
7f0000000000-7f0000001000 r-xp 00000000 103:02 99 /tmp/x\\012y (deleted)
7f0000001000-7f0000002000 rwxp 00000000 00:00 0 
7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    /// Guarantees: files, memory without a file and the kernel's mappings are distinguished; paths are kept unchanged.
    #[test]
    fn reads_lines() {
        let (entries, more) = executable(TEXT.as_bytes());
        assert!(!more);
        let paths: Vec<_> = entries.iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned()).collect();
        assert_eq!(paths, ["/usr/bin/a b", "/tmp/x\ny", "", "[vdso]", "[vsyscall]"]);
        assert_eq!(entries[0].file, FileId { device: 0xfe01, inode: 131 });
        assert_eq!((entries[0].start, entries[0].end, entries[0].offset), (0x55d0_c000_1000, 0x55d0_c000_5000, 0x1000));
        assert_eq!(entries[1].file.device, 0x10302);
        assert!(entries[1].deleted && !entries[0].deleted);
        assert_eq!(entries[4].start, 0xffff_ffff_ff60_0000);
    }

    /// Guarantees: a process context is found by its name alone, in readable memory that is not executable; a context
    /// that appears or moves changes the fingerprint.
    #[test]
    fn publications() {
        let found = |text: &str| -> Vec<u64> {
            lines(text.as_bytes()).filter(MapsLine::is_publication).map(|line| line.entry.start).collect()
        };
        let shown = "\
1000-2000 rw-p 00000000 00:01 7                          /memfd:OTEL_CTX (deleted)
2000-3000 r--p 00000000 00:00 0                          [anon:OTEL_CTX]
3000-4000 rw-s 00000000 00:01 7                          [anon_shmem:OTEL_CTX]
4000-5000 r-xp 00000000 00:01 7                          /memfd:OTEL_CTX (deleted)
5000-6000 -w-p 00000000 00:01 7                          /memfd:OTEL_CTX (deleted)
6000-7000 rw-p 00000000 fe:01 7                          /tmp/memfd:OTEL_CTX
7000-8000 rw-p 00000000 00:00 0                          [anon:OTEL]
";
        assert_eq!(found(shown), [0x1000, 0x2000, 0x3000]);
        let fingerprint = |text: String| fingerprint(lines(text.as_bytes()).collect::<Vec<_>>().iter());
        let before = fingerprint(TEXT.to_owned());
        let line =
            |start: u64| format!("{start:x}-{:x} rw-p 00000000 00:01 7 /memfd:OTEL_CTX (deleted)\n", start + 4096);
        assert_ne!(fingerprint(line(0x1000) + TEXT), before);
        assert_ne!(fingerprint(line(0x1000) + TEXT), fingerprint(line(0x5000) + TEXT));
        assert_eq!(fingerprint(format!("1000-2000 rw-p 0 00:01 7 /memfd:other\n{TEXT}")), before);
    }

    /// Guarantees: device numbers equal those of `stat`, within the range that glibc computes.
    #[test]
    fn device_numbers() {
        for (major, minor) in [(0xfe, 1), (0x103, 2), (0, 0x1f3), (0xfff, 0xfffff), (0x1000, 0x12345)] {
            assert_eq!(device_number(major, minor), libc::makedev(major as u32, minor as u32));
        }
    }

    /// Guarantees: invalid lines are skipped and do not stop the parser: reversed and overlapping ranges, missing
    /// fields, other letters, numbers that are too long or have signs.
    #[test]
    fn attack_lines() {
        for nonsense in [
            "2000-1000 r-xp 0 0:0 0",
            "1000-1000 r-xp 0 0:0 0",
            "1000-2000 r-xp 0 0:0",
            "1000-2000 rx 0 0:0 0",
            "+1000-2000 r-xp 0 0:0 0",
            "10000000000000000-20000000000000000 r-xp 0 0:0 0",
            "1000 r-xp 0 0:0 0",
            "\u{1f980}-2000 r-xp 0 0:0 0",
            "",
        ] {
            let text = format!("{nonsense}\n3000-4000 r-xp 0 0:0 0\n3800-5000 r-xp 0 0:0 0\n");
            let (entries, _) = executable(text.as_bytes());
            assert_eq!(entries.iter().map(|entry| entry.start).collect::<Vec<_>>(), [0x3000], "{nonsense}");
        }
    }

    /// Guarantees: more mappings than the limit are reported and not kept.
    #[test]
    fn attack_count() {
        let text: String =
            (1..=MAX_ENTRIES as u64 + 5).map(|page| format!("{page:x}000-{page:x}001 r-xp 0 0:0 0\n")).collect();
        let (entries, more) = executable(text.as_bytes());
        assert_eq!((entries.len(), more), (MAX_ENTRIES, true));
    }

    /// Guarantees: an impossible record is rejected, and its path is treated like those of the maps.
    #[test]
    fn records() {
        let record = |start, length, path| {
            let (process, thread, time_nano, offset, inode) = (1, 1, 1, 0x1000, 131);
            let (device, protection) = ((0xfe, 1), 5);
            recorded(&Mapped { process, thread, time_nano, start, length, offset, device, inode, protection, path })
        };
        let known = executable(b"1000-2000 r-xp 00001000 fe:01 131 /lib/a (deleted)\n").0.remove(0);
        assert_eq!(record(0x1000, 0x1000, b"/lib/a (deleted)"), Some(known));
        assert_eq!(record(0x1000, 0, b"/lib/a"), None);
        assert_eq!(record(u64::MAX, 2, b"/lib/a"), None);
        assert_eq!(record(0, 9, &[b'x'; 5000]).map(|entry| entry.path.len()), Some(MAX_PATH));
    }

    proptest! {
        /// Guarantees: each address has the file and the offset of the last mapping put there; lines stay in order and
        /// do not overlap.
        #[test]
        fn put_in_place(
            maps in prop::collection::vec((0u64..20, 1u64..9, 1u64..4), 0..6),
            records in prop::collection::vec((0u64..20, 1u64..9, 1u64..4), 0..6),
        ) {
            let entry = |&(start, length, inode): &(u64, u64, u64)| MapsEntry {
                start, end: start + length, offset: start * 3, file: FileId { device: 1 << 8, inode },
                path: Vec::new(), deleted: false,
            };
            let mut end = 0;
            let mut lines: Vec<_> = maps.iter().map(|(gap, length, inode)| {
                let entry = entry(&(end + gap % 3, *length, *inode));
                end = entry.end;
                MapsLine { entry, readable: true, executable: true, gone: false }
            }).collect();
            let mut all: Vec<_> = lines.iter().map(|line| line.entry.clone()).collect();
            for record in &records {
                insert_mapping(&mut lines, &entry(record));
                all.push(entry(record));
            }
            let of = |entry: &MapsEntry, address: u64| (entry.file, entry.offset + (address - entry.start));
            for address in 0..60u64 {
                let contains = |entry: &&MapsEntry| (entry.start..entry.end).contains(&address);
                let found = lines.iter().map(|line| &line.entry).find(contains).map(|entry| of(entry, address));
                let last = all.iter().rev().find(contains).map(|entry| of(entry, address));
                prop_assert_eq!(found, last, "{}", address);
            }
            prop_assert!(lines.windows(2).all(|pair| pair[0].entry.end <= pair[1].entry.start));
            prop_assert!(lines.iter().all(|line| line.entry.start < line.entry.end));
        }

        /// Guarantees: no bytes make the parser panic, and its result is ordered and without overlaps.
        #[test]
        fn any_bytes(text in proptest::collection::vec(any::<u8>(), 0..400), lines in "([0-9a-f]{1,4}-[0-9a-f]{1,4} [r-][w-][x-]p [0-9a-f]{1,3} [0-9a-f]:[0-9a-f] [0-9]{1,3} .{0,8}\n){0,8}") {
            for bytes in [text.as_slice(), lines.as_bytes()] {
                let (entries, _) = executable(bytes);
                prop_assert!(entries.iter().all(|entry| entry.start < entry.end));
                prop_assert!(entries.windows(2).all(|pair| pair[0].end <= pair[1].start));
            }
        }
    }
}
