//! OTLP profiles, held against prost as the independent reading of the same protocol.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests and benchmarks report by panicking and printing")]

#[path = "otlp/arbitrary.rs"]
mod arbitrary;
#[path = "otlp/oracle.rs"]
mod oracle;
#[path = "otlp/scramble.rs"]
mod scramble;

#[path = "otlp/attacks.rs"]
mod attacks;
#[path = "otlp/json/mod.rs"]
mod json;
#[path = "otlp/layouts.rs"]
mod layouts;
#[path = "otlp/mutations.rs"]
mod mutations;
#[path = "otlp/older.rs"]
mod older;
#[path = "otlp/older_attacks.rs"]
mod older_attacks;
#[path = "otlp/older_rules.rs"]
mod older_rules;
#[path = "otlp/refusals.rs"]
mod refusals;
#[path = "otlp/round_trip.rs"]
mod round_trip;
#[path = "otlp/split.rs"]
mod split;
