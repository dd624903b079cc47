//! The options of `chunk` and their checked form.

mod moved;

use profbridge_engine::config::{ByteSize, Duration, Problem, Problems, Section};
use profbridge_identity::Rules;
use profbridge_model::arena;
use profbridge_windows::WindowLimits;
use serde::Deserialize;

/// The options as written. Every key is optional.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How long after its end a window still accepts late data.
    pub lateness: Duration,
    /// The number of observations at which a window is closed early.
    pub max_observations: u64,
    /// The size of a window, without its dictionary, at which the window is closed early.
    pub max_window_bytes: ByteSize,
    /// The maximum number of processes with an open window; twice as many windows may be open. Beyond this number, the
    /// oldest window is closed early.
    pub max_processes: u32,
    /// The maximum size of all windows and dictionaries. Beyond it, the largest windows are closed early.
    pub max_bytes: ByteSize,
    /// For how long the windows of a sender share one dictionary.
    pub max_dictionary_age: Duration,
    /// The size of a shared dictionary at which new windows start another one.
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

/// The checked options. Times in nanoseconds, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The rules for process identity. If windows have a length, observations are held until their window closes.
    pub(crate) rules: Rules,
    pub(crate) lateness: u64,
    pub(crate) max_observations: u64,
    pub(crate) max_window_bytes: u64,
    pub(crate) max_processes: usize,
    pub(crate) max_bytes: u64,
    pub(crate) max_dictionary_age: u64,
    pub(crate) max_dictionary_bytes: u64,
    /// The limits of an arena. No option sets them: an arena reaches its maximum age or size first.
    pub(crate) arena: arena::ArenaLimits,
}

impl Default for Settings {
    fn default() -> Self {
        Config::default().settings(&Rules::default())
    }
}

impl Config {
    /// Parses a section.
    ///
    /// # Errors
    ///
    /// All unknown keys and invalid values, each at its position.
    pub fn read(section: &Section) -> Result<Self, Problems> {
        section.extract().or_else(|problems| {
            Problems::new(moved::explain(problems, section)).map_or_else(|| Ok(Self::default()), Err)
        })
    }

    /// Checks the options. `rules` are those of `service.identity`.
    ///
    /// # Errors
    ///
    /// Every broken rule, at its position in `section`.
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
            arena: arena::ArenaLimits::ADDRESSABLE,
        }
    }
}

/// An upper estimate of the bytes per observation while its window is flushed, names and frames included.
const BYTES_OF_OBSERVATION: u64 = 2048;
/// A window without its dictionary may take the memory for all data divided by this.
const WINDOW_SHARE: u64 = 16;
/// A shared dictionary may take the memory for all data divided by this.
const DICTIONARY_SHARE: u64 = 8;

impl Settings {
    /// The limits of the window store.
    pub(crate) fn limits(&self) -> WindowLimits {
        WindowLimits {
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

    /// Lowers the bounds to fit the memory that all data of the process may take, in bytes. Flushing a window takes
    /// several times the window's size, in addition to all other data.
    pub(crate) fn fit_memory(&mut self, limit: u64) {
        self.max_observations = self.max_observations.min((limit / BYTES_OF_OBSERVATION).max(1));
        self.max_window_bytes = self.max_window_bytes.min(limit / WINDOW_SHARE);
        self.max_dictionary_bytes = self.max_dictionary_bytes.min(limit / DICTIONARY_SHARE);
        self.max_bytes = self.max_bytes.min(limit);
    }
}
