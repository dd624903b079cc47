//! Says each problem once.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, RandomState};

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

#[cfg(test)]
mod tests {
    use super::*;

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
