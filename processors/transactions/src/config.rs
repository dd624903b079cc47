//! Configuration of `transactions`: as written, and checked.

use profbridge_engine::config::{ByteSize, Duration, Problems, Section};
use serde::Deserialize;

/// The section as written. Every key is optional.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How long a transaction waits for late spans after its local root has arrived.
    pub wait: Duration,
    /// How long spans wait for their local root.
    pub orphan_wait: Duration,
    /// The number of spans at which a transaction is sent early.
    pub max_spans: u32,
    /// Size limit of all buffered spans. Beyond it, the transactions with the earliest deadlines are sent early.
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

/// The memory limit for data divided by this may be buffered: one half.
const SHARE: u64 = 2;

/// The maximum number of sent spans that are stored.
const SENT: usize = 65_536;

/// One sent span is stored per this many bytes of the memory limit for data.
const BYTES_PER_SENT: u64 = 2048;

/// The checked configuration. Times in nanoseconds, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub(crate) wait: u64,
    pub(crate) orphan_wait: u64,
    pub(crate) max_spans: usize,
    pub(crate) max_bytes: u64,
    /// The maximum number of sent spans that are stored.
    pub(crate) max_sent: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Config::default().settings()
    }
}

impl Settings {
    /// Reduces the limits to fit the memory limit for all data of the process, in bytes.
    pub(crate) fn fit_memory(&mut self, limit: u64) {
        self.max_bytes = self.max_bytes.min(limit / SHARE);
        self.max_sent = self.max_sent.min((limit / BYTES_PER_SENT) as usize);
    }
}

impl Config {
    /// Checks the section.
    ///
    /// # Errors
    ///
    /// Every broken rule, with its position in `section`.
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
            max_sent: SENT,
        }
    }
}
