//! Telemetry to finished bytes and back: what exporters, `convert`, `sample` and `demo` have in common.
//!
//! * [`mod@decode`]: bytes of whatever kind become telemetry, each refusal with its place.
//! * [`otlp`]: batches become requests, as the bytes that they came as wherever these may leave, split to a limit.
//! * [`pprof`]: batches become pprof profiles, gzipped.
//! * [`sentry`]: profiles become envelopes with a chunk each, spans envelopes with a transaction each, and envelopes of
//!   others bodies.
//!
//! An encoder is kept from batch to batch, for its memory. What it makes are [`Message`]s, which own their bytes;
//! everything else that is to be said is in a [`Report`], and it is for the caller to count, show or log it.
//!
//! Pure like `wire` below it: no I/O, no clock, no runtime.

mod compressor;
pub mod decode;
mod message;
pub mod otlp;
pub mod pprof;
pub mod sentry;

pub use compressor::{CompressionConfig, compress};
pub use message::{Encoded, Message, Report};
