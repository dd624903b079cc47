use proptest::prelude::*;

use super::*;

/// A map that is as long as it ever gets.
fn map(text: &str) -> PerfMap {
    let mut map = PerfMap { lengths: Arc::new(vec![u32::MAX]), ..PerfMap::default() };
    map.take(text.as_bytes());
    map
}

/// Guarantees: lines that make no sense are counted and name nothing.
#[test]
fn malformed_lines() {
    let text =
        "\n1000\n1000 10\n1000 10 \nxyz 10 a\n1000 0 a\n-1 10 a\nffffffffffffffff 10 a\n10000000000000000 1 a\n1 1 a\n";
    let map = map(text);
    assert_eq!(map.malformed_lines, 9);
    assert_eq!(map.find(1), Some(&b"a"[..]));
    assert_eq!(map.ranges.len(), 1);
}

/// Guarantees: a line of megabytes is skipped, is counted once, takes no memory, and ends where the next line starts.
#[test]
fn endless_lines() {
    let mut map = map("");
    let step = vec![b'a'; STEP];
    for _ in 0..10 {
        assert_eq!(map.take(&step), STEP);
    }
    assert_eq!(map.malformed_lines, 1);
    map.take(b"rest\n1000 10 f\n");
    assert_eq!(map.find(0x1000), Some(&b"f"[..]));
    assert!(map.bytes() < 1000);
}

/// Guarantees: as many ranges as allowed are kept, however many the file has.
#[test]
fn ranges_are_limited() {
    let mut map = PerfMap::default();
    let lines: String = (0..MAX_RANGES as u64 + 10).map(|number| format!("{:x} 1 f\n", number * 2)).collect();
    map.take(lines.as_bytes());
    assert!(map.full);
    assert!(map.ranges.len() <= MAX_RANGES);
}

/// Guarantees: what is replaced for ever takes a bounded amount of memory, and the last names stay.
#[test]
fn past_ranges_are_limited() {
    let mut map = map("0 10000000 whole\n");
    let lines: String = (0..10_000_u64).map(|number| format!("{:x} 1 f{number}\n", number * 2)).collect();
    for _ in 0..MAX_PAST / 10_000 + 2 {
        map.take(lines.as_bytes());
        assert!(map.past.len() <= MAX_PAST);
    }
    assert!(!map.full && map.ranges.len() <= 20_001);
    assert_eq!(map.find(4_000), Some(&b"f2000"[..]));
    assert_eq!(map.find(4_001), Some(&b"whole"[..]));
}

proptest! {
    /// Guarantees: at every moment, each address has the name that the last line by then gives it; at earlier moments
    /// than any line for it, that of the first one. A moment is a length of the file, wherever in a line that ends.
    #[test]
    fn the_last_line_by_then(
        lines in prop::collection::vec((0_u64..64, 1_u64..32), 1..30), lengths in prop::collection::vec(0_u32..300, 5)
    ) {
        let lines: Vec<_> =
            lines.iter().enumerate().map(|(nth, (start, size))| format!("{start:x} {size:x} f{nth}\n")).collect();
        let mut map = PerfMap { lengths: Arc::new(lengths.clone()), ..PerfMap::default() };
        let mut ends = Vec::new();
        for line in &lines {
            map.offset += map.take(line.as_bytes()) as u64;
            ends.push(u32::try_from(map.offset).unwrap());
        }
        for (moment, length) in lengths.into_iter().enumerate() {
            for address in 0..100 {
                let named = lines.iter().zip(&ends).filter(|(line, _)| {
                    let mut words = line.split(' ').map(|word| u64::from_str_radix(word, 16));
                    let (start, size) = (words.next().unwrap().unwrap(), words.next().unwrap().unwrap());
                    (start..start + size).contains(&address)
                });
                let by_then = named.clone().filter(|(_, end)| **end <= length).last();
                let expected = by_then.or(named.clone().next()).and_then(|(line, _)| line.trim().rsplit(' ').next());
                let found = map.find(perf_map_place(address, moment)).map(|name| std::str::from_utf8(name).unwrap());
                prop_assert_eq!(found, expected, "{} at {}", address, length);
            }
        }
    }

    /// Guarantees: no bytes make it panic, however they are cut into pieces.
    #[test]
    fn any_bytes(bytes in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b' '), Just(b'f'), any::<u8>()], 0..300)) {
        let mut map = PerfMap::default();
        let mut at = 0;
        for end in (0..=bytes.len()).step_by(7) {
            at += map.take(&bytes[at..end.max(at)]);
        }
    }
}
