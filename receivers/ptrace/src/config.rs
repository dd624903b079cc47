//! The configuration of the receiver `ptrace`, as written and as checked.

mod check;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use profbridge_engine::config::{ByteSize, Duration as Written, InsertedAttributes, Problems, Section};
use profbridge_sampler::message::{self, Select};
use serde::Deserialize;

use crate::lifecycle::LifecycleMode;

/// The configuration as it is written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    targets: BTreeMap<String, TargetConfig>,
    export_interval: Written,
    max_pending_bytes: ByteSize,
    priority: Priority,
    control: Control,
    symbolize: Symbolize,
    resource: ResourceConfig,
    thread_attributes: Vec<String>,
}

/// Attributes for the resources of all processes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ResourceConfig {
    insert: InsertedAttributes,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TargetConfig {
    pid: Option<u32>,
    command: Option<Vec<String>>,
    executable: Option<String>,
    command_line: Option<String>,
    cgroup: Option<String>,
    container: Option<String>,
    rate: f64,
    #[serde(with = "ModeName")]
    mode: message::Mode,
    profile_lifecycle: LifecycleMode,
    start_on_launch: bool,
    profile_session_sample_rate: f64,
    service: ServiceNames,
    max_cpu: f64,
    max_stopped: f64,
    max_stack: ByteSize,
    max_processes: usize,
    subprocesses: bool,
    #[serde(with = "StopsName")]
    stops: message::Stops,
}

/// The service that the configuration names; what it leaves out is taken from the process's environment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServiceNames {
    /// `service.name`.
    pub name: Option<String>,
    /// `service.version`.
    pub version: Option<String>,
    /// `deployment.environment.name`.
    pub environment: Option<String>,
    /// Sentry's release, if it is not `name@version`.
    pub release: Option<String>,
}

/// The configured names of [`message::Mode`].
#[derive(Deserialize)]
#[serde(remote = "message::Mode", rename_all = "snake_case")]
enum ModeName {
    Wall,
    Cpu,
}

/// The configured names of [`message::Stops`].
#[derive(Deserialize)]
#[serde(remote = "message::Stops", rename_all = "kebab-case")]
enum StopsName {
    UserBound,
    Never,
    Always,
}

/// How the sampling thread is scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Priority {
    /// A nice value of -15, where allowed.
    #[default]
    Raised,
    /// The real-time scheduler, where allowed.
    Realtime,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Control {
    enabled: bool,
    socket: Option<PathBuf>,
    max_connections: usize,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Symbolize {
    enabled: bool,
    max_wait: Written,
    cache: ByteSize,
    debug_folders: Vec<PathBuf>,
    dwarf: bool,
    fuse: bool,
    debuginfod: profbridge_debuginfod::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            targets: BTreeMap::new(),
            export_interval: Written::from_secs(5),
            max_pending_bytes: ByteSize::from_mib(32),
            priority: Priority::default(),
            control: Control::default(),
            symbolize: Symbolize::default(),
            resource: ResourceConfig::default(),
            thread_attributes: Vec::new(),
        }
    }
}

impl Default for TargetConfig {
    fn default() -> Self {
        let settings = message::Settings::default();
        Self {
            pid: None,
            command: None,
            executable: None,
            command_line: None,
            cgroup: None,
            container: None,
            rate: settings.rate_hertz,
            mode: settings.mode,
            profile_lifecycle: LifecycleMode::default(),
            start_on_launch: true,
            profile_session_sample_rate: 1.0,
            service: ServiceNames::default(),
            max_cpu: settings.max_cpu,
            max_stopped: settings.max_stopped,
            max_stack: ByteSize::new(settings.max_stack as u64),
            max_processes: settings.max_processes,
            subprocesses: settings.subprocesses,
            stops: settings.stops,
        }
    }
}

impl Default for Control {
    fn default() -> Self {
        Self { enabled: true, socket: None, max_connections: 256 }
    }
}

impl Default for Symbolize {
    fn default() -> Self {
        let settings = profbridge_symbolizer::Settings::default();
        Self {
            enabled: true,
            max_wait: Written::from_secs(2),
            cache: ByteSize::new(settings.cache_bytes as u64),
            debug_folders: settings.debug_folders,
            dwarf: settings.dwarf,
            fuse: settings.fuse,
            debuginfod: profbridge_debuginfod::Config::default(),
        }
    }
}

/// The checked configuration. It has at least one target.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The targets. The index of each is its [`message::TargetId`].
    pub targets: Vec<TargetSettings>,
    /// How often a process's samples are sent to the pipelines.
    pub export_interval: Duration,
    /// How many bytes of samples may wait for names and for the pipelines.
    pub max_pending_bytes: u64,
    /// Whether the sampling thread asks for the real-time scheduler.
    pub realtime: bool,
    /// The control socket, if one is configured.
    pub control: Option<ControlSettings>,
    /// The settings of the symbolizer; `None` if no names are looked up.
    pub symbolizer: Option<profbridge_symbolizer::Settings>,
    /// Servers from which missing debug files are downloaded.
    pub debuginfod: profbridge_debuginfod::Config,
    /// How long samples wait for names after the end of their interval.
    pub max_wait: Duration,
    /// Attributes, as keys and values, that are added to the resource of each process without them.
    pub insert: Vec<(String, String)>,
    /// The attributes of the published thread contexts that are copied to samples.
    pub thread_attributes: Vec<String>,
}

/// A target.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetSettings {
    /// The target's name in the configuration.
    pub name: String,
    /// The processes that belong to the target.
    pub select: Select,
    /// How the target's processes are sampled.
    pub sampling: message::Settings,
    /// The lifecycle, which decides when the target's processes are sampled.
    pub lifecycle: LifecycleMode,
    /// Whether a session of the lifecycle `manual` starts by itself.
    pub start_on_launch: bool,
    /// The share of sessions that is sampled, from 0 to 1.
    pub session_sample_rate: f64,
    /// The configured names of the service.
    pub names: ServiceNames,
}

/// The control socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlSettings {
    /// The path of the socket.
    pub socket: PathBuf,
    /// Whether the configuration requires the socket: then the receiver does not start if the socket cannot be created.
    pub required: bool,
    /// How many clients may be connected.
    pub max_connections: usize,
}

impl Settings {
    /// Parses and checks a section.
    ///
    /// # Errors
    ///
    /// Every broken rule, with its position.
    pub fn read(section: &Section) -> Result<Self, Problems> {
        section.extract_checked(Config::check)
    }
}

#[cfg(test)]
mod tests;
