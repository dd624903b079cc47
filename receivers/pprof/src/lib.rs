//! The receiver `pprof`: takes pprof profiles that programs send, and fetches them from programs that serve them.
//!
//! Programs send to it as to Pyroscope (`POST /ingest`), or the plain profile (`POST /api/pprof`). Programs that serve
//! profiles, as Go's with `net/http/pprof`, are asked for one at an interval. A pprof profile does not say whose it is,
//! so the request or the configuration does.
//!
//! Knows HTTP and the engine; what the bytes mean is `wire`'s.

mod call;
mod config;
mod fault;
mod ingest;
mod multipart;
mod receiver;
mod schedule;
mod scrape;
mod service;
mod standing;

pub use config::{Config, Settings};
pub use receiver::{FACTORY, Pprof};

#[cfg(test)]
mod tests;
