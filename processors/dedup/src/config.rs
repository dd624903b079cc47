//! Configuration of `dedup`: as written, and checked.

use profbridge_engine::config::{ByteSize, Duration, Problems, Section};
use profbridge_model::arena;
use profbridge_windows::WindowLimits;
use serde::Deserialize;

/// The section as written. Every key is optional.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How long requests of one sender are buffered for merging. With `0s` each request is sent at once.
    pub window: Duration,
    /// The number of observations at which a window is closed early.
    pub max_observations: u64,
    /// Size limit of all windows together. Beyond it, the largest are closed early.
    pub max_bytes: ByteSize,
    /// What to do with a profile that was received before.
    pub resends: Resends,
    /// How long a profile is remembered after it was last received.
    pub resend_memory: Duration,
    /// The maximum number of stored profiles. Beyond that, the oldest is dropped early.
    pub max_resend_entries: u32,
}

/// What to do with a profile that was received before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resends {
    /// Drop it, and count its observations as `resent`.
    Drop,
    /// Send it again.
    Keep,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            window: Duration::ZERO,
            max_observations: 1_000_000,
            max_bytes: ByteSize::from_mib(128),
            resends: Resends::Drop,
            resend_memory: Duration::from_secs(60),
            max_resend_entries: 65_536,
        }
    }
}

/// The checked configuration. Times in nanoseconds, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The length of a window; 0 disables merging.
    pub(crate) window: u64,
    pub(crate) max_observations: u64,
    pub(crate) max_bytes: u64,
    /// How long profiles are stored; `None` if resends are kept.
    pub(crate) memory: Option<u64>,
    pub(crate) max_entries: usize,
}

impl Settings {
    /// Limits for the window store, with one window and one arena per sender.
    pub(crate) fn limits(&self) -> WindowLimits {
        WindowLimits {
            open_for: self.window,
            max_observations: self.max_observations,
            max_window_bytes: u64::MAX,
            max_groups: usize::MAX,
            max_bytes: self.max_bytes,
            max_arena_age: 0,
            max_arena_bytes: u64::MAX,
            arena: arena::ArenaLimits::ADDRESSABLE,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Config::default().settings()
    }
}

impl Config {
    /// Checks the section.
    ///
    /// # Errors
    ///
    /// Every broken rule, with its position in `section`.
    pub fn check(&self, section: &Section) -> Result<Settings, Problems> {
        let drops = self.resends == Resends::Drop;
        let hint = "write `resends: keep` to remember nothing";
        let problems = section.broken_rules(&[
            (self.window > Duration::from_secs(600), "window", "a window is at most 10m", ""),
            (self.max_observations == 0, "max_observations", "must be at least 1", ""),
            (self.max_bytes.get() < 4096, "max_bytes", "must be at least 4KiB", ""),
            (drops && self.resend_memory.is_zero(), "resend_memory", "must not be 0s", hint),
            (drops && self.max_resend_entries == 0, "max_resend_entries", "must be at least 1", hint),
        ]);
        Problems::new(problems).map_or_else(|| Ok(self.settings()), Err)
    }

    fn settings(&self) -> Settings {
        Settings {
            window: self.window.nanos(),
            max_observations: self.max_observations,
            max_bytes: self.max_bytes.get(),
            memory: (self.resends == Resends::Drop).then(|| self.resend_memory.nanos()),
            max_entries: self.max_resend_entries as usize,
        }
    }
}
