//! What an operator may decide about the conversion. Checked by whoever makes it; nothing here is checked again.

use std::time::Duration;

/// What happens to the only observation of a thread in a chunk, which Relay would drop without a word
/// (getsentry/relay `relay-profiling/src/sample/v2.rs`: a thread needs two samples with a stack).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoneSamples {
    /// It is written as two samples that share its time.
    #[default]
    Split,
    /// It is left out and counted.
    Drop,
}

/// Which of two equally good profiles of one process is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prefer {
    /// Wall time, which also says where a thread waits.
    #[default]
    Wall,
    /// CPU time.
    Cpu,
}

/// Prefixes that decide whether a frame is the user's own code. They are compared with a frame's module, path and
/// package, and with its function where it has neither. `include` wins over `exclude`, as in Sentry's SDKs
/// (`in_app_include`, `in_app_exclude`); where neither matches, the runtime's own rule decides.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InApp {
    /// Frames that are the user's own.
    pub include: Vec<String>,
    /// Frames that are not.
    pub exclude: Vec<String>,
}

/// The settings of a [`Converter`](super::Converter).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// A chunk ends where the whole process is idle for longer than this, since Sentry bills from a chunk's first
    /// to its last sample.
    pub max_gap: Duration,
    /// A window in which the process was active for less than this is left out and counted.
    pub min_active_time: Duration,
    /// What happens to the only observation of a thread in a chunk.
    pub lone_samples: LoneSamples,
    /// Whether the time in which threads were blocked is shown as well, where the profiler recorded it.
    pub off_cpu: bool,
    /// The size that a chunk's JSON should not exceed, in bytes. Larger windows are cut in time.
    pub target_bytes: usize,
    /// The environment of processes that do not name one.
    pub environment: String,
    /// The platform of all chunks, instead of the one that the frames suggest.
    pub platform: Option<String>,
    /// Which frames are the user's own.
    pub in_app: InApp,
    /// Which profile is shown where a process has one of wall time and one of CPU time.
    pub prefer: Prefer,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_gap: Duration::from_secs(5),
            min_active_time: Duration::ZERO,
            lone_samples: LoneSamples::Split,
            off_cpu: false,
            target_bytes: 10 << 20,
            environment: "production".to_owned(),
            platform: None,
            in_app: InApp::default(),
            prefer: Prefer::Wall,
        }
    }
}
