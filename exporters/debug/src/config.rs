//! What may be written: the Collector's words (opentelemetry-collector `exporter/debugexporter/README.md`).

use serde::Deserialize;

/// The section of a `debug` exporter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How much is said. Nothing else can be decided, so there is nothing to check.
    pub verbosity: Verbosity,
}

/// How much is said about a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verbosity {
    /// How much is in it.
    #[default]
    Basic,
    /// Also which profiles, of which services.
    Normal,
    /// Also in which functions the observations were made.
    Detailed,
}
