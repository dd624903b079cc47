//! Converts telemetry to finished bytes and back: shared by exporters, `convert`, `sample` and `demo`.
//!
//! * [`mod@decode`]: decodes bytes of any supported format; each rejection names its place.
//! * [`otlp`]: encodes batches as requests, split to a limit. Received bytes are forwarded if possible.
//! * [`pprof`]: encodes batches as gzipped pprof profiles.
//! * [`sentry`]: encodes profiles as envelopes with one chunk each, spans as envelopes with one transaction each, and
//!   forwards received envelopes.
//!
//! An encoder is reused between batches to keep its memory. It returns [`Message`]s, which own their bytes, and a
//! [`EncodingReport`], which the caller counts, shows or logs.
//!
//! Pure like the crate `wire`: no I/O, no clock, no runtime.

mod compressor;
pub mod decode;
mod message;
pub mod otlp;
pub mod pprof;
pub mod sentry;

pub use compressor::{CompressionConfig, compress};
pub use message::{Encoded, EncodingReport, Message};
