//! Records about samples that the kernel left out.

use super::*;

/// A record that counts as one missed tick, and one that counts as seven lost samples.
pub(in crate::sampler) fn throttled_and_lost() -> [Vec<u8>; 2] {
    [record(THROTTLE, [1, 2, 3]), record(LOST, [1, 7, 0])]
}

const LOST: u32 = 2;
const THROTTLE: u32 = 5;
const UNTHROTTLE: u32 = 6;

/// A record without a sample: its type, and three words.
fn record(kind: u32, words: [u64; 3]) -> Vec<u8> {
    let mut bytes = kind.to_ne_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend(32_u16.to_ne_bytes());
    bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    bytes
}

/// Guarantees: each pause of the kernel's sampling counts as a missed tick, and its end does not count; records for
/// which there was no room and malformed ones count as lost samples.
#[test]
fn what_is_missing() {
    let mut shortfall = Shortfall::default();
    let mut status = Status { missed_ticks: 100, lost_samples: 1000, ..Status::default() };
    for kind in [THROTTLE, UNTHROTTLE, THROTTLE] {
        shortfall.record(&record(kind, [1, 2, 3]));
    }
    shortfall.add_to(&mut status);
    assert_eq!((status.missed_ticks, status.lost_samples), (102, 1000));
    shortfall = Shortfall::default();
    assert_eq!(shortfall.record(&record(LOST, [1, 7, 0])), None);
    assert_eq!(shortfall.record(&[0; 8]), None);
    shortfall.broken();
    shortfall.add_to(&mut status);
    assert_eq!((status.missed_ticks, status.lost_samples), (102, 1009));
}
