//! What earlier releases of opentelemetry-proto write, by prost: an oracle that shares nothing with profbridge's
//! readers.
//!
//! - [`messages`]: the messages of each release.
//! - [`transcode`]: requests of 1.10 as earlier releases write the same data.

pub mod messages;
pub mod transcode;
