//! Runs pipelines: component contracts, configuration, graph, delivery, limits, telemetry. Knows no protocol.

pub mod balance;
pub mod budget;
pub mod clock;
pub mod component;
pub mod config;
pub mod delivery;
pub mod health;
pub mod intake;
pub mod registry;
pub mod telemetry;
pub mod testing;
