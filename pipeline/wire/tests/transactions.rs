//! OTLP spans as transactions of Sentry's.

mod arbitrary;
mod bounds;
mod control;
mod describe;
mod fields;
mod support;
