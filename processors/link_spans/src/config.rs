//! The options of `link_spans` and their checked form.

use profbridge_engine::config::{ByteSize, Duration, Problems, Section};
use serde::Deserialize;

/// The options as written. Every key is optional.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// For how long spans wait for the profiles of their time.
    pub span_wait: Duration,
    /// How long profiles wait for the spans of their time, at least. With `0s` they pass at once, linked with the spans
    /// that arrived before them.
    pub profile_wait: Duration,
    /// The limit for all waiting spans, and likewise for all waiting profiles. Beyond it the oldest spans, or the
    /// largest windows of profiles, are passed on early.
    pub max_bytes: ByteSize,
    /// The limit for what is remembered of profiles and spans together. Beyond it the oldest entries are forgotten.
    pub max_index_bytes: ByteSize,
    /// Whether a span without a thread, of a single-threaded runtime, counts as run on the main thread.
    pub main_thread: bool,
    /// Whether spans are linked by their own attributes alone, without profiles.
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

/// Waiting spans may take one part in this many of the memory for all data, waiting profiles as much, and the
/// remembered entries twice as much: half of the memory in all.
const SHARE: u64 = 8;

/// The checked options. Times in nanoseconds, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub(crate) span_wait: u64,
    /// With 0 profiles pass at once.
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
    /// Lowers the bounds to fit the memory that all data of the process may take, in bytes.
    pub(crate) fn fit_memory(&mut self, limit: u64) {
        self.max_bytes = self.max_bytes.min(limit / SHARE);
        self.max_index_bytes = self.max_index_bytes.min(limit / SHARE * 2);
    }
}

impl Config {
    /// Checks the options.
    ///
    /// # Errors
    ///
    /// Every broken rule, at its place in `section`.
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
