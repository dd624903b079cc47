//! Values that were read from a thread at some moments, and the values between these moments.

use std::time::{Duration, Instant};

/// The longest time between two equal readings during which the value counts as unchanged.
const MOST_BETWEEN: Duration = Duration::from_millis(100);

/// Readings of a value of one thread.
#[derive(Debug)]
pub(super) struct History<T> {
    /// The times from when to when each reading was valid.
    readings: Vec<(Instant, Instant, T)>,
}

impl<T> Default for History<T> {
    fn default() -> Self {
        Self { readings: Vec::new() }
    }
}

impl<T> History<T> {
    /// Adds a reading that was valid from `from` to `until`.
    pub(super) fn note(&mut self, from: Instant, until: Instant, reading: T) {
        self.readings.push((from, until, reading));
    }

    /// The reading that was added last, or the last one by time after sorting.
    pub(super) fn last(&self) -> Option<&T> {
        self.readings.last().map(|(.., reading)| reading)
    }

    /// Sorts the readings by time; required before [`History::around`].
    pub(super) fn sort(&mut self) {
        self.readings.sort_by_key(|(from, ..)| *from);
    }

    /// The readings before and after a moment, if they are at most [`MOST_BETWEEN`] apart.
    pub(super) fn around(&self, at: Instant) -> Option<[&T; 2]> {
        let later = self.readings.partition_point(|(from, ..)| *from <= at);
        let (_, until, before) = self.readings.get(later.checked_sub(1)?)?;
        let (from, _, after) = self.readings.get(later)?;
        (from.saturating_duration_since(*until) <= MOST_BETWEEN).then_some([before, after])
    }

    /// Drops all readings but the last.
    pub(super) fn keep_last(&mut self) {
        self.readings.drain(..self.readings.len().saturating_sub(1));
    }
}
