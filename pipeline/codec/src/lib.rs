//! Telemetry to finished bytes and back: what exporters, `convert`, `sample` and `demo` have in common.
//!
//! * [`sentry`]: profiles become envelopes with a chunk each, and envelopes of others bodies.
//!
//! An encoder is kept from batch to batch, for its memory. What it makes are [`Message`]s, which own their bytes; everything
//! else that is to be said is in a [`Report`], and it is for the caller to count, show or log it.
//!
//! Pure like `wire` below it: no I/O, no clock, no runtime.

mod compressor;
mod message;
pub mod sentry;

pub use compressor::compress;
pub use message::{Encoded, Message, Report};
