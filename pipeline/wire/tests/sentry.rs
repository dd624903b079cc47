//! Sentry's profiles through OTLP and back.

mod arbitrary;
mod canonical;

mod round_trip;
