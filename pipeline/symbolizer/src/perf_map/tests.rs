use proptest::prelude::*;

use super::*;

fn map(text: &str) -> PerfMap {
    let mut map = PerfMap::default();
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
    let mut map = PerfMap::default();
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

proptest! {
    /// Guarantees: every address has the name that the last line that names the address gives it.
    #[test]
    fn the_last_line_wins(lines in prop::collection::vec((0_u64..64, 1_u64..32), 1..40)) {
        let text: String =
            lines.iter().enumerate().map(|(nth, (start, size))| format!("{start:x} {size:x} f{nth}\n")).collect();
        let map = map(&text);
        for address in 0..100 {
            let last = lines.iter().rposition(|&(start, size)| (start..start + size).contains(&address));
            let expected = last.map(|nth| format!("f{nth}"));
            prop_assert_eq!(map.find(address).map(|name| String::from_utf8(name.to_vec()).unwrap()), expected);
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
