//! The time line of one window, and the packing of an observation into eight bytes.
//!
//! A key contains a time relative to the window's start, and a number that refers to the observed data. Keys of one
//! thread sort by time as plain integers. Relative times have 36 bits, in nanoseconds for windows up to 68 s; a longer
//! window uses coarser ticks, whose length is a power of two.

use profbridge_model::ProcessWindow;

/// Number of bits for the number in a key.
pub(super) const NUMBER_BITS: u32 = 28;

/// The first number that does not fit into a key.
pub(super) const NUMBERS: usize = 1 << NUMBER_BITS;

const TICK_BITS: u32 = 64 - NUMBER_BITS;

/// Builds a key from a relative time and a number, both within their bits.
#[inline]
pub(super) fn key(tick: u64, number: u32) -> u64 {
    tick << NUMBER_BITS | u64::from(number)
}

/// The relative time of a key.
#[inline]
pub(super) fn tick(key: u64) -> u64 {
    key >> NUMBER_BITS
}

#[inline]
pub(super) fn number(key: u64) -> usize {
    (key & (NUMBERS as u64 - 1)) as usize
}

/// The data that all observations of a row share.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowObservation {
    /// The stack's number in [`Window::stacks`](super::observe::Window::stacks).
    pub(super) stack: u32,
    /// The sampled time that one observation represents, in ticks.
    pub(super) weight: u64,
    /// Whether the thread may have waited: see [`Meaning::wall`](profbridge_model::Meaning::wall).
    pub(super) wall: bool,
    /// Whether the weight is a measured time, as opposed to the period of a timer that jitters.
    pub(super) exact: bool,
    /// Whether this is a further piece of a divided observation, which is counted only with its first piece.
    pub(super) piece: bool,
}

/// A window's time line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Timeline {
    /// The window's start, in nanoseconds since the Unix epoch.
    pub(super) start: u64,
    /// The window's end, in nanoseconds since the Unix epoch.
    pub(super) end: u64,
    shift: u32,
}

impl Timeline {
    pub(super) fn new(window: &ProcessWindow) -> Self {
        let (start, end) = (window.start_unix_nano, window.end_unix_nano.max(window.start_unix_nano));
        let bits = 64 - (end - start).leading_zeros();
        Self { start, end, shift: bits.saturating_sub(TICK_BITS) }
    }

    /// Converts a time to a relative one; `None` if it is outside of the window.
    #[inline]
    pub(super) fn tick(&self, unix_nano: u64) -> Option<u64> {
        (self.start <= unix_nano && unix_nano <= self.end).then(|| (unix_nano - self.start) >> self.shift)
    }

    /// Converts a duration to ticks, limited to the window's length.
    #[inline]
    pub(super) fn ticks(&self, nanos: u64) -> u64 {
        nanos.min(self.end - self.start) >> self.shift
    }

    /// The part of a duration that exceeds the window's length, in nanoseconds.
    #[inline]
    pub(super) fn beyond(&self, nanos: u64) -> u64 {
        nanos.saturating_sub(self.end - self.start)
    }

    /// Converts a duration of any length to ticks.
    pub(super) fn ticks_unclipped(&self, nanos: u64) -> u64 {
        nanos >> self.shift
    }

    /// Converts ticks to nanoseconds.
    pub(super) fn nanos(&self, ticks: u64) -> u64 {
        ticks.saturating_mul(1 << self.shift)
    }

    /// Converts a relative time to nanoseconds since the Unix epoch.
    #[inline]
    pub(super) fn unix_nano(&self, tick: u64) -> u64 {
        self.start + (tick << self.shift)
    }

    /// The relative time of the window's end.
    pub(super) fn last(&self) -> u64 {
        (self.end - self.start) >> self.shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profbridge_model::{IdentityStrength, ProfilerId};
    use proptest::prelude::*;

    fn timeline(start: u64, end: u64) -> Timeline {
        Timeline::new(&ProcessWindow {
            profiler_id: ProfilerId::from_hash(1),
            strength: IdentityStrength::Strong,
            start_unix_nano: start,
            end_unix_nano: end,
        })
    }

    proptest! {
        /// Guarantees: in a window of a minute, times are converted and back to the nanosecond, and a key preserves
        /// time and number.
        /// rule: sample-format-v2#sample-timestamp, event-schema#chunk-timestamp
        #[test]
        fn exact(start in 0..u64::MAX - 60_000_000_000, offset in 0..=60_000_000_000_u64, n in 0..NUMBERS as u32) {
            let line = timeline(start, start + 60_000_000_000);
            let at = line.tick(start + offset).unwrap();
            prop_assert_eq!(line.unix_nano(at), start + offset);
            prop_assert_eq!((tick(key(at, n)), number(key(at, n))), (at, n as usize));
        }

        /// Guarantees: no window, of any length, gives a relative time that overflows or is outside of the window.
        #[test]
        fn any_window(start: u64, end: u64, at: u64) {
            let line = timeline(start, end);
            prop_assert!(line.last() < 1 << TICK_BITS);
            if let Some(tick) = line.tick(at) {
                prop_assert!(tick <= line.last());
                prop_assert!(line.unix_nano(tick) <= at && line.unix_nano(tick) >= start);
            }
            prop_assert!(line.ticks(u64::MAX) <= line.last());
        }
    }

    /// Guarantees: both ends of the window are inside, the adjacent times are outside.
    #[test]
    fn boundaries() {
        let line = timeline(1_000, 2_000);
        assert_eq!(line.tick(1_000), Some(0));
        assert_eq!(line.tick(2_000), Some(1_000));
        assert_eq!((line.tick(999), line.tick(2_001), line.tick(0), line.tick(u64::MAX)), (None, None, None, None));
    }
}
