//! Counts what the kernel reports as not sampled.

use std::ops::ControlFlow;

use crate::message::Status;
use crate::perf::record::{Record, SampleHead, parse};
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
        wanted: impl FnMut(SampleHead) -> bool,
        buffer: &mut Vec<u8>,
        mut each: impl FnMut(Record<'_>),
    ) -> (u64, Self) {
        Self::drain_until(ring, wanted, buffer, |record| {
            each(record);
            ControlFlow::Continue(())
        })
    }

    /// The same up to the first record that is broken off at, which stays.
    pub(super) fn drain_until(
        ring: &mut Ring,
        wanted: impl FnMut(SampleHead) -> bool,
        buffer: &mut Vec<u8>,
        mut each: impl FnMut(Record<'_>) -> ControlFlow<()>,
    ) -> (u64, Self) {
        let (mut samples, mut shortfall) = (0, Self::default());
        let drained = ring.drain_until(wanted, buffer, |bytes| {
            let Some(record) = shortfall.record(bytes) else { return ControlFlow::Continue(()) };
            let is_sample = matches!(record, Record::Sample(_));
            each(record)?;
            samples += u64::from(is_sample);
            ControlFlow::Continue(())
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
pub(super) mod tests;
