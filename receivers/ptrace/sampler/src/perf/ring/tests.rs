//! Rings in this program's own memory, to which the tests write as the kernel does.

use proptest::prelude::*;

use super::*;
use crate::perf::record::tests::{EncodedSample, record};
use crate::perf::record::{Record, parse};

/// Writes to a ring as the kernel does.
struct RingWriter {
    ring: Ring,
    head: u64,
}

impl RingWriter {
    /// A ring of 32 KiB whose head and tail are at `position`.
    fn new(position: u64) -> Self {
        let page = page_size().unwrap();
        let base = map(None, page + SMALLEST).unwrap();
        let ring = Ring { base, page, size: SMALLEST };
        ring.place(HEAD).store(position, Ordering::Relaxed);
        ring.place(TAIL).store(position, Ordering::Relaxed);
        Self { ring, head: position }
    }

    /// Writes a record, if there is room.
    fn write(&mut self, bytes: &[u8]) -> bool {
        let used = self.head.wrapping_sub(self.ring.place(TAIL).load(Ordering::Acquire));
        if used + bytes.len() as u64 > self.ring.size as u64 {
            return false;
        }
        for (offset, byte) in bytes.iter().enumerate() {
            let at = (self.head.wrapping_add(offset as u64) % self.ring.size as u64) as usize;
            #[allow(unsafe_code, reason = "as the kernel does")]
            // SAFETY: the remainder of the division keeps the address within the mapping.
            unsafe {
                self.ring.base.as_ptr().add(self.ring.page + at).write(*byte);
            }
        }
        self.head = self.head.wrapping_add(bytes.len() as u64);
        self.ring.place(HEAD).store(self.head, Ordering::Release);
        true
    }

    fn drain(&mut self) -> (Vec<Vec<u8>>, Drained) {
        let (mut records, mut buffer) = (Vec::new(), Vec::new());
        let drained = self.ring.drain(|process| process == 7, &mut buffer, |bytes| records.push(bytes.to_vec()));
        (records, drained)
    }
}

/// A ring that contains these records.
pub(crate) fn ring_of(records: &[&[u8]]) -> Ring {
    let mut kernel = RingWriter::new(0);
    for record in records {
        assert!(kernel.write(record));
    }
    kernel.ring
}

/// A ring with switch samples: process, thread, time, and whether the thread was in a system call.
pub(crate) fn switches(of: &[(u32, u32, u64, bool)]) -> Ring {
    let sample = |&(process, thread, time, in_call): &(u32, u32, u64, bool)| {
        let mut sample = EncodedSample { process, thread, time, period: 1, ..EncodedSample::default() };
        if in_call {
            sample.registers[2] = sample.registers[8];
        }
        sample.bytes()
    };
    let records: Vec<Vec<u8>> = of.iter().map(sample).collect();
    ring_of(&records.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// A ring with a switch sample, followed by a sample of running time.
pub(crate) fn switch_and_sample() -> Ring {
    ring_of(&[&EncodedSample { period: 1, ..EncodedSample::default() }.bytes(), &EncodedSample::default().bytes()])
}

proptest! {
    /// Guarantees: records come out in order and once, wherever they lie in the ring, also across its end and when the
    /// positions overflow; only records without room are missing.
    #[test]
    fn order(
        position in prop_oneof![Just(u64::MAX - 15), Just(0), any::<u64>()],
        batches in prop::collection::vec(prop::collection::vec(0usize..900, 1..20), 1..8),
    ) {
        let mut kernel = RingWriter::new(position & !7);
        let mut number = 0_u64;
        for batch in batches {
            let mut expected = Vec::new();
            for blocks in batch {
                number += 1;
                let stack = vec![number as u8; blocks * 8];
                let valid = stack.len() as u64;
                let sample = EncodedSample { time: number, valid, stack, ..EncodedSample::default() }.bytes();
                if kernel.write(&sample) {
                    expected.push(sample);
                }
            }
            let (records, drained) = kernel.drain();
            prop_assert_eq!(records, expected);
            prop_assert_eq!(drained, Drained::default());
            prop_assert!(kernel.ring.is_empty());
        }
    }

    /// Guarantees: whatever the ring contains and whatever positions the kernel reports, reading terminates and yields
    /// only whole records.
    #[test]
    fn nonsense(bytes in prop::collection::vec(any::<u8>(), 0..4096), head: u64) {
        let mut kernel = RingWriter::new(0);
        kernel.write(&bytes);
        let (records, _) = kernel.drain();
        prop_assert!(records.iter().all(|record| record.len() >= HEADER));
        prop_assert!(kernel.ring.is_empty());
        kernel.ring.place(HEAD).store(head, Ordering::Relaxed);
        kernel.drain();
        prop_assert!(kernel.ring.is_empty());
    }
}

/// Guarantees: samples of other processes are counted but not passed on; other records are passed on.
#[test]
fn other_processes() {
    let mut kernel = RingWriter::new(0);
    assert!(kernel.write(&EncodedSample { process: 6, ..EncodedSample::default() }.bytes()));
    assert!(kernel.write(&EncodedSample::default().bytes()));
    assert!(kernel.write(&EncodedSample { process: u32::MAX, ..EncodedSample::default() }.bytes()));
    assert!(kernel.write(&record(2, 0, &[0; 16])));
    let (records, drained) = kernel.drain();
    assert_eq!(drained, Drained { unwanted: 2, broken: false });
    assert_eq!(records.len(), 2);
    assert!(matches!(parse(&records[0]), Ok(Record::Sample(sample)) if sample.process == 7));
    assert!(matches!(parse(&records[1]), Ok(Record::Lost(0))));
}

/// Guarantees: an invalid length, or one beyond the written part, ends this read, and later records can be read.
#[test]
fn broken() {
    for bad in [vec![0; 8], record(9, 0, &[0; 8])[..8].to_vec(), vec![9, 0, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0]] {
        let mut kernel = RingWriter::new(0);
        assert!(kernel.write(&bad));
        let (records, drained) = kernel.drain();
        assert!(records.is_empty() && drained.broken, "{bad:?}");
        let next = EncodedSample::default().bytes();
        assert!(kernel.write(&next));
        assert_eq!(kernel.drain().0, [next]);
    }
}
