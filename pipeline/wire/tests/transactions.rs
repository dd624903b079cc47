//! Converts OTLP spans into Sentry's transactions.

mod arbitrary;
mod bounds;
mod control;
mod describe;
mod fields;
mod support;
