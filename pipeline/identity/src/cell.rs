//! Cells: the ranges of event time that windows consist of.
//!
//! The cells of a process are adjacent and as long as a window; a phase shifts their start. An observation belongs to
//! the cell of its timestamp, so a sample may lie in several cells. A sample without timestamps has the time range of
//! its profile. If a regular cell contains the whole range, the sample belongs to that cell, and otherwise to a
//! separate cell that starts with the range.

use profbridge_model::Profile;

/// A range of event time, in nanoseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    /// The start, inclusive.
    pub start: u64,
    /// The end, exclusive except at the maximum time.
    pub end: u64,
}

impl Cell {
    /// The cell that sorts before all others.
    pub const FIRST: Self = Self { start: 0, end: 0 };

    /// The cell of a time. Cells are `width` long, and start `phase` after multiples of `width`.
    #[inline]
    pub fn of(time: u64, width: u64, phase: u64) -> Self {
        // Phase and remainder are less than the width, at most a minute, so no sum overflows.
        let inside = (time % width + width - phase) % width;
        Self { start: time.saturating_sub(inside), end: time.saturating_add(width - inside) }
    }

    /// The cell of samples without timestamps. A profile without a time is assumed to start at `unknown`.
    pub fn of_range(profile: &Profile, width: u64, phase: u64, unknown: u64) -> Self {
        let start = if profile.time_unix_nano == 0 { unknown } else { profile.time_unix_nano };
        let end = start.saturating_add(profile.duration_nano);
        let cell = Self::of(start, width, phase);
        if end <= cell.end { cell } else { Self { start, end: end.min(start.saturating_add(width)) } }
    }

    /// Whether the cell contains a time.
    #[inline]
    pub fn contains(self, time: u64) -> bool {
        time >= self.start && (time < self.end || self.end == u64::MAX)
    }

    /// The part of a profile's range inside this cell: `0..0` if the profile has no time, and a range that ends before
    /// its start if the part is empty.
    pub fn clip(self, profile: &Profile) -> std::ops::Range<u64> {
        if profile.time_unix_nano == 0 {
            return 0..0;
        }
        let end = profile.time_unix_nano.saturating_add(profile.duration_nano);
        profile.time_unix_nano.max(self.start)..end.min(self.end)
    }
}

/// Decodes a packed timestamp.
#[inline]
pub fn timestamp(bytes: [u8; 8]) -> u64 {
    u64::from_le_bytes(bytes)
}

/// The number of leading timestamps that lie in a cell.
#[inline]
pub fn leading(timestamps: &[[u8; 8]], cell: Cell) -> usize {
    timestamps.iter().position(|&bytes| !cell.contains(timestamp(bytes))).unwrap_or(timestamps.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Guarantees: each time is in its own cell, cells are as long as a window except at the ends of time, and two
        /// cells are equal or disjoint.
        #[test]
        fn cells_tile_time(a in any::<u64>(), near in 0u64..300, width in 1u64..100, phase in 0u64..100) {
            let phase = phase % width;
            let b = a.saturating_add(near);
            let (first, second) = (Cell::of(a, width, phase), Cell::of(b, width, phase));
            prop_assert!(first.contains(a));
            prop_assert!(second.contains(b));
            prop_assert!(first == second || first.end <= second.start);
            prop_assert!(first.end - first.start <= width);
            if first.start > 0 && first.end < u64::MAX {
                prop_assert_eq!(first.end - first.start, width);
                prop_assert_eq!(first.start % width, phase);
            }
        }

        /// Guarantees: a range that fits into a regular cell belongs to it; any other gets a cell that starts with the
        /// range and is no longer than a window.
        #[test]
        fn ranges_keep_their_start(
            start in 1u64..10_000, duration in 0u64..300, width in 1u64..100, phase in 0u64..100,
        ) {
            let phase = phase % width;
            let profile = Profile { time_unix_nano: start, duration_nano: duration, ..Profile::default() };
            let cell = Cell::of_range(&profile, width, phase, 0);
            prop_assert!(cell.contains(start));
            prop_assert!(cell.end - cell.start <= width);
            prop_assert!(start + duration <= cell.end || cell.start == start && cell.end == start + width);
        }
    }
}
