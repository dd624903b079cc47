//! Logs each problem only once, or rarely.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, RandomState};
use std::time::Duration;

/// How many problems are remembered. Beyond that the list is cleared, and problems may be logged once more.
const MAX_REMEMBERED: usize = 4096;

/// The problems that were logged.
#[derive(Debug, Default)]
pub(crate) struct ReportedProblems {
    hashes: HashSet<u64>,
    hasher: RandomState,
}

impl ReportedProblems {
    /// Remembers a problem. Returns whether it was new.
    pub(crate) fn is_new(&mut self, what: impl Hash) -> bool {
        let hash = self.hasher.hash_one(what);
        if self.hashes.len() >= MAX_REMEMBERED && !self.hashes.contains(&hash) {
            self.hashes.clear();
        }
        self.hashes.insert(hash)
    }
}

/// How often a continuing loss is logged.
pub(crate) const BETWEEN_LINES: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a problem is new only once, and the number of those that are remembered is bounded.
    #[test]
    fn once() {
        let mut reported = ReportedProblems::default();
        assert!(reported.is_new((1, "a")) && !reported.is_new((1, "a")) && reported.is_new((2, "a")));
        for n in 0..10_000 {
            reported.is_new((n, "b"));
        }
        assert!(reported.hashes.len() <= MAX_REMEMBERED);
    }
}
