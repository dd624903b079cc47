//! Runs pipelines: component contracts, configuration, graph, delivery, limits, telemetry. Knows no protocol.

pub mod balance;
pub mod body;
pub mod budget;
pub mod clock;
pub mod component;
pub mod config;
pub mod delivery;
pub mod health;
pub mod http_server;
pub mod intake;
pub mod peer_limits;
mod pipeline;
pub mod plan;
pub mod registry;
pub mod run;
pub mod service;
pub mod telemetry;
pub mod testing;

#[cfg(test)]
mod fakes;
