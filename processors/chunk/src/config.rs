//! What can be written about `chunk`, and what it means.

mod moved;

use profbridge_engine::config::{ByteSize, Duration, Problem, Problems, Section};
use profbridge_identity::Rules;
use profbridge_model::arena;
use profbridge_windows::Limits;
use serde::Deserialize;

/// What was written. Every key may be left out.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// For how long after a window's length data may still arrive for it.
    pub lateness: Duration,
    /// A window with so many observations is closed early.
    pub max_observations: u64,
    /// A window that takes so much memory, its dictionary aside, is closed early.
    pub max_window_bytes: ByteSize,
    /// So many processes may have an open window, and twice as many windows may be open; then the oldest is closed
    /// early.
    pub max_processes: u32,
    /// All windows and dictionaries together; then the largest windows are closed early.
    pub max_bytes: ByteSize,
    /// For how long windows of a sender share one dictionary.
    pub max_dictionary_age: Duration,
    /// How large that dictionary may get before new windows start another one.
    pub max_dictionary_bytes: ByteSize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            lateness: Duration::from_secs(10),
            max_observations: 100_000,
            max_window_bytes: ByteSize::from_mib(16),
            max_processes: 10_000,
            max_bytes: ByteSize::from_mib(256),
            max_dictionary_age: Duration::from_secs(600),
            max_dictionary_bytes: ByteSize::from_mib(64),
        }
    }
}

/// What it means, checked. Times in nanoseconds, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Who a process is. Observations are held until their window closes, if windows have a length.
    pub(crate) rules: Rules,
    pub(crate) lateness: u64,
    pub(crate) max_observations: u64,
    pub(crate) max_window_bytes: u64,
    pub(crate) max_processes: usize,
    pub(crate) max_bytes: u64,
    pub(crate) max_dictionary_age: u64,
    pub(crate) max_dictionary_bytes: u64,
    /// What an arena may become. There is no key for it: its age and size end it before.
    pub(crate) arena: arena::Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Config::default().settings(&Rules::default())
    }
}

impl Config {
    /// Reads a section.
    ///
    /// # Errors
    ///
    /// All keys and values that are not understood, each at its place.
    pub fn read(section: &Section) -> Result<Self, Problems> {
        section.extract().or_else(|problems| {
            Problems::new(moved::explain(problems, section)).map_or_else(|| Ok(Self::default()), Err)
        })
    }

    /// Checks what was written. `rules` are those of `service.identity`.
    ///
    /// # Errors
    ///
    /// Every rule that is broken, at its place in `section`.
    pub fn check(&self, section: &Section, rules: &Rules) -> Result<Settings, Problems> {
        let problems = self.problems(section);
        Problems::new(problems).map_or_else(|| Ok(self.settings(rules)), Err)
    }

    fn problems(&self, section: &Section) -> Vec<Problem> {
        section.broken_rules(&[
            (self.max_observations == 0, "max_observations", "must be at least 1", ""),
            (self.max_processes == 0, "max_processes", "must be at least 1", ""),
            (self.max_window_bytes.get() < 4096, "max_window_bytes", "must be at least 4KiB", ""),
            (
                self.max_bytes < self.max_window_bytes,
                "max_bytes",
                "is less than max_window_bytes",
                "all windows together need at least the memory that one may take",
            ),
            (
                self.max_dictionary_bytes.get() > u64::from(u32::MAX) / 2,
                "max_dictionary_bytes",
                "must be less than 2GiB",
                "",
            ),
        ])
    }

    fn settings(&self, rules: &Rules) -> Settings {
        Settings {
            rules: rules.clone(),
            lateness: self.lateness.nanos(),
            max_observations: self.max_observations,
            max_window_bytes: self.max_window_bytes.get(),
            max_processes: self.max_processes as usize,
            max_bytes: self.max_bytes.get(),
            max_dictionary_age: self.max_dictionary_age.nanos(),
            max_dictionary_bytes: self.max_dictionary_bytes.get(),
            arena: arena::Limits::ADDRESSABLE,
        }
    }
}

/// What an observation may come to while its window is flushed, in bytes, names and frames included.
const BYTES_OF_OBSERVATION: u64 = 2048;
/// One part in so many of the memory of all data may be what a window holds, without its dictionary.
const WINDOW_SHARE: u64 = 16;
/// And one part in so many a dictionary that windows share.
const DICTIONARY_SHARE: u64 = 8;

impl Settings {
    /// What the store of windows may hold.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            open_for: if self.rules.window == 0 { 0 } else { self.rules.window.saturating_add(self.lateness) },
            max_observations: self.max_observations,
            max_window_bytes: self.max_window_bytes,
            max_groups: self.max_processes,
            max_bytes: self.max_bytes,
            max_arena_age: self.max_dictionary_age,
            max_arena_bytes: self.max_dictionary_bytes,
            arena: self.arena,
        }
    }

    /// Makes the bounds small enough for the memory that all data of the process may take, in bytes: a window that is
    /// put out takes several times of what it held, beside everything else.
    pub(crate) fn fit_memory(&mut self, limit: u64) {
        self.max_observations = self.max_observations.min((limit / BYTES_OF_OBSERVATION).max(1));
        self.max_window_bytes = self.max_window_bytes.min(limit / WINDOW_SHARE);
        self.max_dictionary_bytes = self.max_dictionary_bytes.min(limit / DICTIONARY_SHARE);
        self.max_bytes = self.max_bytes.min(limit);
    }
}
