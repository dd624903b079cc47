//! Sentry: profiles become envelopes with a chunk each.

mod config;

pub use config::ChunkConfig;
