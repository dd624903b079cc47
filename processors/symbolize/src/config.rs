//! Configuration of `symbolize`: as written, and checked.

use std::path::PathBuf;

use profbridge_engine::config::{ByteSize, Duration, Problems, Section};
use serde::Deserialize;

/// The section as written. Every key is optional.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How long profiles wait for names. With `0s` only names that are already known are used.
    pub timeout: Duration,
    /// Whether to read files of processes on this machine, for profiles from this machine.
    pub processes: bool,
    /// Names and ids of this machine in addition to its host name and machine id, as in `host.name` and `host.id`.
    pub host_names: Vec<String>,
    /// Folders with debug files by build id: `FOLDER/.build-id/xx/yyyy.debug`.
    pub debug_folders: Vec<PathBuf>,
    /// Servers for debug files that are not on this machine.
    pub debuginfod: profbridge_debuginfod::Config,
    /// Whether to read DWARF: inlined functions, files and lines.
    pub dwarf: bool,
    /// Whether to demangle names.
    pub demangle: bool,
    /// Whether to read files on FUSE file systems.
    pub fuse: bool,
    /// Size of the cache for symbols, DWARF and answers.
    pub cache_size: ByteSize,
    /// Size limit of all waiting profiles. Beyond it, the oldest are sent early.
    pub max_bytes: ByteSize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(5),
            processes: true,
            host_names: Vec::new(),
            debug_folders: vec![PathBuf::from("/usr/lib/debug")],
            debuginfod: profbridge_debuginfod::Config::default(),
            dwarf: true,
            demangle: true,
            fuse: false,
            cache_size: ByteSize::from_mib(128),
            max_bytes: ByteSize::from_mib(64),
        }
    }
}

/// The checked configuration. Times in nanoseconds, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub(crate) timeout: u64,
    pub(crate) max_bytes: u64,
    pub(crate) processes: bool,
    pub(crate) host_names: Vec<String>,
    pub(crate) symbolizer: profbridge_symbolizer::Settings,
    pub(crate) debuginfod: profbridge_debuginfod::Config,
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
        let small = |size: ByteSize, mib: u64| size.get() < mib << 20 || usize::try_from(size.get()).is_err();
        let mut problems = section.broken_rules(&[
            (self.timeout > Duration::from_secs(60), "timeout", "a batch waits at most 60s", "the default is `5s`"),
            (
                self.debug_folders.iter().any(|folder| !folder.is_absolute()),
                "debug_folders",
                "a folder is not an absolute path",
                "the default is `[/usr/lib/debug]`",
            ),
            (self.host_names.iter().any(String::is_empty), "host_names", "a name is empty", ""),
            (small(self.cache_size, 4), "cache_size", "must be at least 4MiB", "the default is `128MiB`"),
            (self.max_bytes.get() < 4096, "max_bytes", "must be at least 4KiB", "the default is `64MiB`"),
        ]);
        problems.extend(self.debuginfod.check(section, "debuginfod"));
        Problems::new(problems).map_or_else(|| Ok(self.settings()), Err)
    }

    fn settings(&self) -> Settings {
        Settings {
            timeout: self.timeout.nanos(),
            max_bytes: self.max_bytes.get(),
            processes: self.processes,
            host_names: self.host_names.clone(),
            symbolizer: profbridge_symbolizer::Settings {
                cache_bytes: usize::try_from(self.cache_size.get()).unwrap_or(usize::MAX),
                debug_folders: self.debug_folders.clone(),
                demangle: self.demangle,
                dwarf: self.dwarf,
                fuse: self.fuse,
                ..profbridge_symbolizer::Settings::default()
            },
            debuginfod: self.debuginfod.clone(),
        }
    }
}
