//! OTLP spans, held against prost as the independent reading of the same protocol.

#![allow(clippy::unwrap_used, reason = "tests report by panicking")]

#[path = "traces/arbitrary.rs"]
mod arbitrary;
#[path = "traces/attacks.rs"]
mod attacks;
#[path = "traces/changes.rs"]
mod changes;
#[path = "traces/oracle.rs"]
mod oracle;
