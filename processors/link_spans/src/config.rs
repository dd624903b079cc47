//! What can be written about `link_spans`, and what it means.

use profbridge_engine::config::{ByteSize, Duration, Problems, Section};
use serde::Deserialize;

/// What was written. Every key may be left out.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// For how long spans wait for the profiles of their time.
    pub span_wait: Duration,
    /// For how long profiles wait for the spans of their time, at least; `0s` lets them go on at once, linked with the
    /// spans that came before them.
    pub profile_wait: Duration,
    /// All spans that wait, and all profiles that wait, each; then those that came first, or are largest, go on.
    pub max_bytes: ByteSize,
    /// What is remembered of profiles and of spans, together; then what was seen first is forgotten.
    pub max_index_bytes: ByteSize,
    /// Whether a span of a runtime with one thread that names no thread is taken to have run on the main thread.
    pub main_thread: bool,
    /// Whether spans are linked by what they say alone, without profiles.
    pub stateless: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            span_wait: Duration::from_secs(15),
            profile_wait: Duration::ZERO,
            max_bytes: ByteSize::from_mib(64),
            max_index_bytes: ByteSize::from_mib(32),
            main_thread: false,
            stateless: false,
        }
    }
}

/// One part in so many of the memory of all data may be spans that wait, as much profiles that wait, and twice as much
/// what is remembered of both: half of it in all.
const SHARE: u64 = 8;

/// What it means, checked. Times in nanoseconds, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub(crate) span_wait: u64,
    /// 0 lets profiles go on at once.
    pub(crate) profile_wait: u64,
    pub(crate) max_bytes: u64,
    pub(crate) max_index_bytes: u64,
    pub(crate) main_thread: bool,
    pub(crate) stateless: bool,
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
        self.max_index_bytes = self.max_index_bytes.min(limit / SHARE * 2);
    }
}

impl Config {
    /// Checks what was written.
    ///
    /// # Errors
    ///
    /// Every rule that is broken, at its place in `section`.
    pub fn check(&self, section: &Section) -> Result<Settings, Problems> {
        let problems = section.broken_rules(&[
            (self.span_wait > Duration::from_secs(600), "span_wait", "must be at most 10m", ""),
            (self.profile_wait > Duration::from_secs(600), "profile_wait", "must be at most 10m", ""),
            (self.max_bytes.get() < 4096, "max_bytes", "must be at least 4KiB", ""),
            (self.max_index_bytes.get() < 4096, "max_index_bytes", "must be at least 4KiB", ""),
        ]);
        Problems::new(problems).map_or_else(|| Ok(self.settings()), Err)
    }

    fn settings(&self) -> Settings {
        Settings {
            span_wait: self.span_wait.nanos(),
            profile_wait: self.profile_wait.nanos(),
            max_bytes: self.max_bytes.get(),
            max_index_bytes: self.max_index_bytes.get(),
            main_thread: self.main_thread,
            stateless: self.stateless,
        }
    }
}
