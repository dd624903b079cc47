//! Logs telemetry instead of sending it, to find out whether data arrives and what it contains.
//!
//! A batch produces at most one log line, however large it is. Names from outside cannot add line ends or terminal
//! control characters to the log. This crate uses the model and the log, but no wire format and no network.

mod config;
mod exporter;
mod summary;

pub use config::{Config, Verbosity};
pub use exporter::FACTORY;
