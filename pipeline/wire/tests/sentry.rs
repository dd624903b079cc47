//! Tests that Sentry's profiles are equal after conversion to OTLP and back.

mod arbitrary;
mod canonical;

mod round_trip;
