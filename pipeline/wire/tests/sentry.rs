//! Sentry's profiles through OTLP and back.

#![allow(clippy::unwrap_used, reason = "tests report by panicking")]

#[path = "sentry/arbitrary.rs"]
mod arbitrary;
#[path = "sentry/canonical.rs"]
mod canonical;

#[path = "sentry/round_trip.rs"]
mod round_trip;
