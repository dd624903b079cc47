//! Writes profiles and spans to disk: Sentry envelopes, one per file in a folder, or OTLP requests, appended to a file.
//! This crate handles files, names and rotation; `profbridge_codec` encodes the contents, and the engine provides the
//! queue and retries.
//!
//! Invariants:
//!
//! * A reader never sees a partial envelope: a file is written under a temporary name and then renamed.
//! * A frame is appended completely or not at all: if the disk becomes full, the partial frame is removed; a partial
//!   frame of a killed process is moved to a backup at the next start.
//! * Writing the same request twice leaves one copy: an envelope's name is derived from its content, and requests in
//!   other formats record that they were written.
//! * Only files whose names match this exporter's pattern are counted, replaced or removed, and only regular files are
//!   renamed.
//! * Callers wait for the disk no longer than the timeout, and shutdown does not wait for it at all.

mod calendar;
mod config;
mod envelopes;
mod exporter;
mod factory;
mod file_kind;
mod frames;
mod name;
mod prepare;
mod worker;

pub use config::{Config, Format, Rotation};
pub use factory::FACTORY;

#[cfg(test)]
mod tests;
