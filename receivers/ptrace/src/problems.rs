//! Logs each problem once, or rarely.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, RandomState};
use std::time::Duration;

use tokio::time::Instant;

/// How many problems are remembered. Beyond that all are forgotten, and may be logged once more.
const MAX_REMEMBERED: usize = 4096;

/// The problems that were logged.
#[derive(Debug, Default)]
pub(crate) struct ReportedProblems {
    hashes: HashSet<u64>,
    hasher: RandomState,
}

impl ReportedProblems {
    /// Remembers a problem. Returns whether it was new.
    pub(crate) fn is_news(&mut self, what: impl Hash) -> bool {
        let hash = self.hasher.hash_one(what);
        if self.hashes.len() >= MAX_REMEMBERED && !self.hashes.contains(&hash) {
            self.hashes.clear();
        }
        self.hashes.insert(hash)
    }
}

/// How often a continuing loss is logged.
const PAUSE: Duration = Duration::from_secs(60);

/// Lets a recurring problem be logged once a minute.
#[derive(Debug, Default)]
pub(crate) struct RateLimit {
    said: Option<Instant>,
}

impl RateLimit {
    /// Whether the problem may be logged now. If so, that counts as done.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.said.is_none_or(|said| now.saturating_duration_since(said) >= PAUSE);
        if due {
            self.said = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a recurring problem is logged at once and then once a minute.
    #[test]
    fn seldom() {
        let (mut seldom, start) = (RateLimit::default(), Instant::now());
        let due: Vec<u64> = (0..150).filter(|&s| seldom.is_due(start + Duration::from_secs(s))).collect();
        assert_eq!(due, [0, 60, 120]);
    }

    /// Guarantees: a problem is new only once, and the number of those that are remembered is bounded.
    #[test]
    fn once() {
        let mut said = ReportedProblems::default();
        assert!(said.is_news((1, "a")) && !said.is_news((1, "a")) && said.is_news((2, "a")));
        for n in 0..10_000 {
            said.is_news((n, "b"));
        }
        assert!(said.hashes.len() <= MAX_REMEMBERED);
    }
}
