//! The configuration keys for converting profiles to Sentry's chunks.

use profbridge_engine::config::{ByteSize, Duration, Problem, Section};
use profbridge_wire::sentry::chunk::{InApp, LoneSamples, Prefer, Settings};
use serde::Deserialize;

/// The keys as written, in their own section or among the keys of a component ([`Section::extract_parts`]).
/// [`keys`](profbridge_engine::config::keys) lists them.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChunkConfig {
    /// A chunk ends where the whole process is idle for longer than this.
    pub max_gap: Duration,
    /// A window in which the process was active for less than this is left out.
    pub min_active_time: Duration,
    /// What happens to the only observation of a thread in a chunk.
    pub lone_samples: LoneSamples,
    /// Whether blocked time is shown as well.
    pub off_cpu: bool,
    /// Which of wall and CPU time is shown where a process has both.
    pub prefer: Prefer,
    /// The size that a chunk's JSON should not exceed.
    pub target_size: ByteSize,
    /// The environment of processes that do not name one.
    pub environment: String,
    /// The platform of all chunks, instead of the one that the frames suggest.
    pub platform: Option<String>,
    /// Which frames are the user's own.
    pub in_app: InApp,
}

impl Default for ChunkConfig {
    fn default() -> Self {
        let Settings {
            max_gap,
            min_active_time,
            lone_samples,
            off_cpu,
            target_bytes,
            environment,
            platform,
            in_app,
            prefer,
        } = Settings::default();
        Self {
            max_gap: max_gap.into(),
            min_active_time: min_active_time.into(),
            lone_samples,
            off_cpu,
            prefer,
            target_size: ByteSize::new(target_bytes as u64),
            environment,
            platform,
            in_app,
        }
    }
}

impl ChunkConfig {
    /// Converts the keys to settings. Broken rules that the types do not prevent are added to `problems`, with their
    /// place in `section`.
    pub fn check(self, section: &Section, problems: &mut Vec<Problem>) -> Settings {
        let settings = Settings {
            max_gap: self.max_gap.get(),
            min_active_time: self.min_active_time.get(),
            lone_samples: self.lone_samples,
            off_cpu: self.off_cpu,
            target_bytes: self.target_size.as_usize(),
            environment: self.environment,
            platform: self.platform,
            in_app: self.in_app,
            prefer: self.prefer,
        };
        let rules = settings.broken_rules();
        problems.extend(rules.iter().map(|rule| section.problem(rule.key, rule.message, rule.hint)));
        settings
    }
}
