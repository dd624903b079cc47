//! The receiver `sentry`: takes the envelopes of Sentry's SDKs, as Sentry's own server would.
//!
//! An application whose DSN names this receiver loses nothing: the exporter `sentry` sends each envelope on as it came.
//! Of its profiles the receiver makes views, which other exporters take. What is refused is what Relay refuses, with
//! Relay's statuses, so that an SDK sees the same as without profbridge in between.
//!
//! Knows HTTP and the engine; what the bytes mean is `wire`'s.

mod answer;
mod call;
mod clients;
mod config;
mod endpoint;
mod fault;
mod limits;
mod receiver;
mod service;
mod store;

pub use config::{Config, Settings};
pub use receiver::{FACTORY, Sentry};

#[cfg(test)]
mod tests;
