//! Writes profiles and spans to disk: Sentry envelopes, one per file in a folder, or OTLP requests, one after the other
//! in a file. It knows files, their names and their rotation; what stands in them is made by `profbridge_codec`, and
//! queue and retries are the engine's.
//!
//! Laws that hold here:
//!
//! * A reader never sees half an envelope: a file is written under another name and then renamed.
//! * A frame is appended whole or not at all: what a full disk cut off is taken back, and what a killed process left
//!   behind is set aside at the next start.
//! * The same request written twice is there once: an envelope's name follows from its content, and a request
//!   remembers that it was written.
//! * Only files that this exporter's names fit are counted, replaced or removed, and only regular files are renamed.
//! * Nobody waits for the disk beyond a timeout, and the end of the process never does.

mod calendar;
mod config;
mod envelopes;
mod exporter;
mod factory;
mod frames;
mod kind;
mod name;
mod prepare;
mod worker;

pub use config::{Config, Format, Rotation};
pub use factory::FACTORY;

#[cfg(test)]
mod tests;
