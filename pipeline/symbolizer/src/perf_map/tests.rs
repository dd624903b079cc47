use proptest::prelude::*;

use super::*;

/// A map at its full length.
fn map(text: &str) -> PerfMap {
    let mut map = PerfMap { lengths: Arc::new(vec![u32::MAX]), ..PerfMap::default() };
    map.parse(text.as_bytes());
    map
}

/// Guarantees: malformed lines are counted and add no names.
#[test]
fn malformed_lines() {
    let text =
        "\n1000\n1000 10\n1000 10 \nxyz 10 a\n1000 0 a\n-1 10 a\nffffffffffffffff 10 a\n10000000000000000 1 a\n1 1 a\n";
    let map = map(text);
    assert_eq!(map.malformed_lines, 9);
    assert_eq!(map.find(1), Some(&b"a"[..]));
    assert_eq!(map.ranges.len(), 1);
}

/// Guarantees: a line of megabytes is skipped, is counted once, takes no memory, and does not affect the next line.
#[test]
fn endless_lines() {
    let mut map = map("");
    let step = vec![b'a'; STEP];
    for _ in 0..10 {
        assert_eq!(map.parse(&step), STEP);
    }
    assert_eq!(map.malformed_lines, 1);
    map.parse(b"rest\n1000 10 f\n");
    assert_eq!(map.find(0x1000), Some(&b"f"[..]));
    assert!(map.bytes() < 1000);
}

/// Guarantees: the number of stored ranges is limited, however many the file has.
#[test]
fn ranges_are_limited() {
    let mut map = PerfMap::default();
    let lines: String = (0..MAX_RANGES as u64 + 10).map(|number| format!("{:x} 1 f\n", number * 2)).collect();
    map.parse(lines.as_bytes());
    assert!(map.full);
    assert!(map.ranges.len() <= MAX_RANGES);
}

/// Guarantees: replaced ranges take a bounded amount of memory, and current names stay.
#[test]
fn past_ranges_are_limited() {
    let mut map = map("0 10000000 whole\n");
    let lines: String = (0..10_000_u64).map(|number| format!("{:x} 1 f{number}\n", number * 2)).collect();
    for _ in 0..MAX_PAST / 10_000 + 2 {
        map.parse(lines.as_bytes());
        assert!(map.past.len() <= MAX_PAST);
    }
    assert!(!map.full && map.ranges.len() <= 20_001);
    assert_eq!(map.find(4_000), Some(&b"f2000"[..]));
    assert_eq!(map.find(4_001), Some(&b"whole"[..]));
}

/// A jitdump header that has the given length.
fn dump_header() -> Vec<u8> {
    [&b"DTiJ"[..], &1_u32.to_le_bytes(), &40_u32.to_le_bytes(), &[0; 28]].concat()
}

/// A record of a jitdump file.
fn dump_record(kind: u32, numbers: &[u64], rest: &[u8]) -> Vec<u8> {
    let body: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).chain(rest.iter().copied()).collect();
    [&kind.to_le_bytes()[..], &(16 + body.len() as u32).to_le_bytes(), &[0; 8], &body].concat()
}

/// Parses a file in pieces, as it grows.
fn grown(bytes: &[u8], step: usize, lengths: Vec<u32>) -> PerfMap {
    let mut map = PerfMap { lengths: Arc::new(lengths), ..PerfMap::default() };
    for end in (0..=bytes.len()).step_by(step).chain([bytes.len()]) {
        while let Some(rest) = bytes.get(usize::try_from(map.offset).unwrap()..end) {
            let used = map.parse(rest) as u64;
            map.offset += used;
            if used == 0 {
                break;
            }
        }
    }
    map
}

