//! Runs pipelines: component contracts, configuration, graph, delivery, limits, telemetry. Knows no protocol.

pub mod component;
pub mod config;
pub mod delivery;
pub mod intake;
pub mod registry;
pub mod telemetry;
