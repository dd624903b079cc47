//! Converts bytes to the model and back: OTLP and pprof profiles, Sentry envelopes and chunks, folded stacks.
//!
//! * [`otlp`]: decodes requests into batches that point into them, detects their layout, and encodes batches.
//! * [`sentry`]: converts batches to chunks; reads and writes envelopes, DSNs and rate limits.
//! * [`spans`]: a common view of spans from OTLP or Sentry.
//! * [`pprof`]: converts pprof profiles to batches and back.
//! * [`perf_name`]: parses the names that runtimes give to compiled code.
//! * [`folded`]: writes and reads stacks as the text lines of flame graph tools.
//! * [`foreign`]: names unsupported formats.
//!
//! The crate knows the formats and their rules, but not where bytes come from or go to: no I/O, no clock, no runtime,
//! no configuration. No bytes cause a panic: each limit is checked before memory is allocated, and each index once.

pub mod folded;
pub mod foreign;
pub mod otlp;
pub mod perf_name;
pub mod pprof;
pub mod sentry;
pub mod spans;

mod json;
