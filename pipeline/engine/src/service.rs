//! The settings of the `service` section, apart from its pipelines.

mod identity;

use std::time::Duration;

use profbridge_identity::Rules;
use serde::Deserialize;
use serde::de::IgnoredAny;

use self::identity::IdentityConfig;
use crate::config::{self, ByteSize, Problem, Problems, Section};
use crate::health::Thresholds;

/// The minimum memory limit. With less memory, not even one request of a common profiler fits beside its window.
const SMALLEST_MEMORY: ByteSize = ByteSize::from_mib(16);

/// The settings of the process as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceSettings {
    /// `identity`: the rules for process identity, for every processor that needs them.
    pub identity: Rules,
    /// `limits.memory`: the memory limit of all data, in bytes.
    pub memory: u64,
    /// `allowed_hosts`: names under which loopback listeners may be reached, in addition to the loopback's own.
    pub allowed_hosts: Vec<String>,
    /// `shutdown_timeout`: how long a shutdown may take.
    pub shutdown_timeout: Duration,
    /// `telemetry.metrics`: the endpoint of the metrics, if enabled.
    pub metrics: Option<String>,
    /// `telemetry.health`: the endpoint of health checks, if enabled.
    pub health: Option<String>,
    /// `telemetry.health`: how long an exporter may have problems before the process counts as unavailable.
    pub health_thresholds: Thresholds,
    /// `telemetry.logs.level`: the log level.
    pub log_level: LogLevel,
}

/// The log level. Each level includes the levels before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Failures that stop something.
    Error,
    /// Problems that were handled.
    Warn,
    /// Normal events.
    #[default]
    Info,
    /// Details that explain events.
    Debug,
    /// Everything.
    Trace,
}

impl From<LogLevel> for tracing::Level {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => tracing::Level::ERROR,
            LogLevel::Warn => tracing::Level::WARN,
            LogLevel::Info => tracing::Level::INFO,
            LogLevel::Debug => tracing::Level::DEBUG,
            LogLevel::Trace => tracing::Level::TRACE,
        }
    }
}

/// The section as written. [`config`] checks unknown keys and the pipelines.
#[derive(Debug, Deserialize)]
#[serde(default)]
struct WrittenService {
    identity: IdentityConfig,
    limits: LimitsConfig,
    allowed_hosts: Vec<String>,
    shutdown_timeout: config::Duration,
    telemetry: TelemetryConfig,
    #[serde(rename = "pipelines")]
    _pipelines: Option<IgnoredAny>,
    #[serde(rename = "extensions")]
    _extensions: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LimitsConfig {
    memory: ByteSize,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TelemetryConfig {
    metrics: Metrics,
    health: Health,
    logs: Logs,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Metrics {
    level: MetricsLevel,
    address: String,
}

/// The Collector's levels. All of them except `none` serve all metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum MetricsLevel {
    None,
    Basic,
    Normal,
    Detailed,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Health {
    enabled: bool,
    address: String,
    failing_after: config::Duration,
    queue_full_after: config::Duration,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Logs {
    level: LogLevel,
}

impl Default for WrittenService {
    fn default() -> Self {
        Self {
            identity: IdentityConfig::default(),
            limits: LimitsConfig::default(),
            allowed_hosts: Vec::new(),
            // Kubernetes kills a container after 30 s (`terminationGracePeriodSeconds`).
            shutdown_timeout: config::Duration::from_secs(25),
            telemetry: TelemetryConfig::default(),
            _pipelines: None,
            _extensions: None,
        }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self { memory: ByteSize::from_mib(256) }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self { level: MetricsLevel::Normal, address: "127.0.0.1:8888".to_owned() }
    }
}

impl Default for Health {
    fn default() -> Self {
        let Thresholds { failing, queue_full } = Thresholds::default();
        let address = "127.0.0.1:13133".to_owned();
        Self { enabled: true, address, failing_after: failing.into(), queue_full_after: queue_full.into() }
    }
}

impl Default for ServiceSettings {
    fn default() -> Self {
        Self::understood(WrittenService::default())
    }
}

impl ServiceSettings {
    /// Reads the `service` section.
    ///
    /// # Errors
    ///
    /// All problems of the section, except for its pipelines.
    pub fn new(section: &Section) -> Result<Self, Problems> {
        let written: WrittenService = section.extract()?;
        let problems = check(&written, section);
        match Problems::new(problems) {
            Some(problems) => Err(problems),
            None => Ok(Self::understood(written)),
        }
    }

    fn understood(written: WrittenService) -> Self {
        let Metrics { level, address } = written.telemetry.metrics;
        let Health { enabled, address: health, failing_after, queue_full_after } = written.telemetry.health;
        Self {
            identity: written.identity.rules(),
            memory: written.limits.memory.get(),
            allowed_hosts: written.allowed_hosts,
            shutdown_timeout: written.shutdown_timeout.get(),
            metrics: (level != MetricsLevel::None).then_some(address),
            health: enabled.then_some(health),
            health_thresholds: Thresholds { failing: failing_after.get(), queue_full: queue_full_after.get() },
            log_level: written.telemetry.logs.level,
        }
    }
}

fn check(written: &WrittenService, section: &Section) -> Vec<Problem> {
    let mut problems = written.identity.problems(section);
    if written.limits.memory < SMALLEST_MEMORY {
        let message = format!("the memory limit is smaller than {SMALLEST_MEMORY}");
        let hint = format!("write at least `{SMALLEST_MEMORY}`");
        problems.push(section.problem("limits.memory", message, hint));
    }
    if written.shutdown_timeout.get() < Duration::from_secs(1) {
        let hint = "write at least `1s`: what is held is put out and sent within this time";
        problems.push(section.problem("shutdown_timeout", "the time for a shutdown is shorter than 1s", hint));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(yaml: &str) -> Result<ServiceSettings, Problems> {
        ServiceSettings::new(&Section::from_yaml(yaml).unwrap())
    }

    /// Guarantees: every key can be written, next to pipelines, which are checked elsewhere.
    #[test]
    fn written() {
        let yaml = "{pipelines: {profiles: {receivers: [otlp]}}, shutdown_timeout: 3s, limits: {memory: 1GiB}, telemetry: {metrics: {level: none}, \
                    health: {address: '0.0.0.0:1', failing_after: 5s}, logs: {level: debug}}}";
        let settings = settings(yaml).unwrap();
        let expected = ServiceSettings {
            identity: Rules::default(),
            memory: 1 << 30,
            allowed_hosts: Vec::new(),
            shutdown_timeout: Duration::from_secs(3),
            metrics: None,
            health: Some("0.0.0.0:1".to_owned()),
            health_thresholds: Thresholds { failing: Duration::from_secs(5), ..Thresholds::default() },
            log_level: LogLevel::Debug,
        };
        assert_eq!(settings, expected);
    }

    /// Guarantees: all broken rules are reported at once.
    #[test]
    fn broken_rules() {
        let problems = settings("{limits: {memory: 1MiB}, shutdown_timeout: 10ms}").unwrap_err();
        let paths: Vec<&str> = problems.as_slice().iter().map(|problem| problem.key_path.as_str()).collect();
        assert_eq!(paths, ["limits.memory", "shutdown_timeout"]);
        let problems = settings("{telemetry: {metrics: {readers: []}, logs: {level: loud}}}").unwrap_err();
        let messages: Vec<&str> = problems.as_slice().iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(messages, ["unknown key `readers`", "unknown value `loud`"]);
    }
}
