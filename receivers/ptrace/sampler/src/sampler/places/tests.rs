use proptest::prelude::*;

use super::*;

fn ranges() -> CodeRanges {
    CodeRanges::new([(0x7000, 0x8000), (0x1000, 0x2000), (0x2000, 0x3000)])
}

fn place(ip: u64, sp: u64, words: &[u64]) -> WaitPlace {
    let stack: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    WaitPlace::new(ip, sp, &stack, &mut ranges())
}

/// Guarantees: two waits are at the same place if and only if the instruction pointer, the stack pointer and all words
/// that point into code are equal, each at the same distance from the stack pointer; other words do not matter, nor
/// does an incomplete last word.
#[test]
fn one_place() {
    let known = place(0x1100, 0x9000, &[5, 0x1200, 6, 0x7fff, 0x8000]);
    assert_eq!(known, place(0x1100, 0x9000, &[7, 0x1200, 0, 0x7fff, 0x9999]));
    for other in [
        place(0x1101, 0x9000, &[5, 0x1200, 6, 0x7fff, 0x8000]),
        place(0x1100, 0x9008, &[5, 0x1200, 6, 0x7fff, 0x8000]),
        place(0x1100, 0x9000, &[5, 0x1201, 6, 0x7fff, 0x8000]),
        place(0x1100, 0x9000, &[5, 0x1200, 0x7fff, 6, 0x8000]),
        place(0x1100, 0x9000, &[5, 0x1200, 6, 0x7fff, 0x2fff]),
        place(0x1100, 0x9000, &[5, 0x1200, 6]),
    ] {
        assert_ne!(known, other);
    }
    let odd = [1, 2, 3];
    assert_eq!(WaitPlace::new(1, 2, &odd, &mut ranges()), WaitPlace::new(1, 2, &[], &mut ranges()));
}

/// Guarantees: a place that is looked up repeatedly is kept, however many others are used only once; the limit is never
/// exceeded.
#[test]
fn bounded() {
    let mut places = Places::default();
    let often = place(0, 0, &[]);
    places.insert(often, 0, 8);
    for number in 1..1_000 {
        assert_eq!(places.get(&often), Some(&0), "{number}");
        let once = place(number, 0, &[]);
        assert_eq!(places.get(&once), None);
        places.insert(once, number, 8);
        assert!(places.known.len() <= 8);
    }
    places.insert(often, 1, 8);
    assert_eq!(places.get(&often), Some(&1));
    places.clear();
    assert_eq!(places.get(&often), None);
}

proptest! {
    /// Guarantees: an address is in code if and only if a range contains it, no matter which address was looked up
    /// before.
    #[test]
    fn code(starts in prop::collection::vec((0u64..60, 1u64..4), 0..8), addresses in prop::collection::vec(0u64..300, 1..60)) {
        // Ranges that do not overlap, as in a real process.
        let mut disjoint = Vec::new();
        let mut end = 0;
        for (gap, length) in starts {
            disjoint.push((end + gap, end + gap + length));
            end += gap + length;
        }
        let mut ranges = CodeRanges::new(disjoint.iter().rev().copied());
        for address in addresses {
            let truth = disjoint.iter().any(|(start, end)| (*start..*end).contains(&address));
            prop_assert_eq!(ranges.contains(address), truth);
        }
    }
}