/// Guarantees: a jitdump file names code like a perf map, each name from the time when its record was complete. The
/// code in the file is not read, other record types are ignored, and moved code keeps its name.
#[test]
fn dumps() {
    let load = |start, name: &str, code| {
        dump_record(0, &[0, 0, start, 0x100, 1], &[name.as_bytes(), &vec![0xcc; code]].concat())
    };
    let records = [
        load(0x1000, "old\0", 5),
        dump_record(2, &[0x1000, 7], b"debug information"),
        load(0x1000, "new\0", 100_000),
        dump_record(1, &[0, 0, 0x1000, 0x5000, 0x100, 1], b""),
        load(0x5000, "", 0),
        load(0x1000, "newest\0", 0),
    ];
    let mut bytes = dump_header();
    let mut lengths = vec![0];
    for record in &records {
        bytes.extend(record);
        lengths.push(u32::try_from(bytes.len()).unwrap());
    }
    for step in [1, 7, 64, 5_000, 1 << 20] {
        let map = grown(&bytes, step, lengths.clone());
        let name =
            |address, moment| map.find(perf_map_place(address, moment)).map(|name| std::str::from_utf8(name).unwrap());
        assert_eq!([0, 1, 2, 3, 6].map(|moment| name(0x10ff, moment).unwrap()), ["old", "old", "old", "new", "newest"]);
        assert_eq!((name(0x5000, 6), name(0x1100, 6), map.malformed_lines), (Some("new"), None, 1), "{step}");
    }
    // After a record without a length, the rest of the file is unreadable.
    bytes.extend([0; 16]);
    bytes.extend(load(0x9000, "behind\0", 0));
    let map = grown(&bytes, 1 << 20, vec![u32::MAX]);
    assert!(map.full && map.find(0x9000).is_none());
}

proptest! {
    /// Guarantees: no jitdump file causes a panic or an endless loop, however it is split.
    #[test]
    fn any_dump(
        records in prop::collection::vec((0_u32..4, prop::collection::vec(any::<u64>(), 0..9), any::<[u8; 9]>()), 0..9),
        step in 1_usize..300, length: u32, at in 0_usize..400
    ) {
        let mut bytes = dump_header();
        bytes.extend(records.iter().flat_map(|(kind, numbers, rest)| dump_record(*kind, numbers, rest)));
        if let Some(place) = bytes.get_mut(at..at + 4) {
            place.copy_from_slice(&length.to_le_bytes());
        }
        grown(&bytes, step, vec![u32::MAX]);
    }

    /// Guarantees: at every moment, each address has the name of the last line written by then, or else of its first
    /// line. A moment is a length of the file, which may end within a line.
    #[test]
    fn the_last_line_by_then(
        lines in prop::collection::vec((0_u64..64, 1_u64..32), 1..30), lengths in prop::collection::vec(0_u32..300, 5)
    ) {
        let lines: Vec<_> =
            lines.iter().enumerate().map(|(nth, (start, size))| format!("{start:x} {size:x} f{nth}\n")).collect();
        let mut map = PerfMap { lengths: Arc::new(lengths.clone()), ..PerfMap::default() };
        let mut ends = Vec::new();
        for line in &lines {
            map.offset += map.parse(line.as_bytes()) as u64;
            ends.push(u32::try_from(map.offset).unwrap());
        }
        for (moment, length) in lengths.into_iter().enumerate() {
            for address in 0..100 {
                let named = lines.iter().zip(&ends).filter(|(line, _)| {
                    let mut words = line.split(' ').map(|word| u64::from_str_radix(word, 16));
                    let (start, size) = (words.next().unwrap().unwrap(), words.next().unwrap().unwrap());
                    (start..start + size).contains(&address)
                });
                let by_then = named.clone().rfind(|(_, end)| **end <= length);
                let expected = by_then.or(named.clone().next()).and_then(|(line, _)| line.trim().rsplit(' ').next());
                let found = map.find(perf_map_place(address, moment)).map(|name| std::str::from_utf8(name).unwrap());
                prop_assert_eq!(found, expected, "{} at {}", address, length);
            }
        }
    }

    /// Guarantees: no bytes cause a panic, however they are split.
    #[test]
    fn any_bytes(bytes in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b' '), Just(b'f'), any::<u8>()], 0..300)) {
        let mut map = PerfMap::default();
        let mut at = 0;
        for end in (0..=bytes.len()).step_by(7) {
            at += map.parse(&bytes[at..end.max(at)]);
        }
    }
}
