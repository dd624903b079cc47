//! Bounds what requests may be multiplied to.
//!
//! Each batch stands on its own, so what processes have in common is written for each of them. Among real processes
//! that is their stacks. But a hundred thousand processes that share one name of four megabytes would come to 400
//! gigabytes, and keep the pipeline busy for as long: what goes beyond the budget is dropped and counted.

/// What is larger in a batch than this may come to so many times of what requests brought.
const FACTOR: u64 = 32;

/// And so many bytes more.
const BASE: u64 = 64 << 20;

/// What may be saved up.
const MOST: u64 = 8 << 30;

/// What each batch may have for nothing, in bytes: for each observation sixteen frames that nothing else shares, with
/// names of a kilobyte, and sixteen times that for what is there but once.
const FREE: u64 = 256 << 10;
const FREE_EACH: u64 = 16 << 10;

/// What each batch costs all the same, in bytes: its tables, lists and counts, each allocated on its own. Otherwise a
/// timestamp in eight bytes could become a batch for nothing.
const BATCH: u64 = 2048;

/// What may still be put out, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget(u64);

impl Default for Budget {
    fn default() -> Self {
        Self(BASE)
    }
}

impl Budget {
    /// Counts a request of so many bytes.
    pub(crate) fn earn(&mut self, bytes: u64) {
        self.0 = self.0.saturating_add(bytes.saturating_mul(FACTOR)).min(MOST);
    }

    /// Whether nothing is left.
    pub(crate) fn is_used_up(self) -> bool {
        self.0 == 0
    }

    /// Charges a batch that has a dictionary of its own. The last one may be larger than what is left.
    pub(crate) fn charge(&mut self, bytes: u64, observations: u64) {
        let free = FREE.saturating_add(observations.saturating_mul(FREE_EACH));
        self.0 = self.0.saturating_sub(bytes.saturating_sub(free)).saturating_sub(BATCH);
    }
}
