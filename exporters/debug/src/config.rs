//! The section as written, in the Collector's vocabulary (opentelemetry-collector `exporter/debugexporter/README.md`).

use serde::Deserialize;

/// The section of a `debug` exporter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How detailed the log lines are.
    pub verbosity: Verbosity,
}

/// How detailed a log line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verbosity {
    /// Quantities only.
    #[default]
    Basic,
    /// Also profiles and their services.
    Normal,
    /// Also the functions with the most observations.
    Detailed,
}
