//! What can be written about `transactions`, and what it means.

use profbridge_engine::config::{ByteSize, Duration, Problems, Section};
use serde::Deserialize;

/// What was written. Every key may be left out.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// For how long after its local root a transaction waits for spans that come later.
    pub wait: Duration,
    /// For how long spans wait for their local root.
    pub orphan_wait: Duration,
    /// A transaction with so many spans goes out early.
    pub max_spans: u32,
    /// All that is held; then the transactions that are due next go out early.
    pub max_bytes: ByteSize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            wait: Duration::from_secs(6),
            orphan_wait: Duration::from_secs(300),
            max_spans: 10_000,
            max_bytes: ByteSize::from_mib(128),
        }
    }
}

/// One part in so many of the memory of all data may be held.
const SHARE: u64 = 2;

/// So many spans are remembered that have left.
const LEFT: usize = 65_536;

/// Of memory for all data, so many bytes are there for each span that is remembered.
const BYTES_OF_LEFT: u64 = 2048;

/// What it means, checked. Times in nanoseconds, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub(crate) wait: u64,
    pub(crate) orphan_wait: u64,
    pub(crate) max_spans: usize,
    pub(crate) max_bytes: u64,
    /// So many spans are remembered that have left.
    pub(crate) max_left: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Config::default().settings()
    }
}

impl Settings {
    /// Makes the bounds small enough for the memory that all data of the process may take, in bytes.
    pub(crate) fn fit_memory(&mut self, limit: u64) {
        self.max_bytes = self.max_bytes.min(limit / SHARE);
        self.max_left = self.max_left.min((limit / BYTES_OF_LEFT) as usize);
    }
}

impl Config {
    /// Checks what was written.
    ///
    /// # Errors
    ///
    /// Every rule that is broken, at its place in `section`.
    pub fn check(&self, section: &Section) -> Result<Settings, Problems> {
        let hint = "spans without their root are not to leave before those that have it";
        let problems = section.broken_rules(&[
            (self.wait > Duration::from_secs(600), "wait", "must be at most 10m", ""),
            (self.orphan_wait < self.wait, "orphan_wait", "is shorter than wait", hint),
            (self.max_spans == 0, "max_spans", "must be at least 1", ""),
            (self.max_bytes.get() < 4096, "max_bytes", "must be at least 4KiB", ""),
        ]);
        Problems::new(problems).map_or_else(|| Ok(self.settings()), Err)
    }

    fn settings(&self) -> Settings {
        Settings {
            wait: self.wait.nanos(),
            orphan_wait: self.orphan_wait.nanos(),
            max_spans: self.max_spans as usize,
            max_bytes: self.max_bytes.get(),
            max_left: LEFT,
        }
    }
}
