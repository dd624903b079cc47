//! The configuration section, with the keys of the Collector (opentelemetry-collector
//! `exporter/debugexporter/README.md`).

use serde::Deserialize;

/// The section of a `debug` exporter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The level of detail of the log lines.
    pub verbosity: Verbosity,
}

/// The level of detail of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verbosity {
    /// Only quantities.
    #[default]
    Basic,
    /// Quantities, profiles and their services.
    Normal,
    /// In addition the functions with the most observations.
    Detailed,
}
