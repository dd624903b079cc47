//! Objects that were read, shared by all processes that map them.

/// Keeps what was read of files, within a budget in bytes. What no address space uses is dropped first, the least recently used before others.
#[derive(Debug)]
pub struct ObjectCache {
    limit: usize,
}

impl ObjectCache {
    /// The default budget: node's unwind tables take about 10 MiB, Chromium's about 40.
    pub const DEFAULT_LIMIT: usize = 256 << 20;

    /// A cache that keeps at most `limit` bytes of unwind tables.
    pub fn new(limit: usize) -> Self {
        Self { limit }
    }

    /// The budget in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

impl Default for ObjectCache {
    fn default() -> Self {
        Self::new(Self::DEFAULT_LIMIT)
    }
}
