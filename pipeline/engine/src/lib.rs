//! Runs pipelines: component contracts, configuration, graph, delivery, limits, telemetry.
//!
//! The engine knows components by their contracts and descriptions ([`registry`]), not by their names. It knows no
//! protocol and no format: telemetry passes through it unread, and requests are bytes.
//!
//! Modules use those above them and to their left, never the others:
//!
//! ```text
//! peer_limits  via  clock  budget  health  balance  ledger  outcome   words and counts that need nothing else
//! config  service  telemetry                                         configuration, counters
//! component                                                          what processors and exporters are
//! delivery  intake                                                   the ends of a pipeline: exporters, receivers
//! http_out                                                           what exporters over HTTP share
//! receiver  body  http_fault  web_pages  http_server                 receivers, and what those over HTTP share
//! registry  plan  pipeline  run                                      descriptions; running
//! ```

pub mod balance;
pub mod body;
pub mod budget;
pub mod clock;
pub mod component;
pub mod config;
pub mod delivery;
pub mod health;
pub mod http_fault;
pub mod http_out;
pub mod http_server;
pub mod intake;
mod ledger;
pub mod outcome;
pub mod peer_limits;
mod pipeline;
pub mod plan;
pub mod receiver;
pub mod registry;
pub mod run;
pub mod service;
pub mod telemetry;
pub mod via;
pub mod web_pages;

#[cfg(test)]
extern crate self as profbridge_engine;
#[cfg(test)]
mod fakes;
#[cfg(test)]
#[path = "../../testkit/src/components/mod.rs"]
pub mod testing;
