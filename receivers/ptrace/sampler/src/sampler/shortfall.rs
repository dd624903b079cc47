//! Counts what the kernel reports as not sampled.

use crate::message::Status;
use crate::perf::record::{Record, parse};
use crate::perf::ring::Ring;

/// What is missing in one reading of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Shortfall {
    /// Records that found no room, or were malformed.
    lost: u64,
    /// How often the kernel paused sampling because there were too many interrupts.
    throttled: u64,
}

impl Shortfall {
    /// Takes the records of wanted processes out of a ring. Returns how many samples of any process there were, and what
    /// is missing.
    pub(super) fn drain(
        ring: &mut Ring,
        wanted: impl Fn(u32) -> bool,
        buffer: &mut Vec<u8>,
        mut each: impl FnMut(Record<'_>),
    ) -> (u64, Self) {
        let (mut samples, mut shortfall) = (0, Self::default());
        let drained = ring.drain(wanted, buffer, |bytes| {
            if let Some(record) = shortfall.record(bytes) {
                samples += u64::from(matches!(record, Record::Sample(_)));
                each(record);
            }
        });
        if drained.broken {
            shortfall.broken();
        }
        (samples + drained.unwanted, shortfall)
    }

    /// Parses a record. Returns it, unless it only reports what is missing, which is counted.
    fn record<'a>(&mut self, record: &'a [u8]) -> Option<Record<'a>> {
        match parse(record) {
            Ok(Record::Lost(count)) => self.lost += count,
            Ok(Record::Throttled) => self.throttled += 1,
            Ok(record) => return Some(record),
            Err(_) => self.lost += 1,
        }
        None
    }

    /// So many samples that found no room.
    pub(super) fn of_lost(lost: u64) -> Self {
        Self { lost, throttled: 0 }
    }

    /// The rest of the ring was malformed.
    fn broken(&mut self) {
        self.lost += 1;
    }

    /// Adds this to the counters of a process.
    pub(super) fn add_to(self, status: &mut Status) {
        status.lost_samples += self.lost;
        status.missed_ticks += self.throttled;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A record that counts as one missed tick, and one that counts as seven lost samples.
    pub(in crate::sampler) fn throttled_and_lost() -> [Vec<u8>; 2] {
        [record(THROTTLE, [1, 2, 3]), record(LOST, [1, 7, 0])]
    }

    const LOST: u32 = 2;
    const THROTTLE: u32 = 5;
    const UNTHROTTLE: u32 = 6;

    /// A record without a sample: its kind, and three words.
    fn record(kind: u32, words: [u64; 3]) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend(32_u16.to_ne_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    /// Guarantees: each time that the kernel pauses sampling is a missed tick, and resuming is none; records that found
    /// no room or are malformed are lost samples.
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
}
