//! Says each problem once, or seldom.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, RandomState};
use std::time::Duration;

use tokio::time::Instant;

/// So many problems are remembered; then all are forgotten, and may be said once more.
const MAX_REMEMBERED: usize = 4096;

/// What was said already.
#[derive(Debug, Default)]
pub(crate) struct Said {
    hashes: HashSet<u64>,
    hasher: RandomState,
}

impl Said {
    /// Whether something was not said before.
    pub(crate) fn is_news(&mut self, what: impl Hash) -> bool {
        let hash = self.hasher.hash_one(what);
        if self.hashes.len() >= MAX_REMEMBERED && !self.hashes.contains(&hash) {
            self.hashes.clear();
        }
        self.hashes.insert(hash)
    }
}

/// How often a loss that goes on is said.
const PAUSE: Duration = Duration::from_secs(60);

/// Lets a problem that may come back be said once a minute.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    said: Option<Instant>,
}

impl Seldom {
    /// Whether it is time to say it, which is then taken as done.
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

    /// Guarantees: what goes on is said at once and then once a minute.
    #[test]
    fn seldom() {
        let (mut seldom, start) = (Seldom::default(), Instant::now());
        let due: Vec<u64> = (0..150).filter(|&s| seldom.is_due(start + Duration::from_secs(s))).collect();
        assert_eq!(due, [0, 60, 120]);
    }

    /// Guarantees: what was said is no news, and what is remembered has a bound.
    #[test]
    fn once() {
        let mut said = Said::default();
        assert!(said.is_news((1, "a")) && !said.is_news((1, "a")) && said.is_news((2, "a")));
        for n in 0..10_000 {
            said.is_news((n, "b"));
        }
        assert!(said.hashes.len() <= MAX_REMEMBERED);
    }
}
