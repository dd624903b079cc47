//! Decides when a process is sampled: the two lifecycles of Sentry's profiles specification 2.5.0 ("Profile Lifecycle
//! Modes").
//!
//! Each life of a process is one profiling session. Whether the session is sampled is decided once, before anything
//! else.
//!
//! * `manual`: `start` and `stop` decide. With `start_on_launch` a session starts by itself.
//! * `trace`: the profiler runs while at least one sampled root span is open. `start` and `stop` do nothing.
//!
//! A request that changes nothing says why (the specification asks for a warning then).

use std::fmt;

use serde::{Deserialize, Serialize};

/// What decides when a session is profiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LifecycleMode {
    /// Requests to start and to stop the profiler.
    #[default]
    Manual,
    /// Whether sampled root spans are open.
    Trace,
}

/// One session's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProfilerLifecycle {
    mode: LifecycleMode,
    sampled: bool,
    running: bool,
}

/// The result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifecycleChange {
    /// The profiler has started.
    Started,
    /// The profiler has stopped.
    Stopped,
    /// Nothing changed.
    Nothing(Why),
}

/// Why a request changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The profiler is running already.
    RunsAlready,
    /// The profiler is not running.
    NotRunning,
    /// The session is not sampled.
    NotSampled,
    /// The lifecycle is `trace`.
    TraceMode,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::RunsAlready => "the profiler runs already",
            Why::NotRunning => "the profiler does not run",
            Why::NotSampled => "the session is not sampled (profile_session_sample_rate)",
            Why::TraceMode => "profile_lifecycle is trace: the profiler runs while sampled root spans are open",
        })
    }
}

impl ProfilerLifecycle {
    /// The state at the start of a session. `open_spans` is the number of the process's open sampled root spans: spans
    /// may be announced before the process is found.
    #[must_use]
    pub fn launch(mode: LifecycleMode, sampled: bool, start_on_launch: bool, open_spans: usize) -> Self {
        let wanted = match mode {
            LifecycleMode::Manual => start_on_launch,
            LifecycleMode::Trace => open_spans > 0,
        };
        Self { mode, sampled, running: sampled && wanted }
    }

    /// Whether the process is to be sampled now.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running
    }

    /// Whether the session is sampled.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.sampled
    }

    /// The lifecycle mode.
    #[must_use]
    pub fn mode(&self) -> LifecycleMode {
        self.mode
    }

    /// Called for a request to start the profiler.
    pub fn start(&mut self) -> LifecycleChange {
        // Whether the session is sampled is checked first (profiles specification, "Manual mode", "Trace mode").
        match (self.sampled, self.mode) {
            (false, _) => LifecycleChange::Nothing(Why::NotSampled),
            (true, LifecycleMode::Trace) => LifecycleChange::Nothing(Why::TraceMode),
            (true, LifecycleMode::Manual) => self.run(true),
        }
    }

    /// Called for a request to stop the profiler.
    pub fn stop(&mut self) -> LifecycleChange {
        match (self.mode, self.sampled) {
            (LifecycleMode::Trace, _) => LifecycleChange::Nothing(Why::TraceMode),
            (LifecycleMode::Manual, false) => LifecycleChange::Nothing(Why::NotSampled),
            (LifecycleMode::Manual, true) => self.run(false),
        }
    }

    /// Called when the number of open sampled root spans has changed.
    pub fn spans_changed(&mut self, open_spans: usize) -> LifecycleChange {
        match (self.mode, self.sampled) {
            (LifecycleMode::Manual, _) => self.run(self.running),
            (LifecycleMode::Trace, false) => LifecycleChange::Nothing(Why::NotSampled),
            (LifecycleMode::Trace, true) => self.run(open_spans > 0),
        }
    }

    fn run(&mut self, on: bool) -> LifecycleChange {
        match (std::mem::replace(&mut self.running, on), on) {
            (true, true) => LifecycleChange::Nothing(Why::RunsAlready),
            (false, false) => LifecycleChange::Nothing(Why::NotRunning),
            (false, true) => LifecycleChange::Started,
            (true, false) => LifecycleChange::Stopped,
        }
    }
}

#[cfg(test)]
mod tests;
