//! What can be written about `chunk`, and what it means.

use std::time;

use profbridge_engine::config::{ByteSize, Duration, Problem, Problems, Section};
use profbridge_model::arena::Limits;
use serde::Deserialize;

use crate::identity::Kind;

/// The longest window: Relay refuses a chunk of more than 66 seconds, Sentry's own profilers send 60
/// (getsentry/relay `relay-profiling/src/sample/v2.rs`).
pub const MAX_WINDOW: time::Duration = time::Duration::from_secs(60);

/// What was written. Every key may be left out.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The length of a window in event time. `0s` cuts each request on its own and holds nothing.
    pub window: Duration,
    /// For how long after a window's length data may still arrive for it.
    pub lateness: Duration,
    /// A window with so many observations is closed early.
    pub max_observations: u64,
    /// A window that takes so much memory, its dictionary aside, is closed early.
    pub max_window_bytes: ByteSize,
    /// So many processes may have an open window, and twice as many windows may be open; then the oldest is closed early.
    pub max_processes: u32,
    /// All windows and dictionaries together; then the largest windows are closed early.
    pub max_bytes: ByteSize,
    /// For how long windows of a sender share one dictionary.
    pub max_dictionary_age: Duration,
    /// How large that dictionary may get before new windows start another one.
    pub max_dictionary_bytes: ByteSize,
    /// How long a session is: a process gets another `profiler_id` in each. `0s` is one session for ever.
    pub session: Duration,
    /// Which attributes identify a process, best first.
    pub identity: Vec<Kind>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(60),
            lateness: Duration::from_secs(10),
            max_observations: 100_000,
            max_window_bytes: ByteSize::from_mib(16),
            max_processes: 10_000,
            max_bytes: ByteSize::from_mib(256),
            max_dictionary_age: Duration::from_secs(600),
            max_dictionary_bytes: ByteSize::from_mib(64),
            session: Duration::ZERO,
            identity: vec![Kind::Container, Kind::Host, Kind::Instance],
        }
    }
}

/// What it means, checked. Times in nanoseconds, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The length of a cell of event time.
    pub(crate) window: u64,
    /// Whether observations are held until their window closes.
    pub(crate) holds: bool,
    pub(crate) lateness: u64,
    pub(crate) max_observations: u64,
    pub(crate) max_window_bytes: u64,
    pub(crate) max_processes: usize,
    pub(crate) max_bytes: u64,
    pub(crate) max_dictionary_age: u64,
    pub(crate) max_dictionary_bytes: u64,
    /// 0 is one session for ever.
    pub(crate) session: u64,
    pub(crate) identity: Vec<Kind>,
    /// What an arena may become. There is no key for it: its age and size end it before.
    pub(crate) arena: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Config::default().settings()
    }
}

impl Config {
    /// Checks what was written.
    ///
    /// # Errors
    ///
    /// Every rule that is broken, at its place in `section`.
    pub fn check(&self, section: &Section) -> Result<Settings, Problems> {
        let problems = self.problems(section);
        Problems::new(problems).map_or_else(|| Ok(self.settings()), Err)
    }

    fn problems(&self, section: &Section) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut rule = |broken: bool, key: &str, message: &str, hint: &str| {
            if broken {
                problems.push(section.problem(key, message, hint));
            }
        };
        let window = self.window.get();
        rule(
            window > MAX_WINDOW,
            "window",
            "a window is at most 60s",
            "Sentry refuses chunks that are longer than 66 seconds",
        );
        rule(
            !window.is_zero() && window < time::Duration::from_secs(1),
            "window",
            "a window is at least 1s, or 0s",
            "write `0s` to cut each request on its own",
        );
        rule(self.max_observations == 0, "max_observations", "must be at least 1", "");
        rule(self.max_processes == 0, "max_processes", "must be at least 1", "");
        rule(self.max_window_bytes.get() < 4096, "max_window_bytes", "must be at least 4KiB", "");
        rule(
            self.max_bytes < self.max_window_bytes,
            "max_bytes",
            "is less than max_window_bytes",
            "all windows together need at least the memory that one may take",
        );
        rule(
            self.max_dictionary_bytes.get() > u64::from(u32::MAX) / 2,
            "max_dictionary_bytes",
            "must be less than 2GiB",
            "",
        );
        rule(
            !self.session.is_zero() && self.session < self.window,
            "session",
            "a session is at least as long as a window, or 0s",
            "write `0s` for one session for ever",
        );
        rule(self.identity.is_empty(), "identity", "must name at least one of container, host, instance", "");
        let twice = (1..self.identity.len()).any(|n| self.identity[..n].contains(&self.identity[n]));
        rule(twice, "identity", "names something twice", "");
        problems
    }

    fn settings(&self) -> Settings {
        let holds = !self.window.is_zero();
        Settings {
            window: if holds { self.window.nanos() } else { MAX_WINDOW.as_nanos() as u64 },
            holds,
            lateness: self.lateness.nanos(),
            max_observations: self.max_observations,
            max_window_bytes: self.max_window_bytes.get(),
            max_processes: self.max_processes as usize,
            max_bytes: self.max_bytes.get(),
            max_dictionary_age: self.max_dictionary_age.nanos(),
            max_dictionary_bytes: self.max_dictionary_bytes.get(),
            session: self.session.nanos(),
            identity: self.identity.clone(),
            arena: Limits::ADDRESSABLE,
        }
    }
}

impl Settings {
    /// Makes the bounds small enough for the memory that all data of the process may take, in bytes: a window that is put
    /// out takes several times of what it held, beside everything else.
    pub(crate) fn fit_memory(&mut self, limit: u64) {
        self.max_observations = self.max_observations.min((limit / 2048).max(1));
        self.max_window_bytes = self.max_window_bytes.min(limit / 16);
        self.max_dictionary_bytes = self.max_dictionary_bytes.min(limit / 8);
        self.max_bytes = self.max_bytes.min(limit);
    }

    /// The number of the session in which a window starts.
    pub(crate) fn session_of(&self, start_unix_nano: u64) -> u64 {
        start_unix_nano.checked_div(self.session).unwrap_or(0)
    }
}
