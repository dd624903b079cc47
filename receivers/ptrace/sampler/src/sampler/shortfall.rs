//! Counts samples that the kernel reports as missing.

use std::ops::ControlFlow;

use crate::message::Status;
use crate::perf::record::{Record, SampleHead, parse};
use crate::perf::ring::Ring;

/// The numbers of missing samples and ticks after one reading of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Shortfall {
    /// Records for which the ring had no room, and malformed ones.
    lost: u64,
    /// How many times the kernel paused sampling because there were too many interrupts.
    throttled: u64,
}

impl Shortfall {
    /// Reads the records of wanted processes from a ring. Returns the number of samples of all processes, and what is
    /// missing.
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

    /// Like [`Self::drain`], but stops at the first record for which `each` breaks; that record stays in the ring.
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

    /// Parses a record, and returns it. A record that only reports missing samples is counted instead.
    fn record<'a>(&mut self, record: &'a [u8]) -> Option<Record<'a>> {
        match parse(record) {
            Ok(Record::Lost(count)) => self.lost += count,
            Ok(Record::Throttled) => self.throttled += 1,
            Ok(record) => return Some(record),
            Err(_) => self.lost += 1,
        }
        None
    }

    /// This many samples for which there was no room.
    pub(super) fn of_lost(lost: u64) -> Self {
        Self { lost, throttled: 0 }
    }

    /// Counts that the rest of the ring was malformed.
    fn broken(&mut self) {
        self.lost += 1;
    }

    /// Adds the missing samples to the counters of a process.
    pub(super) fn add_to(self, status: &mut Status) {
        status.lost_samples += self.lost;
        status.missed_ticks += self.throttled;
    }
}

#[cfg(test)]
pub(super) mod tests;
