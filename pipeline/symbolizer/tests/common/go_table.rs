//! Handmade function tables of Go, in each format.
#![allow(dead_code, reason = "each test uses a part of it")]

/// The formats, by their first four bytes.
pub(crate) const VERSIONS: [u32; 4] = [0xffff_fffb, 0xffff_fffa, 0xffff_fff0, 0xffff_fff1];

/// A function in a handmade table. Lines and inlining are given for offsets from its start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GoTableFunction<'a> {
    pub(crate) name: &'a str,
    pub(crate) file: &'a str,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// End offset and line of each range.
    pub(crate) lines: &'a [(u32, i32)],
    /// End offset of each range, and the number of the inlined function; -1 for the function itself.
    pub(crate) inlined: &'a [(u32, i32)],
}

/// Encodes runs as Go does: the change of the value, starting from -1, and the length of the run.
fn runs(values: &[(u32, i32)]) -> Vec<u8> {
    let (mut bytes, mut before, mut reached) = (Vec::new(), -1, 0);
    for &(upto, value) in values {
        let change = value - before;
        bytes.extend(super::elf::uleb(u64::from(((change << 1) ^ (change >> 31)) as u32)));
        bytes.extend(super::elf::uleb(u64::from(upto - reached)));
        (before, reached) = (value, upto);
    }
    bytes.push(0);
    bytes
}

/// A table of functions, in order of their starts, for 64-bit addresses with a quantum of one byte.
pub(crate) fn table(magic: u32, functions: &[GoTableFunction<'_>]) -> Vec<u8> {
    let (old, relative) = (magic == VERSIONS[0], magic <= VERSIONS[3] && magic >= VERSIONS[2]);
    let text = functions[0].start;
    let end = functions[functions.len() - 1].end;
    let entry = if relative { 4 } else { 8 };
    // Offset 0 means none, so runs and strings must not start there.
    let (mut names, mut files, mut units, mut all_runs) = (vec![0], vec![0], Vec::new(), vec![0]);
    let mut described = Vec::new();
    for function in functions {
        let mut place = |values: &[(u32, i32)]| {
            let at = all_runs.len() as u32;
            all_runs.extend(runs(values));
            at
        };
        let size = (function.end - function.start) as u32;
        let file_number = if old { described.len() as i32 + 1 } else { 0 };
        let (file_runs, lines) = (place(&[(size, file_number)]), place(function.lines));
        let inlined = if function.inlined.is_empty() { 0 } else { place(function.inlined) };
        described.push((names.len() as u32, units.len() as u32, file_runs, lines, inlined, function.start));
        names.extend(function.name.bytes().chain([0]));
        units.push(files.len() as u32);
        files.extend(function.file.bytes().chain([0]));
    }
    let count = functions.len();
    let header = if old {
        16
    } else if relative {
        72
    } else {
        64
    };
    let starts = count * 2 * entry + entry;
    // In the first format, all offsets are relative to the table's start.
    let fixed = 4 * (10 + usize::from(magic == VERSIONS[3]) + 2);
    let description = entry + fixed;
    // The first format stores the offset of its files here.
    let mut at = header + starts + if old { 8 } else { 0 };
    let mut room = |size: usize| {
        let place = at;
        at += size.next_multiple_of(8);
        place
    };
    let old_files = room(if old { 4 * (count + 1) + 4 } else { 0 });
    let data = room(count * description.next_multiple_of(8));
    let (names_at, units_at) = (room(names.len()), room(units.len() * 4));
    let (files_at, runs_at) = (room(files.len()), room(all_runs.len()));
    let mut bytes = vec![0; at];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &magic.to_le_bytes());
    put(6, &[1, 8]);
    let base = if old { 0 } else { header };
    let mut words = vec![count as u64];
    if !old {
        words.push(count as u64);
        words.extend(relative.then_some(text));
        words.extend([names_at, units_at, files_at, runs_at, header].map(|place| place as u64));
    }
    for (position, word) in words.iter().enumerate() {
        put(8 + 8 * position, &word.to_le_bytes());
    }
    let (name_base, run_base) = if old { (names_at as u32, runs_at as u32) } else { (0, 0) };
    for (position, &(name, unit, file, line, inlined, start)) in described.iter().enumerate() {
        let place = data + position * description.next_multiple_of(8);
        let start = if relative { (start - text).to_le_bytes() } else { start.to_le_bytes() };
        put(header + position * 2 * entry, &start[..entry]);
        put(header + position * 2 * entry + entry, &((place - base) as u64).to_le_bytes()[..entry]);
        put(place, &start[..entry]);
        let moved = |offset: u32| if offset == 0 { 0 } else { offset + run_base };
        let mut fields = vec![name + name_base, 0, 0, 0, moved(file), moved(line), 3];
        fields.extend((!old).then_some(unit));
        fields.extend((magic == VERSIONS[3]).then_some(1));
        fields.extend([0, 0, 0, moved(inlined)]);
        for (field, value) in fields.iter().enumerate() {
            put(place + entry + 4 * field, &value.to_le_bytes());
        }
        if old {
            put(old_files + 4 * (position + 1), &(files_at as u32 + units[position]).to_le_bytes());
        }
    }
    let last = if relative { end - text } else { end };
    put(header + count * 2 * entry, &last.to_le_bytes()[..entry]);
    if old {
        put(header + starts, &(old_files as u32).to_le_bytes());
        put(old_files, &(count as u32 + 1).to_le_bytes());
    } else {
        for (position, unit) in units.iter().enumerate() {
            put(units_at + 4 * position, &unit.to_le_bytes());
        }
    }
    put(names_at, &names);
    put(files_at, &files);
    put(runs_at, &all_runs);
    bytes
}
