//! The receiver `pprof`: accepts pprof profiles that programs push, and scrapes programs that serve them.
//!
//! Programs push either as to Pyroscope (`POST /ingest`), or the profile alone (`POST /api/pprof`). Programs that serve
//! profiles, such as Go's with `net/http/pprof`, are scraped at an interval. A pprof profile does not identify its
//! process, so the request or the configuration has to.
//!
//! This crate handles HTTP and the engine's interface; the formats are in the crate `wire`.

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
