//! Bytes to the model and back: OTLP and pprof profiles, Sentry envelopes and chunks, folded stacks.
//!
//! * [`otlp`]: requests become batches that point into them, and batches requests; layouts are told apart.
//! * [`sentry`]: batches become chunks, the conversion; envelopes, DSNs and rate limits are read and written.
//! * [`spans`]: one reading of a span, whether OTLP or Sentry wrote it.
//! * [`pprof`]: pprof profiles become batches, and batches pprof profiles.
//! * [`perf_name`]: what runtimes say in the names of code that they compiled.
//! * [`folded`]: stacks as the lines that flame graphs are made of, and back.
//! * [`foreign`]: what is not read, by its name.
//!
//! It knows the formats and their rules, and nothing of where bytes come from or go to: no I/O, no clock, no runtime,
//! no configuration. No bytes make it panic: each limit is checked before memory is taken for what it limits, each
//! index once.

pub mod folded;
pub mod foreign;
pub mod otlp;
pub mod perf_name;
pub mod pprof;
pub mod sentry;
pub mod spans;

mod json;
