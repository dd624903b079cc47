//! The receiver `sentry`: accepts the envelopes of Sentry's SDKs like Sentry's own server.
//!
//! An application whose DSN names this receiver loses nothing: the exporter `sentry` forwards each envelope unchanged.
//! The receiver decodes profiles into views, which other exporters use. It refuses what Relay refuses, with Relay's
//! statuses, so that an SDK sees no difference. Spans that are sent to Sentry's OTLP endpoint become spans of the
//! pipelines.
//!
//! This crate knows HTTP and the engine; the formats are in the crate `wire`.

mod answer;
mod call;
mod clients;
mod config;
mod endpoint;
mod fault;
mod limits;
mod own_requests;
mod receiver;
mod service;
mod store;
mod traces;

pub use config::{Config, Settings};
pub use receiver::{FACTORY, SentryReceiver};

#[cfg(test)]
mod tests;
