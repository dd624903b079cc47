//! Telemetry to finished bytes and back: what exporters, `convert`, `sample` and `demo` have in common.
//!
//! * [`sentry`]: profiles become envelopes with a chunk each.
//!
//! Pure like `wire` below it: no I/O, no clock, no runtime.

pub mod sentry;
