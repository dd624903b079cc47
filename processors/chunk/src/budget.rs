//! Limits the amplification of requests, that is the size of their output.
//!
//! Each batch is self-contained, so data that processes share is written for each of them. For real processes these are
//! stacks. But a hundred thousand processes that share one name of four megabytes would become 400 gigabytes and keep
//! the pipeline busy for a long time. Output beyond the budget is dropped and counted.

/// Output beyond the free allowance may take this many times the bytes of the requests.
const FACTOR: u64 = 32;

/// The number of bytes that output may take in addition.
const BASE: u64 = 64 << 20;

/// The maximum budget that can accumulate.
const MOST: u64 = 8 << 30;

/// The free allowance per batch, in bytes. For each observation, sixteen unshared frames with names of a kilobyte are
/// free, and per batch sixteen times that for data stored once.
const FREE: u64 = 256 << 10;
const FREE_EACH: u64 = 16 << 10;

/// The minimum charge per batch, in bytes, because its tables, lists and counts are separate allocations. Otherwise a
/// timestamp of eight bytes could become a free batch.
const BATCH: u64 = 2048;

/// The bytes that may still be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AmplificationBudget(u64);

impl Default for AmplificationBudget {
    fn default() -> Self {
        Self(BASE)
    }
}

impl AmplificationBudget {
    /// Adds the bytes of a request.
    pub(crate) fn add_allowance(&mut self, bytes: u64) {
        self.0 = self.0.saturating_add(bytes.saturating_mul(FACTOR)).min(MOST);
    }

    /// Whether the budget is used up.
    pub(crate) fn is_used_up(self) -> bool {
        self.0 == 0
    }

    /// Charges a batch with its own dictionary. The last batch may exceed the budget.
    pub(crate) fn charge(&mut self, bytes: u64, observations: u64) {
        let free = FREE.saturating_add(observations.saturating_mul(FREE_EACH));
        self.0 = self.0.saturating_sub(bytes.saturating_sub(free)).saturating_sub(BATCH);
    }
}
