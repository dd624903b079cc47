//! Says in the log what would have been sent: for finding out whether anything arrives, and what.
//!
//! One log line per batch at most, however much is in it; names from outside never bring a line's end or a terminal's
//! control characters into the log. It knows the model and the log; no format, no network.

mod config;
mod exporter;
mod summary;

pub use config::{Config, Verbosity};
pub use exporter::FACTORY;
