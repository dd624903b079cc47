//! The receiver `pprof`: accepts pprof profiles that programs push, and scrapes programs that serve them.
//!
//! Programs push as to Pyroscope (`POST /ingest`), or the plain profile (`POST /api/pprof`). Programs that serve
//! profiles, such as Go's with `net/http/pprof`, are scraped at an interval. A pprof profile does not name its process,
//! so the request or the configuration does.
//!
//! This crate knows HTTP and the engine; the formats are in the crate `wire`.

mod call;
mod config;
mod fault;
mod ingest;
mod multipart;
mod receiver;
mod schedule;
mod scrape;
mod scrape_status;
mod service;

pub use config::{Config, Settings};
pub use receiver::{FACTORY, Pprof};

#[cfg(test)]
mod tests;
