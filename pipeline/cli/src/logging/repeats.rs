//! Limits repeated lines: writes the first ones, counts the rest, and logs the count.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use tracing::Level;
use tracing::callsite::Identifier;

/// How long lines of one kind are counted together.
const WINDOW: Duration = Duration::from_secs(60);

/// How many lines from one place in a library are written in that time. A peer could make libraries log a line for each
/// frame that it sends.
const FROM_ONE_PLACE: u64 = 5;

/// How many equal lines of profbridge itself are written in that time.
const EQUAL: u64 = 20;

/// The most kinds of lines that are counted at the same time. Lines of further kinds are written without counting.
const MOST_KINDS: usize = 256;

/// Identifies a kind of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LineKindId {
    of: u64,
    limit: u64,
}

/// Describes lines that were not written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) level: Level,
    more: u64,
    like: String,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "... and {} more like this within {} s: {}", grouped(self.more), WINDOW.as_secs(), self.like)
    }
}

/// The lines of the last minute, by kind.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    kinds: HashMap<LineKindId, LineKind>,
    hashing: RandomState,
}

#[derive(Debug)]
struct LineKind {
    since: Instant,
    lines: u64,
    level: Level,
    /// The last line that was written.
    like: String,
}

impl Repeats {
    /// The kind for lines from one place in the code.
    pub(super) fn of_place(&self, place: &Identifier) -> LineKindId {
        LineKindId { of: self.hashing.hash_one(place), limit: FROM_ONE_PLACE }
    }

    /// The kind for equal lines.
    pub(super) fn of_text(&self, place: &Identifier, text: &str) -> LineKindId {
        LineKindId { of: self.hashing.hash_one((place, text)), limit: EQUAL }
    }

    /// Counts a line, and returns whether to write it.
    pub(super) fn admits(&mut self, key: LineKindId, now: Instant) -> bool {
        if let Some(kind) = self.kinds.get_mut(&key) {
            kind.lines += 1;
            return kind.lines <= key.limit;
        }
        if self.kinds.len() < MOST_KINDS {
            self.kinds.insert(key, LineKind { since: now, lines: 1, level: Level::INFO, like: String::new() });
        }
        true
    }

    /// Stores a written line, to quote it in the summary.
    pub(super) fn written(&mut self, key: LineKindId, level: Level, text: &str) {
        if let Some(kind) = self.kinds.get_mut(&key) {
            kind.level = level;
            kind.like.clear();
            kind.like.push_str(text);
        }
    }

    /// Removes the kinds whose minute is over, and returns their summaries.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Summary> {
        self.take(|kind| now.saturating_duration_since(kind.since) >= WINDOW)
    }

    /// Removes all kinds, and returns their summaries.
    pub(super) fn take_all(&mut self) -> Vec<Summary> {
        self.take(|_| true)
    }

    /// Time until the next summary is due; `None` if there is none.
    pub(super) fn next_due(&self, now: Instant) -> Option<Duration> {
        let kinds = self.kinds.iter().filter(|(key, kind)| kind.lines > key.limit);
        let first = kinds.map(|(_, kind)| kind.since + WINDOW).min()?;
        Some(first.saturating_duration_since(now))
    }

    fn take(&mut self, ends: impl Fn(&LineKind) -> bool) -> Vec<Summary> {
        let mut summaries = Vec::new();
        for (key, kind) in self.kinds.extract_if(|_, kind| ends(kind)) {
            let more = kind.lines.saturating_sub(key.limit);
            if more > 0 {
                summaries.push((kind.since, Summary { level: kind.level, more, like: kind.like }));
            }
        }
        summaries.sort_by_key(|(since, _)| *since);
        summaries.into_iter().map(|(_, summary)| summary).collect()
    }
}

/// Formats a number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(of: u64) -> LineKindId {
        LineKindId { of, limit: FROM_ONE_PLACE }
    }

    /// Guarantees: a minute begins with the first line of a kind; in it, the first lines are written, and the others
    /// are summed up at its end, separately for each kind. If no line was left out, there is no summary.
    #[test]
    fn a_minute() {
        let mut repeats = Repeats::default();
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let admitted = (0..1_000).filter(|_| repeats.admits(key(1), at(0))).count();
        repeats.written(key(1), Level::WARN, "a line");
        assert_eq!(admitted, 5);
        assert!((0..5).all(|_| repeats.admits(key(2), at(30))));
        assert_eq!(repeats.next_due(at(40)), Some(Duration::from_secs(20)));
        assert_eq!(repeats.take_due(at(59)), []);
        let summary = Summary { level: Level::WARN, more: 995, like: "a line".to_owned() };
        assert_eq!(repeats.take_due(at(60)), [summary]);
        assert_eq!(repeats.next_due(at(60)), None);
        assert!(repeats.admits(key(1), at(61)));
        assert_eq!(repeats.take_due(at(200)), []);
    }

    /// Guarantees: the number of remembered kinds is bounded, and lines of further kinds are written.
    #[test]
    fn kinds_are_bounded() {
        let mut repeats = Repeats::default();
        let now = Instant::now();
        assert!((0..10_000).all(|number| repeats.admits(key(number), now)));
        assert_eq!(repeats.kinds.len(), MOST_KINDS);
        assert_eq!((0..10).filter(|_| repeats.admits(key(0), now)).count(), 4);
    }

    /// Guarantees: thousands are separated by commas.
    #[test]
    fn numbers() {
        assert_eq!([0, 999, 1_000, 12_345, 1_234_567].map(grouped), ["0", "999", "1,000", "12,345", "1,234,567"]);
    }
}
