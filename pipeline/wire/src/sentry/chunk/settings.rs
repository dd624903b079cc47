//! The settings of the conversion, as in the configuration. [`Settings::broken_rules`] validates them; nothing is
//! checked again after that.

use std::time::Duration;

use serde::Deserialize;

use super::limits::{MAX_CHUNK_BYTES, MAX_ENVIRONMENT, MAX_PLATFORM, MIN_TARGET_BYTES};

/// What happens to a thread's only observation in a chunk. Relay would drop it silently (getsentry/relay
/// `relay-profiling/src/sample/v2.rs`: a thread needs two samples with a stack).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoneSamples {
    /// The observation is written as two samples that share its time.
    #[default]
    Split,
    /// The observation is omitted and counted.
    Drop,
}

/// Which of two equally good profiles of a process is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Prefer {
    /// Wall time, which also shows where a thread waits.
    #[default]
    Wall,
    /// CPU time.
    Cpu,
}

/// Prefixes that decide whether a frame is the user's own code. They are compared with a frame's function, module, path
/// and package. `include` takes precedence over `exclude`, as in Sentry's SDKs (`in_app_include`, `in_app_exclude`); if
/// neither matches, the runtime's own rule decides.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InApp {
    /// Prefixes of frames that are own code.
    pub include: Vec<String>,
    /// Prefixes of frames that are not own code.
    pub exclude: Vec<String>,
    /// Folders with the user's sources; `*` matches any one folder. The path below the deepest match is the module
    /// name. Files below these folders are own code even in a folder of the system.
    pub source_roots: Vec<String>,
}

/// The settings of a [`Converter`](super::Converter).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// A chunk ends if the whole process is idle for longer than this, since Sentry bills from a chunk's first to its
    /// last sample.
    pub max_gap: Duration,
    /// A window with less active time than this is omitted and counted.
    pub min_active_time: Duration,
    /// What happens to a thread's only observation in a chunk.
    pub lone_samples: LoneSamples,
    /// Whether blocked time is also shown, if the profiler recorded it.
    pub off_cpu: bool,
    /// Target size of a chunk's JSON, in bytes. Larger windows are split in time.
    pub target_bytes: usize,
    /// The environment of processes that do not state one.
    pub environment: String,
    /// The platform of all chunks, overriding the one derived from the frames.
    pub platform: Option<String>,
    /// Which frames are own code.
    pub in_app: InApp,
    /// Which profile is shown if a process has both wall time and CPU time.
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

/// A broken rule of the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenRule {
    /// The key in a configuration.
    pub key: &'static str,
    /// The rule.
    pub message: &'static str,
    /// What to write instead.
    pub hint: &'static str,
}

impl Settings {
    /// All broken rules that the types do not already prevent.
    pub fn broken_rules(&self) -> Vec<BrokenRule> {
        let name = &*self.environment;
        let slashed = name.contains(|c: char| c == '/' || c.is_whitespace());
        let unlawful = slashed || name.eq_ignore_ascii_case("none");
        let platform = self.platform.as_deref().unwrap_or("native");
        let is_nameless =
            |root: &String| root.split('/').any(|folder| folder == "." || folder == "..") || root.is_empty();
        let rule = |broken: bool, key, message, hint| broken.then_some(BrokenRule { key, message, hint });
        [
            rule(self.max_gap.is_zero(), "max_gap", "every pause would end a chunk", "the default is `5s`"),
            rule(
                !(MIN_TARGET_BYTES..=MAX_CHUNK_BYTES).contains(&self.target_bytes),
                "target_size",
                "the size is not between 64KiB and 48MiB",
                "the default is `10MiB`",
            ),
            rule(
                name.is_empty() || name.chars().count() > MAX_ENVIRONMENT,
                "environment",
                "the environment has no name, or one of more than 64 characters, which Sentry does not take",
                "write a name such as `production`",
            ),
            rule(
                unlawful,
                "environment",
                "Sentry takes no environment that is called None or holds a slash or white space",
                "write a name such as `production`",
            ),
            rule(
                platform.is_empty() || platform.len() > MAX_PLATFORM,
                "platform",
                "the platform is empty or longer than 64 bytes",
                "delete the key to let the frames decide, or write for instance `python`",
            ),
            rule(
                self.in_app.source_roots.iter().any(is_nameless),
                "in_app.source_roots",
                "a root is empty or has a folder `.` or `..`, which no path of a source file begins with",
                "write folders as they stand in paths of source files, such as `/opt/shop`",
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the defaults are valid, and each broken rule is reported with its key.
    #[test]
    fn rules() {
        let keys = |settings: &Settings| -> Vec<_> { settings.broken_rules().iter().map(|rule| rule.key).collect() };
        let good = Settings::default();
        assert_eq!(keys(&good), [""; 0]);
        let environment = |name: &str| Settings { environment: name.to_owned(), ..good.clone() };
        let root = |root: &str| InApp { source_roots: vec![root.to_owned()], ..InApp::default() };
        let roots = |text: &str| Settings { in_app: root(text), ..good.clone() };
        for (settings, key) in [
            (Settings { max_gap: Duration::ZERO, ..good.clone() }, "max_gap"),
            (Settings { target_bytes: MIN_TARGET_BYTES - 1, ..good.clone() }, "target_size"),
            (Settings { target_bytes: MAX_CHUNK_BYTES + 1, ..good.clone() }, "target_size"),
            (environment(""), "environment"),
            (environment("None"), "environment"),
            (environment("a/b"), "environment"),
            (environment(&"x".repeat(65)), "environment"),
            (Settings { platform: Some(String::new()), ..good.clone() }, "platform"),
            (roots(""), "in_app.source_roots"),
            (roots("/opt/../shop"), "in_app.source_roots"),
        ] {
            assert_eq!(keys(&settings), [key]);
        }
        assert_eq!(keys(&environment("dev-1")), [""; 0]);
        assert_eq!(keys(&roots("/home/*/shop/")), [""; 0]);
    }
}
